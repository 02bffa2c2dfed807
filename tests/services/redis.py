"""Redis 7 and Valkey 8: one server, a primary with a replica and Sentinels, a cluster of three."""
from .process import Group, Process, ServiceError, find, wait_until
from .resp import Resp, RespError

# Debian's redis-server is a link to this program, which is in the package of the tools. Without the
# package called redis-server no server of Debian's own starts on a developer's machine.
PROGRAMS = {"redis": ("redis-server", "redis-check-rdb", "redis-tools"),
            "valkey": ("valkey-server", "valkey-check-rdb", "valkey-tools")}
MASTER = "doorbuster"  # the name under which Sentinels know the primary


class Redis(Process):
    """One server.

    Without `persistence` a restart finds no keys; with it every write is on disk before it is answered.
    `password` is the default user's; `users` makes more, {"app": "on >secret ~* +@all"}. With `tls` there is no port
    without. `settings` are lines of its configuration file, {"maxmemory": "10mb"}.
    """
    flavor = "redis"

    def __init__(self, folder=None, *, persistence=False, password=None, users=None, tls=None, settings=None,
                 replica_of=None, cluster=False, **more):
        self.persistence = persistence
        self.password = password
        self.users = users or {}
        self.tls = tls
        self.settings = settings or {}
        self.replica_of = replica_of
        self.cluster = cluster
        more.setdefault("name", self.flavor)
        if cluster:
            # By default it is the port plus 10,000, and nobody would have asked whether that is free.
            self.port_names = ("port", "bus_port")
        super().__init__(folder, **more)

    def configure(self):
        self._find()
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        # What another life has left here names other ports.
        (data / "nodes.conf").unlink(missing_ok=True)
        lines = self._listening() + [
            ("dir", data), ("appendonly", "yes" if self.persistence else "no"), ("appendfsync", "always"),
            # Nobody waits for a replica that is slow on purpose.
            ("shutdown-timeout", "0"), ("repl-diskless-sync-delay", "0")]
        lines.append(("save", '""'))
        if self.password:
            lines += [("requirepass", self.password), ("masterauth", self.password)]
        lines += [("user", f"{user} {rules}") for user, rules in self.users.items()]
        if self.replica_of:
            lines.append(("replicaof", f"127.0.0.1 {self.replica_of.port}"))
        if self.cluster:
            lines += [("cluster-enabled", "yes"), ("cluster-config-file", "nodes.conf"),
                      ("cluster-port", self.bus_port), ("cluster-node-timeout", "2000")]
        self._write(lines + list(self.settings.items()))

    def _find(self):
        server, same, package = PROGRAMS[self.flavor]
        if self.program is None:
            try:
                self.program = find(server, package)
            except ServiceError:
                self.program = find(same, package)
        else:
            self.program = find(self.program, package)

    @property
    def executable(self):
        return self.program

    def _listening(self):
        lines = [("bind", "127.0.0.1"), ("port", 0 if self.tls else self.port)]
        if self.tls:
            lines += [("tls-port", self.port), ("tls-cert-file", self.tls.cert), ("tls-key-file", self.tls.key),
                      ("tls-ca-cert-file", self.tls.ca), ("tls-auth-clients", "no"), ("tls-replication", "yes")]
            if self.cluster:
                lines.append(("tls-cluster", "yes"))
        return lines

    def _write(self, lines):
        # It writes to this file itself when a Sentinel gives it another role.
        path = self.folder / "server.conf"
        path.touch(0o600)
        path.write_text("".join(f"{key} {value}\n" for key, value in lines))

    def command(self):
        # The program behaves by the name under which it is called.
        return [PROGRAMS[self.flavor][0], self.folder / "server.conf"]

    def answers(self):
        with self.connect(timeout=2) as client:
            try:
                return client.call("PING") == "PONG"
            except RespError:  # still loading
                return False

    def connect(self, *, user=None, password=None, timeout=5.0):
        return Resp(self.port, user=user, password=password or self.password, tls=self.tls, timeout=timeout)

    def call(self, *words):
        """One command on a connection of its own."""
        with self.connect() as client:
            return client.call(*words)

    def info(self, section):
        """INFO as a dictionary."""
        return dict(line.split(":", 1) for line in self.call("INFO", section).splitlines() if ":" in line)

    def run_id(self):
        """Another one after each start: whoever remembers it notices that the memory is a new one."""
        return self.info("server")["run_id"]

    def url(self, port=None):
        secret = f":{self.password}@" if self.password else ""
        return f"{'rediss' if self.tls else 'redis'}://{secret}127.0.0.1:{port or self.port}"

    def describe(self):
        return super().describe() | {"url": self.url()}


class _Sentinel(Redis):
    def __init__(self, folder, *, primary, quorum, **more):
        self.primary = primary
        self.quorum = quorum
        super().__init__(folder, **more)

    def configure(self):
        self._find()
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        watched = [("monitor", f"{MASTER} 127.0.0.1 {self.primary.port} {self.quorum}"),
                   ("down-after-milliseconds", f"{MASTER} 1000"), ("failover-timeout", f"{MASTER} 4000"),
                   ("parallel-syncs", f"{MASTER} 1")]
        if self.primary.password:
            watched.append(("auth-pass", f"{MASTER} {self.primary.password}"))
        lines = self._listening() + [("dir", data)] + [(f"sentinel {key}", value) for key, value in watched]
        if self.password:
            lines.append(("requirepass", self.password))
        self._write(lines + list(self.settings.items()))

    def command(self):
        return [*super().command(), "--sentinel"]


