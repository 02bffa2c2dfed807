"""A certificate authority of one's own, and a certificate for 127.0.0.1 and localhost."""
import pathlib
from typing import NamedTuple

from .process import find, run


class Tls(NamedTuple):
    ca: pathlib.Path     # what clients trust
    cert: pathlib.Path   # the server's
    key: pathlib.Path    # its private key, PKCS #8


def make_tls(folder) -> Tls:
    """Makes them in a folder, or finds those that it made there before. Good for a year."""
    folder = pathlib.Path(folder).resolve()
    made = Tls(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
    if made.cert.exists():
        return made
    openssl = find("openssl", "openssl")
    folder.mkdir(parents=True, exist_ok=True)
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "365"]
    ca_key, request = folder / "ca-key.pem", folder / "request.pem"
    run([openssl, "req", "-x509", *curve, "-subj", "/CN=doorbuster test CA", "-keyout", ca_key, "-out", made.ca])
    run([openssl, "req", *curve[:-2], "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
         "-keyout", made.key, "-out", request])
    run([openssl, "x509", "-req", "-in", request, "-CA", made.ca, "-CAkey", ca_key, "-copy_extensions", "copy",
         "-days", "365", "-out", made.cert])
    # Nobody needs them again, and whoever has the first could sign anything.
    ca_key.unlink()
    request.unlink()
    return made
