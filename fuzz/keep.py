#!/usr/bin/env python3
"""Adds the few found inputs that reach most of what the kept ones do not.

Usage: keep.py PROGRAM CORPUS FOUND. A merge by libFuzzer keeps every input that reaches one edge
more: hundreds, for a reader with many messages. Here each one that git gets to keep adds a hundredth
of all edges or more.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile


def edges_by_file(program, corpus, found):
    """What each input reaches, from the control file of a merge into nothing."""
    with tempfile.TemporaryDirectory() as folder:
        control = pathlib.Path(folder, "control")
        nothing = pathlib.Path(folder, "merged")
        nothing.mkdir()
        # -merge=1 would only note what an input reaches first.
        command = [program, "-set_cover_merge=1", "-use_counters=0"]
        command += [f"-merge_control_file={control}", nothing, corpus, found]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        lines = control.read_text().splitlines()
    count = int(lines[0])
    names = [pathlib.Path(name) for name in lines[2 : 2 + count]]
    edges = {name: set() for name in names}
    for line in lines[2 + count :]:
        kind, number, *reached = line.split()
        if kind == "FT":
            edges[names[int(number)]] = {int(edge) for edge in reached}
    return edges


def main():
    program, corpus, found = (pathlib.Path(word) for word in sys.argv[1:4])
    edges = edges_by_file(program, corpus, found)
    kept = {name for name in edges if name.parent == corpus}
    reached = set().union(*(edges[name] for name in kept))
    candidates = [name for name in edges if name not in kept]
    everything = reached.union(*(edges[name] for name in candidates))
    least = max(6, len(everything) // 100)
    before, added = len(reached), 0
    while candidates:
        # Of two that add as much the shorter one, which is easier to read.
        best = min(candidates, key=lambda n: (-len(edges[n] - reached), n.stat().st_size, n))
        if len(edges[best] - reached) < least:
            break
        reached |= edges[best]
        candidates.remove(best)
        shutil.copy(best, corpus)
        added += 1
    print(
        f"{corpus.name}: {len(kept)} inputs and {added} new ones, "
        f"{before} edges, then {len(reached)} of {len(everything)}"
    )


if __name__ == "__main__":
    main()
