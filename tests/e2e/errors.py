"""What is wrong is refused, clearly, and the server goes on (A6)."""
import concurrent.futures
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import stat
import struct
import subprocess
import tempfile
import time

from support import CONTRACT, Server, Skip, b64, iso, rfc3339, token, wait_until

# Slow clients are met sooner, so that the tests need not wait.
SERVER_ARGS = ["--http.header_timeout_ms", "500", "--http.body_timeout_ms", "500"]
DECLINED, SLOW, UNKNOWN = "4000000000000002", "4000000000000077", "4000000000000119"


# ---- every code


def insert_rejected(server, item, member, merged_into=None):
    """A REJECTED row as the engine writes one where two gates gave a member two grants; its order id."""
    grant = os.urandom(16)
    now = int(time.time() * 1e6)
    into = bytes.fromhex(merged_into) if merged_into else None
    with contextlib.closing(sqlite3.connect(server.db, timeout=10)) as rows, rows:
        rows.execute(
            "INSERT INTO flash_sale_order (id, allotment, scope, epoch, member, slot_limit, per_member, state, reason, "
            "merged_into, amount, recorded_at, expires_at, due_at, updated_at) SELECT ?, allotment, scope, 1, ?, quantity, "
            "per_member, 'REJECTED', 'MERGED', ?, sale_price, ?, ?, ?, ? FROM flash_sale_item WHERE id = ?",
            (grant, member, into, now, now, now, now, item))
        rows.execute("INSERT INTO flash_sale_order_history (order_id, to_state, reason, at) VALUES (?, 'REJECTED', "
                     "'MERGED', ?)", (grant, now))
    listed = server.admin("GET", f"/api/admin/flash-sales/items/{item}/orders?limit=1000").json["orders"]
    return next(o["orderId"] for o in listed if o["grantId"] == grant.hex())


def every_code(server):
    """The codes of the contract, each reached: (code, status) and how."""
    sale, (item,) = server.sale([20])
    _, (one,) = server.sale([1])
    _, (several,) = server.sale([5], perMember=2)
    _, (early,) = server.sale([5], opens=600)
    _, (short,) = server.sale([5], holdSeconds=1)
    paused, (halted,) = server.sale([5])
    closed, (over,) = server.sale([5])
    draft, (hidden,) = server.sale([5], open_it=False)
    empty, _ = server.sale([], open_it=False)
    admin = "/api/admin/flash-sales"
    server.admin("POST", f"{admin}/{paused}/pause")
    server.admin("POST", f"{admin}/{closed}/close")

    held = server.buy(1, item).json["orderId"]
    paid = server.buy(2, item).json["orderId"]
    assert server.pay(2, paid).status == 200
    canceled = server.buy(3, item).json["orderId"]
    assert server.cancel(3, canceled).status == 200
    dead = server.buy(4, short).json["orderId"]
    open_attempt = server.buy(5, item).json["orderId"]
    unknown = server.buy(6, item).json["orderId"]
    assert server.buy(7, one).status == 202
    wait_until(lambda: server.order(4, dead).json["status"] == "EXPIRED", 8)
    rejected = insert_rejected(server, item, 8)
    winner = server.buy(9, item)
    merged = insert_rejected(server, item, 9, server.grants(item)[9]["grantId"])
    created = server.admin("POST", admin, {"name": "k", "opensAt": iso(1), "closesAt": iso(2)},
                           headers={"Idempotency-Key": "codes"})
    assert created.status == 201, created
    orders = "/api/flash-sales/orders"
    sold_out = lambda: wait_until(lambda: (a := server.buy(99, one)).status == 410 and a, 5)

    table = [
        ("UNAUTHORIZED", 401, lambda: server.call("POST", f"/api/flash-sales/items/{item}/purchase")),
        ("FORBIDDEN", 403, lambda: server.member(1, "GET", admin)),
        ("NOT_FOUND", 404, lambda: server.buy(1, 999_999)),
        ("NOT_FOUND", 404, lambda: server.buy(1, hidden)),
        ("NOT_FOUND", 404, lambda: server.call("GET", "/nowhere")),
        ("NOT_FOUND", 404, lambda: server.call("GET", f"/api/flash-sales/{draft}")),
        ("METHOD_NOT_ALLOWED", 405, lambda: server.call("PUT", "/api/flash-sales")),
        ("INVALID_BODY", 400, lambda: server.admin("POST", admin, "{")),
        ("INVALID_PARAMETER", 400, lambda: server.call("GET", "/api/flash-sales?limit=0")),
        ("PAYLOAD_TOO_LARGE", 413, lambda: server.admin("POST", admin, '{"name":"%s"}' % ("x" * 2_000_000))),
        ("UNSUPPORTED_MEDIA_TYPE", 415, lambda: server.admin("POST", admin, "{}", headers={"Content-Type": "text/plain"})),
        ("KEY_REQUIRED", 400, lambda: server.buy(1, several)),
        ("KEY_REUSED", 422, lambda: server.admin("POST", admin, {"name": "other", "opensAt": iso(1), "closesAt": iso(2)},
                                                 headers={"Idempotency-Key": "codes"})),
        ("ALREADY_PURCHASED", 409, lambda: server.buy(1, item)),
        ("SOLD_OUT", 410, sold_out),
        ("NOT_OPEN", 403, lambda: server.buy(1, early)),
        ("PAUSED", 403, lambda: server.buy(1, halted)),
        ("CLOSED", 403, lambda: server.buy(1, over)),
        ("NOT_READY", 409, lambda: server.pay(1, server.order_id_without_row(1, item))),
        ("NOT_READY", 409, lambda: server.cancel(1, server.order_id_without_row(1, item))),
        ("ALREADY_PAID", 409, lambda: server.pay(2, paid)),
        ("ALREADY_PAID", 409, lambda: server.cancel(2, paid)),
        ("CANCELED", 409, lambda: server.pay(3, canceled)),
        ("HOLD_EXPIRED", 409, lambda: server.pay(4, dead)),
        ("HOLD_EXPIRED", 409, lambda: server.cancel(4, dead)),
        ("REJECTED", 409, lambda: server.pay(8, rejected)),
        ("REJECTED", 409, lambda: server.cancel(8, rejected)),
        ("REJECTED", 409, lambda: server.pay(9, merged)),
        ("PAYMENT_DECLINED", 402, lambda: server.pay(1, held, DECLINED)),
        ("PAYMENT_UNKNOWN", 202, lambda: server.pay(6, unknown, UNKNOWN)),
        ("WRONG_STATE", 409, lambda: server.admin("POST", f"{admin}/{sale}/open")),
        ("WRONG_STATE", 409, lambda: server.admin("POST", f"{admin}/{draft}/pause")),
        ("NO_ITEMS", 409, lambda: server.admin("POST", f"{admin}/{empty}/open")),
        ("ALREADY_BEGUN", 409, lambda: server.admin("PATCH", f"{admin}/items/{item}", {"quantity": 50})),
        ("ALREADY_BEGUN", 409, lambda: server.admin("PATCH", f"{admin}/{sale}", {"perMember": 2})),
    ]
    if "AMOUNT_MISMATCH" in CONTRACT.read_text():
        table.append(("AMOUNT_MISMATCH", 422, lambda: server.pay(1, held, amount=1)))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        paying = pool.submit(server.pay, 5, open_attempt, SLOW)
        wait_until(lambda: server.sql("SELECT 1 FROM payment_attempt WHERE state = 'OPEN'"), 5, 0.01)
        for call in (server.pay, server.cancel):
            answer = call(5, open_attempt)
            assert (answer.status, answer.error) == (409, "PAYMENT_IN_PROGRESS"), answer
        assert paying.result().status == 200, paying.result()

    wrong = []
    for code, status, how in table:
        answer = how()
        if (answer.status, answer.error) != (status, code):
            wrong.append(f"{status} {code} expected, got {answer}")
        elif not answer.json["message"]:
            wrong.append(f"{code} has no message")
    assert not wrong, "\n".join(wrong)

    # What some of them carry.
    assert server.buy(1, early).json["opensAt"].endswith("Z")
    assert server.call("PUT", "/api/flash-sales").headers["Allow"] == "GET, HEAD"
    assert server.call("GET", "/api/flash-sales/1/mine").headers["WWW-Authenticate"] == "Bearer"
    assert sold_out().json["final"] is False
    again = server.buy(1, item)
    assert again.json["orderId"] == held and {"status", "payable", "expiresAt"} <= set(again.json), again
    # A merged order leads to the one that counts.
    assert server.pay(9, merged).json["orderId"] == winner.json["orderId"]
    assert server.order(9, merged).json["orderId"] == winner.json["orderId"]
    assert server.order(8, rejected).json["status"] == "REJECTED" and server.order(8, rejected).json["reason"]

    # Every code of the contract is reached somewhere in these tests; these few by others of them, or by a fault only.
    elsewhere = {"BUSY", "UNAVAILABLE", "INTERNAL", "PAYMENT_IN_PROGRESS"}
    text = CONTRACT.read_text()
    promised = {c for group in re.findall(r"error: \{(?:enum: \[([A-Z_, ]+)\]|const: ([A-Z_]+))", text)
                for part in group for c in part.split(", ") if c}
    assert len(promised) > 20, promised
    missing = promised - {code for code, _, _ in table} - elsewhere
    assert not missing, f"codes of the contract that no test reaches: {sorted(missing)}"


