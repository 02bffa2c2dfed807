"""Holds: expiry, cancel, payment, and each against the others (A4)."""
import concurrent.futures
import time

from support import wait_until

SLOW, UNKNOWN, IGNORED = "4000000000000077", "4000000000000119", "4000000000000127"
DECLINED, TWICE = "4000000000000002", "4000000000000085"


def back_within_two_seconds(server):
    _, (item,) = server.sale([3], holdSeconds=1)
    bought = [server.buy(m, item) for m in (1, 2, 3)]
    assert [b.status for b in bought] == [202] * 3, bought
    ended = time.monotonic() + 1
    # Sold to others, within two seconds of their end.
    others = iter(range(100, 10_000))
    sold = []

    def three_sold():
        answer = server.buy(next(others), item)
        if answer.status == 202:
            sold.append(time.monotonic())
        return len(sold) == 3

    wait_until(three_sold, 8, 0.05)
    assert max(sold) - ended <= 2.2, [round(t - ended, 2) for t in sold]
    first = server.order(1, bought[0].json["orderId"])
    assert first.json["status"] == "EXPIRED" and not first.json["payable"], first


def three_times_over(server):
    _, (item,) = server.sale([1], holdSeconds=1)
    ids = set()
    for _ in range(3):
        bought = wait_until(lambda: (a := server.buy(7, item)).status == 202 and a, 8, 0.05)
        ids.add(bought.json["orderId"])
        assert server.holding(item) == 1
        wait_until(lambda o=bought: server.order(7, o.json["orderId"]).json["status"] == "EXPIRED", 8, 0.05)
    for _ in range(3):
        bought = wait_until(lambda: (a := server.buy(7, item)).status == 202 and a, 8, 0.05)
        ids.add(bought.json["orderId"])
        canceled = server.cancel(7, bought.json["orderId"])
        assert canceled.status == 200 and canceled.json["status"] == "CANCELED", canceled
    assert len(ids) == 6
    wait_until(lambda: server.holding(item) == 0, 5)
    rows = server.sql("SELECT state, count(*) FROM flash_sale_order WHERE allotment = ? GROUP BY state ORDER BY 1",
                      f"i{item}")
    assert rows == [("CANCELED", 3), ("EXPIRED", 3)], rows


def a_payment_under_way_holds_expiry_back(server):
    _, (item,) = server.sale([1], holdSeconds=1)
    order = server.buy(1, item).json["orderId"]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        paying = pool.submit(server.pay, 1, order, SLOW)
        wait_until(lambda: server.sql("SELECT 1 FROM flash_sale_order WHERE allotment = ? AND held_back_by IS NOT NULL",
                                      f"i{item}"), 5)
        # At the same instant: neither a cancel nor a second payment gets through.
        assert server.cancel(1, order).error == "PAYMENT_IN_PROGRESS"
        assert server.pay(1, order).error == "PAYMENT_IN_PROGRESS"
        assert paying.result().status == 200, paying.result()
    assert server.order(1, order).json["status"] == "PAID"
    assert server.pay(1, order).error == "ALREADY_PAID"
    assert server.cancel(1, order).error == "ALREADY_PAID"
    assert server.holding(item) == 1


def but_not_beyond_its_maximum(server):
    _, (item,) = server.sale([1], holdSeconds=1, holdMaxSeconds=2)
    order = server.buy(1, item).json["orderId"]
    late = server.pay(1, order, SLOW)
    assert late.status == 409 and late.error == "HOLD_EXPIRED", late
    wait_until(lambda: server.buy(2, item).status == 202, 8, 0.05)
    wait_until(lambda: server.sql("SELECT 1 FROM refund WHERE state = 'DONE'"), 8)
    server.no_money_lost()


