"""Holds: expiry, cancel, payment, and each against the others (A4)."""
import concurrent.futures
import time

from support import CONTRACT, wait_until

GOOD, SLOW, UNKNOWN, IGNORED = "4242424242424242", "4000000000000077", "4000000000000119", "4000000000000127"
DECLINED, TWICE = "4000000000000002", "4000000000000085"


def bought(server, member, item, key=None):
    answer = server.buy(member, item, key)
    assert answer.status == 202, answer
    return answer.json["orderId"]


def bought_in_the_end(server, member, item):
    """Busy and sold out are right while a unit is on its way back."""
    return wait_until(lambda: (a := server.buy(member, item)).status == 202 and a, 8).json["orderId"]


def state(server, member, order):
    return server.order(member, order).json["status"]


def expired(server, member, order):
    wait_until(lambda: state(server, member, order) == "EXPIRED", 8)


def attempt_is_open(server, item):
    wait_until(lambda: server.sql("SELECT 1 FROM flash_sale_order WHERE allotment = ? AND held_back_by IS NOT NULL",
                                  f"i{item}"), 5, 0.01)


def charges(server, item):
    """What the gateway's book says about an item's orders: [(order state, attempt state, charge state)]."""
    return server.sql("SELECT o.state, p.state, c.state FROM payment_attempt p JOIN flash_sale_order o "
                      "ON o.id = p.order_id LEFT JOIN simulated_charge c ON c.attempt_id = p.id "
                      "WHERE o.allotment = ? ORDER BY p.id", f"i{item}")


def back_within_two_seconds(server):
    """Unpaid holds end and are sold to others, within two seconds of their end."""
    for hold in (1, 2):
        _, (item,) = server.sale([3], holdSeconds=hold)
        first = {member: bought(server, member, item) for member in (1, 2, 3)}
        ends = time.monotonic() + hold
        others = iter(range(100, 100_000))
        sold = []

        def three_sold():
            answer = server.buy(next(others), item)
            assert answer.status in (202, 410, 503), answer
            if answer.status == 202:
                sold.append(time.monotonic())
            return len(sold) == 3

        wait_until(three_sold, hold + 5, 0.01)
        assert min(sold) >= ends - hold, sold
        assert max(sold) - ends <= 2.0, [round(t - ends, 2) for t in sold]
        for member, order in first.items():
            answer = server.order(member, order)
            assert answer.json["status"] == "EXPIRED" and answer.json["payable"] is False, answer
        # Not before their end: the rows say it to the microsecond.
        early = server.sql("SELECT count(*) FROM flash_sale_order o JOIN flash_sale_order_history h ON h.order_id = o.id "
                           "AND h.to_state = 'EXPIRED' WHERE o.allotment = ? AND h.at < o.expires_at", f"i{item}")
        assert early == [(0,)], early


def three_times_over(server):
    """Case 7: each time one live row, one unit, a new order."""
    _, (item,) = server.sale([1], holdSeconds=1)
    orders = set()
    for _ in range(3):
        order = bought_in_the_end(server, 7, item)
        assert server.holding(item) == 1
        assert order not in orders
        orders.add(order)
        expired(server, 7, order)
    for _ in range(3):
        order = bought_in_the_end(server, 7, item)
        assert server.holding(item) == 1
        assert order not in orders
        orders.add(order)
        for _ in range(2):
            canceled = server.cancel(7, order)
            assert canceled.status == 200 and canceled.json["status"] == "CANCELED", canceled
    wait_until(lambda: server.holding(item) == 0, 5)
    rows = server.sql("SELECT state, count(*) FROM flash_sale_order WHERE allotment = ? GROUP BY state ORDER BY 1",
                      f"i{item}")
    assert rows == [("CANCELED", 3), ("EXPIRED", 3)], rows
    history = server.sql("SELECT count(*) FROM flash_sale_order_history h JOIN flash_sale_order o ON o.id = h.order_id "
                         "WHERE o.allotment = ?", f"i{item}")
    assert history == [(12,)], history


