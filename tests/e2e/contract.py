"""The server against api/openapi.yaml, in both directions: what is promised is there, and nothing else is said."""
import re

from support import CONTRACT, SEEN, Skip, iso

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
GRANT = "0" * 32
SAMPLE = {"saleId": "999999999", "itemId": "999999999", "orderId": "x", "allotment": "i999999999", "grantId": GRANT,
          "name": "expire-holds"}
# What any route may answer, as the contract's introduction says.
ANYWHERE = {(405, "METHOD_NOT_ALLOWED"), (400, "INVALID_REQUEST"), (408, "REQUEST_TIMEOUT"), (414, "URI_TOO_LONG"),
            (431, "HEADERS_TOO_LARGE"), (417, "EXPECTATION_FAILED"), (501, "NOT_IMPLEMENTED")}


def contract():
    try:
        import yaml  # the one package that is not in the standard library: Debian's python3-yaml
    except ImportError:
        raise Skip("needs PyYAML (python3-yaml)") from None
    return yaml.safe_load(CONTRACT.read_text())


def operations(document):
    """(METHOD, path, operation) of all that is promised."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                yield method.upper(), path, operation


def filled(path):
    return re.sub(r"\{(\w+)\}", lambda m: SAMPLE[m[1]], path)


def resolve(document, node):
    """The node itself, with what its $ref points to below its own members."""
    while isinstance(node, dict) and "$ref" in node:
        target = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = {**target, **{k: v for k, v in node.items() if k != "$ref"}}
    return node


TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def has_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def problems(document, schema, value, where="$"):
    """What of the JSON Schema words that the contract uses does not hold."""
    schema = resolve(document, schema)
    found = []
    known = {"type", "enum", "const", "pattern", "minLength", "maxLength", "minimum", "maximum", "required", "properties",
             "additionalProperties", "items", "maxItems", "allOf", "oneOf", "format", "description", "default", "example",
             "examples", "contentMediaType", "contentSchema"}
    assert set(schema) <= known, f"teach this test the words {set(schema) - known}"
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(has_type(value, t) for t in types):
        return [f"{where} is no {types}: {value!r}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where} = {value!r} is not one of {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        found.append(f"{where} = {value!r} is not {schema['const']!r}")
    if isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            found.append(f"{where} = {value!r} does not match {schema['pattern']}")
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            found.append(f"{where} = {value!r} has a wrong length")
        if schema.get("format") == "date-time" and not re.fullmatch(
                r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", value):
            found.append(f"{where} = {value!r} is no instant in UTC")
    if has_type(value, "number") and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        found.append(f"{where} = {value} is out of range")
    if isinstance(value, dict):
        for name in schema.get("required", []):
            if name not in value:
                found.append(f"{where}.{name} is missing")
        for name, member in value.items():
            if name in schema.get("properties", {}):
                found += problems(document, schema["properties"][name], member, f"{where}.{name}")
            elif schema.get("additionalProperties") is False:
                found.append(f"{where}.{name} is not in the contract")
    if isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            found.append(f"{where} is too long")
        for n, item in enumerate(value):
            found += problems(document, schema.get("items", {}), item, f"{where}[{n}]")
    for part in schema.get("allOf", []):
        found += problems(document, part, value, where)
    if "oneOf" in schema:
        fits = [part for part in schema["oneOf"] if not problems(document, part, value, where)]
        if len(fits) != 1:
            found.append(f"{where} = {value!r} fits {len(fits)} of oneOf")
    return found


def template_of(document, path):
    """The contract's path of a request; literal parts go before parameters."""
    path = path.split("?")[0]
    fits = [t for t in document["paths"]
            if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(t)), path)]
    return min(fits, key=lambda t: t.count("{"), default=None)


def serves_its_contract(server):
    answer = server.call("GET", "/openapi.yaml")
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/yaml", answer.headers
    assert answer.text == CONTRACT.read_text(), "the server was built from another openapi.yaml"
    page = server.call("GET", "/docs")
    assert page.status == 200 and page.headers["Content-Type"].startswith("text/html"), page.headers
    missing = [path for _, path, _ in operations(contract()) if path.replace("{", "<").split("<")[0] not in page.text]
    assert not missing, missing
    assert "Content-Security-Policy" in page.headers, page.headers


