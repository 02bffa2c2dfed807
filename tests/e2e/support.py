"""A real server on loopback, with its own data folder, and what a test needs to talk to it."""
import atexit
import base64
import datetime
import hashlib
import hmac
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import tempfile
import time

# The development key: known to everybody, and refused in production (src/edge/jwk.cpp).
KEY = b"doorbuster development key, known to everybody"
KID = "development"

# One answer of each kind that any test has got, for the contract: (method, path, status, code) -> Answer.
SEEN = {}


CONTRACT = pathlib.Path(__file__).resolve().parents[2] / "api" / "openapi.yaml"


class Skip(Exception):
    """This machine cannot do it; the text says what it lacks."""


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(sub, /, aud="doorbuster", key=KEY, header=None, **changes) -> str:
    """A token of the development key. A claim that is changed to None is left out."""
    now = int(time.time())
    claims = {"iss": "doorbuster", "aud": aud, "sub": str(sub), "iat": now, "exp": now + 3600}
    claims.update(changes)
    claims = {k: v for k, v in claims.items() if v is not None}
    head = header or {"alg": "HS256", "typ": "JWT", "kid": KID}
    text = b64(json.dumps(head).encode()) + "." + b64(json.dumps(claims).encode())
    return text + "." + b64(hmac.new(key, text.encode(), hashlib.sha256).digest())


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(what, seconds=10.0, every=0.02):
    """The first true value of what(); fails when it does not come."""
    end = time.monotonic() + seconds
    while True:
        value = what()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {getattr(what, '__doc__', None) or what}")
        time.sleep(every)