def in_the_callers_language(server):
    english = server.call("GET", "/nowhere").json["message"]
    korean = server.call("GET", "/nowhere", headers={"Accept-Language": "ko-KR,ko;q=0.9,en;q=0.5"}).json["message"]
    assert english.isascii() and re.search("[가-힣]", korean), (english, korean)
    assert server.call("GET", "/nowhere", headers={"Accept-Language": "fr, en;q=0.1"}).json["message"] == english
    _, (item,) = server.sale([5], opens=600)
    for language, wanted in (("ko", True), ("en", False)):
        said = server.call("POST", f"/api/flash-sales/items/{item}/purchase", bearer=token(1),
                           headers={"Accept-Language": language}).json["message"]
        assert bool(re.search("[가-힣]", said)) is wanted, said


# ---- values


WRONG_NUMBERS = ["-1", "1.5", '"1"', "9223372036854775808", "1e400", "-1e400", "true", "null", "[1]", "{}", "1e0", "0x1",
                 "01", "NaN"]
NOT_JSON = {"0x1", "01", "NaN"}


def numbers(server):
    """Case 8: refused with the field's name, and nothing changed."""
    sale, (item,) = server.sale([5], open_it=False)
    _, (sold,) = server.sale([5])
    order = server.buy(1, sold).json["orderId"]
    admin = "/api/admin/flash-sales"
    base = '"name":"n","opensAt":"%s","closesAt":"%s"' % (iso(10), iso(20))
    thing = {"name": '"n"', "listPrice": "10", "salePrice": "5", "quantity": "5"}

    def item_body(field, value):
        return "{" + ",".join(f'"{k}":{v}' for k, v in {**thing, field: value}.items()) + "}"

    routes = []
    for field in ("perMember", "holdSeconds", "holdMaxSeconds"):
        routes.append((field, ["0", "2147483648"], "POST", admin, lambda v, f=field: "{%s,\"%s\":%s}" % (base, f, v)))
        routes.append((field, ["0", "2147483648"], "PATCH", f"{admin}/{sale}", lambda v, f=field: '{"%s":%s}' % (f, v)))
    for field, more in (("quantity", ["0", "2147483648"]), ("listPrice", ["1000000000001"]),
                        ("salePrice", ["2147483648"])):
        routes.append((field, more, "POST", f"{admin}/{sale}/items", lambda v, f=field: item_body(f, v)))
        routes.append((field, more, "PATCH", f"{admin}/items/{item}", lambda v, f=field: '{"%s":%s}' % (f, v)))
    before = server.sql("SELECT * FROM flash_sale"), server.sql("SELECT * FROM flash_sale_item")
    wrong = []
    for field, more, method, path, body in routes:
        for value in WRONG_NUMBERS + more:
            answer = server.admin(method, path, body(value))
            named = answer.json.get("field")
            fits = answer.status == 400 and answer.error == "INVALID_BODY" and \
                (named == field or (value in NOT_JSON and named is None))
            if not fits:
                wrong.append(f"{method} {path} {field} = {value}: {answer}")
    pay = f"/api/flash-sales/orders/{order}/payment"
    for value in WRONG_NUMBERS + ["0", "2147483648"]:
        answer = server.member(1, "POST", pay, '{"cardNumber":"4242424242424242","amount":%s,"currency":"KRW"}' % value)
        fits = (answer.status == 400 and (answer.field if value not in NOT_JSON else "amount") == "amount") \
            or (answer.status == 422 and value in ("0", "2147483648"))
        if not fits:
            wrong.append(f"pay amount = {value}: {answer}")
    assert not wrong, "\n".join(wrong)
    assert (server.sql("SELECT * FROM flash_sale"), server.sql("SELECT * FROM flash_sale_item")) == before
    assert server.sql("SELECT count(*) FROM payment_attempt p JOIN flash_sale_order o ON o.id = p.order_id "
                      "WHERE o.allotment = ?", f"i{sold}") == [(0,)]
    assert server.order(1, order).json["payable"] is True


