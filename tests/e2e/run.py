#!/usr/bin/env python3
"""The real program from outside. The last line is "N passed, N failed"."""
import argparse
import os
import sys
import time
import traceback

import contract
import crash
import errors
import holds
import races
import soldout
from support import Server, Skip


class Tally:
    passed = 0
    failed = 0
    skipped = 0


def run_test(tally, name, what, test):
    """One test; whether it went well. A failure says all that is known."""
    begun = time.monotonic()
    try:
        test()
    except Skip as reason:
        tally.skipped += 1
        print(f"SKIP {name}: {what}: {reason}", flush=True)
        return True
    except Exception:  # whatever it is: the other tests go on, and it is shown
        tally.failed += 1
        print(f"FAIL {name}: {what}\n{traceback.format_exc()}", flush=True)
        return False
    tally.passed += 1
    print(f"ok   {name}: {what} ({time.monotonic() - begun:.1f} s)", flush=True)
    return True


def run_suite(tally, binary, name, tests, server_args, keep):
    """Tests that share a server; one that fails leaves its folder, and the next one gets a new server."""
    server = None
    for what, test in tests:
        def whole(test=test):
            nonlocal server
            if server is None:
                server = Server(binary, args=server_args)
            test(server)
            assert server.process.poll() is None, f"the server has ended with {server.process.returncode}"
            server.verify()
            server.no_money_lost()

        if run_test(tally, name, what, whole) or server is None:
            continue
        print(f"     kept: {server.folder}\n{server.log_end(2000)}", flush=True)
        server.close(keep=True)
        server = None
    if server is None:
        return
    code = server.stop()
    if code != 0:
        tally.failed += 1
        print(f"FAIL {name}: the server ended with {code}, kept: {server.folder}\n{server.log_end()}", flush=True)
    server.close(keep or code != 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="the program, build/release/bin/doorbuster")
    parser.add_argument("--quick", action="store_true", help="what takes long as a sample")
    suites = ["races", "holds", "soldout", "errors", "contract", "crash"]
    parser.add_argument("--only", choices=suites)
    parser.add_argument("--runs", type=int, help="of the race and the crash test (100 and 120; quick: 3 and 4)")
    parser.add_argument("--seed", type=int, default=1, help="of the crash test; a run of the log can be had again")
    parser.add_argument("--keep", action="store_true", help="keep the data folders")
    args = parser.parse_args()
    if not os.access(args.server, os.X_OK):
        print(f"{args.server} is no program; build it first\n0 passed, 1 failed")
        return 1
    if args.runs is not None and args.runs < 1:
        parser.error("--runs must be at least 1")
    tally = Tally()

    def wanted(name):
        return args.only in (None, name)

    if wanted("races"):
        run_suite(tally, args.server, "races", races.tests(args.runs or (3 if args.quick else 100)), [], args.keep)
    if wanted("holds"):
        run_suite(tally, args.server, "holds", holds.TESTS, [], args.keep)
    if wanted("soldout"):
        run_suite(tally, args.server, "soldout", soldout.TESTS, [], args.keep)
    if wanted("errors"):
        run_suite(tally, args.server, "errors", errors.TESTS, errors.SERVER_ARGS, args.keep)
    # After the others: it also looks at every answer that they have got.
    if wanted("contract"):
        run_suite(tally, args.server, "contract", contract.TESTS, [], args.keep)
    if wanted("crash"):
        runs = args.runs or (4 if args.quick else 120)
        run_test(tally, "crash", f"kill -9 in a rush and go on, {runs} runs",
                 lambda: crash.suite(args.server, runs, args.seed, args.keep))
    if tally.skipped:
        print(f"\n{tally.skipped} skipped, the reasons are above")
    print(f"\n{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
