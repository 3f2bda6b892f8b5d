"""What somebody inside a container may try, from inside a real sandbox, against the real proxy.

Each row is one attempt. It says what answer it must get, which reason the proxy must log, and which servers may have been reached;
anything else that was reached is an escape. After every row, and once more at the end over everything there is, the secrets' values
must have been seen by nobody but their own hosts.
"""

import base64
import os
import time
from typing import Any

import pytest
from moorage import limits
from moorage.egress.policy import EgressReason

from tests.egress.arena import ALLOWED, ECHO, HOSTS, REDIRECT, V6
from tests.egress.attacks import ATTACKS
from tests.egress.conftest import TENANT, ArenaClient, Opened, Sandbox, wait_until
from tests.egress.moves import DOMAINS, HOMES, OK, SECRETS, VALUES, Expected, Steps, connect_line, fill, get, inside


@pytest.fixture(scope="module")
def box(arena: ArenaClient) -> Opened:
    return arena.open(*DOMAINS, secrets=SECRETS)


def test_there_are_enough_attacks() -> None:
    assert len(ATTACKS) >= 80


@pytest.mark.parametrize("name", ATTACKS)
def test_nobody_escapes_by(name: str, arena: ArenaClient, sandbox: Sandbox, box: Opened) -> None:
    attack = ATTACKS[name]
    arena("clear")
    offset = arena.log_file.stat().st_size
    heard = sandbox.talk(*attack.steps(box), seconds=attack.seconds)
    said = "".join(text for text, _ in heard)
    last = heard[-1][0] if heard else ""
    assert attack.expected.says.lower() in (said if attack.expected.reason is None else last).lower()
    if attack.expected.hears_not:
        assert attack.expected.hears_not not in said
    if attack.expected.reason is not None:
        arena.wait_for_line(offset, lambda line: line.get("reason") == attack.expected.reason)
    # A server notes a connection when it gets round to it, which may be after the proxy has closed it again.
    wait_until(lambda: attack.expected.reaches <= {note["address"] for note in arena("seen")})
    seen = arena("seen")
    assert {note["address"] for note in seen} == attack.expected.reaches
    assert_secrets_stay_home(seen, said)


def assert_secrets_stay_home(seen: list[dict[str, Any]], heard: str) -> None:
    for value, home in HOMES.items():
        assert all(note["address"] == home for note in seen if value in note.get("raw", "")), "a secret was seen abroad"
        forms = (value, value.encode().hex(), base64.b64encode(value.encode()).decode()[:16])
        assert not any(form in heard for form in forms), "a secret came back into the sandbox"


def test_the_values_do_arrive_at_home(arena: ArenaClient, sandbox: Sandbox, box: Opened) -> None:
    arena("clear")
    for name in (
        "a placeholder at home",
        "a Basic credential with the placeholder inside",
        "a placeholder within its scope",
        "a placeholder in the query",
    ):
        sandbox.talk(*ATTACKS[name].steps(box))
    raw = "".join(note["raw"] for note in arena("seen"))
    basic = base64.b64encode(f"user:{VALUES['BASIC_KEY']}".encode()).decode()
    assert [text in raw for text in (VALUES["API_KEY"], basic, VALUES["SCOPED_KEY"], "k=q-77aa%2F88bb%2699cc")] == [True] * 4


DIRECT = {
    f"{kind} to {what}": (kind, address, port)
    for kind in ("tcp", "udp")
    for what, address, port in (
        ("a public host", ALLOWED, 443),
        ("a DNS server", "9.9.9.9", 53),
        ("the metadata service", "169.254.169.254", 80),
        ("the task metadata service", "169.254.170.2", 80),
        ("a private host", "10.0.0.5", 22),
        ("IPv6", V6, 443),
    )
}


@pytest.mark.parametrize(("kind", "address", "port"), DIRECT.values(), ids=DIRECT.keys())
def test_nothing_leaves_without_the_proxy(kind: str, address: str, port: int, arena: ArenaClient, sandbox: Sandbox) -> None:
    arena("clear")
    assert sandbox.order("direct", kind=kind, address=address, port=port) == "Network is unreachable"
    assert arena("seen") == []


def test_raw_packets_and_name_lookups_fail_at_once(sandbox: Sandbox) -> None:
    assert sandbox.order("direct", kind="raw", address="9.9.9.9", port=0) == "Operation not permitted"
    assert isinstance(sandbox.order("resolve", host="allowed.example"), str)