def numbers_in_paths(server):
    for value in ("0", "-1", "1.5", "01", "+1", "%201", "1%20", "x", "2147483648", "9223372036854775808", "1e400", "1e0",
                  "%31%00", "١"):
        path = value if value.isascii() else "%D9%A1"
        for method, where in (("POST", f"/api/flash-sales/items/{path}/purchase"), ("GET", f"/api/flash-sales/{path}/mine")):
            answer = server.member(1, method, where)
            assert answer.status in (400, 404), (where, answer)
            assert answer.error in ("NOT_FOUND", "INVALID_PARAMETER"), (where, answer)
        answer = server.admin("GET", f"/api/admin/flash-sales/items/{path}")
        assert answer.status in (400, 404), (path, answer)
    for where in ("/api/flash-sales", "/api/admin/flash-sales", "/api/admin/audit"):
        for value in ("0", "-1", "1.5", "1001", "2147483648", "9223372036854775808", "1e400", "", "x", "%2B1", "1+"):
            answer = server.admin("GET", f"{where}?limit={value}")
            assert answer.status == 400 and answer.error == "INVALID_PARAMETER" and answer.field == "limit", (value, answer)
        for value in ("", "!", "x" * 600, b64(b"x"), b64(b"-1"), b64(b"99999999999999999999")):
            answer = server.admin("GET", f"{where}?after={value}")
            assert answer.status == 400 and answer.field == "after", (where, value, answer)
        assert server.admin("GET", f"{where}?limt=1").field == "limt"
        assert server.admin("GET", f"{where}?limit=1&limit=2").status == 400


def bodies(server):
    """Wrong types name the field; unknown, missing and repeated ones too; sizes and nesting are bounded."""
    admin = "/api/admin/flash-sales"
    sale, _ = server.sale([], open_it=False)
    good = {"name": "n", "opensAt": iso(10), "closesAt": iso(20)}
    before = server.sql("SELECT count(*) FROM flash_sale")
    table = [
        ("name", {**good, "name": ""}), ("name", {**good, "name": "x" * 201}), ("name", {**good, "name": 1}),
        ("name", {k: v for k, v in good.items() if k != "name"}), ("name", {**good, "name": None}),
        ("name", {**good, "name": "a\u0000b"}), ("name", {**good, "name": ["n"]}),
        ("opensAt", {**good, "opensAt": "tomorrow"}), ("opensAt", {**good, "opensAt": 1}),
        ("opensAt", {**good, "opensAt": "2026-02-30T00:00:00Z"}), ("opensAt", {**good, "opensAt": "2026-11-30T01:00:00"}),
        ("closesAt", {**good, "closesAt": good["opensAt"]}), ("closesAt", {**good, "closesAt": iso(5)}),
        ("limitScope", {**good, "limitScope": "SHOP"}), ("limitScope", {**good, "limitScope": 1}),
        ("resellRefunds", {**good, "resellRefunds": "true"}), ("resellRefunds", {**good, "resellRefunds": 1}),
        ("holdMaxSeconds", {**good, "holdSeconds": 10, "holdMaxSeconds": 9}),
        ("surprise", {**good, "surprise": 1}),
    ]
    for field, body in table:
        answer = server.admin("POST", admin, body)
        assert answer.status == 400 and answer.error == "INVALID_BODY" and answer.field == field, (body, answer)
    for text in ('{"name":"a","name":"b"}', '{"name":"a","n\\u0061me":"b"}'):
        answer = server.admin("POST", admin, text)
        assert answer.status == 400 and answer.field == "name", answer
    for text in ("", "[]", "1", '"x"', "{", "{}{}", "{} x", "{'name':1}", '{"name":}', "[" * 10_000, "null", b"\xff",
                 '{"a":' * 50 + "1" + "}" * 50, b'{"name":"\xff\xfe"}', b"\xef\xbb\xbf{}"):
        answer = server.admin("POST", admin, text)
        assert answer.status == 400 and answer.error == "INVALID_BODY", (text[:40], answer)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "json"):
        answer = server.admin("POST", admin, good, headers={"Content-Type": kind})
        assert answer.status == 415, (kind, answer)
    items = f"{admin}/{sale}/items"
    thing = {"name": "n", "listPrice": 10, "salePrice": 5, "quantity": 5}
    for field, value in (("currency", "krw"), ("currency", "KR"), ("currency", 1), ("salePrice", 11), ("name", "")):
        answer = server.admin("POST", items, {**thing, field: value})
        assert answer.status == 400 and answer.field == field, (field, answer)
    assert server.sql("SELECT count(*) FROM flash_sale") == before
    assert server.sql("SELECT count(*) FROM flash_sale_item WHERE flash_sale_id = ?", sale) == [(0,)]
    # The purchase takes nothing: the member is the token's subject.
    _, (sold,) = server.sale([5])
    path = f"/api/flash-sales/items/{sold}/purchase"
    for body in ({"memberId": 5}, {"quantity": 2}, {"itemId": 1}):
        answer = server.member(1, "POST", path, body)
        assert answer.status == 400 and answer.field == next(iter(body)), answer
    assert server.member(1, "POST", path, "x" * 1025).status == 413
    assert server.holding(sold) == 0
    assert server.member(1, "POST", path, {}).status == 202
    # 200 Korean letters are 200 characters.
    named = server.admin("POST", admin, {**good, "name": "가" * 200})
    assert named.status == 201 and named.json["name"] == "가" * 200, named


