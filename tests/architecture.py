#!/usr/bin/env python3
"""Includes go down the layers only, drivers stay where ARCHITECTURE.md says, and what the simulation runs reads no
clock but the one that it was given.

Usage: architecture.py ROOT. Prints each finding with its place; exit 1 when there is one.
"""
import pathlib
import re
import sys

# A module may include itself and what is listed here. Two domains of one layer never include each other.
ALLOWED = {
    "common": [],
    "db": ["common"],
    "http": ["common"],
    "edge": ["common"],
    "engine": ["common", "db"],
    "admin": ["common", "db", "http", "edge"],
    "sale": ["common", "db", "http", "edge", "engine", "admin"],
    "payment": ["common", "db", "http", "edge", "engine", "admin", "sale"],
    "rush": ["common", "edge"],
    "sim": ["common", "db", "edge", "engine", "admin", "sale", "payment", "rush"],
    "bench": ["common", "db", "edge", "engine", "rush"],
    "app": ["common", "db", "http", "edge", "engine", "admin", "sale", "payment", "rush", "bench"],
}

# Driver headers, and the only places that may include them.
DRIVERS = {
    r"boost/asio": ["src/http/", "src/common/loop.cpp"],
    r"sqlite3\.h": ["src/db/"],
    r"curl/": ["src/edge/key_source.cpp", "src/app/api_client.cpp"],
    r"spdlog/": ["src/common/log.cpp"],
    r"prometheus/": ["src/common/metrics.cpp"],
    r"toml\+\+/": ["src/app/"],
    r"CLI/": ["src/app/", "src/sim/main.cpp"],
}

# What the simulation runs must take time and chance from outside.
INJECTED = {"common", "db", "edge", "engine", "admin", "sale", "payment"}
OWN_TIME = re.compile(r"(?:system|steady|high_resolution)_clock::now|this_thread::sleep|random_device|\btime\(nullptr")
OWN_TIME_PLACES = ["src/common/clock.cpp"]

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def findings(root: pathlib.Path):
    source = root / "src"
    for folder in sorted(p for p in source.iterdir() if p.is_dir()):
        if folder.name not in ALLOWED:
            yield f"src/{folder.name}: a module that tests/architecture.py does not know"
            continue
        if not (folder / "README.md").is_file():
            yield f"src/{folder.name}: no README.md"
        for file in sorted([*folder.rglob("*.hpp"), *folder.rglob("*.cpp")]):
            name = file.relative_to(root).as_posix()
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                timed = folder.name in INJECTED and "/tests/" not in name and name not in OWN_TIME_PLACES
                if timed and OWN_TIME.search(line):
                    yield f"{name}:{number}: {folder.name} takes its clock, executor and random bytes from outside"
                match = INCLUDE.match(line)
                if not match:
                    continue
                target = match.group(1)
                module = target.split("/", 1)[0]
                if module in ALLOWED and module != folder.name and module not in ALLOWED[folder.name]:
                    yield f"{name}:{number}: {folder.name} must not include {target}"
                for pattern, places in DRIVERS.items():
                    in_test = "/tests/" in name
                    if re.match(pattern, target) and not in_test and not any(name.startswith(p) for p in places):
                        yield f"{name}:{number}: {target} belongs in {', '.join(places)}"


def main() -> int:
    found = list(findings(pathlib.Path(sys.argv[1])))
    for one in found:
        print(one)
    print(f"architecture: {len(found)} forbidden" if found else "architecture: every include goes down, every clock is injected")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