def a_payment_under_way_holds_expiry_back(server):
    """The hold ends while the bank thinks: PAID wins. A cancel and a second payment meet PAYMENT_IN_PROGRESS."""
    _, (item,) = server.sale([1], holdSeconds=1, holdMaxSeconds=60)
    order = bought(server, 1, item)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        paying = pool.submit(server.pay, 1, order, SLOW)
        attempt_is_open(server, item)
        assert server.cancel(1, order).error == "PAYMENT_IN_PROGRESS"
        assert server.pay(1, order).error == "PAYMENT_IN_PROGRESS"
        assert server.order(1, order).json["payable"] is False
        due = server.sql("SELECT due_at FROM flash_sale_order WHERE allotment = ?", f"i{item}")[0][0] / 1e6
        wait_until(lambda: time.time() > due + 1, 5)   # the hold is over, and the job had a turn
        assert not paying.done()
        assert state(server, 1, order) == "PENDING"
        assert server.buy(2, item).status in (410, 503)
        paid = paying.result()
        assert paid.status == 200 and paid.json["status"] == "PAID", paid
    assert state(server, 1, order) == "PAID"
    assert charges(server, item) == [("PAID", "APPROVED", "CHARGED")]
    assert server.holding(item) == 1


def but_not_beyond_its_maximum(server):
    _, (item,) = server.sale([1], holdSeconds=1, holdMaxSeconds=2)
    order = bought(server, 1, item)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        paying = pool.submit(server.pay, 1, order, SLOW)
        newer = bought_in_the_end(server, 2, item)
        late = paying.result()
    assert late.status == 409 and late.error == "HOLD_EXPIRED", late
    wait_until(lambda: charges(server, item) == [("EXPIRED", "APPROVED", "REFUNDED")], 8)
    refunds = server.sql("SELECT r.state, r.amount FROM refund r JOIN payment_attempt p ON p.id = r.attempt_id "
                         "JOIN flash_sale_order o ON o.id = p.order_id WHERE o.allotment = ?", f"i{item}")
    assert refunds == [("DONE", 9900)], refunds
    assert state(server, 2, newer) == "PENDING"


def late_and_beside_a_newer_one(server):
    """Case 6 (c): paying the old order changes nothing, and the newer one can be paid."""
    _, (item,) = server.sale([2], holdSeconds=1)
    order = bought(server, 1, item)
    expired(server, 1, order)
    for _ in range(2):
        assert server.pay(1, order).error == "HOLD_EXPIRED"
        assert server.cancel(1, order).error == "HOLD_EXPIRED"
    newer = bought_in_the_end(server, 1, item)
    assert newer != order
    assert server.pay(1, order).error == "HOLD_EXPIRED"
    assert server.pay(1, newer).status == 200
    assert charges(server, item) == [("PAID", "APPROVED", "CHARGED")]


def one_winner_at_once(server):
    _, (item,) = server.sale([30])
    for member in range(1, 11):
        order = bought(server, member, item)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _, m=member, o=order: server.pay(m, o), range(4)))
        assert sorted(a.status for a in answers) == [200, 409, 409, 409], answers
        assert {a.error for a in answers if a.status == 409} <= {"PAYMENT_IN_PROGRESS", "ALREADY_PAID"}, answers
    for member in range(11, 21):
        order = bought(server, member, item)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            # Each of them comes first half the time.
            first, second = (server.pay, server.cancel) if member % 2 else (server.cancel, server.pay)
            answers = [f.result() for f in (pool.submit(first, member, order), pool.submit(second, member, order))]
        assert sorted(a.status for a in answers) == [200, 409], answers
        won = next(a for a in answers if a.status == 200).json["status"]
        lost = next(a for a in answers if a.status == 409).error
        assert lost in {"PAID": ("PAYMENT_IN_PROGRESS", "ALREADY_PAID"), "CANCELED": ("CANCELED",)}[won], answers
        assert state(server, member, order) == won
    for member in range(21, 26):
        order = bought(server, member, item)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _, m=member, o=order: server.cancel(m, o), range(4)))
        assert [a.status for a in answers] == [200] * 4, answers
    returned = server.sql("SELECT count(*) FROM flash_sale_order_history h JOIN flash_sale_order o ON o.id = h.order_id "
                          "WHERE o.allotment = ? AND h.to_state = 'CANCELED' AND o.member > 20", f"i{item}")
    assert returned == [(5,)], returned


def payments_at_the_instant_of_expiry(server):
    """Each answer is the one of the state that the order ends in, whichever side of the instant it fell on."""
    _, (item,) = server.sale([40], holdSeconds=1)
    orders = {member: bought(server, member, item) for member in range(1, 41)}
    ends = {m: e / 1e6 for m, e in server.sql("SELECT member, expires_at FROM flash_sale_order WHERE allotment = ?",
                                              f"i{item}")}

    def pay(member):
        # From 20 ms before the end of the hold to 20 ms behind it.
        time.sleep(max(0.0, ends[member] - time.time() + (member - 20) / 1000))
        return server.pay(member, orders[member])

    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        answers = dict(zip(orders, pool.map(pay, orders)))
    for member, answer in answers.items():
        assert answer.status == 200 or answer.error == "HOLD_EXPIRED", answer
    for member, answer in answers.items():
        wait_until(lambda m=member: server.sql("SELECT state FROM flash_sale_order WHERE allotment = ? AND member = ?",
                                               f"i{item}", m) != [("PENDING",)], 5)
        assert state(server, member, orders[member]) == ("PAID" if answer.status == 200 else "EXPIRED")
    assert all(c == ("PAID", "APPROVED", "CHARGED") for c in charges(server, item)), charges(server, item)