def keys_of_admin_calls(server):
    """Case 12 on the routes that keep an answer."""
    admin = "/api/admin/flash-sales"
    body = {"name": "n", "opensAt": iso(10), "closesAt": iso(20)}
    key = {"Idempotency-Key": "the key"}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: server.admin("POST", admin, body, headers=key), range(8)))
    assert {a.status for a in answers} == {201} and len({a.text for a in answers}) == 1, answers
    assert server.admin("POST", admin, {**body, "name": "m"}, headers=key).status == 422
    # Another route, another administrator: independent.
    sale = answers[0].json["id"]
    assert server.admin("PATCH", f"{admin}/{sale}", {"name": "m"}, headers=key).status == 200
    other = server.call("POST", admin, body, bearer=token("somebody", aud="doorbuster-admin"), headers=key)
    assert other.status == 201 and other.json["id"] != sale, other
    # A refusal of the body is not kept.
    once = {"Idempotency-Key": "another"}
    assert server.admin("POST", admin, {**body, "name": ""}, headers=once).status == 400
    assert server.admin("POST", admin, body, headers=once).status == 201
    long = server.admin("POST", admin, body, headers={"Idempotency-Key": "x" * 256})
    assert long.status == 400 and long.field == "Idempotency-Key", long


def the_window(server):
    """Case 19: half open, by the server's clock. Before T, at T, behind T."""
    base = time.time()
    opens, closes = base + 1.0, base + 1.6
    made = server.admin("POST", "/api/admin/flash-sales",
                        {"name": "w", "opensAt": rfc3339(opens), "closesAt": rfc3339(closes)})
    sale = made.json["id"]
    item = server.admin("POST", f"/api/admin/flash-sales/{sale}/items",
                        {"name": "w", "listPrice": 1, "salePrice": 1, "quantity": 100_000}).json["id"]
    assert server.admin("POST", f"/api/admin/flash-sales/{sale}/open").status == 200
    seen = []

    def buyer(first):
        for member in range(first, first + 100_000):
            sent = time.time()
            answer = server.buy(member, item)
            seen.append((sent, time.time(), answer))
            if sent > closes + 0.1:
                return

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(buyer, (1, 200_000)))
    for sent, got, answer in seen:
        may = set()
        if sent < opens:
            may.add("NOT_OPEN")
        if got >= opens and sent < closes:
            may.add(None)
        if got >= closes:
            may.add("CLOSED")
        assert answer.error in may, (sent - opens, got - opens, answer, may)
        assert answer.error is not None or answer.status == 202, answer
    kinds = [answer.error for _, _, answer in seen]
    assert {"NOT_OPEN", None, "CLOSED"} <= set(kinds), set(kinds)
    # The rows say the same to the microsecond, and what was taken in time is there.
    rows = server.sql("SELECT count(*), min(recorded_at) FROM flash_sale_order WHERE allotment = ?", f"i{item}")[0]
    assert rows[0] == kinds.count(None), rows
    assert rows[1] >= int(opens * 1e6), rows


def the_window_in_other_zones(server):
    """The same instant, written as elsewhere."""
    made = server.admin("POST", "/api/admin/flash-sales",
                        {"name": "z", "opensAt": "2030-03-10T10:30:00.123456+09:00", "closesAt": "2030-03-10T03:00:00-05:00"})
    assert made.status == 201, made
    assert made.json["opensAt"].startswith("2030-03-10T01:30:00.123456"), made
    assert made.json["closesAt"].startswith("2030-03-10T08:00:00"), made
    assert made.json["opensAt"].endswith("Z") and made.json["closesAt"].endswith("Z"), made
    path = f"/api/admin/flash-sales/{made.json['id']}"
    # Later in the text and earlier in time.
    wrong = server.admin("PATCH", path, {"closesAt": "2030-03-10T10:30:00+09:00"})
    assert wrong.status == 400 and wrong.field == "closesAt", wrong


# ---- who asks


def tokens(server):
    """Case 14."""
    _, (item,) = server.sale([5])
    now = int(time.time())
    path = f"/api/flash-sales/items/{item}/purchase"
    good = token(1)
    head, body, mac = good.split(".")
    none = b64(b'{"alg":"none","typ":"JWT"}')
    bad = {
        "none": f"{none}.{body}.", "none with the signature": f"{none}.{body}.{mac}",
        "no signature": f"{head}.{body}.", "two parts": f"{head}.{body}", "four parts": good + ".x",
        "another body": ".".join([head, token(2).split(".")[1], mac]), "cut": good[:-1], "empty": "", "text": "x",
        "flipped": good[:-2] + ("A" if good[-2] != "A" else "B") + good[-1],
        "another key": token(1, key=b"x" * 32), "no expiry": token(1, exp=None), "expired": token(1, exp=now - 31),
        "not yet": token(1, nbf=now + 60), "another issuer": token(1, iss="somebody"), "no issuer": token(1, iss=None),
        "another audience": token(1, aud="shop"), "no audience": token(1, aud=None),
        "an administrator's": token("tester", aud="doorbuster-admin"),
        "no subject": token(1, sub=None), "subject 0": token(0), "subject -1": token(-1),
        "subject 1.5": token(1.5),
        "subject 2^63": token(2**63), "subject a name": token("anna"), "subject 01": token("01"),
        "number 0": token(1, sub=0), "number 1.5": token(1, sub=1.5), "number 2^63": token(1, sub=2**63),
        "another algorithm": token(1, header={"alg": "HS512", "typ": "JWT", "kid": "development"}),
        "RS256": token(1, header={"alg": "RS256", "typ": "JWT", "kid": "development"}),
        "another kid": token(1, header={"alg": "HS256", "kid": "nobody"}),
        "crit": token(1, header={"alg": "HS256", "kid": "development", "crit": ["x"]}),
        "long": token(1, padding="x" * 5000),
    }
    for name, text in bad.items():
        answer = server.call("POST", path, bearer=text or " ")
        assert answer.status == 401 and answer.error == "UNAUTHORIZED", (name, answer)
        assert answer.headers["WWW-Authenticate"] == "Bearer", (name, answer.headers)
    for scheme in ("Basic x", good, "Bearer", "Bearer  " + good + " x", "Token " + good):
        answer = server.call("POST", path, headers={"Authorization": scheme})
        assert answer.status == 401, (scheme, answer)
    assert server.holding(item) == 0
    # Administrators' routes: a member is told apart from nobody.
    assert server.call("GET", "/api/admin/audit", bearer=good).status == 403
    assert server.call("GET", "/api/admin/audit", bearer=token("x", aud="doorbuster-admin", exp=now - 31)).status == 401
    assert server.call("GET", "/api/admin/audit").status == 401
    # Within the leeway, at the limits, and in a list of audiences.
    for text in (token(1, exp=now - 5), token(2**63 - 1), token(1, nbf=now + 5), token(1, aud=["shop", "doorbuster"]),
                 token(1, sub=1)):
        answer = server.call("POST", path, bearer=text)
        assert answer.status in (202, 409), answer
    assert server.holding(item) == 2
    # The program's own.
    made = subprocess.run([server.binary, "token", "--member", "42"], capture_output=True, text=True, check=True)
    assert server.call("POST", path, bearer=made.stdout.strip()).status == 202
    made = subprocess.run([server.binary, "token", "--admin", "anna"], capture_output=True, text=True, check=True)
    assert server.call("GET", "/api/admin/audit", bearer=made.stdout.strip()).status == 200


