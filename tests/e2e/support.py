"""A real server on loopback, with its own data folder, and what a test needs to talk to it."""
import base64
import datetime
import hashlib
import hmac
import http.client
import json
import pathlib
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time

# The development key: known to everybody, and refused in production (src/edge/jwk.cpp).
KEY = b"doorbuster development key, known to everybody"
KID = "development"


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(sub, aud="doorbuster", key=KEY, header=None, **changes) -> str:
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


def iso(seconds_from_now: float) -> str:
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds_from_now)
    return at.isoformat().replace("+00:00", "Z")


class Answer:
    def __init__(self, status, headers, text):
        self.status, self.headers, self.text = status, headers, text

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def error(self):
        return self.json.get("error") if self.text else None

    def __repr__(self):
        return f"{self.status} {self.text[:300]}"


class Server:
    def __init__(self, binary, folder=None, args=(), ready=True, port=None):
        self.binary = str(pathlib.Path(binary).resolve())
        self.own_folder = folder is None
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="doorbuster-e2e-"))
        self.args = list(args)
        self.port = port or free_port()
        self.log = self.folder / "server.log"
        self.process = None
        if ready:
            self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def db(self):
        return self.folder / "ledger.db"

    def command(self):
        return [self.binary, "serve", "--ledger", f"sqlite:{self.db}", "--engine.order_id_key_file",
                str(self.folder / "order-id.key"), "--http.port", str(self.port), *self.args]

    def start(self, seconds=60):
        out = open(self.log, "ab")
        self.process = subprocess.Popen(self.command(), stdout=out, stderr=out, cwd=self.folder)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log.read_text()[-3000:]}")
            try:
                if self.call("GET", "/health/ready").status == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.02)
        raise AssertionError("the server did not become ready")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, seconds=60) -> int:
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(seconds)
        return self.process.returncode if self.process else 0

    def close(self, keep=False):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
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
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
        finally:
            connection.close()

    def admin(self, method, path, body=None, **more):
        return self.call(method, path, body, bearer=token("tester", aud="doorbuster-admin"), **more)

    def member(self, member, method, path, body=None, **more):
        return self.call(method, path, body, bearer=token(member), **more)

    def buy(self, member, item, key=None):
        return self.member(member, "POST", f"/api/flash-sales/items/{item}/purchase",
                           headers={"Idempotency-Key": key} if key else None)

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

    def sql(self, text, *params):
        with sqlite3.connect(f"file:{self.db}?mode=ro", uri=True, timeout=10) as connection:
            return connection.execute(text, params).fetchall()

    def holding(self, item):
        return self.sql("SELECT count(*) FROM flash_sale_order WHERE allotment = ? AND state IN ('PENDING','PAID')",
                        f"i{item}")[0][0]

    def verify(self):
        done = subprocess.run([self.binary, "verify", "--ledger", f"sqlite:{self.db}"], capture_output=True,
                              text=True, cwd=self.folder)
        assert done.returncode == 0, done.stdout + done.stderr

    def no_money_lost(self):
        """Every charge that was not given back belongs to a PAID order."""
        kept = self.sql(
            "SELECT hex(c.attempt_id), o.state FROM simulated_charge c LEFT JOIN payment_attempt p ON p.id = c.attempt_id "
            "LEFT JOIN flash_sale_order o ON o.id = p.order_id WHERE c.state = 'CHARGED' "
            "AND (o.state IS NULL OR o.state <> 'PAID')")
        assert kept == [], kept
        twice = self.sql("SELECT p.order_id, count(*) FROM simulated_charge c JOIN payment_attempt p "
                         "ON p.id = c.attempt_id WHERE c.state = 'CHARGED' GROUP BY p.order_id HAVING count(*) > 1")
        assert twice == [], twice

    def raw(self, data: bytes, timeout=10.0, pieces=None, half_close=False) -> bytes:
        """Sends bytes as they are; everything that comes back until the server closes or falls silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as s:
            for piece in pieces or [data]:
                s.sendall(piece)
            if half_close:
                s.shutdown(socket.SHUT_WR)
            got = b""
            s.settimeout(timeout)
            try:
                while True:
                    more = s.recv(65536)
                    if not more:
                        break
                    got += more
            except (TimeoutError, ConnectionResetError):
                pass
            return got


def rush(server, *args, timeout=600):
    """Starts the load tool; the process."""
    return subprocess.Popen([server.binary, "rush", "--url", server.url, *map(str, args)], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, cwd=server.folder)