def stays(what, seconds):
    """Fails as soon as what() is no longer true within the time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert what(), f"no longer true after {seconds - (end - time.monotonic()):.2f} s"
        time.sleep(0.05)


def rfc3339(at: float) -> str:
    """An instant in seconds since 1970."""
    whole = datetime.datetime.fromtimestamp(at, datetime.timezone.utc)
    return whole.isoformat().replace("+00:00", "Z")


def iso(seconds_from_now: float) -> str:
    return rfc3339(time.time() + seconds_from_now)


class Answer:
    def __init__(self, status, headers, text):
        self.status, self.headers, self.text = status, headers, text

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def error(self):
        try:
            return self.json.get("error")
        except (ValueError, AttributeError):
            return None

    @property
    def field(self):
        return self.json.get("field")

    def __repr__(self):
        return f"{self.status} {self.text[:300]}"


class Raw:
    """What came back for bytes that were sent as they are."""

    def __init__(self, data: bytes, closed: bool):
        self.data, self.closed = data, closed

    @property
    def statuses(self):
        """The status of each answer; the bodies are skipped by their lengths."""
        found, rest = [], self.data
        while rest.startswith(b"HTTP/1.1 "):
            head, _, rest = rest.partition(b"\r\n\r\n")
            found.append(int(head[9:12]))
            for line in head.split(b"\r\n")[1:]:
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    rest = rest[int(value):]
        return found

    def __repr__(self):
        return f"{self.statuses} {'closed' if self.closed else 'open'} {self.data[:300]!r}"


_running = []   # servers whose process must not outlive this program


def _end_all():
    for server in _running:
        if server.process and server.process.poll() is None:
            server.process.kill()


atexit.register(_end_all)


class Server:
    """One server, by its own process. `ready=False` makes it without starting it."""

    def __init__(self, binary, folder=None, args=(), ready=True, log=None):
        self.binary = str(pathlib.Path(binary).resolve())
        self.own_folder = folder is None
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="doorbuster-e2e-"))
        self.args = list(args)
        self.port = free_port()
        self.log = pathlib.Path(log or self.folder / "server.log")
        self.process = None
        _running.append(self)
        if ready:
            self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def db(self):
        return self.folder / "ledger.db"

    @property
    def data_args(self):
        return ["--ledger", f"sqlite:{self.db}", "--engine.order_id_key_file", str(self.folder / "order-id.key")]

    def command(self, *more):
        """How it is started; a flag of `more` takes the place of the one that it has."""
        flags = [*self.data_args, "--http.port", str(self.port), *self.args]
        pairs = dict(zip(flags[::2], flags[1::2])) | dict(zip(more[::2], more[1::2]))
        return [self.binary, "serve", *(word for pair in pairs.items() for word in pair)]

    def start(self, seconds=60):
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(self.command(), stdout=out, stderr=out, cwd=self.log.parent)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log_end()}")
            try:
                if self.call("GET", "/health/ready").status == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.02)
        raise AssertionError(f"the server did not become ready:\n{self.log_end()}")

    def start_fails(self, *more):
        """Starts where it must end by itself; its exit code and what it said."""
        done = subprocess.run(self.command(*more), capture_output=True, text=True, timeout=30,
                              cwd=self.log.parent, check=False)
        return done.returncode, done.stdout + done.stderr

    def log_end(self, characters=3000):
        return self.log.read_text(errors="replace")[-characters:]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, seconds=60) -> int:
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"SIGTERM did not end the server within {seconds} s") from None
        return self.process.returncode if self.process else 0

    def close(self, keep=False):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
        if self in _running:
            _running.remove(self)
        if self.own_folder and not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    # ---- requests

    def call(self, method, path, body=None, bearer=None, headers=None, timeout=30):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            sent = dict(headers or {})
            if bearer:
                sent["Authorization"] = "Bearer " + bearer
            if body is not None:
                sent.setdefault("Content-Type", "application/json")
                if not isinstance(body, (str, bytes)):
                    body = json.dumps(body)
            connection.request(method, path, body=body, headers=sent)
            response = connection.getresponse()
            answer = Answer(response.status, dict(response.getheaders()), response.read().decode())
            SEEN[(method, path, answer.status, answer.error)] = answer
            return answer
        finally:
            connection.close()

    def admin(self, method, path, body=None, **more):
        return self.call(method, path, body, bearer=token("tester", aud="doorbuster-admin"), **more)

    def member(self, member, method, path, body=None, **more):
        return self.call(method, path, body, bearer=token(member), **more)

    def buy(self, member, item, key=None, **more):
        return self.member(member, "POST", f"/api/flash-sales/items/{item}/purchase",
                           headers={"Idempotency-Key": key} if key else None, **more)

    def order(self, member, order_id):
        return self.member(member, "GET", f"/api/flash-sales/orders/{order_id}")

    def cancel(self, member, order_id):
        return self.member(member, "DELETE", f"/api/flash-sales/orders/{order_id}")

    def pay(self, member, order_id, card="4242424242424242", amount=9900, key=None, timeout=30):
        return self.member(member, "POST", f"/api/flash-sales/orders/{order_id}/payment",
                           {"cardNumber": card, "amount": amount, "currency": "KRW"},
                           headers={"Idempotency-Key": key} if key else None, timeout=timeout)

    def sale(self, units=(10,), opens=-1.0, closes=3600.0, open_it=True, **more):
        """A sale with one item for each number of units; (sale id, [item ids])."""
        made = self.admin("POST", "/api/admin/flash-sales",
                          {"name": "test", "opensAt": iso(opens), "closesAt": iso(closes), **more})
        assert made.status == 201, made
        sale = made.json["id"]
        items = []
        for quantity in units:
            item = self.admin("POST", f"/api/admin/flash-sales/{sale}/items",
                              {"name": "thing", "listPrice": 19900, "salePrice": 9900, "quantity": quantity})
            assert item.status == 201, item
            items.append(item.json["id"])
        if open_it:
            opened = self.admin("POST", f"/api/admin/flash-sales/{sale}/open")
            assert opened.status == 200, opened
        return sale, items

    def grants(self, item):
        """An item's orders as an administrator sees them, by member; the newest of each."""
        listed = self.admin("GET", f"/api/admin/flash-sales/items/{item}/orders?limit=1000")
        assert listed.status == 200, listed
        return {order["memberId"]: order for order in listed.json["orders"]}

    def order_id_without_row(self, member, item):
        """An id as the server makes them (src/engine/order_id.cpp), of a grant that was never recorded."""
        key = (self.folder / "order-id.key").read_bytes()
        plain = os.urandom(16) + b"i" + struct.pack(">QI", item, 1)
        mac = hmac.new(key, plain + struct.pack(">Q", member), hashlib.sha256).digest()[:12]
        return b64(plain + mac)

    # ---- the rows

    def connect(self):
        return sqlite3.connect(f"file:{self.db}?mode=ro", uri=True, timeout=10)

    def sql(self, text, *params):
        connection = self.connect()
        try:
            return connection.execute(text, params).fetchall()
        finally:
            connection.close()

    def holding(self, item):
        return self.sql("SELECT count(*) FROM flash_sale_order WHERE allotment = ? AND state IN ('PENDING','PAID')",
                        f"i{item}")[0][0]

    def verify(self):
        done = subprocess.run([self.binary, "verify", *self.data_args], capture_output=True, text=True,
                              cwd=self.log.parent, check=False)
        assert done.returncode == 0, f"verify ended with {done.returncode}\n{done.stdout}{done.stderr}"

    def no_money_lost(self):
        """Every charge that was not given back belongs to a PAID order, and each order has one at most."""
        # What the job has not asked the gateway about yet is undecided, not lost.
        wait_until(lambda: self.sql("SELECT count(*) FROM payment_attempt WHERE state IN ('OPEN', 'UNKNOWN')") == [(0,)],
                   15)
        kept = self.sql(
            "SELECT hex(c.attempt_id), o.state FROM simulated_charge c LEFT JOIN payment_attempt p "
            "ON p.id = c.attempt_id LEFT JOIN flash_sale_order o ON o.id = p.order_id LEFT JOIN refund r "
            "ON r.attempt_id = c.attempt_id WHERE c.state = 'CHARGED' AND (o.state IS NULL OR o.state <> 'PAID') "
            "AND r.attempt_id IS NULL")
        assert kept == [], f"charged without a PAID order: {kept}"
        twice = self.sql("SELECT hex(p.order_id), count(*) FROM simulated_charge c JOIN payment_attempt p "
                         "ON p.id = c.attempt_id WHERE c.state = 'CHARGED' GROUP BY p.order_id HAVING count(*) > 1")
        assert twice == [], f"charged twice: {twice}"
        free = self.sql("SELECT hex(o.id) FROM flash_sale_order o WHERE o.state = 'PAID' AND NOT EXISTS (SELECT 1 FROM "
                        "payment_attempt p JOIN simulated_charge c ON c.attempt_id = p.id WHERE p.order_id = o.id "
                        "AND c.amount = o.amount AND c.state IN ('CHARGED', 'REFUNDED'))")
        assert free == [], f"PAID without a charge: {free}"

    # ---- bytes

    def raw(self, *pieces, timeout=10.0, half_close=False) -> Raw:
        """Sends bytes as they are, each piece in a packet of its own; what comes back until the server closes,
        or, where it keeps the connection open, until it has been silent for `timeout`."""
        got, closed = b"", False
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as s:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                for piece in pieces:
                    s.sendall(piece)
                if half_close:
                    s.shutdown(socket.SHUT_WR)
                while True:
                    more = s.recv(65536)
                    if not more:
                        closed = True
                        break
                    got += more
            except TimeoutError:
                pass
            except (ConnectionResetError, BrokenPipeError):
                closed = True
        return Raw(got, closed)

    def still_serves(self):
        answer = self.call("GET", "/health/live", timeout=5)
        assert answer.status == 200, answer


def rush(server, *args):
    """Starts the load tool; the process."""
    return subprocess.Popen([server.binary, "rush", "--url", server.url, *map(str, args)], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, cwd=server.log.parent)
