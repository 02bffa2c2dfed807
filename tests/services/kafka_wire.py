"""As much of Kafka's protocol as it takes to see that a broker answers and to make a topic.

The broker's own tools do it as well, after the two seconds that a JVM needs to start. Produce and consume with a
real client. Versions of the messages are the last ones before "flexible" fields, which Kafka 4 still takes.
"""
import socket
import ssl
import struct

METADATA, SASL_HANDSHAKE, CREATE_TOPICS, SASL_AUTHENTICATE = 3, 17, 19, 36


class KafkaError(Exception):
    """What the broker answered instead of yes."""


def _text(value):
    data = value.encode()
    return struct.pack(">h", len(data)) + data


class _Reader:
    def __init__(self, data):
        self.data = data

    def take(self, form):
        values = struct.unpack_from(">" + form, self.data)
        self.data = self.data[struct.calcsize(">" + form):]
        return values[0]

    def text(self):
        size = self.take("h")
        if size < 0:
            return None
        value, self.data = self.data[:size].decode(), self.data[size:]
        return value


class KafkaWire:
    def __init__(self, port, *, user=None, password=None, tls=None, timeout=10.0):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        if tls:
            context = ssl.create_default_context(cafile=tls.ca)
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        if password is not None:
            code = self._ask(SASL_HANDSHAKE, 1, _text("PLAIN")).take("h")
            if code != 0:
                raise KafkaError(f"SASL/PLAIN: error {code}")
            secret = f"\0{user}\0{password}".encode()
            answer = self._ask(SASL_AUTHENTICATE, 0, struct.pack(">i", len(secret)) + secret)
            if answer.take("h") != 0:
                raise KafkaError(answer.text())

    def _ask(self, key, version, body):
        message = struct.pack(">hhi", key, version, 1) + _text("doorbuster-services") + body
        self.socket.sendall(struct.pack(">i", len(message)) + message)
        size, = struct.unpack(">i", self._exactly(4))
        return _Reader(self._exactly(size)[4:])

    def _exactly(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionResetError("the broker closed the connection")
            data += more
        return data

    def brokers(self):
        """Where the broker sends clients: [(host, port)]; empty until it has joined its own cluster."""
        answer = self._ask(METADATA, 1, struct.pack(">i", 0))
        found = []
        for _ in range(answer.take("i")):
            answer.take("i")
            host, port = answer.text(), answer.take("i")
            answer.text()
            found.append((host, port))
        return found

    def create_topic(self, name, partitions, settings):
        configs = struct.pack(">i", len(settings)) + b"".join(_text(k) + _text(str(v)) for k, v in settings.items())
        topic = _text(name) + struct.pack(">ihi", partitions, 1, 0) + configs
        answer = self._ask(CREATE_TOPICS, 4, struct.pack(">i", 1) + topic + struct.pack(">i?", 20000, False))
        answer.take("i")
        answer.take("i")
        answer.text()
        code = answer.take("h")
        if code != 0:
            raise KafkaError(f"topic {name}: error {code}: {answer.text()}")

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