def cards(server):
    _, (item,) = server.sale([10])
    order = bought(server, 1, item)
    declined = server.pay(1, order, DECLINED)
    assert declined.status == 402 and declined.error == "PAYMENT_DECLINED", declined
    assert server.order(1, order).json["payable"] is True
    assert server.pay(1, order).status == 200
    order = bought(server, 2, item)
    assert server.pay(2, order, TWICE).status == 200
    assert server.sql("SELECT c.charges FROM simulated_charge c JOIN payment_attempt p ON p.id = c.attempt_id JOIN "
                      "flash_sale_order o ON o.id = p.order_id WHERE o.member = 2 AND o.allotment = ?",
                      f"i{item}") == [(1,)]
    order = bought(server, 3, item)
    unknown = server.pay(3, order, UNKNOWN)
    assert unknown.status == 202 and unknown.error == "PAYMENT_UNKNOWN", unknown
    assert unknown.json["orderId"] == order, unknown
    wait_until(lambda: state(server, 3, order) == "PAID", 10)
    order = bought(server, 4, item)
    assert server.pay(4, order, IGNORED).error == "PAYMENT_UNKNOWN"
    wait_until(lambda: server.order(4, order).json["payable"], 10)
    assert server.pay(4, order).status == 200
    assert server.holding(item) == 4


def the_job_by_hand(server):
    """An outcome that is not known is asked for by the job, not guessed; and it can be run now."""
    _, (item,) = server.sale([1])
    order = bought(server, 1, item)
    assert server.pay(1, order, UNKNOWN).status == 202
    ran = server.admin("POST", "/api/admin/jobs/reconcile-payments")
    assert ran.status == 200 and ran.json["job"] == "reconcile-payments", ran
    assert state(server, 1, order) == "PAID"
    again = server.admin("POST", "/api/admin/jobs/reconcile-payments")
    assert again.status == 200 and again.json["changed"] == 0, again
    assert charges(server, item) == [("PAID", "APPROVED", "CHARGED")]


def another_amount(server):
    """A payment of another amount or currency is refused, and nothing is charged."""
    _, (item,) = server.sale([1])
    order = bought(server, 1, item)
    # As the contract says; the contract's own suite finds a code that is promised and never given.
    code = "AMOUNT_MISMATCH" if "AMOUNT_MISMATCH" in CONTRACT.read_text() else "INVALID_BODY"
    for amount, currency, field in ((9899, "KRW", "amount"), (9901, "KRW", "amount"), (0, "KRW", "amount"),
                                    (9900, "USD", "currency")):
        wrong = server.member(1, "POST", f"/api/flash-sales/orders/{order}/payment",
                              {"cardNumber": GOOD, "amount": amount, "currency": currency})
        assert wrong.error == code, wrong
        assert wrong.status == 422 or (wrong.status == 400 and wrong.field == field), wrong
    assert charges(server, item) == []
    assert server.pay(1, order).status == 200


def keys_of_payments(server):
    """Case 12."""
    _, (item,) = server.sale([10])
    order = bought(server, 1, item)
    first = server.pay(1, order, key="k")
    again = server.pay(1, order, key="k")
    assert first.status == again.status == 200 and first.text == again.text, (first, again)
    reused = server.pay(1, order, "4111111111111111", key="k")
    assert reused.status == 422 and reused.error == "KEY_REUSED", reused
    # Another member's key of the same name, on another route: independent.
    other = bought(server, 2, item)
    declined = [server.pay(2, other, DECLINED, key="k") for _ in range(2)]
    assert [d.status for d in declined] == [402, 402], declined
    assert len(charges(server, item)) == 2, charges(server, item)
    assert server.pay(2, other, key="k2").status == 200
    assert server.pay(1, order, key="longer" * 50).status == 400


