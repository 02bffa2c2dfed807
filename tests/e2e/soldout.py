"""Sold out, for now and finally (A5)."""
import time

from support import wait_until


def fill(server, item, members):
    orders = {}
    for member in members:
        answer = server.buy(member, item)
        assert answer.status == 202, answer
        orders[member] = answer.json["orderId"]
    return orders


def flag_is_up(server, item):
    wait_until(lambda: server.buy(999_999, item).status == 410, 5)
    # By the prepared answer now, not by the gate.
    assert server.buy(999_998, item).json == {**server.buy(999_997, item).json}


def returned_unit_is_sold_within_a_second(server):
    _, (item,) = server.sale([5])
    orders = fill(server, item, range(1, 6))
    flag_is_up(server, item)
    for member in range(1, 6):
        assert server.cancel(member, orders[member]).status == 200
        begun = time.monotonic()
        wait_until(lambda m=member: server.buy(100 + m, item).status == 202, 3, 0.01)
        assert time.monotonic() - begun <= 1.0


def holder_gets_the_order_again(server):
    _, (item,) = server.sale([3])
    orders = fill(server, item, range(1, 4))
    flag_is_up(server, item)
    for member, order in orders.items():
        again = server.buy(member, item)
        assert again.status == 409 and again.error == "ALREADY_PURCHASED", again
        assert again.json["orderId"] == order and again.json["payable"] is True, again


def final_only_when_the_rows_say_so(server):
    _, (item,) = server.sale([3])
    orders = fill(server, item, range(1, 4))
    flag_is_up(server, item)
    assert server.buy(50, item).json["final"] is False
    for member in (1, 2):
        assert server.pay(member, orders[member]).status == 200
    time.sleep(1.5)   # the probe has run meanwhile: one hold is still open
    assert server.buy(51, item).json["final"] is False
    assert server.pay(3, orders[3]).status == 200
    wait_until(lambda: server.buy(52, item).json.get("final") is True, 5)
    again = server.buy(2, item)
    assert again.status == 409 and again.json["orderId"] == orders[2] and again.json["status"] == "PAID", again


def never_final_where_a_refund_is_sold_again(server):
    _, (item,) = server.sale([2], resellRefunds=True)
    orders = fill(server, item, (1, 2))
    for member in (1, 2):
        assert server.pay(member, orders[member]).status == 200
    flag_is_up(server, item)
    time.sleep(1.5)   # as above
    assert server.buy(50, item).json["final"] is False
    rows = server.admin("GET", f"/api/admin/flash-sales/items/{item}/orders").json["orders"]
    grant = next(r["grantId"] for r in rows if r["memberId"] == 1)
    refunded = server.admin("POST", f"/api/admin/flash-sales/orders/{grant}/refund", {"reason": "broken"})
    assert refunded.status == 200 and refunded.json["state"] == "DONE", refunded
    wait_until(lambda: server.buy(60, item).status == 202, 3, 0.01)
    server.no_money_lost()


def a_refund_keeps_the_unit_otherwise(server):
    _, (item,) = server.sale([1])
    order = fill(server, item, (1,))[1]
    assert server.pay(1, order).status == 200
    rows = server.admin("GET", f"/api/admin/flash-sales/items/{item}/orders").json["orders"]
    path = f"/api/admin/flash-sales/orders/{rows[0]['grantId']}/refund"
    assert [server.admin("POST", path).status for _ in range(2)] == [200, 200]
    assert server.sql("SELECT count(*) FROM refund WHERE state = 'DONE'")[0][0] >= 1
    assert server.holding(item) == 1
    wait_until(lambda: server.buy(2, item).json.get("final") is True, 5)


def closing_and_settling(server):
    sale, (item,) = server.sale([5], holdSeconds=1)
    fill(server, item, (1, 2))
    assert server.admin("POST", f"/api/admin/flash-sales/{sale}/pause").status == 200
    assert server.buy(3, item).error == "PAUSED"
    assert server.admin("POST", f"/api/admin/flash-sales/{sale}/resume").status == 200
    order = server.buy(3, item).json["orderId"]
    assert server.pay(3, order).status == 200
    assert server.admin("POST", f"/api/admin/flash-sales/{sale}/close").status == 200
    assert server.buy(4, item).error == "CLOSED"
    wait_until(lambda: server.admin("GET", f"/api/admin/flash-sales/{sale}").json["state"] == "SETTLED", 10)
    assert server.buy(4, item).error == "CLOSED"
    assert server.order(3, order).json["status"] == "PAID"
    assert len(server.member(3, "GET", f"/api/flash-sales/{sale}/mine").json["orders"]) == 1


def every_test(binary):
    return [("a returned unit is sold within a second", returned_unit_is_sold_within_a_second),
            ("a holder whose answer was lost gets the order again", holder_gets_the_order_again),
            ("final only when the rows say so", final_only_when_the_rows_say_so),
            ("never final where a refund is sold again", never_final_where_a_refund_is_sold_again),
            ("a refund keeps the unit otherwise", a_refund_keeps_the_unit_otherwise),
            ("pause, resume, close, settle", closing_and_settling)]
