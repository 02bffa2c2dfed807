"""More buyers than units, at once (A2)."""
import concurrent.futures
import json
import threading

from support import rush, wait_until


def run_rush(server, *args):
    """A whole rush; its report."""
    file = server.log.parent / "rush.json"
    file.unlink(missing_ok=True)
    load = rush(server, *args, "--json", file)
    text, _ = load.communicate(timeout=300)
    assert load.returncode == 0, f"rush ended with {load.returncode}\n{text}"
    report = json.loads(file.read_text())
    assert report["outcome"] == "ok" and report["verdict"]["findings"] == [], text
    assert report["verdict"]["rejected_after_grant"] == 0 and report["verdict"]["merged"] == 0, text
    return report


def hundred_of_a_thousand(server, runs):
    for number in range(runs):
        report = run_rush(server, "--units", 100, "--members", 1000, "--connections", 1000, "--seed", number,
                          "--first-member", 1 + number * 1000)
        assert report["connections"] == 1000, report["connections"]
        assert report["purchases"].get("granted") == 100, report["purchases"]
        rows = server.sql("SELECT count(DISTINCT slot), min(slot), max(slot), count(DISTINCT member), count(*) FROM "
                          "flash_sale_order WHERE allotment = ? AND state IN ('PENDING', 'PAID')",
                          f"i{report['item_id']}")[0]
        assert rows == (100, 1, 100, 100, 100), f"run {number}: {rows}"
        others = server.sql("SELECT count(*) FROM flash_sale_order WHERE allotment = ? AND state NOT IN "
                            "('PENDING', 'PAID')", f"i{report['item_id']}")[0][0]
        assert others == 0, f"run {number}: {others} rows in another state"
    print(f"  {runs} runs of 1,000 clients for 100 units: 100 sold each time", flush=True)


def holders_ask_again(server):
    report = run_rush(server, "--units", 100, "--members", 300, "--connections", 300, "--ask-again-share", 1)
    assert report["purchases"].get("granted") == 100, report["purchases"]
    assert report["asked_again"] >= 100, report["asked_again"]
    assert report["asked_again_same"] == report["asked_again"], report


def one_comes_back_to_two_hundred(server):
    """Case 1: the unit that one gives back goes to exactly one of all who wait at a barrier."""
    members = range(100, 300)
    _, (item,) = server.sale([1])
    order = server.buy(1, item).json["orderId"]
    wait_until(lambda: server.buy(2, item).status == 410, 5)
    barrier = threading.Barrier(len(members) + 1)

    def buy(member):
        barrier.wait()
        return wait_until(lambda: (a := server.buy(member, item)).status != 503 and a, 10)

    with concurrent.futures.ThreadPoolExecutor(len(members)) as pool:
        waiting = [pool.submit(buy, member) for member in members]
        assert server.cancel(1, order).status == 200
        barrier.wait()
        answers = [w.result() for w in waiting]
    codes = sorted({a.status for a in answers})
    assert set(codes) <= {202, 410}, codes
    given = [a for a in answers if a.status == 202]
    # The return may still be on its way when all have been refused: then the next one gets it.
    if not given:
        given = [wait_until(lambda: (a := server.buy(500, item)).status == 202 and a, 2)]
    assert len(given) == 1, given
    assert server.holding(item) == 1
    assert server.buy(501, item).status == 410


def one_member_many_times(server):
    _, (item,) = server.sale([5])
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda _: server.buy(77, item), range(64)))
    assert all(a.status in (202, 409) for a in answers), answers
    assert {a.json["orderId"] for a in answers} == {answers[0].json["orderId"]}, answers
    assert {a.json["expiresAt"] for a in answers} == {answers[0].json["expiresAt"]}, answers
    assert all(a.json["status"] == "PENDING" for a in answers), answers
    assert server.holding(item) == 1
    assert server.sql("SELECT count(*) FROM flash_sale_order WHERE allotment = ?", f"i{item}") == [(1,)]


def several_a_member_by_key(server):
    _, (item,) = server.sale([10], perMember=3)
    assert server.buy(5, item).error == "KEY_REQUIRED"
    first = server.buy(5, item, "a")
    assert first.status == 202, first
    again = server.buy(5, item, "a")
    assert again.status == 409 and again.json["orderId"] == first.json["orderId"], again
    others = [server.buy(5, item, key) for key in "bc"]
    assert [o.status for o in others] == [202, 202], others
    over = server.buy(5, item, "d")
    assert over.status == 409 and over.error == "ALREADY_PURCHASED", over
    assert over.json["orderId"] in {a.json["orderId"] for a in [first, *others]}, over
    assert server.holding(item) == 3
    nths = server.sql("SELECT nth FROM flash_sale_order WHERE allotment = ? ORDER BY nth", f"i{item}")
    assert nths == [(1,), (2,), (3,)], nths
    # Another member's key of the same name is another key (case 12).
    other = server.buy(6, item, "a")
    assert other.status == 202 and other.json["orderId"] != first.json["orderId"], other


def several_a_member_at_once(server):
    _, (item,) = server.sale([10], perMember=3)
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda n: (n % 3, server.buy(5, item, f"key {n % 3}")), range(63)))
    assert all(a.status in (202, 409) for _, a in answers), answers
    by_key = {key: {a.json["orderId"] for n, a in answers if n == key} for key in range(3)}
    assert all(len(ids) == 1 for ids in by_key.values()), by_key
    assert len(set.union(*by_key.values())) == 3, by_key
    rows = server.sql("SELECT member_key, nth FROM flash_sale_order WHERE allotment = ? ORDER BY nth", f"i{item}")
    assert sorted(k for k, _ in rows) == ["key 0", "key 1", "key 2"] and [n for _, n in rows] == [1, 2, 3], rows


def one_scope_for_two_items(server):
    sale, (one, two) = server.sale([3, 3])
    first = server.buy(9, one)
    assert first.status == 202, first
    other = server.buy(9, two)
    assert other.status == 409 and other.json["orderId"] == first.json["orderId"], other
    mine = server.member(9, "GET", f"/api/flash-sales/{sale}/mine").json["orders"]
    assert [o["orderId"] for o in mine] == [first.json["orderId"]], mine
    assert mine[0].get("itemId") == one, mine
    # Both at once, by many members: each of them gets one of the two.
    members = range(10, 12)
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda n: (n % 2, server.buy(10 + n % 2, (one, two)[n // 2 % 2])), range(32)))
    for which, member in enumerate(members):
        ids = {a.json["orderId"] for n, a in answers if n == which and a.status in (202, 409)}
        assert len(ids) == 1, (member, ids)
    assert server.holding(one) + server.holding(two) == 3
    _, (three, four) = server.sale([3, 3], limitScope="ITEM")
    assert [server.buy(9, i).status for i in (three, four)] == [202, 202]


def tests(runs):
    return [("1,000 clients for 100 units", lambda s: hundred_of_a_thousand(s, runs)),
            ("300 members for 100 units, and each holder who asks again gets the same", holders_ask_again),
            ("a unit that comes back goes to one of two hundred", one_comes_back_to_two_hundred),
            ("64 requests of one member are one order", one_member_many_times),
            ("three units a member, each by its key", several_a_member_by_key),
            ("three keys at once, each of them many times", several_a_member_at_once),
            ("the limit counts in the sale, or in each item", one_scope_for_two_items)]
