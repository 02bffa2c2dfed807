#!/usr/bin/env python3
"""Real servers in the background, for trying out: run.py up, down, status."""
import argparse
import fcntl
import json
import pathlib
import secrets
import shutil
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

# pylint: disable=wrong-import-position
from services import (Kafka, Postgres, Redis, RedisCluster, RedisSentinel, ServiceError, Toxiproxy, ToxiproxyApi,
                      Valkey, ValkeyCluster, ValkeySentinel, leave_running, make_tls, wait_until)
from services.pids import Pid

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ("toxiproxy", "postgres", "redis", "valkey", "kafka")  # started in this order: Kafka must know its proxy
DEFAULT = ("postgres", "valkey", "kafka")
STORES = {"redis": {"single": Redis, "sentinel": RedisSentinel, "cluster": RedisCluster},
          "valkey": {"single": Valkey, "sentinel": ValkeySentinel, "cluster": ValkeyCluster}}


class Stack:
    """What is known of the servers below a folder; services.json in it, readable by its owner only."""

    def __init__(self, folder):
        self.folder = folder
        self.file = folder / "services.json"
        self.services = json.loads(self.file.read_text())["services"] if self.file.exists() else {}

    def save(self):
        part = self.file.with_suffix(".part")
        part.unlink(missing_ok=True)
        part.touch(0o600)
        part.write_text(json.dumps({"services": self.services}, indent=2) + "\n")
        part.rename(self.file)

    def living(self, name):
        """Its processes that are alive, and whether these are all."""
        all_of_it = self.services.get(name, {}).get("processes", {})
        alive = [one for one in all_of_it.values() if Pid(one["pid"], one["start"]).alive()]
        return alive, bool(alive) and len(alive) == len(all_of_it)

    def show(self):
        for name, service in self.services.items():
            alive, whole = self.living(name)
            state = "at work" if whole else f"DOWN ({len(alive)} of {len(service['processes'])} at work)"
            shape = service["options"]["shape"]
            print(f"{name:10} {state}{'' if shape == 'single' else ', ' + shape}")
            for key, value in service["connect"].items():
                print(f"  {key:18} {value}")
            for process, one in service["processes"].items():
                print(f"  {'process':18} {process}, {one['address']}, pid {one['pid']}, log {one['log']}")


def start(stack, name, options, made):
    """Starts one service; what made it is put into `made`."""
    folder = stack.folder / name
    tls = make_tls(stack.folder / "tls") if options["tls"] else None
    before = stack.services.get(name, {})
    # Those who have written down an address find it again.
    wish = next(iter(before.get("processes", {}).values()), {}).get("port")
    password = (before.get("password") or secrets.token_hex(12)) if options["password"] else None
    toxiproxy = made.get("toxiproxy")
    if name == "postgres":
        service = Postgres(folder, port=wish, tls=tls)
    elif name == "kafka":
        behind = fresh_proxy(toxiproxy, "kafka") if toxiproxy else None
        service = Kafka(folder, port=wish, tls=tls, password=password, behind=behind)
    elif name == "toxiproxy":
        service = Toxiproxy(folder, port=wish)
    else:
        # They keep nothing here, and files of another shape would only confuse them.
        shutil.rmtree(folder, ignore_errors=True)
        make = STORES[name][options["shape"]]
        more = {"port": wish} if options["shape"] == "single" else {}
        service = make(folder, tls=tls, password=password, **more)
    connect = service.describe()
    if toxiproxy and name in ("postgres", "redis", "valkey") and options["shape"] == "single":
        proxy = fresh_proxy(toxiproxy, name)
        proxy.upstream(service.port)
        connect["proxied"] = service.url(port=proxy.port)
    stack.services[name] = {
        "options": options, "connect": connect, "password": password,
        "processes": {process: {"pid": one.pid.pid, "start": one.pid.start, "port": one.port, "address": one.address,
                                "log": str(one.log)} for process, one in service.processes().items()}}
    return service


def fresh_proxy(toxiproxy, name):
    if name in toxiproxy.ask("GET", "/proxies"):
        toxiproxy.ask("DELETE", f"/proxies/{name}")
    return toxiproxy.proxy(name)


