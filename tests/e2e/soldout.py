"""Sold out, for now and finally (A5)."""
import http.client
import time

from support import CONTRACT, stays, wait_until


def fill(server, item, members):
    orders = {}
    for member in members:
        answer = server.buy(member, item)
        assert answer.status == 202, answer
        orders[member] = answer.json["orderId"]
    return orders


def flag_is_up(server, item):
    """The public page says 0, and strangers are refused."""
    wait_until(lambda: server.buy(999_999, item).status == 410, 5)
    allotment = f"i{item}"

    def state():
        for name, _, data in [line.partition(b": ") for line in first_event(server, allotment).split(b"\n")]:
            if name == b"data":
                return b'"SOLD_OUT' in data
        return False

    wait_until(state, 5)


def first_event(server, allotment):
    """The first server-sent event of an item."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("GET", f"/api/events/{allotment}")
        answer = connection.getresponse()
        assert answer.status == 200, answer.status
        assert answer.getheader("Content-Type").startswith("text/event-stream"), answer.getheaders()
        text = b""
        while not text.endswith(b"\n\n"):
            line = answer.readline()
            assert line, "the stream has ended"
            text += line
        return text
    finally:
        connection.close()


def returned_unit_is_sold_within_a_second(server):
    _, (item,) = server.sale([5])
    orders = fill(server, item, range(1, 6))
    for member in range(1, 6):
        flag_is_up(server, item)
        assert server.cancel(member, orders[member]).status == 200
        begun = time.monotonic()
        wait_until(lambda m=member: server.buy(100 + m, item).status == 202, 3, 0.01)
        assert time.monotonic() - begun <= 1.0, time.monotonic() - begun
    assert server.holding(item) == 5


def holder_gets_the_order_again(server):
    _, (item,) = server.sale([3])
    orders = fill(server, item, range(1, 4))
    flag_is_up(server, item)
    for member, order in orders.items():
        again = server.buy(member, item)
        assert again.status == 409 and again.error == "ALREADY_PURCHASED", again
        assert again.json["orderId"] == order and again.json["payable"] is True, again
    # A restart forgets the flag and the answers, not who holds what.
    server.kill()
    server.start()
    for member, order in orders.items():
        again = server.buy(member, item)
        assert again.status == 409 and again.json["orderId"] == order, again
    flag_is_up(server, item)
    assert server.buy(1, item).json["orderId"] == orders[1]


def final_only_when_the_rows_say_so(server):
    _, (item,) = server.sale([3])
    orders = fill(server, item, range(1, 4))
    flag_is_up(server, item)
    strangers = iter(range(1000, 100_000))

    def not_final():
        answer = server.buy(next(strangers), item)
        return answer.status == 410 and answer.json["final"] is False

    stays(not_final, 1.5)   # longer than the probe's second
    for member in (1, 2):
        assert server.pay(member, orders[member]).status == 200
    stays(not_final, 1.5)   # one hold is still open
    assert server.pay(3, orders[3]).status == 200
    wait_until(lambda: server.buy(next(strangers), item).json["final"] is True, 3)
    stays(lambda: server.buy(next(strangers), item).json["final"] is True, 1.2)
    for member, order in orders.items():
        again = server.buy(member, item)
        assert again.status == 409 and again.json["orderId"] == order and again.json["status"] == "PAID", again


def never_final_where_a_refund_is_sold_again(server):
    _, (item,) = server.sale([2], resellRefunds=True)
    orders = fill(server, item, (1, 2))
    for member in (1, 2):
        assert server.pay(member, orders[member]).status == 200
    flag_is_up(server, item)
    strangers = iter(range(1000, 100_000))

    def not_final():
        answer = server.buy(next(strangers), item)
        return answer.status == 410 and answer.json["final"] is False

    stays(not_final, 2.5)
    refunded = refund(server, server.grants(item)[1]["grantId"])
    assert refunded.status == 200 and refunded.json["state"] == "DONE", refunded
    begun = time.monotonic()
    wait_until(lambda: server.buy(60, item).status == 202, 3, 0.01)
    assert time.monotonic() - begun <= 1.0
    assert server.order(1, orders[1]).json["status"] == "CANCELED"
    assert server.holding(item) == 2
    # Refunding it again returns nothing a second time.
    assert refund(server, server.grants(item)[1]["grantId"]).status in (200, 409)
    stays(not_final, 1.2)
    assert server.holding(item) == 2


def refund(server, grant):
    return server.admin("POST", f"/api/admin/flash-sales/orders/{grant}/refund", {"reason": "broken"})


def a_refund_keeps_the_unit_otherwise(server):
    _, (item,) = server.sale([1])
    order = fill(server, item, (1,))[1]
    unpaid = refund(server, server.grants(item)[1]["grantId"])
    assert unpaid.status == 409 and unpaid.error == "WRONG_STATE", unpaid
    assert server.pay(1, order).status == 200
    grant = server.grants(item)[1]["grantId"]
    first, again = refund(server, grant), refund(server, grant)
    assert first.status == again.status == 200 and first.json["state"] == "DONE", (first, again)
    assert first.json["amount"] == again.json["amount"] == {"amount": 9900, "currency": "KRW"}, (first, again)
    refunds = server.sql("SELECT r.state, r.amount FROM refund r JOIN payment_attempt p ON p.id = r.attempt_id "
                         "JOIN flash_sale_order o ON o.id = p.order_id WHERE o.allotment = ?", f"i{item}")
    assert refunds == [("DONE", 9900)], refunds
    assert server.holding(item) == 1
    wait_until(lambda: server.buy(2, item).json.get("final") is True, 3)
    assert refund(server, "0" * 32).status == 404


def closing_and_settling(server):
    sale, (item,) = server.sale([5], holdSeconds=1)
    path = f"/api/admin/flash-sales/{sale}"
    fill(server, item, (1, 2))
    assert server.admin("POST", path + "/pause").json["state"] == "PAUSED"
    assert server.buy(3, item).error == "PAUSED"
    assert server.admin("POST", path + "/pause").error == "WRONG_STATE"
    assert server.admin("POST", path + "/resume").json["state"] == "OPEN"
    answer = server.buy(3, item)
    assert answer.status == 202, answer
    order = answer.json["orderId"]
    assert server.admin("POST", path + "/close").json["state"] in ("CLOSED", "SETTLED")
    assert server.buy(4, item).error == "CLOSED"
    # What was given stays, and can be paid.
    assert server.pay(3, order).status == 200
    wait_until(lambda: server.admin("GET", path).json["state"] == "SETTLED", 10)
    assert server.sql("SELECT count(*) FROM flash_sale_order WHERE allotment = ? AND state = 'PENDING'",
                      f"i{item}") == [(0,)]
    assert server.buy(4, item).error == "CLOSED"
    assert server.order(3, order).json["status"] == "PAID"
    # The public pages are of what is on, as the contract says; an order is found for ever.
    if "A draft or a settled sale is 404" in CONTRACT.read_text():
        assert server.call("GET", f"/api/flash-sales/{sale}").status == 404
        listed = server.call("GET", "/api/flash-sales?limit=1000").json["sales"]
        assert sale not in [s["id"] for s in listed], listed
    mine = server.member(3, "GET", f"/api/flash-sales/{sale}/mine")
    assert mine.status == 200 and [o["orderId"] for o in mine.json["orders"]] == [order], mine
    # Also behind a restart.
    assert server.stop() == 0
    server.start()
    assert server.buy(4, item).error == "CLOSED"
    assert server.order(3, order).json["status"] == "PAID"


def rebuild_while_it_sells(server):
    """The gate is loaded from the rows again: nothing is lost, nothing is sold twice."""
    sale, (item,) = server.sale([4])
    orders = fill(server, item, (1, 2))
    assert server.admin("POST", f"/api/admin/flash-sales/{sale}/rebuild", {"counts": True}).status == 200
    for member, order in orders.items():
        assert server.buy(member, item).json["orderId"] == order
    fill(server, item, (3, 4))
    assert server.admin("POST", f"/api/admin/flash-sales/{sale}/rebuild").status == 200
    wait_until(lambda: (a := server.buy(5, item)).status == 410 and a, 5)
    assert server.holding(item) == 4


TESTS = [("a returned unit is sold within a second", returned_unit_is_sold_within_a_second),
         ("a holder whose answer was lost gets the order again", holder_gets_the_order_again),
         ("final only when the rows say so", final_only_when_the_rows_say_so),
         ("never final where a refund is sold again", never_final_where_a_refund_is_sold_again),
         ("a refund keeps the unit otherwise", a_refund_keeps_the_unit_otherwise),
         ("pause, resume, close, settle", closing_and_settling),
         ("a rebuild loses nothing", rebuild_while_it_sells)]
