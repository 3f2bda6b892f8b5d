"""The proxy serves every container: what one of them does, or the servers that it talks to, takes it from no other."""

import base64
import hashlib
import json
import os
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import AF_UNIX, socket
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ResponseReceived
from moorage import limits
from moorage.limits.units import MIB

from tests.egress.arena import PROXY_PYTHON
from tests.egress.conftest import ROOT, ArenaClient, Opened, Sandbox, wait_until

VALUE = "packed-value-0123456789"
HOST = "echo.example"
GROWTH_KIB_MAX = 80 * 1024
"""What one exchange may cost: a window of 16 MiB, a few pieces, what the two connections buffer. The bombs are 256 MiB."""
_NEIGHBOUR_SECONDS_MAX = 10.0
"""On a quiet machine a neighbour waits some hundredths of a second. Beside three other tests on two cores it has waited 3.3; before
connections took turns it had no answer in 20."""


@dataclass(frozen=True)
class Packed:
    directory: Path
    pieces: dict[str, int]
    """What the proxy makes of a body, by codings."""


@pytest.fixture(scope="module")
def packed(arena: ArenaClient) -> Packed:
    directory = arena.directory / "packed"
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'layers/core/python'}:{ROOT}"}
    command = [str(PROXY_PYTHON), "-m", "tests.egress.packing", str(directory)]
    done = subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    return Packed(directory, json.loads(done.stdout))


@pytest.fixture
def box(arena: ArenaClient) -> Opened:
    return arena.open(HOST, "allowed.example", secrets=[{"domain": HOST, "name": "KEY", "value": VALUE}])


@pytest.fixture
def neighbour(arena: ArenaClient) -> Opened:
    return arena.open("allowed.example")


def connect_line(box: Opened, authority: str) -> str:
    return f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nProxy-Authorization: Basic {box.basic}\r\n\r\n"


def reaches_its_host(sandbox: Sandbox, box: Opened) -> bool:
    heard = sandbox.talk(["send", connect_line(box, "allowed.example:443")], ["head"], seconds=20)
    return bool(heard) and heard[0][0].startswith("HTTP/1.1 200")


# --- Connections that say nothing ---


def test_a_sandbox_that_connects_without_end_leaves_its_neighbours_their_way_out(
    arena: ArenaClient, sandbox: Sandbox, other_sandbox: Sandbox, neighbour: Opened
) -> None:
    sandbox.order("hold", processes=3, count=3_900)
    try:
        assert all(reaches_its_host(other_sandbox, neighbour) for _ in range(10))
        wait_until(lambda: 0 < sandbox.order("held") <= limits.EGRESS_STRANGERS_MAX)
    finally:
        sandbox.order("release")
    wait_until(lambda: reaches_its_host(sandbox, neighbour))


def test_a_sandbox_that_opens_and_closes_without_end_leaves_a_neighbour_its_way_out(
    arena: ArenaClient, sandbox: Sandbox, other_sandbox: Sandbox, box: Opened, neighbour: Opened
) -> None:
    sandbox.order("churn", processes=3, head=connect_line(box, f"{HOST}:443")[:-20])
    took = []
    try:
        for _ in range(10):
            begun = time.monotonic()
            assert reaches_its_host(other_sandbox, neighbour)
            took.append(time.monotonic() - begun)
    finally:
        sandbox.order("release")
    assert max(took) < _NEIGHBOUR_SECONDS_MAX
    wait_until(lambda: reaches_its_host(sandbox, neighbour))


# --- Bodies that grow ---