def test_a_name_that_is_bound_anew_is_judged_anew(arena: ArenaClient, sandbox: Sandbox, box: Opened) -> None:
    request = fill(get("rebind.example", "http://rebind.example/", "{auth}"), box)
    try:
        said = []
        for address in (ALLOWED, "127.0.0.1", "169.254.169.254", "10.0.0.5", ALLOWED):
            arena("hosts", text=HOSTS.replace(f"{ALLOWED} rebind.example", f"{address} rebind.example"))
            arena("clear")
            said.append((sandbox.talk(["send", request], ["read", 1])[0][0].split(" ")[1], [note["address"] for note in arena("seen")]))
        assert said == [("200", [ALLOWED]), ("403", []), ("403", []), ("403", []), ("200", [ALLOWED])]
    finally:
        arena("hosts", text=HOSTS)


def test_an_open_tunnel_keeps_the_address_it_was_checked_for(arena: ArenaClient, sandbox: Sandbox, box: Opened) -> None:
    try:
        arena("clear")
        keep_alive = get("echo.example", "/1").replace("Connection: close\n", "")
        steps: Steps = [["send", connect_line(box, "echo.example:443")], ["head"], ["tls", "echo.example"]]
        steps += [["send", fill(keep_alive, box)], ["until", "hello"], ["send", fill(keep_alive, box)], ["until", "hello"]]
        arena("hosts", text=HOSTS)
        heard = sandbox.talk(*steps)
        assert [text.split("\r\n")[0] for text, _ in heard[2:]] == [OK, OK]
        assert [note["address"] for note in arena("seen")] == [ECHO]
    finally:
        arena("hosts", text=HOSTS)


def test_each_hop_of_a_redirect_is_decided_anew(arena: ArenaClient, sandbox: Sandbox, box: Opened) -> None:
    arena("clear")
    command = "curl -sSL -o /dev/null -w '%{http_code} %{num_redirects}' http://redirect.example/redirect?http://"
    answers = [
        sandbox.shell(command + target, box.environment)["stdout"]
        for target in ("allowed.example/", "forbidden.example/", "meta.example/latest/meta-data/", "169.254.169.254/")
    ]
    assert answers == ["200 1", "403 1", "403 1", "403 1"]
    assert {note["address"] for note in arena("seen")} == {REDIRECT, ALLOWED}


