"""Programs that Debian does not have: fetched once by their ordinary clients into build/services, and kept there."""
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from .process import Missing, ServiceError, find, run

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build" / "services"
POM = pathlib.Path(__file__).with_name("kafka") / "pom.xml"
TOXIPROXY = "2.12.0"  # by number: what calls itself the latest is 2.5.0


def _once(name, make):
    """build/services/NAME, made by make(folder) if it is not there. Two tests at once make it once."""
    there = BUILD / name
    if there.exists():
        return there
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if there.exists():
            return there
        print(f"services: fetching {name}, once", file=sys.stderr)
        part = pathlib.Path(tempfile.mkdtemp(prefix=".part-", dir=BUILD))
        try:
            make(part)
            part.chmod(0o755)
            # Only what is complete gets the name that is looked for.
            part.rename(there)
        except subprocess.TimeoutExpired:
            raise ServiceError(f"{name} could not be fetched in time") from None
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return there


def kafka_jars():
    version = re.search(r"<artifactId>kafka_2.13</artifactId><version>([0-9.]+)<", POM.read_text())[1]
    return _once(f"kafka-{version}", lambda folder: run(
        [find("mvn", "maven"), "-q", "-B", "-f", POM, "dependency:copy-dependencies", "-DincludeScope=runtime",
         f"-DoutputDirectory={folder}"], timeout=600))


def toxiproxy():
    def make(folder):
        go = find("go", "golang-go (1.23 or newer; Debian 12 has it in backports)", "/usr/local/go/bin")
        run([go, "install", f"github.com/Shopify/toxiproxy/v2/cmd/server@v{TOXIPROXY}"], timeout=600,
            env=os.environ | {"GOBIN": str(folder), "GOFLAGS": "-mod=mod"})
        if not (folder / "server").exists():
            raise Missing("go made no program of Toxiproxy")
    return _once(f"toxiproxy-{TOXIPROXY}", make) / "server"
