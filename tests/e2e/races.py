"""More buyers than units, at once (A2)."""
import concurrent.futures

from support import rush


def hundred_of_a_thousand(server, runs):
    for number in range(runs):
        load = rush(server, "--units", 100, "--members", 1000, "--connections", 1000, "--seed", number,
                    "--first-member", 1 + number * 1000)
        text, _ = load.communicate(timeout=120)
        assert load.returncode == 0, text
        slots = server.sql("SELECT count(DISTINCT slot), min(slot), max(slot), count(DISTINCT member), count(*) FROM "
                           "flash_sale_order WHERE allotment = (SELECT max(allotment) FROM flash_sale_item WHERE id = "
                           "(SELECT max(id) FROM flash_sale_item)) AND state = 'PENDING'")[0]
        assert slots == (100, 1, 100, 100, 100), slots
    print(f"  {runs} runs of 1,000 clients for 100 units: 100 sold each time", flush=True)


def one_member_many_times(server):
    _, (item,) = server.sale([5])
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda _: server.buy(77, item), range(64)))
    ids = {a.json["orderId"] for a in answers if a.status in (202, 409)}
    assert len(ids) == 1, answers
    assert all(a.status in (202, 409, 503) for a in answers), answers
    assert server.holding(item) == 1
    deadlines = {a.json["expiresAt"] for a in answers if a.status in (202, 409)}
    assert len(deadlines) == 1, deadlines


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
    assert server.holding(item) == 3
    nths = server.sql("SELECT nth FROM flash_sale_order WHERE allotment = ? ORDER BY nth", f"i{item}")
    assert nths == [(1,), (2,), (3,)], nths


def one_scope_for_two_items(server):
    sale, (one, two) = server.sale([3, 3])
    first = server.buy(9, one)
    assert first.status == 202, first
    other = server.buy(9, two)
    assert other.status == 409 and other.json["orderId"] == first.json["orderId"], other
    mine = server.member(9, "GET", f"/api/flash-sales/{sale}/mine").json["orders"]
    assert [o["orderId"] for o in mine] == [first.json["orderId"]] and mine[0]["itemId"] == one, mine
    _, (three, four) = server.sale([3, 3], limitScope="ITEM")
    assert [server.buy(9, i).status for i in (three, four)] == [202, 202]


def tests(runs):
    return [("1,000 clients for 100 units", lambda s: hundred_of_a_thousand(s, runs)),
            ("64 requests of one member are one order", one_member_many_times),
            ("three units a member, each by its key", several_a_member_by_key),
            ("the limit counts in the sale, or in each item", one_scope_for_two_items)]
