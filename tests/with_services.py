#!/usr/bin/env python3
"""Runs a command beside real servers that are started for it: with_services.py [NAME...] -- COMMAND...

Each server's address is in the command's environment, as DOORBUSTER_TEST_ and its name: DOORBUSTER_TEST_POSTGRES (a
superuser's URL), DOORBUSTER_TEST_REDIS, DOORBUSTER_TEST_VALKEY_CLUSTER (nodes, with commas), DOORBUSTER_TEST_KAFKA.
The exit code is the command's.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

# pylint: disable=wrong-import-position
from services import (Kafka, Postgres, Redis, RedisCluster, RedisSentinel, ServiceError, Valkey, ValkeyCluster,
                      ValkeySentinel, make_tls)


def nodes(cluster):
    return ",".join(one.address for one in cluster.nodes)


def watched(group):
    return ",".join(one.address for one in group.sentinels)


# How each is made in a folder, and what a client needs to know of it.
SERVICES = {
    "postgres": (Postgres, lambda it: it.url("postgres")),
    "kafka": (Kafka, lambda it: it.address),
    "redis": (Redis, lambda it: it.address),
    "valkey": (Valkey, lambda it: it.address),
    "redis-cluster": (RedisCluster, nodes),
    "valkey-cluster": (ValkeyCluster, nodes),
    "redis-sentinel": (RedisSentinel, watched),
    "valkey-sentinel": (ValkeySentinel, watched),
    # TLS with a password; the CA's file behind the address.
    "redis-tls": (lambda folder: Redis(folder, tls=make_tls(folder / "tls"), password="only-for-tests"),
                  lambda it: f"{it.url()}#{it.tls.ca}"),
    "valkey-tls": (lambda folder: Valkey(folder, tls=make_tls(folder / "tls"), password="only-for-tests"),
                   lambda it: f"{it.url()}#{it.tls.ca}"),
    "kafka-tls": (lambda folder: Kafka(folder, tls=make_tls(folder / "tls"), password="only-for-tests"),
                  lambda it: f"{it.address}#{it.tls.ca}"),
}


def main():
    if "--" not in sys.argv or sys.argv[-1] == "--":
        print(f"{__doc__}\nnames: {' '.join(SERVICES)}", file=sys.stderr)
        return 2
    split = sys.argv.index("--")
    names, command = sys.argv[1:split], sys.argv[split + 1:]
    unknown = [name for name in names if name not in SERVICES]
    if unknown:
        print(f"with_services.py: unknown {unknown[0]}: {' '.join(SERVICES)}", file=sys.stderr)
        return 2
    environment, made = dict(os.environ), []
    with tempfile.TemporaryDirectory(prefix="doorbuster-test-") as folder:
        # PostgreSQL runs as a user of its own, who has to get through.
        os.chmod(folder, 0o755)
        try:
            for name in names:
                make, address = SERVICES[name]
                made.append(make(pathlib.Path(folder) / name))
                environment["DOORBUSTER_TEST_" + name.upper().replace("-", "_")] = address(made[-1])
            return subprocess.run(command, env=environment, check=False).returncode
        except ServiceError as error:
            print(f"with_services.py: {error}", file=sys.stderr)
            return 1
        finally:
            for one in reversed(made):
                one.close()


if __name__ == "__main__":
    sys.exit(main())
