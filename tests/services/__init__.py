"""Real servers on loopback, for tests and for trying out; README.md says how."""
from .broker import Kafka
from .haproxy import HAProxy
from .kafka_wire import KafkaError, KafkaWire
from .postgres import Postgres
from .process import Missing, ServiceError, leave_running, scratch, stop_all, wait_until
from .redis import Redis, RedisCluster, RedisSentinel, Valkey, ValkeyCluster, ValkeySentinel
from .resp import Resp, RespError
from .tls import Tls, make_tls
from .toxiproxy import Proxy, Toxiproxy, ToxiproxyApi