def everything_promised_is_there(server):
    wrong = []
    for method, path, operation in operations(contract()):
        if path == "/api/events/{allotment}":
            answer = server.call(method, filled(path))
            fits = answer.status == 404 and server.call("GET", "/api/events").status == 404
        elif operation.get("security"):
            # Before anything is looked up: so this is no "no such route".
            answer = server.call(method, filled(path))
            fits = answer.status == 401 and answer.error == "UNAUTHORIZED"
        elif "{" in path:
            answer = server.call(method, filled(path))
            fits = answer.status == 404
        else:
            answer = server.call(method, filled(path))
            fits = answer.status == 200
        if not fits:
            wrong.append(f"{method} {path}: {answer}")
    assert not wrong, "\n".join(wrong)


def other_methods_are_405(server):
    document = contract()
    promised = {}
    for method, path, _ in operations(document):
        promised.setdefault(path, set()).add(method)
    wrong = []
    for path, methods in promised.items():
        allowed = methods | ({"HEAD"} if "GET" in methods else set())
        for method in METHODS:
            if method in methods:
                continue
            for bearer in (None, True):
                answer = server.admin(method, filled(path)) if bearer else server.call(method, filled(path))
                allow = set(answer.headers.get("Allow", "").split(", "))
                if answer.status != 405 or answer.error != "METHOD_NOT_ALLOWED" or allow != allowed:
                    wrong.append(f"{method} {path}: {answer}, Allow {sorted(allow)}, promised {sorted(allowed)}")
    assert not wrong, "\n".join(wrong)


def around(server):
    """Nothing is found beside the promised paths."""
    for path in ("/", "/api", "/api/", "/api/flash-sales/", "/api/flash-sales//mine", "/API/time", "/api/time/", "/metrics/x",
                 "/api/admin", "/docs/", "/.env", "/api/../metrics", "/api/%66lash-sales/1/x/y", "/health", "//api/time"):
        answer = server.admin("GET", path)
        assert answer.status == 404 and answer.error == "NOT_FOUND", (path, answer)


def walk(server):
    """Each operation once with success, so that there is an answer of each kind to look at."""
    document = contract()
    refund = next(path for _, path, o in operations(document) if o["operationId"] == "refundOrder")
    admin = "/api/admin/flash-sales"
    made = server.admin("POST", admin, {"name": "walk", "opensAt": iso(-1), "closesAt": iso(600)})
    assert made.status == 201, made
    sale = made.json["id"]
    body = {"name": "thing", "listPrice": 19900, "salePrice": 9900, "quantity": 5, "currency": "KRW"}
    items = [server.admin("POST", f"{admin}/{sale}/items", body).json["id"] for _ in range(2)]
    item = items[0]
    steps = [("DELETE", f"{admin}/items/{items[1]}", None), ("PATCH", f"{admin}/items/{item}", {"quantity": 6}),
             ("PATCH", f"{admin}/{sale}", {"name": "walked"}), ("GET", f"{admin}/items/{item}", None),
             ("POST", f"{admin}/{sale}/open", None), ("POST", f"{admin}/{sale}/pause", None),
             ("POST", f"{admin}/{sale}/resume", None), ("POST", f"{admin}/{sale}/rebuild", {"counts": True}),
             ("GET", admin, None), ("GET", f"{admin}/{sale}", None), ("GET", f"{admin}?limit=1", None)]
    for method, path, sent in steps:
        answer = server.admin(method, path, sent)
        assert answer.status == 200, (method, path, answer)
    orders = [server.buy(member, item) for member in (1, 2)]
    assert [o.status for o in orders] == [202, 202], orders
    assert server.buy(1, item).status == 409
    first, second = [o.json["orderId"] for o in orders]
    assert server.pay(1, first).status == 200 and server.cancel(2, second).status == 200
    assert server.order(1, first).status == 200
    assert server.member(1, "GET", f"/api/flash-sales/{sale}/mine").status == 200
    grant = server.grants(item)[1]["grantId"]
    answer = server.admin("POST", refund.replace("{grantId}", grant), {"reason": "walked"})
    assert answer.status == 200, answer
    for path in ("/api/flash-sales", f"/api/flash-sales/{sale}", "/api/time", "/health/live", "/health/ready", "/metrics"):
        assert server.call("GET", path).status == 200, path
    for name in ("expire-holds", "close-events", "reclaim", "reconcile-payments"):
        assert server.admin("POST", f"/api/admin/jobs/{name}").status == 200, name
    for path in ("/api/admin/verify", "/api/admin/audit", f"{admin}/items/{item}/orders"):
        assert server.admin("GET", path).status == 200, path
    answer = server.admin("POST", f"{admin}/{sale}/close")
    assert answer.status == 200, answer
    assert server.admin("GET", "/api/admin/verify").json["ok"] is True


