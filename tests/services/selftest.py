#!/usr/bin/env python3
"""Tests of the scripts that start servers, with real servers. The last line is "N passed, N failed"."""
import argparse
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

# pylint: disable=wrong-import-position
from services import (HAProxy, Kafka, KafkaError, KafkaWire, Missing, Postgres, Redis, RedisCluster, RedisSentinel,
                      Resp, RespError, ServiceError, Toxiproxy, Valkey, ValkeyCluster, ValkeySentinel, make_tls,
                      process, scratch, stop_all, wait_until)
from services.pids import Pid

TESTS = []


def test(function):
    TESTS.append(function)
    return function


def raises(kind, what, *words):
    """what() must raise `kind`, and its text must have all of these words; the text."""
    try:
        what()
    except kind as error:
        assert all(word in str(error) for word in words), f"expected {words} in: {error}"
        return str(error)
    raise AssertionError(f"expected {kind.__name__}, and nothing was raised")


def took(what):
    begun = time.monotonic()
    what()
    return time.monotonic() - begun


def kcat(kafka, *words, text=None, address=None, **changes):
    settings = kafka.client_settings() | changes
    options = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    done = subprocess.run(["kcat", "-b", address or kafka.address, *options, *words], input=text, capture_output=True,
                          text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def produce(kafka, text, **more):
    code, _, said = kcat(kafka, "-P", "-t", "t", "-p", "0", "-X", "acks=all", text=text, **more)
    assert code == 0, said


def consume(kafka, **more):
    code, text, said = kcat(kafka, "-C", "-q", "-t", "t", "-p", "0", "-o", "beginning", "-e", **more)
    assert code == 0, said
    return text.split()


# ---------------------------------------------------------------- starting

@test
def a_wrong_program_is_a_clear_error():
    raises(Missing, lambda: Redis(program="/no/such/server"), "/no/such/server", "redis-tools")
    raises(ServiceError, lambda: Redis(program="/bin/false"), "redis", "/bin/false ended with 1")
    raises(ServiceError, lambda: Redis(settings={"no-such-setting": "1"}), "ended with", "Bad directive")
    raises(ServiceError, lambda: Postgres(settings={"no_such_setting": "1"}), "unrecognized configuration parameter")

    class Hasty(Redis):
        start_seconds = 0.5
    script = scratch() / "silent"
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(0o755)
    raises(ServiceError, lambda: Hasty(program=script), "did not answer in 0.5 s")
    process.remove_folder(script.parent)
    assert not process._running, "a server that failed is still known"


@contextlib.contextmanager
def pong():
    """Somebody who would pass for Redis."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = s.accept()
                    connection.sendall(b"+PONG\r\n")
                    connection.close()
        threading.Thread(target=serve, daemon=True).start()
        yield s.getsockname()[1]


@test
def a_wish_for_a_taken_port_leads_to_another_one():
    with pong() as taken:
        for kind in (Redis, Valkey, Toxiproxy, Postgres):
            with kind(port=taken) as server:
                assert server.port != taken and server.alive()


@test
def a_port_that_is_taken_at_the_last_moment_leads_to_another_one():
    def raced(kind):
        class Raced(kind):
            thief = None

            def configure(self):
                super().configure()
                if self.thief is None:
                    self.thief = socket.create_server(("127.0.0.1", self.port))
                    self.stolen = self.port
        return Raced

    for kind in (Redis, Valkey, Toxiproxy, Postgres, Kafka):
        with raced(kind)() as server:
            assert server.port != server.stolen and server.alive(), kind
            server.thief.close()


@test
def a_restart_whose_port_was_taken_says_so():
    with Redis() as redis:
        redis.stop()
        with socket.create_server(("127.0.0.1", redis.port)):
            raises(ServiceError, redis.restart, "taken its port")
        redis.restart()
        assert redis.call("PING") == "PONG"


@test
def a_zombie_is_not_alive():
    child = subprocess.Popen(["sleep", "60"])
    pid = Pid.of(child.pid)
    assert pid.alive()
    os.kill(child.pid, signal.SIGKILL)
    assert wait_until(lambda: not pid.alive(), 5)
    os.kill(child.pid, 0)  # which a zombie answers
    child.wait()
    assert not Pid(os.getpid(), 1).alive(), "the same id with another start is another process"


# ---------------------------------------------------------------- PostgreSQL

@test
def postgres_keeps_a_row_over_kill_9_and_its_port():
    with Postgres() as db:
        port = db.port
        assert db.psql("SHOW fsync") == "on"
        db.psql("CREATE TABLE t (a int); INSERT INTO t VALUES (7)")
        db.kill()
        assert not db.alive()
        raises(ServiceError, lambda: db.psql("SELECT 1"), "refused")
        db.restart()
        assert (db.psql("SELECT a FROM t"), db.port) == ("7", port)
        db.restart()
        assert db.psql("SELECT a FROM t") == "7"


@test
def postgres_pauses_with_all_its_connections():
    with Postgres() as db:
        held = subprocess.Popen(["psql", "-X", "-q", "-A", "-t", db.url()], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)
        print("SELECT 1;", file=held.stdin, flush=True)
        assert held.stdout.readline() == "1\n"
        db.pause()
        print("SELECT 2;", file=held.stdin, flush=True)
        assert db.alive()
        raises(ServiceError, lambda: db.psql("SELECT 1", timeout=1), "no answer in 1 s")
        assert not select.select([held.stdout], [], [], 0)[0], "a connection from before is asleep as well"
        db.resume()
        assert held.communicate()[0] == "2\n" and db.psql("SELECT 1") == "1"


@test
def postgres_roles_are_no_superusers_and_need_the_password():
    with Postgres(fsync=False, settings={"max_connections": 17}) as db:
        assert db.psql("SHOW fsync") == "off"
        assert db.psql("SHOW max_connections") == "17"
        assert db.psql("SELECT current_user, current_setting('is_superuser')") == "doorbuster|off"
        right, db.password = db.password, "wrong"
        raises(ServiceError, lambda: db.psql("SELECT 1"), "password authentication failed")
        db.password = right


@test
def postgres_with_tls_takes_nothing_else():
    tls = make_tls(scratch() / "tls")
    with Postgres(tls=tls) as db:
        assert db.psql("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == "t"
        done = subprocess.run(["psql", "-X", "-c", "SELECT 1", db.url().split("?")[0] + "?sslmode=disable"],
                              capture_output=True, text=True, check=False)
        assert done.returncode != 0 and "no encryption" in done.stderr, done.stderr


# ---------------------------------------------------------------- Redis and Valkey

@test
def a_store_without_persistence_loses_its_keys_and_gets_another_run_id():
    for kind in (Redis, Valkey):
        with kind() as store:
            store.call("SET", "a", 1)
            first = store.run_id()
            store.kill()
            raises(OSError, store.run_id)
            store.restart()
            assert store.call("GET", "a") is None and store.run_id() != first
            second = store.run_id()
            store.call("SET", "a", 1)
            store.restart()
            assert store.call("GET", "a") is None and store.run_id() not in (first, second)


@test
def a_store_with_persistence_keeps_what_it_answered():
    for kind in (Redis, Valkey):
        with kind(persistence=True) as store:
            store.call("SET", "a", 1)
            store.kill()
            store.restart()
            assert store.call("GET", "a") == "1"


@test
def a_paused_store_keeps_its_connections_and_is_silent():
    for kind in (Redis, Valkey):
        with kind() as store, store.connect(timeout=0.3) as client:
            store.pause()
            assert store.alive()
            raises(TimeoutError, lambda: client.call("PING"))
            store.resume()
            assert store.call("PING") == "PONG"


@test
def a_store_asks_for_passwords_and_its_users_have_their_rights_only():
    for kind in (Redis, Valkey):
        with kind(password="secret", users={"app": "on >other ~app:* +@all -@dangerous"}) as store:
            with Resp(store.port) as stranger:
                raises(RespError, lambda: stranger.call("PING"), "NOAUTH")
            assert store.call("PING") == "PONG"
            with store.connect(user="app", password="other") as app:
                assert app.call("SET", "app:1", 1) == "OK"
                raises(RespError, lambda: app.call("SET", "x", 1), "NOPERM")
                raises(RespError, lambda: app.call("FLUSHALL"), "NOPERM")


@test
def a_store_with_tls_takes_nothing_else():
    tls = make_tls(scratch() / "tls")
    for kind in (Redis, Valkey):
        with kind(tls=tls) as store:
            assert store.call("PING") == "PONG"
            raises(OSError, lambda: Resp(store.port, timeout=2).call("PING"))


@test
def sentinels_promote_the_replica_and_take_the_old_primary_back():
    for kind, more in ((RedisSentinel, {}), (ValkeySentinel, {"password": "secret", "sentinel_password": "theirs",
                                                              "tls": make_tls(scratch() / "tls")})):
        with kind(**more) as service:
            old = service.primary()
            old.call("SET", "a", 1)
            assert old.call("WAIT", 1, 5000) == 1
            old.kill()
            new = service.wait_failover(old)
            assert new is not old and new.call("GET", "a") == "1" and new.call("SET", "b", 2) == "OK"
            old.restart()
            assert wait_until(lambda: old.info("replication")["role"] == "slave"
                              and old.info("replication")["master_link_status"] == "up", 30, 0.1)
            assert old.call("GET", "b") == "2"


@test
def a_cluster_answers_on_all_three_and_is_down_while_one_is():
    for kind, more in ((RedisCluster, {}), (ValkeyCluster, {"password": "secret", "tls": make_tls(scratch() / "tls")})):
        with kind(**more) as cluster:
            owners = {cluster.owner(f"k{i}").name: f"k{i}" for i in range(20)}
            assert len(owners) == 3, owners
            for node in cluster.nodes:
                for name, key in owners.items():
                    if name == node.name:
                        assert node.call("SET", key, 1) == "OK"
                    else:
                        raises(RespError, lambda node=node, key=key: node.call("SET", key, 1), "MOVED")
            lost, other = cluster.nodes[2], cluster.nodes[0]
            lost.kill()

            def told_down(other=other, key=owners[other.name]):
                try:
                    other.call("SET", key, 1)
                except RespError as error:
                    return "CLUSTERDOWN" in str(error)
                return False
            assert wait_until(told_down, 20)
            lost.restart()
            cluster.wait_ok()
            assert lost.call("GET", owners[lost.name]) is None and other.call("GET", owners[other.name]) == "1"


@test
def a_cluster_sends_its_clients_to_proxies():
    with RedisCluster() as cluster, Toxiproxy() as toxiproxy:
        proxies = [toxiproxy.proxy(node.name, node) for node in cluster.nodes]
        cluster.announce([proxy.port for proxy in proxies])
        key = next(f"k{i}" for i in range(100) if cluster.owner(f"k{i}") is cluster.nodes[1])

        def moved():
            try:
                cluster.nodes[0].call("SET", key, 1)
            except RespError as error:
                return str(error).endswith(f":{proxies[1].port}")
            return False
        assert wait_until(moved, 20)
        with Resp(proxies[1].port) as client:
            assert client.call("SET", key, 1) == "OK"


# ---------------------------------------------------------------- Kafka

@test
def kafka_keeps_a_message_over_kill_9():
    with Kafka() as kafka:
        kafka.create_topic("t", 2, min_insync_replicas=1)
        raises(ServiceError, lambda: kafka.create_topic("t"), "already exists")
        produce(kafka, "one\ntwo\n")
        kafka.kill()
        assert not kafka.alive()
        kafka.restart()
        assert consume(kafka) == ["one", "two"]
        kafka.pause()
        code, _, said = kcat(kafka, "-P", "-t", "t", "-p", "0", text="three\n", **{"message.timeout.ms": 1500})
        assert code != 0, said
        kafka.resume()
        produce(kafka, "four\n")
        assert consume(kafka)[:2] == ["one", "two"] and consume(kafka)[-1] == "four"
        code, _, said = kcat(kafka, "-P", "-t", "unknown", text="x\n", **{"message.timeout.ms": 3000})
        assert code != 0, said


@test
def kafka_with_tls_and_a_password_takes_nothing_else():
    with Kafka(tls=make_tls(scratch() / "tls"), password="secret") as kafka:
        kafka.create_topic("t")
        produce(kafka, "one\n")
        assert consume(kafka) == ["one"]
        raises(KafkaError, lambda: KafkaWire(kafka.port, user="doorbuster", password="wrong", tls=kafka.tls), "nvalid")
        raises(OSError, lambda: KafkaWire(kafka.port, timeout=5).brokers())


@test
def kafka_behind_a_proxy_sends_its_clients_there():
    with Toxiproxy() as toxiproxy:
        proxy = toxiproxy.proxy("kafka")
        with Kafka(behind=proxy) as kafka:
            kafka.create_topic("t")
            produce(kafka, "one\n", address=kafka.proxied_address)
            proxy.latency(700)
            assert took(lambda: consume(kafka, address=kafka.proxied_address)) > 1.4, "metadata and message, each late"
            proxy.heal()
            proxy.cut()
            code, _, said = kcat(kafka, "-P", "-t", "t", "-p", "0", text="x\n", address=kafka.proxied_address,
                                 **{"message.timeout.ms": 1500})
            assert code != 0, said
            assert consume(kafka) == ["one"], "its own listener is not affected"
            proxy.heal()
            assert consume(kafka, address=kafka.proxied_address) == ["one"]


# ---------------------------------------------------------------- what stands between

@test
def toxiproxy_is_slow_silent_or_gone_as_asked():
    with Redis() as redis, Toxiproxy() as toxiproxy:
        proxy = toxiproxy.proxy("redis", redis)

        def ping(timeout=5.0):
            with Resp(proxy.port, timeout=timeout) as client:
                return client.call("PING")
        assert ping() == "PONG"
        proxy.latency(400)
        assert 0.4 <= took(ping) < 3
        proxy.heal()
        assert took(ping) < 0.4
        with Resp(proxy.port) as client:
            proxy.cut()
            raises(OSError, lambda: client.call("PING"))
        raises(ConnectionRefusedError, ping)
        proxy.heal()
        proxy.silence()
        raises(TimeoutError, lambda: ping(0.3))
        proxy.heal()
        proxy.reset()
        raises(ConnectionResetError, ping)
        proxy.heal()
        proxy.limit(3)
        raises(ConnectionResetError, ping, "closed")
        proxy.heal()
        assert ping() == "PONG"
        raises(ServiceError, lambda: toxiproxy.proxy("redis", redis), "409")
        proxy.remove()
        raises(ConnectionRefusedError, ping)


class Node(http.server.ThreadingHTTPServer):
    """A node of which nothing matters but whether it is ready."""
    ready = True

    def __init__(self):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = str(self.server.server_port).encode()
                self.send_response(200 if self.server.ready or self.path != "/health/ready" else 503)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass
        super().__init__(("127.0.0.1", 0), Handler)
        self.handle_error = lambda *_: None  # a health check may hang up before it has read everything
        threading.Thread(target=self.serve_forever, daemon=True).start()


@test
def haproxy_leaves_out_a_node_that_is_not_ready():
    one, two = Node(), Node()
    with HAProxy([one.server_port, two.server_port]) as haproxy:
        def ask():
            connection = http.client.HTTPConnection("127.0.0.1", haproxy.port, timeout=5)
            connection.request("GET", "/")
            answer = connection.getresponse()
            body = answer.read().decode()
            connection.close()
            return answer.status, body

        def answering():
            return {ask() for _ in range(8)}
        both = {(200, str(one.server_port)), (200, str(two.server_port))}
        assert answering() == both
        one.ready = False
        assert wait_until(lambda: haproxy.states()[one.server_port] == "DOWN", 10)
        assert answering() == {(200, str(two.server_port))}
        one.ready = True
        assert wait_until(lambda: haproxy.states()[one.server_port] == "UP", 10)
        assert answering() == both
    one.shutdown()
    raises(ServiceError, lambda: HAProxy([1], backend_seconds=0.2), "port 1 does not answer 200")
    two.shutdown()


# ---------------------------------------------------------------- together, and the end

@test
def two_stacks_side_by_side_do_not_disturb_each_other():
    stacks, errors = [], []

    def make(number):
        try:
            stacks.append((Postgres(fsync=False), Valkey(), Toxiproxy(), number))
        except Exception as error:  # seen below, in the test's own thread
            errors.append(error)
    threads = [threading.Thread(target=make, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    servers = [server for *some, _ in stacks for server in some]
    assert len({server.port for server in servers}) == 9
    # The threads that started them are gone, and they are not.
    assert all(server.alive() for server in servers)
    for db, store, _, number in stacks:
        db.psql(f"CREATE TABLE t AS SELECT {number} AS a")
        store.call("SET", "a", number)
    stacks[0][0].kill()
    stacks[0][1].kill()
    for db, store, _, number in stacks[1:]:
        assert (db.psql("SELECT a FROM t"), store.call("GET", "a")) == (str(number), str(number))
    stacks[0][0].restart()
    assert stacks[0][0].psql("SELECT a FROM t") == str(stacks[0][3])
    for server in servers:
        server.close()
        assert not server.folder.exists()


ENDINGS = """
import concurrent.futures, functools, signal, sys, time
# As in a terminal; what runs in a shell's background inherits that it ignores them.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
sys.path.insert(0, sys.argv[1])
from services import *
with concurrent.futures.ThreadPoolExecutor() as pool:
    kinds = functools.partial(Postgres, fsync=False), RedisCluster, Toxiproxy
    servers = list(pool.map(lambda kind: kind(), kinds))
servers[0].pause()
pids = [(one.pid.pid, one.pid.start) for server in servers for one in server.processes().values()]
print(pids, [str(server.folder) for server in servers], sep="\\n", flush=True)
if sys.argv[2] == "error":
    raise RuntimeError("as tests do")
if sys.argv[2] == "wait":
    time.sleep(60)
"""


@test
def nothing_is_left_however_a_test_ends():
    for how in ("end", "error", signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
        child = subprocess.Popen(
            [sys.executable, "-c", ENDINGS, str(HERE.parent), how if isinstance(how, str) else "wait"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        pids, folders = json.loads(child.stdout.readline().replace("(", "[").replace(")", "]")), child.stdout.readline()
        folders = json.loads(folders.replace("'", '"'))
        assert len(pids) == 5 and len(folders) == 3
        if not isinstance(how, str):
            assert all(Pid(*pid).alive() for pid in pids)
            child.send_signal(how)
        child.wait()
        child.stdout.close()
        assert wait_until(lambda: not any(Pid(*pid).alive() for pid in pids), 15), f"after {how} a server is alive"
        assert wait_until(lambda: not any(pathlib.Path(folder).exists() for folder in folders), 15), \
            f"after {how} a folder is left"


def command(*words, folder, path=None):
    environment = os.environ | ({"PATH": path} if path is not None else {})
    done = subprocess.run([sys.executable, HERE / "run.py", *words, "--dir", folder], capture_output=True, text=True,
                          timeout=200, check=False, env=environment)
    return done.returncode, done.stdout + done.stderr


@contextlib.contextmanager
def stack():
    """A folder for the command, which leaves nothing there when a test fails."""
    parent = scratch()
    try:
        yield parent / "stack"
    finally:
        command("down", folder=parent / "stack")
        process.remove_folder(parent)


def written(folder):
    """{process: pid} of all services in services.json."""
    services = json.loads((folder / "services.json").read_text())["services"]
    return {name: Pid(one["pid"], one["start"]) for service in services.values()
            for name, one in service["processes"].items()}


@test
def the_command_starts_keeps_repairs_and_stops():
    with stack() as folder:
        wanted = ("up", "postgres", "valkey", "kafka", "toxiproxy")
        code, said = command(*wanted, folder=folder)
        assert code == 0 and "started toxiproxy, postgres, valkey, kafka" in said, said
        first = written(folder)
        assert len(first) == 4 and all(pid.alive() for pid in first.values()), "they outlive the command"
        assert (folder / "services.json").stat().st_mode & 0o77 == 0, "it has passwords"
        services = json.loads((folder / "services.json").read_text())["services"]
        ask = ["psql", "-X", "-A", "-t", "-c"]
        subprocess.run([*ask, "CREATE TABLE t AS SELECT 5 AS a", services["postgres"]["connect"]["url"]], check=True,
                       capture_output=True)

        code, said = command(*wanted, folder=folder)
        assert code == 0 and "everything was at work already" in said and written(folder) == first, said
        code, said = command("up", "valkey", "--cluster", folder=folder)
        assert code == 1 and "with other options" in said, said
        assert command("status", folder=folder)[0] == 0

        first["postgres"].kill()
        code, said = command("status", folder=folder)
        assert code == 1 and "DOWN" in said, said
        code, said = command(*wanted, folder=folder)
        assert code == 0 and "started postgres" in said, said
        second = written(folder)
        assert second["postgres"] != first["postgres"] and second["kafka"] == first["kafka"]
        for kind in ("url", "proxied"):
            url = json.loads((folder / "services.json").read_text())["services"]["postgres"]["connect"][kind]
            assert subprocess.run([*ask, "SELECT a FROM t", url], check=True, capture_output=True).stdout == b"5\n"
        assert services["postgres"]["connect"]["url"] == json.loads((folder / "services.json").read_text())[
            "services"]["postgres"]["connect"]["url"], "who has written down the address finds it again"

        code, said = command("down", folder=folder)
        assert code == 0 and "stopped 4 processes" in said, said
        assert not any(pid.alive() for pid in second.values())
        code, said = command("down", "--wipe", folder=folder)
        assert code == 0 and "stopped 0" in said and not folder.exists(), said


@test
def the_command_starts_sentinels_and_clusters():
    with stack() as folder:
        code, said = command("up", "redis", "--sentinel", "--tls", "--password", folder=folder)
        assert code == 0 and len(written(folder)) == 5, said
        code, said = command("up", "valkey", "--cluster", folder=folder)
        assert code == 0 and len(written(folder)) == 8, said
        pids = written(folder)
        code, said = command("down", "--wipe", folder=folder)
        assert code == 0 and not any(pid.alive() for pid in pids.values()), said


@test
def a_stack_that_cannot_be_whole_is_not_half_there():
    with stack() as folder:
        # What PostgreSQL will not start from.
        (folder / "postgres" / "data").mkdir(parents=True)
        (folder / "postgres" / "data" / "PG_VERSION").write_text("15\n")
        (folder / "postgres").chmod(0o711)
        code, said = command("up", "toxiproxy", "postgres", folder=folder)
        assert code == 1 and "postgresql.conf" in said and "stopped again" in said, said
        assert not list(folder.glob("*/pid")) and not (folder / "services.json").exists()
        code, said = command("up", "toxiproxy", "redis", folder=folder, path="/nowhere")
        assert code == 1 and "package redis-tools brings it" in said, said
        assert not list(folder.glob("*/pid"))


# ---------------------------------------------------------------- all of them

def shared_memory():
    names = {name for name in os.listdir("/dev/shm") if name.startswith("PostgreSQL")}
    return names | set(subprocess.run(["ipcs", "-m"], capture_output=True, text=True, check=True).stdout.splitlines())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="TEXT", help="tests whose name has this text")
    args = parser.parse_args()
    passed = failed = 0
    before = shared_memory()

    def nothing_is_left_by_these_tests():
        stop_all()
        family = Pid.of(os.getpid()).family()
        assert len(family) == 1, family
        assert shared_memory() == before, shared_memory() ^ before
        assert not process._folders

    chosen = [one for one in TESTS if not args.only or args.only in one.__name__]
    for one in [*chosen, nothing_is_left_by_these_tests]:
        begun = time.monotonic()
        name = one.__name__.replace("_", " ")
        try:
            one()
        except Exception:  # whatever it is: the other tests go on, and it is shown
            failed += 1
            print(f"FAIL {name}\n{traceback.format_exc()}", flush=True)
        else:
            passed += 1
            print(f"ok   {name} ({time.monotonic() - begun:.1f} s)", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 0 if chosen and failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
