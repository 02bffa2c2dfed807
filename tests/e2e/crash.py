"""kill -9 in a rush, restart, go on: nothing that was answered is lost, and every unit is sold (A3)."""
import random
import time

from support import Server, rush, wait_until

UNITS, MEMBERS = 2000, 20000


def one(binary, number, seed):
    rng = random.Random(seed * 1000 + number)
    server = Server(binary)
    try:
        _, (item,) = server.sale([UNITS])
        # Seven of ten are killed in the middle, two of ten when all is given and nobody has paid.
        if number % 10 in (4, 9):
            target = UNITS
        else:
            target = rng.randint(UNITS * 2 // 100, UNITS * 90 // 100)
        load = rush(server, "--item", item, "--members", MEMBERS, "--connections", 200, "--patience-s", 120, "--seed",
                    number + 1)
        wait_until(lambda: server.holding(item) >= target or load.poll() is not None, 120, 0.0005)
        server.kill()
        given = server.holding(item)
        time.sleep(rng.random() * 0.3)
        server.start()
        text, _ = load.communicate(timeout=300)
        assert load.returncode == 0, f"rush ended with {load.returncode}\n{text}"
        server.verify()
        holding = server.holding(item)
        assert holding == UNITS, f"{holding} of {UNITS} units are held"
        print(f"  run {number}: killed at {given} of {UNITS} ({100 * given / UNITS:.1f} %), then all sold", flush=True)
        assert server.stop() == 0
        server.close()
        return given
    except BaseException:
        server.close(keep=True)
        print(f"  run {number}: kept {server.folder}", flush=True)
        raise


def suite(binary, runs, seed=1):
    counts = []
    failures = 0
    for number in range(runs):
        try:
            counts.append(one(binary, number, seed))
        except Exception as error:  # pylint: disable=broad-except
            failures += 1
            print(f"  run {number}: FAILED {error}", flush=True)
    middle = sum(1 for c in counts if UNITS * 0.01 <= c <= UNITS * 0.99)
    print(f"  {runs} runs: {middle} killed with 1 % to 99 % given, {sum(1 for c in counts if c == UNITS)} with all "
          f"given, {failures} failed", flush=True)
    return runs - failures, failures
