#!/usr/bin/env python3
"""Counts test cases: tally.py FOLDER -> "PASSED FAILED".

FOLDER holds ctest.xml (ctest --output-junit) and one GoogleTest report NAME_test.xml for each
program. Case by case where a program left its report; a program that died before that, or that
failed although all its cases passed, counts as one failure.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def cases(report):
    """Passed and failed cases of one GoogleTest report; the names of the failed ones."""
    passed, failed = 0, []
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f'{case.get("classname")}.{case.get("name")}')
        elif case.get("result") == "skipped" or case.find("skipped") is not None:
            print(f'skipped: {case.get("classname")}.{case.get("name")}', file=sys.stderr)
        elif case.get("status") != "notrun":
            passed += 1
    return passed, failed


def tally(folder):
    passed, failed = 0, []
    programs = list(ElementTree.parse(folder / "ctest.xml").iter("testcase"))
    if not programs:
        failed.append("no test program was found")
    for program in programs:
        name = program.get("name")
        ended_well = program.get("status") == "run"
        try:
            some_passed, some_failed = cases(folder / f"{name}_test.xml")
        except (FileNotFoundError, ElementTree.ParseError):
            some_passed, some_failed = (1, []) if ended_well else (0, [f"{name} (no report)"])
        if not ended_well and not some_failed:
            some_failed.append(f"{name} (failed after its last case)")
        passed += some_passed
        failed += some_failed
    return passed, failed


def main():
    folder = pathlib.Path(sys.argv[1])
    try:
        passed, failed = tally(folder)
    except (FileNotFoundError, ElementTree.ParseError) as error:
        passed, failed = 0, [f"no report of ctest: {error}"]
    for name in failed:
        print(f"failed: {name}", file=sys.stderr)
    print(passed, len(failed))


if __name__ == "__main__":
    main()
