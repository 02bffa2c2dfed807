"""Toxiproxy: stands between a client and a server, and is slow, silent or gone when a test says so."""
import http.client
import json

from .process import Port, Process, ServiceError
from .programs import toxiproxy


class Proxy:
    """One of its proxies. Connect to `port`; what is done to it stays until heal()."""

    def __init__(self, owner, name, port):
        self.owner = owner
        self.name = name
        self.port = port
        self._toxics = 0

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def upstream(self, port):
        """Sends new connections to another port."""
        self.owner.ask("POST", f"/proxies/{self.name}", {"upstream": f"127.0.0.1:{port}"})

    def cut(self):
        """Closes every connection, and refuses new ones."""
        self.owner.ask("POST", f"/proxies/{self.name}", {"enabled": False})

    def latency(self, ms, jitter_ms=0, answers=True):
        """Delays answers, or what clients send."""
        self.toxic("latency", answers, latency=ms, jitter=jitter_ms)

    def reset(self, after_ms=0, answers=True):
        """Resets connections (RST) when the next bytes pass."""
        self.toxic("reset_peer", answers, timeout=after_ms)

    def silence(self, answers=True):
        """Connections stay open, and nothing comes through: what a timeout is for."""
        self.toxic("timeout", answers, timeout=0)

    def limit(self, size, answers=True):
        """Closes a connection after so many bytes: an answer that is cut in the middle."""
        self.toxic("limit_data", answers, bytes=size)

    def toxic(self, kind, answers=True, toxicity=1.0, **attributes):
        """Any other of Toxiproxy's own, for a share of the connections."""
        self._toxics += 1
        self.owner.ask("POST", f"/proxies/{self.name}/toxics", {
            "name": f"{kind}-{self._toxics}", "type": kind, "stream": "downstream" if answers else "upstream",
            "toxicity": toxicity, "attributes": attributes})

    def heal(self):
        for toxic in self.owner.ask("GET", f"/proxies/{self.name}/toxics"):
            self.owner.ask("DELETE", f"/proxies/{self.name}/toxics/{toxic['name']}")
        self.owner.ask("POST", f"/proxies/{self.name}", {"enabled": True})

    def remove(self):
        self.owner.ask("DELETE", f"/proxies/{self.name}")


class ToxiproxyApi:
    """A Toxiproxy that is at work already, whoever has started it."""

    def __init__(self, port):
        self.port = port
        self._ports = []

    def proxy(self, name, upstream=None) -> Proxy:
        """A proxy in front of a server (anything with a `port`) or a port; without one it waits for upstream()."""
        port = getattr(upstream, "port", upstream) or 9   # "discard": nobody listens there
        for _ in range(10):
            own = Port()
            try:
                self.ask("POST", "/proxies", {"name": name, "listen": f"127.0.0.1:{own.number}",
                                              "upstream": f"127.0.0.1:{port}", "enabled": True})
            except ServiceError as error:
                own.give_back()
                if "address already in use" not in str(error):
                    raise
                continue
            self._ports.append(own)
            return Proxy(self, name, own.number)
        raise ServiceError("toxiproxy: no free port in 10 tries")

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None,
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
        except http.client.HTTPException as error:
            raise ConnectionError(f"toxiproxy: {error}") from None
        finally:
            connection.close()
        if response.status >= 400:
            raise ServiceError(f"toxiproxy: {method} {path}: {response.status} {text.strip()}")
        return json.loads(text) if text.strip() else None


class Toxiproxy(Process, ToxiproxyApi):
    """One process for any number of proxies. They are gone after a restart, as its memory is."""
    name = "toxiproxy"

    def configure(self):
        self.program = self.program or toxiproxy()
        self._ports = []

    def command(self):
        return [self.program, "-host", "127.0.0.1", "-port", self.port]

    def answers(self):
        return "version" in self.ask("GET", "/version")

    def close(self, keep=False):
        super().close(keep)
        for port in getattr(self, "_ports", []):
            port.give_back()
