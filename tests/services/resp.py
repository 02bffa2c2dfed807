"""As much of a Redis client as tests need: RESP2, one connection, one call at a time."""
import socket
import ssl


class RespError(Exception):
    """What the server answered with "-"."""


class Resp:
    def __init__(self, port, *, user=None, password=None, tls=None, timeout=5.0):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        if tls:
            context = ssl.create_default_context(cafile=tls.ca)
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self.reader = self.socket.makefile("rb")
        if password is not None:
            self.call("AUTH", user or "default", password)

    def call(self, *words):
        """Text, a number, None or a list; an error raises RespError, a lost connection OSError."""
        parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
        return self._read()

    def _read(self):
        line = self.reader.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("the connection was closed")
        kind, text = line[:1], line[1:-2].decode()
        if kind == b"+":
            return text
        if kind == b"-":
            raise RespError(text)
        if kind == b":":
            return int(text)
        if kind == b"$":
            return None if int(text) < 0 else self.reader.read(int(text) + 2)[:-2].decode(errors="replace")
        if kind == b"*":
            return None if int(text) < 0 else [self._read() for _ in range(int(text))]
        raise RespError(f"not RESP2: {line[:80]!r}")

    def close(self):
        self.reader.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