def metrics_are_the_page(server):
    page = set(re.findall(r"^\| `([a-z0-9_]+)`", (CONTRACT.parent.parent / "docs/metrics.md").read_text(), re.M))
    shown = set(re.findall(r"^# TYPE (\S+)", server.call("GET", "/metrics").text, re.M))
    assert len(shown) > 20, shown
    # A first sale, a rebuild or a key source makes these; the page names them anyway.
    later = {"engine_rebuild_step_seconds", "edge_key_refreshes_total", "http_request_seconds"}
    assert shown - page == set(), f"not on the page: {sorted(shown - page)}"
    assert page - shown - later == set(), f"on the page only: {sorted(page - shown - later)}"


def lists_are_stable(server):
    """Keyset pages: each entry once, also while others are added."""
    admin = "/api/admin/flash-sales"
    ids, after = [], ""
    before = [row[0] for row in server.sql("SELECT id FROM flash_sale ORDER BY id")]
    for _ in range(3):
        server.sale([1])
    before = [row[0] for row in server.sql("SELECT id FROM flash_sale ORDER BY id")]
    while True:
        page = server.admin("GET", f"{admin}?limit=2{after}")
        assert page.status == 200 and len(page.json["sales"]) <= 2, page
        ids += [s["id"] for s in page.json["sales"]]
        server.sale([1])
        if len(ids) >= len(before) or page.json["next"] is None:
            break
        after = "&after=" + page.json["next"]
    assert ids[:len(before)] == before, (ids, before)


def every_answer_fits(server):
    """All that any test of this run was answered: a documented status, code and form."""
    document = contract()
    assert len(SEEN) > 50, "the walk has left too little"
    wrong, reached = set(), set()
    for (method, path, status, code), answer in SEEN.items():
        template = template_of(document, path)
        if template is None:
            if status not in (400, 404, 405, 414):
                wrong.add(f"{method} {path}: {status} {code}, and the contract does not know the path")
            continue
        operation = document["paths"][template].get("get" if method == "HEAD" else method.lower())
        if operation is None or (status, code) in ANYWHERE:
            if (status, code) not in ANYWHERE:
                wrong.add(f"{method} {template}: {status} {code} of a method that the contract does not know")
            continue
        promised = resolve(document, operation["responses"].get(str(status)))
        if promised is None:
            # A part of the path or a header that cannot be read is 400 anywhere.
            if (status, code) != (400, "INVALID_PARAMETER"):
                wrong.add(f"{method} {template}: {status} {code} is not in the contract")
            continue
        reached.add((method, template, status))
        content = promised["content"]
        kind = answer.headers.get("Content-Type", "").split(";")[0]
        if kind not in content:
            wrong.add(f"{method} {template}: {status} is {kind}, promised {list(content)}")
        elif kind == "application/json" and method != "HEAD":
            for problem in problems(document, content[kind]["schema"], answer.json):
                wrong.add(f"{method} {template} {status}: {problem}")
        if status == 503 and "Retry-After" not in answer.headers:
            wrong.add(f"{method} {template}: 503 without Retry-After")
        if "X-Request-Id" not in answer.headers:
            wrong.add(f"{method} {template}: {status} without X-Request-Id")
    assert not wrong, "\n".join(sorted(wrong))
    # And each promise of success was kept at least once.
    missing = [f"{m} {p} {s}" for m, p, o in operations(document) for s in o["responses"]
               if s.startswith("2") and s != "202" and (m, p, int(s)) not in reached and p != "/api/events/{allotment}"]
    assert not missing, missing


TESTS = [("the server serves its contract, also as a page", serves_its_contract),
         ("everything that is promised is there", everything_promised_is_there),
         ("other methods are 405 and name the right ones", other_methods_are_405),
         ("nothing is found beside it", around),
         ("each operation succeeds", walk),
         ("lists are stable while entries are added", lists_are_stable),
         ("every metric is on docs/metrics.md, and nothing else is", metrics_are_the_page),
         ("every answer of this run fits the contract", every_answer_fits)]