def test_a_closed_container_is_cut_off_within_seconds(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("allowed.example", "echo.example", secrets=SECRETS[:1])
    offset = arena.log_file.stat().st_size
    assert sandbox.talk(["send", connect_line(box, "allowed.example:443")], ["head"])[0][0].startswith("HTTP/1.1 200")
    arena("close", tenant=TENANT, container=box.container_id)
    wait_until(lambda: sandbox.talk(["send", connect_line(box, "allowed.example:443")], ["head"])[0][0].startswith("HTTP/1.1 407"))
    line = arena.wait_for_line(offset, lambda line: line.get("reason") == EgressReason.CREDENTIAL_UNKNOWN)
    assert line["host"] == "allowed.example"


@pytest.mark.parametrize("host", ["allowed.example", "echo.example"], ids=["unopened", "opened"])
def test_an_open_tunnel_ends_with_its_container(host: str, arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("allowed.example", "echo.example", secrets=SECRETS[:1])
    request = fill(get(host, "/1").replace("Connection: close\n", ""), box)
    steps: Steps = [
        ["send", connect_line(box, f"{host}:443")],
        ["head"],
        ["tls", host],
        ["send", request],
        ["until", "hello"],
        ["read", 15],
    ]
    arena("clear")
    sandbox.order("start", name="tunnel", steps=steps, seconds=15)
    wait_until(lambda: any(host in note["raw"] for note in arena("seen")))
    arena("close", tenant=TENANT, container=box.container_id)
    started = time.monotonic()
    heard = sandbox.order("finish", name="tunnel")
    assert heard[-1][1] != "open"
    assert time.monotonic() - started < 12


def test_a_renewed_credential_ends_the_old_one(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("allowed.example")
    grant = arena("renew", tenant=TENANT, container=box.container_id)
    fresh = Opened(box.container_id, grant["username"], grant["password"], grant["placeholders"])
    steps = [sandbox.talk(["send", connect_line(one, "allowed.example:443")], ["head"])[0][0].split(" ")[1] for one in (box, fresh)]
    assert steps == ["407", "200"]


def test_a_container_has_a_bounded_number_of_connections(arena: ArenaClient, sandbox: Sandbox) -> None:
    box, other = arena.open("allowed.example"), arena.open("allowed.example")
    answers = sandbox.order("flood", count=limits.EGRESS_CONNECTIONS_MAX + 20, head=connect_line(box, "allowed.example:443"))
    assert {status: answers.count(status) for status in set(answers)} == {"200": limits.EGRESS_CONNECTIONS_MAX, "429": 20}
    assert sandbox.talk(["send", connect_line(other, "allowed.example:443")], ["head"])[0][0].startswith("HTTP/1.1 200")


def test_the_proxy_leaves_no_core_and_lets_nobody_look_into_it(arena: ArenaClient) -> None:
    proxy = arena("proxy")
    assert proxy["core_bytes_max"] == "0"
    assert not os.access(f"/proc/{proxy['pid']}/mem", os.R_OK) or os.stat(f"/proc/{proxy['pid']}/mem").st_uid == 0


def test_a_paused_container_is_cut_off_until_it_is_renewed(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("allowed.example")
    connects = []
    for step in ("renew", "pause", "renew"):
        grant = arena(step, tenant=TENANT, container=box.container_id)
        if grant is not None:
            box = Opened(box.container_id, grant["username"], grant["password"], grant["placeholders"])
            connects.append(sandbox.talk(["send", connect_line(box, "allowed.example:443")], ["head"])[0][0].split(" ")[1])
    paused = Opened(box.container_id, box.username, "", {})
    connects.append(sandbox.talk(["send", connect_line(paused, "allowed.example:443")], ["head"])[0][0].split(" ")[1])
    assert connects == ["200", "200", "407"]
    assert arena("live")


def test_http2_is_opened_decided_and_masked_like_the_rest(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("h2.example", secrets=[{"domain": "h2.example", "name": "H2_KEY", "value": "h2-value-0123456789"}])
    arena("clear")
    curl = "curl -sS --http2 -w '%{http_version} %{http_code}\\n'"
    answer = sandbox.shell(f'{curl} -H "X-Key: $H2_KEY" https://h2.example/one https://h2.example/two', box.environment)["stdout"]
    fronted = sandbox.shell(f"{curl} -o /dev/null -H 'Host: forbidden.example' https://h2.example/", box.environment)["stdout"]
    assert (answer.count("x-key: ***"), answer.count("2 200"), fronted) == (2, 2, "2 403\n")
    assert "h2-value" not in answer
    assert "".join(note["raw"] for note in arena("seen")).count("h2-value-0123456789") == 2


def test_a_narrower_policy_holds_within_seconds(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("allowed.example", "twin.example")
    narrower = arena.open("twin.example", container=box.container_id)
    answers = [
        sandbox.talk(["send", connect_line(narrower, f"{host}.example:443")], ["head"])[0][0].split(" ")[1]
        for host in ("allowed", "twin")
    ]
    assert answers == ["403", "200"]


def test_one_container_cannot_use_what_another_may(arena: ArenaClient, sandbox: Sandbox, box: Opened) -> None:
    other = arena.open("twin.example")
    arena("clear")
    heard = sandbox.talk(["send", connect_line(other, "allowed.example:443")], ["head"])
    assert heard[0][0].startswith("HTTP/1.1 403")
    # Nor does a placeholder of one mean anything in the hands of the other, at a host that both may reach.
    third = arena.open("echo.example", secrets=[{"domain": "echo.example", "name": "API_KEY", "value": "another-value-entirely"}])
    stolen = fill(get("echo.example", headers="X: {API_KEY}\n"), box)
    heard = sandbox.talk(
        ["send", connect_line(third, "echo.example:443")], ["head"], ["tls", "echo.example"], ["send", stolen], ["read", 1]
    )
    assert box.placeholders["API_KEY"] in heard[-1][0]
    assert_secrets_stay_home(arena("seen"), heard[-1][0])
    assert not any(VALUES["API_KEY"] in note["raw"] for note in arena("seen"))


def test_the_proxy_fails_closed_while_the_table_does_not_answer(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("allowed.example")
    fresh = arena.open("allowed.example")
    connect = [["send", connect_line(box, "allowed.example:443")], ["head"]]
    assert sandbox.talk(*connect)[0][0].startswith("HTTP/1.1 200")
    arena("freeze_table")
    try:
        heard = sandbox.talk(["send", connect_line(fresh, "allowed.example:443")], ["head"], seconds=20)
        assert heard[0][0].startswith("HTTP/1.1 503 ")
        heard = sandbox.talk(*connect, seconds=20)
        assert heard[0][0].startswith("HTTP/1.1 503 ")
    finally:
        arena("thaw_table")
    wait_until(lambda: sandbox.talk(*connect)[0][0].startswith("HTTP/1.1 200"))


def test_a_killed_proxy_loses_neither_policy_nor_log(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("allowed.example")
    connect = [["send", connect_line(box, "allowed.example:443")], ["head"]]
    assert sandbox.talk(*connect)[0][0].startswith("HTTP/1.1 200")
    assert sandbox.talk(["send", connect_line(box, "forbidden.example:443")], ["head"])[0][0].startswith("HTTP/1.1 403")
    wait_until(lambda: len(arena("log", tenant=TENANT, container=box.container_id)) >= 1)
    arena("restart_proxy", signal=9)
    assert sandbox.talk(*connect)[0][0].startswith("HTTP/1.1 200")
    assert sandbox.talk(["send", connect_line(box, "forbidden.example:443")], ["head"])[0][0].startswith("HTTP/1.1 403")


def test_an_operators_secret_is_used_by_name_and_rotates_by_itself(arena: ArenaClient, sandbox: Sandbox) -> None:
    arena("define", name="SHARED", domain="named.example", value="operator-value-one-1")
    box = arena.open("named.example", secrets=[{"domain": "named.example", "name": "SHARED"}])
    request = get("named.example", headers="X: {SHARED}\n")
    steps: Steps = [["send", connect_line(box, "named.example:443")], ["head"], ["tls", "named.example"], ["send", fill(request, box)]]
    arena("clear")
    sandbox.talk(*steps, ["read", 1])
    assert "operator-value-one-1" in arena("seen")[-1]["raw"]
    arena("define", name="SHARED", domain="named.example", value="operator-value-two-2")

    def is_rotated() -> bool:
        sandbox.talk(*steps, ["read", 1])
        return "operator-value-two-2" in arena("seen")[-1]["raw"]

    wait_until(is_rotated)


def test_what_happened_can_be_listed_without_values(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open("echo.example", "allowed.example", secrets=SECRETS[:1])
    sandbox.talk(*ATTACKS["a placeholder at home"].steps(box))
    sandbox.talk(*inside("allowed.example", get("allowed.example", "/"), Expected()).steps(box))
    sandbox.talk(["send", fill(get("forbidden.example", "http://forbidden.example/path?token=abc", "{auth}"), box)], ["read", 1])

    def entries() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = arena("log", tenant=TENANT, container=box.container_id)
        return found

    wait_until(lambda: len(entries()) == 3 and all(e["bytes_received"] or e["decision"] == "denied" for e in entries()))
    shown = [
        (e["host"], e["port"], e["method"], e["path"], e["decision"], e["reason"], e["secrets"], e["status"])
        for e in reversed(entries())
    ]
    assert shown == [
        ("echo.example", 443, "GET", "/echo", "allowed", "allowed_exact", ["API_KEY"], 200),
        ("allowed.example", 443, "CONNECT", None, "allowed", "allowed_exact", [], None),
        ("forbidden.example", 80, "GET", "/path", "denied", "domain_not_allowed", [], 403),
    ]
    told = arena("refusals", tenant=TENANT, container=box.container_id, at_ms=0)
    assert told == (
        "[egress] Network access to 'forbidden.example' was refused: it is not among this container's allowed domains. To allow it, "
        "list 'forbidden.example' in network_policy.allowed_domains; the operator must allow it too (MOORAGE_ALLOWED_EGRESS_DOMAINS).\n"
    )


def test_zz_no_value_is_left_anywhere(arena: ArenaClient, sandbox: Sandbox, box: Opened) -> None:
    """After everything above: the table, the bucket, the logs, and what the sandbox's processes hold."""
    dump = arena("dump")
    places = {"the table": dump["items"], "the proxy's log": arena.log_file.read_text()}
    assert dump["objects"] in (0, None)
    for pid in sandbox.pids:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            places[f"the environment of {pid}"] = environ.read().decode("latin-1")
        places[f"the memory of {pid}"] = _memory(pid)
    found = [
        (where, name)
        for where, text in places.items()
        for name, value in VALUES.items()
        if value in text or base64.b64encode(value.encode()).decode()[:20] in text
    ]
    assert found == []
    assert box.placeholders["API_KEY"] in places["the table"]


def _memory(pid: int) -> str:
    """All readable memory of a process, mapped files included."""
    pieces = []
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in maps:
                span, rights = line.split()[:2]
                start, end = (int(number, 16) for number in span.split("-"))
                if rights.startswith("r") and "[v" not in line and end - start < 1 << 28:
                    try:
                        memory.seek(start)
                        pieces.append(memory.read(end - start))
                    except OSError:
                        continue
    except PermissionError:
        return ""
    return b"".join(pieces).decode("latin-1")