def peak_kib(arena: ArenaClient) -> int:
    status = Path(f"/proc/{arena('proxy')['pid']}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


@contextmanager
def no_more_than(arena: ArenaClient, kib: int) -> Iterator[None]:
    before = peak_kib(arena)
    yield
    assert peak_kib(arena) - before < kib


BOMBS = {
    **{coding: (f"bomb-{coding}", coding) for coding in ("gzip", "deflate", "br", "zstd")},
    "one in another": ("bomb-br-in-gzip", "br,gzip"),
}


@pytest.mark.parametrize(("file", "coding"), BOMBS.values(), ids=BOMBS.keys())
def test_a_body_that_grows_a_thousandfold_costs_the_proxy_a_few_pieces(
    file: str, coding: str, arena: ArenaClient, sandbox: Sandbox, other_sandbox: Sandbox, box: Opened, neighbour: Opened, packed: Packed
) -> None:
    """A client that takes a little and waits is the worst: everything else has to wait with it, and outside of memory."""
    arena("restart_proxy")
    assert reaches_its_host(other_sandbox, neighbour)
    request = f"GET /packed/{file}?{coding} HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
    steps = [["send", connect_line(box, f"{HOST}:443")], ["head"], ["tls", HOST], ["send", request], ["head"], ["gate"]]
    with no_more_than(arena, GROWTH_KIB_MAX):
        sandbox.order("start", name="bomb", steps=steps)
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            assert reaches_its_host(other_sandbox, neighbour)
        heard = sandbox.order("finish", name="bomb")
    assert heard[2][0].startswith("HTTP/1.1 200")


def test_windows_are_shared_out_and_given_back(arena: ArenaClient, sandbox: Sandbox, box: Opened, packed: Packed) -> None:
    request = f"GET /packed/bomb-zstd?zstd HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
    steps = [["send", connect_line(box, f"{HOST}:443")], ["head"], ["tls", HOST], ["send", request], ["head"]]
    names = [f"window-{number}" for number in range(limits.EGRESS_WINDOWS_PER_TENANT_MAX)]
    for name in names:
        sandbox.order("start", name=name, steps=[*steps, ["gate"]])
    wait_until(lambda: all(len(sandbox.order("heard", name=name)) == 3 for name in names))
    one_more = sandbox.talk(*steps)
    answers = [heard[2][0].split(" ")[1] for heard in [one_more, *(sandbox.order("finish", name=name) for name in names)]]
    assert answers == ["503"] + ["200"] * limits.EGRESS_WINDOWS_PER_TENANT_MAX
    wait_until(lambda: _fetch(sandbox, box, "/packed/zstd?zstd")[0] == 200)


def test_an_http2_client_that_opens_no_window_is_not_sent_to_memory(arena: ArenaClient) -> None:
    box = arena.open("h2.example", secrets=[{"domain": "h2.example", "name": "KEY", "value": VALUE}])
    arena("restart_proxy")
    with no_more_than(arena, GROWTH_KIB_MAX), _http2(arena, box) as (connection, http2):
        asked = {":method": "GET", ":path": "/bytes?300000000", ":scheme": "https", ":authority": "h2.example"}
        http2.send_headers(1, list(asked.items()), end_stream=True)
        connection.sendall(http2.data_to_send())
        connection.settimeout(3)
        received = 0
        while True:  # It reads what comes and never acknowledges it.
            try:
                received += len(connection.recv(65536))
            except TimeoutError:
                break
        assert 0 < received < 200_000


def test_the_body_of_a_refused_http2_request_is_not_kept(arena: ArenaClient) -> None:
    """No length bounds it: it goes on as long as its client likes."""
    box = arena.open("h2.example", secrets=[{"domain": "h2.example", "name": "KEY", "value": VALUE}])
    arena("restart_proxy")
    with _http2(arena, box) as (connection, http2):
        asked = {":method": "GET", ":path": "/", ":scheme": "https", ":authority": "forbidden.example"}
        http2.send_headers(1, list(asked.items()))
        with no_more_than(arena, GROWTH_KIB_MAX):
            _send_http2_body(connection, http2, 1, 200 * MIB)
        http2.end_stream(1)
        connection.sendall(http2.data_to_send())
        heard: list[Any] = []
        while not any(isinstance(each, ResponseReceived) for each in heard):
            heard += http2.receive_data(connection.recv(65536))
    (answer,) = (each for each in heard if isinstance(each, ResponseReceived))
    assert dict(answer.headers)[b":status"] == b"403"


def test_held_http2_forms_of_one_container_are_bounded_in_bytes(arena: ArenaClient, other_sandbox: Sandbox, neighbour: Opened) -> None:
    """Each connection brings a hundred requests, and each of them a form of 64 KiB that never ends."""
    box = arena.open("h2.example", secrets=[{"domain": "h2.example", "name": "KEY", "value": VALUE, "places": ["form"]}])
    arena("restart_proxy")
    assert reaches_its_host(other_sandbox, neighbour)
    form = {"content-type": "application/x-www-form-urlencoded", "content-length": str(limits.EGRESS_FORM_BYTES_MAX)}
    asked = {":method": "POST", ":path": "/", ":scheme": "https", ":authority": "h2.example", **form}
    with no_more_than(arena, GROWTH_KIB_MAX), ExitStack() as held:
        for _ in range(40):
            with suppress(OSError):  # Those that are cut off.
                connection, http2 = held.enter_context(_http2(arena, box))
                for stream_id in range(1, 200, 2):
                    http2.send_headers(stream_id, list(asked.items()))
                    _send_http2_body(connection, http2, stream_id, limits.EGRESS_FORM_BYTES_MAX - 1)
        assert reaches_its_host(other_sandbox, neighbour)


def test_a_body_that_comes_before_the_decision_waits_outside(arena: ArenaClient, sandbox: Sandbox) -> None:
    """The table takes two seconds not to answer."""
    arena("restart_proxy")
    head = f"POST http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\nContent-Length: {1 << 30}\r\n"
    arena("freeze_table")
    try:
        with no_more_than(arena, GROWTH_KIB_MAX), socket(AF_UNIX) as plain, suppress(OSError):
            plain.settimeout(3)
            plain.connect(str(arena.directory / "proxy" / "egress.sock"))
            plain.sendall(f"{head}Proxy-Authorization: Basic {base64.b64encode(b'a:b').decode()}\r\n\r\n".encode())
            plain.sendall(bytes(300 * MIB))
    finally:
        arena("thaw_table")


def test_a_websocket_message_that_never_ends_is_cut_off(arena: ArenaClient, sandbox: Sandbox, box: Opened) -> None:
    asks = (
        f"GET /ws HTTP/1.1\r\nHost: {HOST}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    arena("restart_proxy")
    context = ssl.create_default_context(cadata=(arena.directory / "egress-ca.pem").read_text())
    begins, goes_on = b"\x02\xff", b"\x00\xff"
    frame = (1 << 16).to_bytes(8, "big") + bytes(4 + (1 << 16))
    with no_more_than(arena, 2 * GROWTH_KIB_MAX), socket(AF_UNIX) as plain:  # mitmproxy puts the parts together anew for each.
        plain.settimeout(20)
        plain.connect(str(arena.directory / "proxy" / "egress.sock"))
        plain.sendall(connect_line(box, f"{HOST}:443").encode())
        assert plain.recv(4096).startswith(b"HTTP/1.1 200")
        with context.wrap_socket(plain, server_hostname=HOST) as connection:
            connection.sendall(asks.encode())
            connection.recv(4096)
            with pytest.raises((ConnectionError, ssl.SSLError)):
                connection.sendall(begins + frame + (goes_on + frame) * (300 * MIB >> 16))


def _send_http2_body(connection: ssl.SSLSocket, http2: H2Connection, stream_id: int, count: int) -> None:
    """As the peer's windows open."""
    while count > 0:
        piece = bytes(min(count, http2.max_outbound_frame_size))
        while http2.local_flow_control_window(stream_id) < len(piece):
            http2.receive_data(connection.recv(65536))
        http2.send_data(stream_id, piece)
        connection.sendall(http2.data_to_send())
        count -= len(piece)


def test_a_form_that_repeats_a_placeholder_is_refused_in_words(arena: ArenaClient, sandbox: Sandbox) -> None:
    secret = {"domain": HOST, "name": "KEY", "value": "v" * limits.DOMAIN_SECRET_CHARS_MAX, "places": ["form", "headers"]}
    box = arena.open(HOST, secrets=[secret])
    arena("restart_proxy")
    arena("clear")
    curl = f"curl -sS -m 60 https://{HOST}/echo"
    with no_more_than(arena, GROWTH_KIB_MAX):
        form = sandbox.shell(f'for i in $(seq 1000); do echo -n "a=$KEY&"; done | {curl} -d @-', box.environment)["stdout"]
        field = sandbox.shell(f'{curl} -H "X-Key: $KEY$KEY$KEY$KEY$KEY"', box.environment)["stdout"]
    reason = "the values of its secrets would add more than 256 KiB to the request. Use each placeholder once."
    assert [(json.loads(each)["error"]["code"], reason in each) for each in (form, field)] == [("values_too_large", True)] * 2
    assert [note["raw"] for note in arena("seen") if note["raw"]] == []


def test_a_page_of_another_site_sends_the_placeholder_and_no_value(arena: ArenaClient, sandbox: Sandbox) -> None:
    box = arena.open(HOST, secrets=[{"domain": HOST, "name": "KEY", "value": VALUE, "places": ["form"]}])
    said = [("same-origin", HOST), ("cross-site", "evil.example")]
    curls = [f'curl -sS -d "a=$KEY" -H "Sec-Fetch-Site: {site}" -H "Origin: https://{host}" https://{HOST}/echo' for site, host in said]
    own, other = (sandbox.shell(curl, box.environment)["stdout"].rpartition("\r\n\r\n")[2] for curl in curls)
    assert (own, other) == (f"a={'*' * len(VALUE)}", f"a={box.placeholders['KEY']}")


def test_an_answer_is_masked_and_logged_whatever_bytes_its_request_has(arena: ArenaClient, sandbox: Sandbox, box: Opened) -> None:
    at = arena.log_file.stat().st_size
    answer = sandbox.shell(f"""curl -sS -H "X-Key: $KEY" "https://{HOST}/echo?$(printf '\\377')" """, box.environment)
    assert f"X-Key: {'*' * len(VALUE)}\r\n" in answer["stdout"]
    line = arena.wait_for_line(at, lambda line: line.get("path") == "/echo")
    assert (line["decision"], line["secrets"]) == ("allowed", ["KEY"])


@contextmanager
def _http2(arena: ArenaClient, box: Opened) -> Iterator[tuple[ssl.SSLSocket, H2Connection]]:
    context = ssl.create_default_context(cadata=(arena.directory / "egress-ca.pem").read_text())
    context.set_alpn_protocols(["h2"])
    with socket(AF_UNIX) as plain:
        plain.settimeout(10)
        plain.connect(str(arena.directory / "proxy" / "egress.sock"))
        plain.sendall(connect_line(box, "h2.example:443").encode())
        assert plain.recv(4096).startswith(b"HTTP/1.1 200")
        with context.wrap_socket(plain, server_hostname="h2.example") as connection:
            http2 = H2Connection(H2Configuration(client_side=True))
            http2.initiate_connection()
            yield connection, http2


# --- Bodies that are packed ---


def _fetch(sandbox: Sandbox, box: Opened, path: str, *, sends: bool = True) -> tuple[int, str, int]:
    """Status, digest of the body, and curl's exit code."""
    header = '-H "X-Key: $KEY"' if sends else ""
    command = f"curl -sS {header} -o /tmp/body -w '%{{http_code}} ' 'https://{HOST}{path}'; echo $?; sha256sum < /tmp/body"
    status, code, digest = sandbox.shell(command, box.environment)["stdout"].split()[:3]
    return int(status), digest, int(code)


def _masked(packed: Packed) -> str:
    return hashlib.sha256((packed.directory / "plain").read_bytes().replace(VALUE.encode(), b"*" * len(VALUE))).hexdigest()


CODED = {
    "gzip": "gzip",
    "gzip-members": "gzip",
    "deflate": "deflate",
    "deflate-raw": "deflate",
    "br": "br",
    "zstd": "zstd",
    "zstd-frames": "zstd",
    "gzip-in-br": "gzip,br",
    "gzip-twice": "x-gzip,GZIP",
}


@pytest.mark.parametrize(("file", "coding"), CODED.items(), ids=CODED.keys())
def test_a_packed_body_arrives_whole_and_without_the_value(
    file: str, coding: str, sandbox: Sandbox, box: Opened, packed: Packed
) -> None:
    for said in (coding, f"{coding},identity"):
        assert _fetch(sandbox, box, f"/packed/{file}?{said}") == (200, _masked(packed), 0)


def test_two_fields_of_codings_are_one_list(sandbox: Sandbox, box: Opened, packed: Packed) -> None:
    assert _fetch(sandbox, box, "/packed/gzip-in-br?gzip&br") == (200, _masked(packed), 0)


def test_a_body_that_breaks_off_is_seen_to(sandbox: Sandbox, box: Opened, packed: Packed) -> None:
    status, _, code = _fetch(sandbox, box, "/packed/gzip-broken?gzip")
    assert (status, code != 0) == (200, True)


CLOSED = {"an unknown coding": "sdch", "one among known ones": "gzip,exi", "more than anybody uses": "gzip,gzip,gzip,gzip"}


@pytest.mark.parametrize("coding", CLOSED.values(), ids=CLOSED.keys())
def test_what_cannot_be_looked_into_is_not_passed_where_a_secret_was_sent(
    coding: str, arena: ArenaClient, sandbox: Sandbox, box: Opened, packed: Packed
) -> None:
    at = arena.log_file.stat().st_size
    command = f'curl -sS -i --suppress-connect-headers -H "X-Key: $KEY" "https://{HOST}/packed/gzip?{coding}"'
    answer = sandbox.shell(command, box.environment)["stdout"]
    assert answer.startswith("HTTP/1.1 502 ")
    assert '"code": "unreadable_body"' in answer
    assert "Accept-Encoding: identity" in answer
    line = arena.wait_for_line(at, lambda line: line.get("path") == "/packed/gzip")
    assert (line["decision"], line["reason"], line["secrets"]) == ("denied", "unreadable_body", ["KEY"])
    assert _fetch(sandbox, box, f"/packed/gzip?{coding}", sends=False)[0] == 200


def test_small_pieces_are_gathered_and_none_is_made_without_end(packed: Packed) -> None:
    """A piece on its way costs the proxy more than its unpacking; and between two of them it turns to other clients."""
    few, many = range(2, 60), range(45, 500)
    assert {coding: count in (few if "," not in coding else many) for coding, count in packed.pieces.items()} == dict.fromkeys(
        packed.pieces, True
    ), packed.pieces


def test_a_body_of_a_million_empty_parts_leaves_the_neighbours_their_turns(
    arena: ArenaClient, sandbox: Sandbox, other_sandbox: Sandbox, box: Opened, neighbour: Opened, packed: Packed
) -> None:
    request = f"GET /packed/empties-in-gzip?gzip,gzip HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
    steps = [["send", connect_line(box, f"{HOST}:443")], ["head"], ["tls", HOST], ["send", request], ["until", "0\r\n\r\n"]]
    assert reaches_its_host(other_sandbox, neighbour)
    sandbox.order("start", name="nothing", steps=steps, seconds=200)
    took = []
    while not sandbox.order("heard", name="nothing")[2:]:
        begun = time.monotonic()
        assert reaches_its_host(other_sandbox, neighbour)
        took.append(time.monotonic() - begun)
    assert sandbox.order("finish", name="nothing")[2][0].endswith("\r\n\r\n0\r\n\r\n")
    assert max(took) < _NEIGHBOUR_SECONDS_MAX


# --- Answers that precede the answer ---


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_interim_answers_are_left_out_and_the_answer_comes(scheme: str, sandbox: Sandbox, box: Opened) -> None:
    url = f"{scheme}://{HOST}"
    command = f"curl -sS -i --suppress-connect-headers --max-time 30 {url}/interim {url}/interim {url}/bytes?3"
    heard: dict[str, Any] = sandbox.shell(command, box.environment)
    answers = [line for line in heard["stdout"].splitlines() if line.startswith("HTTP/")]
    assert (answers, heard["stdout"].count("after 103"), heard["stdout"][-3:]) == (["HTTP/1.1 200 OK"] * 3, 2, "xxx")


def test_interim_answers_and_headers_end_somewhere(sandbox: Sandbox, box: Opened, arena: ArenaClient) -> None:
    for path in ("/interims", "/headers"):
        heard = sandbox.shell(f"curl -sS -i --suppress-connect-headers --max-time 30 https://{HOST}{path}", box.environment)
        assert heard["stdout"].startswith("HTTP/1.1 502 ")