def public_key_as_secret(server):
    """Case 14: the key is pinned to its algorithm, so the public key is no HMAC secret."""
    if not shutil.which("openssl"):
        raise Skip("needs the openssl command to make a key")
    with own_server(server, ready=False) as other:
        private, public = other.folder / "private.pem", other.folder / "public.pem"
        subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", private],
                       check=True, capture_output=True)
        subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
        other.args += ["--tokens.keys", str(public), "--mode", "production"]
        other.start()
        now = int(time.time())
        text = b64(b'{"alg":"RS256","typ":"JWT"}') + "." + b64(
            b'{"iss":"doorbuster","aud":"doorbuster","sub":"1","exp":%d}' % (now + 60))
        signed = subprocess.run(["openssl", "dgst", "-sha256", "-sign", private], input=text.encode(),
                                capture_output=True, check=True).stdout
        path = "/api/flash-sales/items/1/purchase"
        assert other.call("POST", path, bearer=text + "." + b64(signed)).status == 404   # known, but no such item
        for secret in (public.read_bytes(), public.read_bytes().strip()):
            forged = token(1, key=secret, header={"alg": "HS256", "typ": "JWT"})
            assert other.call("POST", path, bearer=forged).status == 401
        # The development key is not accepted beside it.
        assert other.call("POST", path, bearer=token(1)).status == 401


# ---- bytes


