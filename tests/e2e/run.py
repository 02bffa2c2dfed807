#!/usr/bin/env python3
"""The real program from outside. The last line is "N passed, N failed"."""
import argparse
import sys
import time
import traceback

import crash
import errors
import holds
import races
import soldout
from support import Server


def run_tests(binary, name, tests, server_args, keep):
    passed = failed = 0
    server = None
    for what, test in tests:
        begun = time.monotonic()
        try:
            if server is None or server.process.poll() is not None:
                server = Server(binary, args=server_args)
            test(server)
            server.verify()
            server.no_money_lost()
            assert server.process.poll() is None, "the server has ended"
            print(f"ok   {name}: {what} ({time.monotonic() - begun:.1f} s)", flush=True)
            passed += 1
        except Exception:  # pylint: disable=broad-except
            failed += 1
            print(f"FAIL {name}: {what}\n{traceback.format_exc()}", flush=True)
            if server is not None:
                print(f"     log: {server.log}\n{server.log.read_text()[-2000:]}", flush=True)
                server.close(keep=True)
                server = None
    if server is not None:
        code = server.stop()
        if code != 0:
            failed += 1
            print(f"FAIL {name}: the server ended with {code}\n{server.log.read_text()[-3000:]}", flush=True)
        server.close(keep)
    return passed, failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True, help="the program, build/release/bin/doorbuster")
    parser.add_argument("--quick", action="store_true", help="what takes long as a sample")
    parser.add_argument("--only", choices=["races", "crash", "holds", "soldout", "errors"])
    parser.add_argument("--runs", type=int, help="of the crash test and the race (120 and 100; quick: 6 and 5)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep the data folders")
    args = parser.parse_args()
    passed = failed = 0

    def count(result):
        nonlocal passed, failed
        passed += result[0]
        failed += result[1]

    def wanted(name):
        return args.only in (None, name)

    if wanted("races"):
        count(run_tests(args.server, "races", races.tests(args.runs or (5 if args.quick else 100)), [], args.keep))
    if wanted("holds"):
        count(run_tests(args.server, "holds", holds.every_test(args.server), [], args.keep))
    if wanted("soldout"):
        count(run_tests(args.server, "soldout", soldout.every_test(args.server), [], args.keep))
    if wanted("errors"):
        count(run_tests(args.server, "errors", errors.every_test(args.server),
                        ["--http.header_timeout_ms", "1000", "--http.body_timeout_ms", "1000"], args.keep))
    if wanted("crash"):
        count(crash.suite(args.server, args.runs or (6 if args.quick else 120), args.seed))
    print(f"\n{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