class RedisSentinel(Group):
    """A primary with replicas, and Sentinels that promote one about 2 s after the primary has gone.

    `nodes` are the servers, the first primary first; who is primary now: primary(). The Sentinels have a password of
    their own, or none. They tell clients the servers' own addresses, past any proxy.
    """
    flavor = "redis"

    def __init__(self, folder=None, *, replicas=1, sentinels=3, sentinel_password=None, program=None, **more):
        super().__init__(folder)
        server, sentinel = (Valkey, _ValkeySentinel) if self.flavor == "valkey" else (Redis, _Sentinel)
        shared = {"program": program, "tls": more.get("tls")}
        try:
            first = self.add(lambda: server(self.folder / "node-1", name=f"{self.flavor}-1", program=program, **more))
            self.nodes = [first] + [
                self.add(lambda i=i: server(self.folder / f"node-{i}", name=f"{self.flavor}-{i}", replica_of=first,
                                            program=program, **more)) for i in range(2, replicas + 2)]
            # Sentinels ask the primary for its replicas as they start, and then only every 10 s.
            self._expect("replicas in step", lambda: all(
                node.info("replication")["master_link_status"] == "up" for node in self.nodes[1:]))
            self.sentinels = [
                self.add(lambda i=i: sentinel(self.folder / f"sentinel-{i}", name=f"{self.flavor}-sentinel-{i}",
                                              primary=first, quorum=sentinels // 2 + 1, password=sentinel_password,
                                              **shared)) for i in range(1, sentinels + 1)]
            self._expect("Sentinels that know each other", lambda: all(
                self._knows(one, replicas, sentinels - 1) for one in self.sentinels))
        except BaseException:
            self.close()
            raise

    def _expect(self, what, holds, seconds=30):
        def check():
            try:
                return holds()
            except (RespError, KeyError):
                return False
        if not wait_until(check, seconds, 0.1):
            raise ServiceError(f"{self.flavor}: no {what} in {seconds} s\n"
                               + "\n".join(f"{one.name}: {one.log}" for one in self.members))

    def _knows(self, sentinel, replicas, others):
        flat = sentinel.call("SENTINEL", "MASTER", MASTER)
        seen = dict(zip(flat[::2], flat[1::2]))
        told = seen["num-slaves"], seen["num-other-sentinels"], seen["flags"]
        return told == (str(replicas), str(others), "master")

    def primary(self):
        """The server that the first living Sentinel names."""
        for sentinel in self.sentinels:
            if sentinel.alive():
                port = int(sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)[1])
                return next(node for node in self.nodes if node.port == port)
        raise ServiceError(f"{self.flavor}: no Sentinel is alive")

    def wait_failover(self, old, seconds=30):
        """Waits until another server is the primary for all living Sentinels and says so itself; that server."""
        def moved():
            name = [one.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)[1] for one in self.sentinels if one.alive()]
            new = self.primary()
            return len(set(name)) == 1 and new is not old and new.info("replication")["role"] == "master"
        self._expect("failover", moved, seconds)
        return self.primary()

    def describe(self):
        return {"master": MASTER, "sentinels": ",".join(one.address for one in self.sentinels),
                "primary": self.primary().url(), "nodes": ",".join(one.address for one in self.nodes)}


class RedisCluster(Group):
    """Three primaries, each with a third of the slots, no replicas: when one is down, the others answer
    CLUSTERDOWN after 2 s (unless settings={"cluster-require-full-coverage": "no"})."""
    flavor = "redis"

    def __init__(self, folder=None, *, size=3, **more):
        super().__init__(folder)
        server = Valkey if self.flavor == "valkey" else Redis
        try:
            self.nodes = [
                self.add(lambda i=i: server(self.folder / f"node-{i}", name=f"{self.flavor}-{i}", cluster=True, **more))
                for i in range(1, size + 1)]
            self._join()
        except BaseException:
            self.close()
            raise

    def _join(self):
        first, size = self.nodes[0], len(self.nodes)
        for i, node in enumerate(self.nodes):
            node.call("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            node.call("CLUSTER", "ADDSLOTSRANGE", 16384 * i // size, 16384 * (i + 1) // size - 1)
            if node is not first:
                node.call("CLUSTER", "MEET", "127.0.0.1", first.port, first.bus_port)
        self.wait_ok()

    def wait_ok(self, seconds=30):
        """Until every node knows all others and takes writes."""
        def joined(node):
            told = node.call("CLUSTER", "INFO").splitlines()
            return {"cluster_state:ok", "cluster_slots_ok:16384", f"cluster_known_nodes:{len(self.nodes)}"} <= set(told)
        if not wait_until(lambda: all(joined(node) for node in self.nodes), seconds, 0.05):
            raise ServiceError(f"{self.flavor}: the cluster is not in order after {seconds} s\n"
                               f"{self.nodes[0].call('CLUSTER', 'INFO')}")

    def owner(self, key):
        """The node that has this key's slot."""
        slot = self.nodes[0].call("CLUSTER", "KEYSLOT", key)
        for first, last, (_, port, *_), *_ in self.nodes[0].call("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if port in (node.port, getattr(node, "announced", None)))
        raise ServiceError(f"{self.flavor}: nobody owns slot {slot}")

    def announce(self, ports):
        """Names these ports (of proxies, one for each node) to clients instead of the nodes' own."""
        for node, port in zip(self.nodes, ports):
            node.announced = port
            node.call("CONFIG", "SET", "cluster-announce-tls-port" if node.tls else "cluster-announce-port", port)

    def describe(self):
        return {"nodes": ",".join(one.address for one in self.nodes), "url": self.nodes[0].url()}


class Valkey(Redis):
    flavor = "valkey"


class _ValkeySentinel(_Sentinel):
    flavor = "valkey"


class ValkeySentinel(RedisSentinel):
    flavor = "valkey"


class ValkeyCluster(RedisCluster):
    flavor = "valkey"