def raw_table(server):
    """Malformed, oversized and smuggled requests: a clear status, the connection closed, and the server goes on."""
    host = b"Host: x\r\n"
    get = b"GET /api/time HTTP/1.1\r\n"
    post = b"POST /api/admin/flash-sales HTTP/1.1\r\n" + host
    chunked = post + b"Transfer-Encoding: chunked\r\n\r\n"
    hidden = b"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
    table = [
        ("both lengths", 400, post + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden),
        ("both lengths, the other way", 400,
         post + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + hidden),
        ("two lengths", 400, post + b"Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}" + hidden),
        ("the same length twice", 400, post + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"),
        ("a list of lengths", 400, post + b"Content-Length: 2, 2\r\n\r\n{}"),
        ("length +2", 400, post + b"Content-Length: +2\r\n\r\n{}"),
        ("length -1", 400, post + b"Content-Length: -1\r\n\r\n"),
        ("length 0x2", 400, post + b"Content-Length: 0x2\r\n\r\n{}"),
        ("length 02", 400, post + b"Content-Length: 02\r\n\r\n{}"),
        ("no length", 400, post + b"Content-Length:\r\n\r\n"),
        ("a huge length", 413, post + b"Content-Length: 99999999999999999999\r\n\r\n"),
        ("a body too large", 413, post + b"Content-Length: 100000000\r\n\r\n"),
        ("bare LF in the request line", 400, b"GET /api/time HTTP/1.1\nHost: x\r\n\r\n"),
        ("bare LF behind a header", 400, get + b"Host: x\nX: y\r\n\r\n"),
        ("bare LF at the end", 400, get + host + b"\n"),
        ("bare CR in a header", 400, get + b"Host: x\r\nX: a\rb\r\n\r\n"),
        ("NUL in a header", 400, get + host + b"X: a\0b\r\n\r\n"),
        ("duplicate Host", 400, get + host + host + b"\r\n"),
        ("no Host", 400, get + b"\r\n"),
        ("an empty Host", 400, get + b"Host: \r\n\r\n"),
        ("Host with a path", 400, get + b"Host: x/y\r\n\r\n"),
        ("obs-fold", 400, get + host + b"X: a\r\n b\r\n\r\n"),
        ("a tab fold", 400, get + host + b"X: a\r\n\tb\r\n\r\n"),
        ("a space before the colon", 400, get + host + b"Transfer-Encoding : chunked\r\n\r\n"),
        ("a header without a colon", 400, get + host + b"X\r\n\r\n"),
        ("a header without a name", 400, get + host + b": x\r\n\r\n"),
        ("a folded first header", 400, get + b" Host: x\r\n\r\n"),
        ("chunk extension", 400, chunked + b"2;a=b\r\n{}\r\n0\r\n\r\n"),
        ("chunk size with a blank", 400, chunked + b"2 \r\n{}\r\n0\r\n\r\n"),
        ("chunk size 0x2", 400, chunked + b"0x2\r\n{}\r\n0\r\n\r\n"),
        ("chunk size -1", 400, chunked + b"-1\r\n{}\r\n0\r\n\r\n"),
        ("chunk size of 17 digits", 400, chunked + b"00000000000000002\r\n{}\r\n0\r\n\r\n"),
        ("chunk size ffffffffffffffff", 400, chunked + b"ffffffffffffffff\r\n"),
        ("chunk too large", 413, chunked + b"fffffff\r\n"),
        ("chunk longer than it says", 400, chunked + b"1\r\n{}\r\n0\r\n\r\n"),
        ("chunk ended by LF", 400, chunked + b"2\n{}\r\n0\r\n\r\n"),
        ("a trailer", 400, chunked + b"2\r\n{}\r\n0\r\nX: y\r\n\r\n"),
        ("an unknown coding", 400, post + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        ("a coding in disguise", 400, post + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        ("chunked twice", 400, post + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("chunked in HTTP/1.0", 400, b"POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("Authorization twice", 400, get + host + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n"),
        ("an unknown method", 501, b"BREW /api/time HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("TRACE", 501, b"TRACE /api/time HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("CONNECT", 501, b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("get", 501, b"get /api/time HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("HTTP/2.0", 505, b"GET /api/time HTTP/2.0\r\nHost: x\r\n\r\n"),
        ("HTTP/1.2", 505, b"GET /api/time HTTP/1.2\r\nHost: x\r\n\r\n"),
        ("the preface of HTTP/2", None, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        ("HTTP/0.9", 400, b"GET /api/time\r\n\r\n"),
        ("no version", 400, b"GET /api/time \r\n\r\n"),
        ("two blanks", 400, b"GET  /api/time HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("a whole URL", 400, b"GET http://x/api/time HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("a raw byte in the target", 400, b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("a target too long", 414, b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("headers too large", 431, get + host + b"X: " + b"a" * 9000 + b"\r\n\r\n"),
        ("too many headers", 431, get + host + b"".join(b"X%d: a\r\n" % n for n in range(200)) + b"\r\n"),
        ("an expectation", 417, post + b"Expect: tea\r\nContent-Length: 2\r\n\r\n"),
        ("TLS to the plain port", None, bytes.fromhex("16030100c4010000c00303") + os.urandom(180)),
        ("noise", None, b"\r\n\r\n\x00\x01\x02" + os.urandom(3000)),
    ]
    wrong = []
    for name, status, data in table:
        for how, pieces in (("at once", [data]), ("cut", [data[:7], data[7:]])):
            got = server.raw(*pieces, timeout=3)
            fits = got.closed and len(got.statuses) <= 1 and \
                (got.statuses == [status] if status else all(400 <= s <= 505 for s in got.statuses))
            if not fits:
                wrong.append(f"{name}, {how}: expected {status} and closed, got {got}")
            if b"hidden" in got.data:
                wrong.append(f"{name}: a hidden request was looked at")
    server.still_serves()
    assert not wrong, "\n".join(wrong)
    assert server.sql("SELECT count(*) FROM flash_sale WHERE name = 'smuggled'") == [(0,)]


def what_is_allowed(server):
    """So that the refusals above are not the answer to everything."""
    host = b"Host: x\r\n"
    get = b"GET /api/time HTTP/1.1\r\n" + host + b"\r\n"
    last = b"GET /api/time HTTP/1.1\r\nConnection: close\r\n" + host + b"\r\n"
    assert server.raw(last).statuses == [200]
    assert server.raw(get * 20 + last).statuses == [200] * 21
    assert server.raw(*[bytes([b]) for b in last]).statuses == [200]
    body = ('{"name":"c","opensAt":"%s","closesAt":"%s"}' % (iso(1), iso(9))).encode()
    head = b"POST /api/admin/flash-sales HTTP/1.1\r\nConnection: close\r\nHost: x\r\nContent-Type: application/json\r\n" \
        b"Authorization: Bearer " + token("tester", aud="doorbuster-admin").encode() + b"\r\n"
    chunks = b"".join(b"%x\r\n%c\r\n" % (1, byte) for byte in body) + b"0\r\n\r\n"
    assert server.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks).statuses == [201]
    assert server.raw(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body) + body).statuses[-1] == 201
    closed = server.raw(b"GET /api/time HTTP/1.0\r\nHost: x\r\n\r\n")
    assert closed.statuses == [200] and closed.closed, closed
    asked = server.call("HEAD", "/api/time")
    assert asked.status == 200 and asked.text == "", asked
    named = server.call("GET", "/api/time", headers={"X-Request-Id": "mine-1"})
    assert named.headers["X-Request-Id"] == "mine-1", named.headers
    assert server.call("GET", "/api/time", headers={"X-Request-Id": "a b\tc"}).headers["X-Request-Id"] != "a b\tc"


def slow_clients(server):
    """A header or body that comes too slowly is 408, and nobody else waits."""
    started = time.monotonic()
    for pieces in ((b"GET /api/time HTTP/1.1\r\nHost: x\r\nX: ",), (b"G",),
                   (b"POST /api/admin/flash-sales HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{",)):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            slow = pool.submit(server.raw, *pieces, timeout=8)
            server.still_serves()
            got = slow.result()
        assert got.statuses == [408] and got.closed, (pieces, got)
    assert time.monotonic() - started < 8
    # One byte now and then does not start the time anew.
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as s:
        begun = time.monotonic()
        s.sendall(b"GET /api/time HTTP/1.1\r\nHost: x\r\nX: ")
        got = b""
        s.settimeout(0.1)
        while time.monotonic() - begun < 5:
            try:
                s.sendall(b"a")
                got += s.recv(4096)
                if got:
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        took = time.monotonic() - begun
        assert 0.3 < took < 3, took
        assert got == b"" or got.startswith(b"HTTP/1.1 408"), got
    # Many of them do not keep anybody out.
    many = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(200)]
    try:
        for s in many:
            s.sendall(b"POST /")
        server.still_serves()
    finally:
        for s in many:
            s.close()


def hung_up_right_after_sending(server):
    """Case 20: the answer is lost; who asks again has the same order, once."""
    sale, (item,) = server.sale([100])
    for member in range(1, 51):
        request = (f"POST /api/flash-sales/items/{item}/purchase HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
                   f"{token(member)}\r\n\r\n").encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as s:
            if member % 2:
                # Cut hard: the server's answer meets a reset.
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.sendall(request)
    orders = {}
    for member in range(1, 51):
        answer = wait_until(lambda m=member: (a := server.buy(m, item)).status in (202, 409) and a, 5)
        orders[member] = answer.json["orderId"]
    for member in range(1, 51):
        again = server.buy(member, item)
        assert again.status == 409 and again.json["orderId"] == orders[member], again
        mine = server.member(member, "GET", f"/api/flash-sales/{sale}/mine").json["orders"]
        assert [o["orderId"] for o in mine] == [orders[member]], mine
    assert server.holding(item) == 50
    rows = server.sql("SELECT count(*) FROM flash_sale_order WHERE allotment = ?", f"i{item}")
    assert rows == [(50,)], rows


# ---- starting and stopping


@contextlib.contextmanager
def own_server(server, *args, folder=None, log=None, ready=True):
    """A server for one test, beside the suite's; its folder stays when the test fails."""
    other = Server(server.binary, folder=folder, args=args, ready=False, log=log)
    try:
        if ready:
            other.start()
        yield other
    except BaseException:
        if other.log.exists():
            print(f"     log of the test's own server, {other.log}:\n{other.log_end(2000)}", flush=True)
        other.close(keep=True)
        raise
    other.close()


def shutdown_answers_what_is_in_flight(server):
    with own_server(server) as other:
        _, (item,) = other.sale([50])
        order = other.buy(1, item).json["orderId"]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            paying = pool.submit(other.pay, 1, order, SLOW)
            wait_until(lambda: other.sql("SELECT 1 FROM payment_attempt WHERE state = 'OPEN'"), 5, 0.01)
            other.process.send_signal(signal.SIGTERM)
            paid = paying.result()
        assert paid.status == 200 and paid.json["status"] == "PAID", paid
        assert other.process.wait(20) == 0, other.log_end()
        try:
            other.call("GET", "/health/live", timeout=2)
            raise AssertionError("somebody still listens")
        except ConnectionRefusedError:
            pass
        other.verify()
        other.no_money_lost()
        other.start()
        assert other.order(1, order).json["status"] == "PAID"
        assert other.stop() == 0


def shutdown_in_a_rush(server):
    """SIGTERM while people buy: every answer that was given is a row, and it ends with 0."""
    with own_server(server) as other:
        _, (item,) = other.sale([100_000])
        granted = {}

        def buyer(first):
            for member in range(first, first + 10_000):
                try:
                    answer = other.buy(member, item)
                except OSError:
                    return
                if answer.status == 202:
                    granted[member] = answer.json["orderId"]

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            waiting = [pool.submit(buyer, n * 10_000 + 1) for n in range(8)]
            wait_until(lambda: len(granted) > 200, 20)
            other.process.send_signal(signal.SIGTERM)
            for w in waiting:
                w.result()
        assert other.process.wait(20) == 0, other.log_end()
        other.verify()
        other.start()
        for member, order in list(granted.items())[-50:]:
            assert other.order(member, order).json["status"] == "PENDING"
        assert other.holding(item) >= len(granted)


def second_server_is_refused(server):
    """The file has one server; the message names it."""
    code, said = server.start_fails("--http.port", "0")
    assert code == 2, (code, said)
    assert str(server.process.pid) in said and str(server.db) in said, said
    server.still_serves()


def port_is_taken(server):
    with own_server(server, ready=False) as other:
        code, said = other.start_fails("--http.port", str(server.port))
        assert code == 2 and str(server.port) in said, (code, said)
        server.still_serves()


def configuration(server):
    """What is wrong stops the start, with its place and the right form."""
    with own_server(server, ready=False) as other:
        folder = other.folder
        (folder / "short.key").write_bytes(b"x" * 5)
        (folder / "no.pem").write_text("no key")
        table = [
            (["--http.port", "99999"], None, ["http.port", "65535"]),
            (["--engine.queue_size", "x"], None, ["engine.queue_size", "integer"]),
            (["--mode", "production"], None, ["tokens.keys", "development key"]),
            (["--ledger", "postgres://x/y"], None, ["ledger", "sqlite:PATH"]),
            (["--gate", "redis://x"], None, ["gate", "local"]),
            (["--journal", "kafka://x"], None, ["journal", "direct"]),
            (["--engine.request_budget_ms", "1000"], None, ["1000", "4250", "request_budget_ms"]),
            (["--http.tls_key", "x"], None, ["tls_certificate"]),
            (["--engine.order_id_key_file", str(folder / "short.key")], None, ["short.key", "32 bytes"]),
            (["--tokens.keys", str(folder / "no.pem")], None, ["no.pem"]),
            (["--config", str(folder / "none.toml")], None, ["none.toml"]),
            ([], 'ledgr = "x"', ["config.toml:1", "ledgr", "did you mean ledger"]),
            ([], '[http]\nport = "x"', ["config.toml:2", "http.port", "integer"]),
            ([], "[http]\nport = 70000", ["config.toml:2", "http.port", "65535"]),
            ([], "[http\nport = 1", ["config.toml:1"]),
            ([], '[shop]\nname = "x"', ["shop"]),
        ]
        for args, toml, words in table:
            if toml is not None:
                (folder / "config.toml").write_text(toml + "\n")
                args = ["--config", str(folder / "config.toml")]
            code, said = other.start_fails(*args)
            assert code == 2, (args, toml, code, said)
            last = said.strip().split("\n")[-1]
            assert all(word in last for word in words), (args, toml, words, last)
        os.environ["DOORBUSTER_HTTP_PRT"] = "1"
        try:
            code, said = other.start_fails()
        finally:
            del os.environ["DOORBUSTER_HTTP_PRT"]
        assert code == 2 and "did you mean DOORBUSTER_HTTP_PORT" in said, (code, said)
        code, said = other.start_fails("--nope", "1")
        assert code > 100 and "--nope" in said, (code, said)
        done = subprocess.run([other.binary, "serve", "--print-config", "--json", "--http.port", "1234"],
                              capture_output=True, text=True, cwd=folder, check=False)
        assert done.returncode == 0 and "1234" in done.stdout, done
        # None of these left a server behind.
        assert not other.db.exists() or other.start().stop() == 0


# ---- the disk


@contextlib.contextmanager
def small_disk(size):
    """A file system of its own; skipped where that is not allowed."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="doorbuster-disk-"))
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        folder.rmdir()
        raise Skip(f"needs the right to mount a tmpfs: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        folder.rmdir()


def busy(answer):
    assert answer.status == 503 and answer.error == "BUSY" and int(answer.headers["Retry-After"]) >= 1, answer
    return True


def not_ready(server):
    """/health/ready says ledger"""
    answer = server.call("GET", "/health/ready")
    return answer.status == 503 and answer.error == "UNAVAILABLE" and answer.json["reason"] == "ledger"


def ready_again(server):
    """/health/ready says yes"""
    return server.call("GET", "/health/ready").status == 200


def goes_on_as_before(server, item, granted, asked):
    """Nothing that was answered is lost; who was told busy asks again, and everybody has exactly one order."""
    for member, order in granted.items():
        answer = server.order(member, order)
        assert answer.status == 200 and answer.json["status"] == "PENDING" and answer.json["payable"], (member, answer)
    for member in asked:
        answer = wait_until(lambda m=member: (a := server.buy(m, item)).status in (202, 409) and a, 10)
        assert answer.json["orderId"] == granted.get(member, answer.json["orderId"]), (member, answer)
    rows = server.sql("SELECT count(*), count(DISTINCT member) FROM flash_sale_order WHERE allotment = ?", f"i{item}")
    assert rows == [(len(asked), len(asked))], (rows, len(asked))
    free = server.admin("GET", f"/api/admin/flash-sales/items/{item}").json
    assert free["gate"]["free"] == free["quantity"] - len(asked), free
    server.verify()


def full_disk(server):
    with small_disk("12m") as disk, tempfile.TemporaryDirectory() as logs:
        with own_server(server, folder=disk, log=pathlib.Path(logs) / "server.log") as other:
            _, (item,) = other.sale([100_000])
            granted, asked = {}, []

            def buy_until(kind, most):
                for _ in range(most):
                    asked.append(len(asked) + 1)
                    answer = other.buy(asked[-1], item)
                    if answer.status == 202:
                        granted[asked[-1]] = answer.json["orderId"]
                    else:
                        busy(answer)
                    if answer.status == kind:
                        return answer
                raise AssertionError(f"{most} purchases, and no {kind}")

            for _ in range(20):
                assert buy_until(202, 1)
            filler = disk / "filler"
            with open(filler, "wb", buffering=0) as out:
                block = b"x" * 65536
                while block:
                    try:
                        out.write(block)
                    except OSError:
                        block = block[:len(block) // 2]
            buy_until(503, 5000)
            wait_until(lambda: not_ready(other), 5)
            for _ in range(20):
                asked.append(len(asked) + 1)
                answer = other.buy(asked[-1], item)
                if answer.status == 202:
                    granted[asked[-1]] = answer.json["orderId"]
                else:
                    busy(answer)
            # What is there can be read, and cannot be changed.
            first = granted[1]
            assert other.order(1, first).json["status"] == "PENDING"
            assert other.pay(1, first).status in (200, 202, 503)
            assert other.call("GET", "/health/live").status == 200
            assert re.search(r"full", other.log_end(10_000)), other.log_end()
            paid = other.order(1, first).json["status"] == "PAID"
            filler.unlink()
            wait_until(lambda: other.buy(asked[-1], item).status in (202, 409), 10)
            wait_until(lambda: ready_again(other), 10)
            wait_until(lambda: other.order(1, first).json["status"] == "PAID" or other.order(1, first).json["payable"], 70)
            if other.order(1, first).json["status"] != "PAID":
                assert not paid
                assert other.pay(1, first).status == 200
            del granted[1]
            goes_on_as_before(other, item, granted, asked)
            other.no_money_lost()
            assert other.stop() == 0
            other.verify()


def locked_file(server):
    with own_server(server, "--engine.statement_timeout_ms", "200") as other:
        _, (item,) = other.sale([100])
        granted = {member: other.buy(member, item).json["orderId"] for member in range(1, 6)}
        asked = list(range(1, 26))
        lock = sqlite3.connect(other.db, timeout=5, isolation_level=None)
        try:
            lock.execute("BEGIN IMMEDIATE")
            with concurrent.futures.ThreadPoolExecutor(20) as pool:
                answers = list(pool.map(lambda m: other.buy(m, item), range(6, 26)))
            assert all(busy(a) for a in answers)
            wait_until(lambda: not_ready(other), 5)
            # Reading goes on.
            assert other.order(1, granted[1]).json["payable"] is True
            assert other.call("GET", "/api/flash-sales").status == 200
            again = other.buy(1, item)
            assert again.status == 503 or again.json["orderId"] == granted[1], again
            assert busy(other.cancel(1, granted[1])) and busy(other.pay(1, granted[1]))
            assert busy(other.admin("POST", "/api/admin/flash-sales", {"name": "n", "opensAt": iso(1), "closesAt": iso(2)}))
            assert "write lock" in other.log_end(10_000) or "locked" in other.log_end(10_000), other.log_end()
        finally:
            lock.execute("ROLLBACK")
            lock.close()
        wait_until(lambda: ready_again(other), 10)
        goes_on_as_before(other, item, granted, asked)
        assert other.pay(1, granted[1]).status == 200
        other.no_money_lost()
        assert other.stop() == 0


def read_only_at_start(server):
    """A file system that cannot be written: it says so, and which file."""
    with small_disk("12m") as disk, tempfile.TemporaryDirectory() as logs:
        with own_server(server, folder=disk, log=pathlib.Path(logs) / "server.log") as other:
            _, (item,) = other.sale([5])
            order = other.buy(1, item).json["orderId"]
            assert other.stop() == 0
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
            code, said = other.start_fails()
            assert code == 2, (code, said)
            last = said.strip().split("\n")[-1]
            assert str(disk) in last and re.search("read-only", last, re.I), last
            subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
            other.start()
            assert other.order(1, order).json["payable"] is True


def read_only_file_at_start(server):
    """The file alone, for a server that is not root."""
    with own_server(server) as other:
        other.sale([5])
        assert other.stop() == 0
        # The files belong to somebody else, and may be read only; the folder may be written.
        os.chmod(other.folder, 0o777)
        for name in other.folder.iterdir():
            os.chmod(name, 0o644)
        (other.folder / "order-id.key").chmod(0o644)
        for lock in other.folder.glob("*.lock"):
            lock.unlink()
        if os.geteuid() == 0:
            try:
                done = subprocess.run(other.command("--http.port", "0"), capture_output=True, text=True, timeout=30,
                                      cwd=other.folder, user=65534, group=65534, extra_groups=[], check=False)
            except (OSError, subprocess.SubprocessError) as error:
                raise Skip(f"the program cannot be run as another user here: {error}") from None
        else:
            other.db.chmod(stat.S_IRUSR)
            done = subprocess.run(other.command("--http.port", "0"), capture_output=True, text=True, timeout=30,
                                  cwd=other.folder, check=False)
        said = (done.stdout + done.stderr).strip().split("\n")[-1]
        assert done.returncode == 2, (done.returncode, said)
        assert "ledger.db" in said and "written" in said, said


TESTS = [("every code of the contract", every_code),
         ("messages in the caller's language", in_the_callers_language),
         ("wrong numbers name their field and change nothing", numbers),
         ("wrong numbers in paths and queries", numbers_in_paths),
         ("wrong bodies name their field and change nothing", bodies),
         ("Idempotency-Keys of administrators", keys_of_admin_calls),
         ("the window is half open by the server's clock", the_window),
         ("the window in other time zones", the_window_in_other_zones),
         ("tokens", tokens),
         ("a public key is no HMAC secret", public_key_as_secret),
         ("malformed, oversized and smuggled requests", raw_table),
         ("and what is allowed", what_is_allowed),
         ("slow clients", slow_clients),
         ("hung up right after sending: the same order, once", hung_up_right_after_sending),
         ("SIGTERM answers what is in flight", shutdown_answers_what_is_in_flight),
         ("SIGTERM in a rush loses nothing", shutdown_in_a_rush),
         ("a second server on the file is refused and told of the first", second_server_is_refused),
         ("a port that is taken", port_is_taken),
         ("a wrong configuration is refused with its place", configuration),
         ("a full disk", full_disk),
         ("a locked file", locked_file),
         ("a read-only disk at start", read_only_at_start),
         ("a read-only file at start", read_only_file_at_start)]