def up(stack, names, shape, tls, password):
    made, new = {}, []
    for name in NAMES:
        if name not in names:
            continue
        options = {"shape": shape if name in STORES else "single", "tls": tls and name != "toxiproxy",
                   "password": password and name in (*STORES, "kafka")}
        alive, whole = stack.living(name)
        # Kafka sends its clients to a proxy that is no more when Toxiproxy has begun anew.
        stale = "toxiproxy" in new and "proxied" in stack.services.get(name, {}).get("connect", {})
        if whole and not stale:
            if stack.services[name]["options"] != options:
                raise ServiceError(f"{name} is at work with other options, {stack.services[name]['options']}; "
                                   "stop it first")
            if name == "toxiproxy":
                made[name] = ToxiproxyApi(alive[0]["port"])
            continue
        stop([Pid(one["pid"], one["start"]) for one in alive])
        made[name] = start(stack, name, options, made)
        new.append(name)
    # Until here everything that was started is stopped if this ends badly, and the file tells of the time before.
    stack.save()
    leave_running()
    print("started " + ", ".join(new) if new else "everything was at work already", "\n")
    stack.show()
    print(f"\nAll of this is in {stack.file}")


def stop(pids, how=signal.SIGTERM):
    for one in pids:
        one.thaw()
        one.signal(how)
    if not wait_until(lambda: not any(one.alive() for one in pids), 30):
        for one in pids:
            one.kill()


def down(stack, wipe):
    # The pid files also know what an interrupted `up` has left, in case its guard was killed as well.
    stopped = 0
    for file in stack.folder.glob("*/**/pid"):
        try:
            pid, begun, how = map(int, file.read_text().split())
        except (OSError, ValueError):
            continue
        if Pid(pid, begun).alive():
            stop([Pid(pid, begun)], how)
            stopped += 1
        file.unlink(missing_ok=True)
    print(f"stopped {stopped} processes")
    if wipe:
        # By name: the folder may have been somebody's home.
        for name in (*NAMES, "tls"):
            shutil.rmtree(stack.folder / name, ignore_errors=True)
        for name in ("services.json", "lock"):
            (stack.folder / name).unlink(missing_ok=True)
        if not any(stack.folder.iterdir()):
            stack.folder.rmdir()


def main():
    parser = argparse.ArgumentParser(prog="./dev services", description=__doc__)
    parser.add_argument("word", choices=("up", "down", "status", "names"), help="names: what `up` would start")
    parser.add_argument("names", nargs="*", metavar="NAME",
                        help=f"of {', '.join(NAMES)}; {', '.join(DEFAULT)} if none is named")
    parser.add_argument("--dir", type=pathlib.Path, default=ROOT / "data" / "services",
                        help="data, logs, services.json (data/services)")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--sentinel", dest="shape", action="store_const", const="sentinel", default="single",
                       help="a primary, a replica and three Sentinels instead of one Redis or Valkey")
    shape.add_argument("--cluster", dest="shape", action="store_const", const="cluster", help="or a cluster of three")
    parser.add_argument("--tls", action="store_true", help="TLS only, by a CA in DIR/tls")
    parser.add_argument("--password", action="store_true",
                        help="for Redis, Valkey and Kafka too; PostgreSQL always has one")
    parser.add_argument("--wipe", action="store_true", help="with down: the data as well")
    args = parser.parse_intermixed_args()
    unknown = [name for name in args.names if name not in NAMES]
    if unknown:
        parser.error(f"unknown {unknown[0]}: {', '.join(NAMES)}")
    names = args.names or DEFAULT
    if args.word == "names":
        print(*names)
        return 0
    folder = args.dir.resolve()
    if args.word != "up" and not folder.is_dir():
        print(f"nothing was ever started in {folder}")
        return 0 if args.word == "down" else 1
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stack = Stack(folder)
        if args.word == "up":
            try:
                up(stack, names, args.shape, args.tls, args.password)
            except ServiceError as error:
                print(f"services: {error}\nservices: what this call had started is stopped again", file=sys.stderr)
                return 1
        elif args.word == "down":
            down(stack, args.wipe)
        else:
            stack.show()
            return 0 if stack.services and all(stack.living(name)[1] for name in stack.services) else 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)  # what was started ends as this process does
