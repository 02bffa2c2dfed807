#!/usr/bin/env python3
"""Runs a command beside real servers that are started for it: with_services.py [NAME...] -- COMMAND...

Each server's address is in the command's environment, as DOORBUSTER_TEST_ and its name: DOORBUSTER_TEST_POSTGRES (a
superuser's URL), DOORBUSTER_TEST_REDIS, DOORBUSTER_TEST_VALKEY_CLUSTER (nodes, with commas), DOORBUSTER_TEST_KAFKA.
The exit code is the command's.
"""
import contextlib
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

# pylint: disable=wrong-import-position
from services import Kafka, Postgres, Redis, ServiceError, Valkey, make_tls, scratch
from services.run import STORES


def with_tls(server):
    """How one with TLS and a password is made."""
    return lambda: server(tls=make_tls(scratch()), password="only-for-tests")


# How each is made, and what a client needs to know of it; of those with TLS also the CA's file.
SERVICES = {
    "postgres": (Postgres, lambda it: it.describe()["superuser"]),
    "kafka": (Kafka, lambda it: it.address),
    "kafka-tls": (with_tls(Kafka), lambda it: f"{it.address}#{it.tls.ca}"),
}
for flavor, single in (("redis", Redis), ("valkey", Valkey)):
    SERVICES |= {
        flavor: (single, lambda it: it.address),
        f"{flavor}-cluster": (STORES[flavor]["cluster"], lambda it: it.describe()["nodes"]),
        f"{flavor}-sentinel": (STORES[flavor]["sentinel"], lambda it: it.describe()["sentinels"]),
        f"{flavor}-tls": (with_tls(single), lambda it: f"{it.url()}#{it.tls.ca}"),
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
    environment = dict(os.environ)
    try:
        with contextlib.ExitStack() as stack:
            for name in names:
                make, address = SERVICES[name]
                service = stack.enter_context(make())
                environment["DOORBUSTER_TEST_" + name.upper().replace("-", "_")] = address(service)
            return subprocess.run(command, env=environment, check=False).returncode
    except ServiceError as error:
        print(f"with_services.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