def key_of_a_payment_sent_twice_at_once(server):
    _, (item,) = server.sale([1])
    order = bought(server, 1, item)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: server.pay(1, order, SLOW, key="k"), range(2))
    assert sorted(a.status for a in (first, second)) == [200, 409], (first, second)
    # "In progress" is no answer to keep: the same key now gives the outcome.
    again = server.pay(1, order, SLOW, key="k")
    assert again.status == 200 and again.json["status"] == "PAID", again
    assert charges(server, item) == [("PAID", "APPROVED", "CHARGED")]


def call_in_every_state(server):
    """Case 23: pay and DELETE in each state, each asked twice."""
    _, (item,) = server.sale([20])
    _, (short,) = server.sale([20], holdSeconds=1)
    paid = bought(server, 1, item)
    assert server.pay(1, paid).status == 200
    canceled = bought(server, 2, item)
    assert server.cancel(2, canceled).status == 200
    dead = bought(server, 3, short)
    expired(server, 3, dead)
    unrecorded = server.order_id_without_row(4, item)
    rows = [  # member, order, status, pay, DELETE
        (1, paid, "PAID", "ALREADY_PAID", "ALREADY_PAID"),
        (2, canceled, "CANCELED", "CANCELED", None),
        (3, dead, "EXPIRED", "HOLD_EXPIRED", "HOLD_EXPIRED"),
        (4, unrecorded, "PENDING", "NOT_READY", "NOT_READY"),
    ]
    for member, order, status, paying, deleting in rows * 2:
        assert state(server, member, order) == status, (order, server.order(member, order))
        answer = server.pay(member, order)
        assert answer.status == 409 and answer.error == paying, (status, answer)
        if paying == "NOT_READY":
            assert int(answer.headers["Retry-After"]) >= 1, answer.headers
        answer = server.cancel(member, order)
        if deleting is None:
            assert answer.status == 200 and answer.json["status"] == "CANCELED", answer
        else:
            assert answer.status == 409 and answer.error == deleting, (status, answer)
    waiting = server.order(4, unrecorded).json
    assert waiting["payable"] is False and waiting["expiresAt"] is None and waiting["amount"] is None, waiting
    # An id that the server never made, or that is another member's, is nobody's.
    for member, order in ((1, canceled), (4, paid), (5, unrecorded), (1, paid[:-1]), (1, "x"), (1, "A" * len(paid))):
        assert [server.order(member, order).status, server.cancel(member, order).status,
                server.pay(member, order).status] == [404] * 3, (member, order)


def after_a_crash(server):
    """An attempt that a crash left open is cancelled at the gateway before anything else may be charged."""
    _, (item,) = server.sale([1])
    order = bought(server, 1, item)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        paying = pool.submit(server.pay, 1, order, SLOW)
        attempt_is_open(server, item)
        server.kill()
        try:
            paying.result()
            raise AssertionError("a killed server has answered")
        except OSError:
            pass
    server.start()
    wait_until(lambda: server.order(1, order).json["payable"], 10)
    assert server.pay(1, order).status == 200
    assert charges(server, item) == [("PAID", "CANCELED", "CANCELED"), ("PAID", "APPROVED", "CHARGED")]


def charged_before_the_crash(server):
    """The gateway has charged and nobody was told: the order is PAID, and not charged again."""
    _, (item,) = server.sale([1])
    order = bought(server, 1, item)
    assert server.pay(1, order, UNKNOWN).status == 202
    server.kill()
    server.start()
    wait_until(lambda: state(server, 1, order) == "PAID", 10)
    assert charges(server, item) == [("PAID", "APPROVED", "CHARGED")]


TESTS = [("unpaid holds are back within two seconds and sold to others", back_within_two_seconds),
         ("the same member buys again, three times over", three_times_over),
         ("a payment under way holds expiry, cancel and a second payment back", a_payment_under_way_holds_expiry_back),
         ("but not beyond its maximum, and the money goes back", but_not_beyond_its_maximum),
         ("a late payment is refused, also beside a newer order", late_and_beside_a_newer_one),
         ("of payments and cancels at once one wins", one_winner_at_once),
         ("payments around the instant of expiry", payments_at_the_instant_of_expiry),
         ("each card does what docs/payments.md says", cards),
         ("an unknown outcome is asked for by the job", the_job_by_hand),
         ("another amount or currency is refused", another_amount),
         ("an Idempotency-Key replays a payment, and only its own", keys_of_payments),
         ("one key, two payments at once", key_of_a_payment_sent_twice_at_once),
         ("pay and DELETE in each state, each twice", call_in_every_state),
         ("an attempt that a crash left open is settled", after_a_crash),
         ("what was charged before a crash is PAID behind it", charged_before_the_crash)]
