"""HAProxy in front of several nodes of the product."""
import csv
import http.client
import resource
import signal
import socket

from .process import Process, ServiceError, find, wait_until


class HAProxy(Process):
    """Shares requests among `backends` (ports) whose `check` answers 200; a node that fails is left out within a
    second. The backends must be there first, or their first requests would be answered 503: it waits for them."""
    name = "haproxy"
    port_names = ("port", "admin_port")
    stop_signal = signal.SIGTERM   # at once; SIGUSR1 would wait for open connections

    def __init__(self, backends, folder=None, *, check="/health/ready", backend_seconds=30, settings="", **more):
        self.backends = list(backends)
        self.check = check
        self.backend_seconds = backend_seconds
        self.settings = settings
        super().__init__(folder, **more)

    def configure(self):
        self.program = find(self.program or "haproxy", "haproxy")
        for port in self.backends:
            if not wait_until(lambda port=port: self._status(port) == 200, self.backend_seconds):
                raise ServiceError(f"haproxy: the backend on port {port} does not answer 200 to {self.check}")
        servers = "\n".join(f"  server node-{port} 127.0.0.1:{port} check inter 300ms fall 2 rise 1 on-marked-down "
                            "shutdown-sessions" for port in self.backends)
        # Each connection needs a file on both sides, and it refuses to start where it may not open so many.
        connections = min(20000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 2 - 200)
        # A request that was sent may have been carried out, so it is repeated on another node only
        # when no connection came about.
        (self.folder / "haproxy.cfg").write_text(f"""\
global
  stats socket ipv4@127.0.0.1:{self.admin_port} level admin
  maxconn {connections}
defaults
  mode http
  option http-keep-alive
  option redispatch
  retries 2
  retry-on conn-failure
  timeout connect 1s
  timeout client 75s
  timeout server 75s
  timeout check 1s
frontend all
  bind 127.0.0.1:{self.port}
  default_backend nodes
backend nodes
  balance leastconn
  option httpchk GET {self.check}
  http-check expect status 200
{self.settings}
{servers}
""")

    def _status(self, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", self.check)
            return connection.getresponse().status
        except http.client.HTTPException:
            return 0
        finally:
            connection.close()

    def command(self):
        return [self.program, "-db", "-f", self.folder / "haproxy.cfg"]

    def ask(self, text):
        """One command of its runtime API."""
        with socket.create_connection(("127.0.0.1", self.admin_port), timeout=5) as s:
            s.sendall(text.encode() + b"\n")
            answer = b""
            while more := s.recv(65536):
                answer += more
        return answer.decode()

    def states(self):
        """{port: "UP" or "DOWN"} as its health checks see them."""
        rows = csv.DictReader(self.ask("show stat").lstrip("# ").splitlines())
        return {int(row["svname"].removeprefix("node-")): row["status"].split()[0] for row in rows
                if row["svname"].startswith("node-")}

    def answers(self):
        return len(self.states()) == len(self.backends)
