"""One Kafka broker in KRaft mode, its own controller."""
import os

from .kafka_wire import KafkaError, KafkaWire
from .process import Process, ServiceError, find, run
from .programs import kafka_jars

USER = "doorbuster"


class Kafka(Process):
    """Topics are made by create_topic or by a client of the caller; writing to one that is not there fails.

    With `tls` it takes nothing but TLS, with `password` nothing but SASL/PLAIN of user `doorbuster`. (Not SCRAM: Kafka
    4 compares the nonce strictly, and librdkafka before 2.6.1, so Debian 12's too, sends a wrong one; see its pull
    request 4895.)
    `behind` is a proxy (Toxiproxy.proxy without upstream): a broker tells its clients where to find it, so only a
    listener of its own makes them come through the proxy; `proxied_address` is what they are given then.
    """
    name = "kafka"
    start_seconds = 120   # a cold JVM on a busy machine

    def __init__(self, folder=None, *, tls=None, password=None, behind=None, settings=None, heap_mb=256, **more):
        self.tls = tls
        self.password = password
        self.behind = behind
        self.settings = settings or {}
        self.heap_mb = heap_mb
        self.port_names = ("port", "controller_port") + (("proxied_port",) if behind else ())
        super().__init__(folder, **more)

    def configure(self):
        self.jars = kafka_jars()
        self.program = find(self.program or "java", "default-jre-headless")
        security = ("SASL_" if self.password else "") + ("SSL" if self.tls else "PLAINTEXT")
        listeners = {"CLIENT": (self.port, self.port)}
        if self.behind:
            listeners["PROXIED"] = (self.proxied_port, self.behind.port)
        lines = {
            "process.roles": "broker,controller", "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER", "inter.broker.listener.name": "CLIENT",
            "listeners": ",".join([f"{name}://127.0.0.1:{own}" for name, (own, _) in listeners.items()]
                                  + [f"CONTROLLER://127.0.0.1:{self.controller_port}"]),
            "advertised.listeners": ",".join(f"{name}://127.0.0.1:{told}" for name, (_, told) in listeners.items()),
            "listener.security.protocol.map": ",".join([f"{name}:{security}" for name in listeners]
                                                       + ["CONTROLLER:PLAINTEXT"]),
            "log.dirs": self.folder / "data", "auto.create.topics.enable": "false",
            # One broker: it must not wait for others.
            "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1, "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1, "group.initial.rebalance.delay.ms": 0,
            # The first consumer group waits for each partition of these.
            "offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1,
            # Otherwise a start right after kill -9 waits 10 s until the old broker has been forgotten.
            "broker.session.timeout.ms": 3000, "broker.heartbeat.interval.ms": 500,
            # Otherwise the cleaner takes 128 MB of the heap.
            "log.cleaner.dedupe.buffer.size": 2097152, "log.cleaner.threads": 1,
        }
        if self.tls:
            keystore = self.folder / "keystore.pem"
            keystore.touch(0o600)
            keystore.write_text(self.tls.key.read_text() + self.tls.cert.read_text())
            lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": keystore,
                      "ssl.truststore.type": "PEM", "ssl.truststore.location": self.tls.ca}
        if self.password:
            lines |= {"sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN"}
            for name in listeners:
                lines[f"listener.name.{name.lower()}.plain.sasl.jaas.config"] = (
                    "org.apache.kafka.common.security.plain.PlainLoginModule required "
                    f'username="{USER}" password="{self.password}" user_{USER}="{self.password}";')
        lines |= self.settings
        path = self.folder / "server.properties"
        path.touch(0o600)
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        if self.behind:
            self.behind.upstream(self.proxied_port)
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(path)

    def _format(self, path):
        # The cluster's id: any 16 bytes in base64url.
        run([self.program, "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
             "-cp", f"{self.jars}/*", "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", path],
            env={"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", "/")})

    def command(self):
        logger = "-Dorg.slf4j.simpleLogger"
        return [self.program, f"-Xms{self.heap_mb}m", f"-Xmx{self.heap_mb}m", "-XX:+UseSerialGC",
                # Otherwise each JVM leaves a file in /tmp when it is killed.
                "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true", f"{logger}.defaultLogLevel=warn",
                f"{logger}.log.kafka.server.KafkaRaftServer=info", f"{logger}.showDateTime=true",
                f"{logger}.dateTimeFormat=HH:mm:ss.SSS",
                "-cp", f"{self.jars}/*", "kafka.Kafka", self.folder / "server.properties"]

    def wire(self):
        return KafkaWire(self.port, user=USER, password=self.password, tls=self.tls)

    def answers(self):
        try:
            with self.wire() as wire:
                return ("127.0.0.1", self.port) in wire.brokers()
        except KafkaError:
            return False

    def create_topic(self, name, partitions=1, **settings):
        """`settings` are the topic's, with "_" for ".": min_insync_replicas=1."""
        try:
            with self.wire() as wire:
                wire.create_topic(name, partitions, {key.replace("_", "."): value for key, value in settings.items()})
        except KafkaError as error:
            raise ServiceError(f"kafka: {error}") from None

    def client_settings(self):
        """What librdkafka needs, without the address."""
        settings = {"security.protocol": ("sasl_" if self.password else "") + ("ssl" if self.tls else "plaintext")}
        if self.tls:
            settings["ssl.ca.location"] = str(self.tls.ca)
        if self.password:
            settings |= {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": self.password}
        return settings

    @property
    def proxied_address(self):
        return f"127.0.0.1:{self.behind.port}"

    def describe(self):
        told = super().describe() | self.client_settings()
        return told | ({"proxied": self.proxied_address} if self.behind else {})