def late_and_twice(server):
    _, (item,) = server.sale([2], holdSeconds=1)
    order = server.buy(1, item).json["orderId"]
    wait_until(lambda: server.order(1, order).json["status"] == "EXPIRED", 8)
    for _ in range(2):
        assert server.pay(1, order).error == "HOLD_EXPIRED"
        assert server.cancel(1, order).error == "HOLD_EXPIRED"
    # The member holds a newer one: paying the old one changes nothing.
    newer = wait_until(lambda: (a := server.buy(1, item)).status == 202 and a, 8, 0.05).json["orderId"]
    assert server.pay(1, order).error == "HOLD_EXPIRED"
    assert server.pay(1, newer).status == 200


def two_payments_at_once(server):
    _, (item,) = server.sale([20])
    for member in range(1, 11):
        order = server.buy(member, item).json["orderId"]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _, m=member, o=order: server.pay(m, o), range(4)))
        codes = sorted(a.status for a in answers)
        assert codes.count(200) == 1 and codes.count(409) == 3, answers
    for member in range(11, 21):
        order = server.buy(member, item).json["orderId"]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            paid = pool.submit(server.pay, member, order)
            gone = pool.submit(server.cancel, member, order)
            winners = [paid.result().status, gone.result().status].count(200)
        assert winners == 1, (paid.result(), gone.result())


def cards(server):
    _, (item,) = server.sale([10])
    order = server.buy(1, item).json["orderId"]
    declined = server.pay(1, order, DECLINED)
    assert declined.status == 402 and declined.error == "PAYMENT_DECLINED", declined
    assert server.order(1, order).json["payable"] is True
    wrong = server.pay(1, order, amount=1)
    assert wrong.status == 400 and wrong.json["field"] == "amount", wrong
    assert server.pay(1, order).status == 200
    order = server.buy(2, item).json["orderId"]
    assert server.pay(2, order, TWICE).status == 200
    order = server.buy(3, item).json["orderId"]
    unknown = server.pay(3, order, UNKNOWN)
    assert unknown.status == 202 and unknown.error == "PAYMENT_UNKNOWN", unknown
    wait_until(lambda: server.order(3, order).json["status"] == "PAID", 10)
    order = server.buy(4, item).json["orderId"]
    assert server.pay(4, order, IGNORED).error == "PAYMENT_UNKNOWN"
    wait_until(lambda: server.order(4, order).json["payable"], 10)
    assert server.pay(4, order).status == 200


def keys_of_payments(server):
    _, (item,) = server.sale([10])
    order = server.buy(1, item).json["orderId"]
    first = server.pay(1, order, key="k")
    again = server.pay(1, order, key="k")
    assert first.status == again.status == 200 and first.text == again.text, (first, again)
    assert server.pay(1, order, "4111111111111111", key="k").error == "KEY_REUSED"
    other = server.buy(2, item).json["orderId"]
    assert server.pay(2, other, DECLINED, key="k").status == 402
    assert server.pay(2, other, DECLINED, key="k").status == 402
    assert server.pay(2, other, key="k2").status == 200


def after_a_crash(server):
    _, (item,) = server.sale([1])
    order = server.buy(1, item).json["orderId"]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        paying = pool.submit(lambda: server.pay(1, order, SLOW))
        wait_until(lambda: server.sql("SELECT 1 FROM payment_attempt WHERE state = 'OPEN'"), 5)
        server.kill()
        try:
            paying.result()
        except OSError:
            pass
    server.start()
    # The new process cancels the attempt at the gateway before anything else may be charged.
    wait_until(lambda: server.order(1, order).json["payable"], 10)
    assert server.pay(1, order).status == 200


def every_test(binary):
    return [("unpaid holds are back within two seconds and sold to others", back_within_two_seconds),
            ("the same member buys again, three times over", three_times_over),
            ("a payment under way holds expiry, cancel and a second payment back", a_payment_under_way_holds_expiry_back),
            ("but not beyond its maximum, and the money goes back", but_not_beyond_its_maximum),
            ("a late payment is refused, twice the same, also beside a newer order", late_and_twice),
            ("of payments and cancels at once one wins", two_payments_at_once),
            ("each card does what docs/payments.md says", cards),
            ("an Idempotency-Key replays a payment, and only its own", keys_of_payments),
            ("an attempt that a crash left open is settled", after_a_crash)]
