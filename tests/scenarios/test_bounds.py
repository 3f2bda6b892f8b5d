"""What one client may take of the API process, looked at from its neighbour's side."""

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from moorage import limits
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.scenarios.test_tenants import make_key, revoke
from tests.stack import SHELL, Stack, say, script, shell

OPERATOR_BOUND = 3
STORED_BYTES = 1_000_000


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    settings = {"MOORAGE_RUNNING_RESPONSES_MAX": str(OPERATOR_BOUND), "MOORAGE_STORED_BYTES_MAX": str(STORED_BYTES)}
    stack = Stack(tmp_path_factory.mktemp("bounded"), settings).start()
    try:
        yield stack
    finally:
        stack.stop()


def raw(stack: Stack) -> socket.socket:
    address = urlsplit(stack.url)
    assert address.hostname is not None
    return socket.create_connection((address.hostname, address.port or 80), timeout=limits.HEAD_SECONDS_MAX + 40)


def sent(connection: socket.socket, pieces: Iterator[bytes]) -> bytes:
    """What the server says to it; it may hang up before all is sent."""
    with contextlib.suppress(OSError):
        for piece in pieces:
            connection.sendall(piece)
    answer = b""
    with contextlib.suppress(OSError):
        while piece := connection.recv(65536):
            answer += piece
    return answer


def whole(connection: socket.socket) -> bytes:
    """An answer with a body of JSON, in however many pieces it comes."""
    answer = b""
    while not answer.endswith(b"}"):
        piece = connection.recv(65536)
        assert piece, answer
        answer += piece
    return answer


HEADS: dict[str, list[bytes]] = {
    "many headers": [
        b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n",
        *(b"x-%d: %s\r\n" % (n, b"a" * 1000) for n in range(300)),
        b"\r\n",
    ],
    "one long header": [b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\nx-long: ", *([b"a" * 10_000] * 100)],
    "a long address": [b"GET /v1/models?", *([b"a" * 10_000] * 100)],
}


def test_a_trailer_field_is_no_header_field(stack: Stack) -> None:
    """Whoever stands in front has looked at the header fields alone (RFC 9110, section 6.5.1)."""
    head = b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n"
    with raw(stack) as connection:
        connection.sendall(head + b"0\r\nauthorization: Bearer " + stack.key.encode() + b"\r\n\r\n")
        assert whole(connection).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("pieces", HEADS.values(), ids=HEADS.keys())
def test_a_head_that_is_too_large_is_cut_off_before_any_key_is_seen(stack: Stack, pieces: list[bytes]) -> None:
    with raw(stack) as connection:
        answer = sent(connection, iter(pieces))
    # A server that hangs up while more is sent may lose its last words on the way.
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    with stack.http() as http:
        assert http.get("/models", headers={"x-usual": "a" * 8000}).status_code == 200


def test_a_large_head_in_one_piece_is_told_the_bound(stack: Stack) -> None:
    with raw(stack) as connection:
        answer = sent(connection, iter([b"GET /v1/models HTTP/1.1\r\nx-a: %s\r\n\r\n" % (b"a" * limits.HEAD_BYTES_MAX)]))
    assert b"431" in answer.split(b"\r\n")[0]
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"] == "The head of a request has at most 65536 bytes."


def half_open_requests(stack: Stack) -> None:
    began = time.monotonic()
    connections = [raw(stack) for _ in range(50)]
    try:
        for connection in connections[:25]:
            connection.sendall(b"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\n")
        with stack.http() as http:
            assert http.get("/models").status_code == 200
        answers = [connection.recv(65536) for connection in connections]
    finally:
        for connection in connections:
            connection.close()
    assert {answer.split(b"\r\n")[0] for answer in answers} == {b"HTTP/1.1 408 Request Timeout"}
    assert time.monotonic() - began >= limits.HEAD_SECONDS_MAX - 1


def a_second_request(stack: Stack) -> None:
    with raw(stack) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert whole(connection).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /hea")
        assert connection.recv(65536).startswith(b"HTTP/1.1 408")


def an_idle_connection(stack: Stack) -> None:
    with raw(stack) as connection:
        for pause in (limits.HEAD_SECONDS_MAX + 2, 0):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert whole(connection).startswith(b"HTTP/1.1 200")
            time.sleep(pause)


def a_revoked_key(stack: Stack) -> None:
    key = make_key(stack, "ws-revoked")
    with opened(stack, key) as connection:
        assert asked(connection) == "response.completed"
        revoke(stack, "ws-revoked")
        deadline, said = time.monotonic() + 60, "response.completed"
        while said == "response.completed" and time.monotonic() < deadline:
            time.sleep(1)
            said = asked(connection)
        assert said == "invalid_api_key"
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(10)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


Waits = dict[Callable[[Stack], None], Future[None]]


@pytest.fixture(scope="module")
def waits(stack: Stack) -> Iterator[Waits]:
    """What waits for the server's clock, 20 to 30 seconds each, is begun side by side; the tests below look how each of them ended."""
    stories = (half_open_requests, a_second_request, an_idle_connection, a_revoked_key)
    with ThreadPoolExecutor(len(stories)) as threads:
        yield {story: threads.submit(story, stack) for story in stories}


def test_half_open_requests_end_and_the_neighbour_is_served_meanwhile(waits: Waits) -> None:
    waits[half_open_requests].result()


def test_a_second_request_that_does_not_end_is_no_better(waits: Waits) -> None:
    waits[a_second_request].result()


def test_a_connection_may_idle_between_requests(waits: Waits) -> None:
    """Longer than the head of a request may take, and than clients' pools keep connections."""
    waits[an_idle_connection].result()


def test_a_revoked_key_is_sent_away_from_an_open_websocket(waits: Waits) -> None:
    """Within the 30 seconds in which a process may still believe what it has read of a key."""
    waits[a_revoked_key].result()


# --- ids ----------------------------------------------------------------------------------------------------------------------------

LONG = "a" * 3000
PLACES = [
    ("GET", f"/containers/{LONG}"),
    ("GET", f"/containers/{LONG}/files"),
    ("GET", f"/containers/{LONG}/files/{LONG}"),
    ("DELETE", f"/containers/{LONG}"),
    ("GET", f"/files/{LONG}"),
    ("GET", f"/files/{LONG}/content"),
    ("DELETE", f"/files/{LONG}"),
    ("GET", f"/conversations/{LONG}"),
    ("POST", f"/conversations/{LONG}"),
    ("DELETE", f"/conversations/{LONG}"),
    ("GET", f"/conversations/{LONG}/items"),
    ("GET", f"/conversations/{LONG}/items/{LONG}"),
    ("POST", f"/uploads/{LONG}/cancel"),
    ("GET", f"/responses/{LONG}"),
    ("DELETE", f"/responses/{LONG}"),
    ("POST", f"/responses/{LONG}/cancel"),
    ("GET", f"/models/{LONG}"),
]


@pytest.mark.parametrize(("method", "path"), PLACES, ids=lambda value: str(value).replace(LONG, "long"))
def test_an_id_that_no_record_can_have_is_unknown(stack: Stack, method: str, path: str) -> None:
    with stack.http() as http:
        answer = http.request(method, path, json={"metadata": {}} if method == "POST" else None)
    assert answer.status_code == 404, answer.text[:300]


@pytest.mark.parametrize("kind", ["files", "containers"])
def test_a_page_after_such_an_id_is_refused(stack: Stack, kind: str) -> None:
    with stack.http() as http:
        answer = http.get(f"/{kind}", params={"after": LONG})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "after")
        made = http.post("/containers", json={"name": "n"}).json()["id"]
        assert http.get(f"/containers/{made}/files", params={"after": LONG}).status_code < 500
        assert http.get(f"/containers/{made}/egress", params={"after": LONG}).status_code < 500


# --- a schema without end -----------------------------------------------------------------------------------------------------------


def test_a_schema_without_end_stops_nobody(stack: Stack) -> None:
    own = {
        "type": "object",
        "properties": {name: {"$ref": "#"} for name in "abc"},
        "required": ["a", "b", "c"],
        "additionalProperties": False,
    }
    text = {"format": {"type": "json_schema", "name": "n", "schema": own}}
    with stack.http() as http:
        assert http.post("/responses", json={"model": "demo", "input": "x", "text": text}).status_code == 200
        assert http.get("/models").status_code == 200


# --- WebSockets ---------------------------------------------------------------------------------------------------------------------


def opened(stack: Stack, key: str) -> ClientConnection:
    url = stack.url.replace("http", "ws", 1) + "/responses"
    return connect(url, additional_headers={"authorization": f"Bearer {key}"})


def asked(connection: ClientConnection) -> str:
    connection.send(json.dumps({"type": "response.create", "model": "demo", "input": "hello"}))
    while (event := json.loads(connection.recv(60)))["type"] not in ("response.completed", "error"):
        pass
    return str(event["type"] if event["type"] != "error" else event["error"]["code"])


def test_a_key_has_so_many_websockets_and_its_neighbour_has_its_own(stack: Stack) -> None:
    key, neighbour = make_key(stack, "ws-greedy"), make_key(stack, "ws-neighbour")
    with contextlib.ExitStack() as stays:
        connections = [stays.enter_context(opened(stack, key)) for _ in range(limits.WEBSOCKETS_PER_KEY_MAX)]
        with pytest.raises(InvalidStatus) as refused:
            opened(stack, key)
        assert refused.value.response.status_code == 429
        body = json.loads(refused.value.response.body or b"{}")
        assert "may hold 32 WebSocket connections" in body["error"]["message"]
        with opened(stack, neighbour) as other:
            assert asked(other) == "response.completed"
        connections[0].close()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(InvalidStatus), opened(stack, key) as again:
                assert asked(again) == "response.completed"
                break
        else:
            pytest.fail("a place was not given back")


# --- running responses --------------------------------------------------------------------------------------------------------------


def test_a_tenant_runs_so_many_at_once_and_its_neighbour_is_not_held_up(bounded: Stack) -> None:
    body: dict[str, Any] = {
        "model": "demo",
        "input": script(shell("sleep 20"), say("end")),
        "tools": [SHELL],
        "background": True,
    }
    neighbour = make_key(bounded, "neighbour")
    with bounded.http() as http, bounded.http(neighbour) as other:
        running = [http.post("/responses", json=body).json()["id"] for _ in range(OPERATOR_BOUND)]
        refused = http.post("/responses", json=body)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        assert "3 may run at once" in refused.json()["error"]["message"]
        assert http.post("/responses", json=body | {"background": False}).status_code == 429
        assert http.post("/responses", json={"model": "demo", "input": "plain"}).status_code == 200
        quick = body | {"input": script(shell("echo a"), say("end")), "background": False}
        assert other.post("/responses", json=quick).json()["status"] == "completed"
        http.post(f"/responses/{running[0]}/cancel")
        deadline = time.monotonic() + 60
        while (answer := http.post("/responses", json=body)).status_code == 429 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert answer.status_code == 200
        for response_id in [*running[1:], answer.json()["id"]]:
            http.post(f"/responses/{response_id}/cancel")


# --- stored bytes -------------------------------------------------------------------------------------------------------------------


def test_a_full_tenant_keeps_its_work_and_its_neighbour_its_room(bounded: Stack) -> None:
    def upload(http: httpx.Client, size: int) -> httpx.Response:
        return http.post("/files", files={"file": ("a.bin", b"x" * size)}, data={"purpose": "user_data"})

    def run(http: httpx.Client, command: str, environment: dict[str, str]) -> dict[str, Any]:
        tools = [{"type": "shell", "environment": environment}]
        answer = http.post("/responses", json={"model": "demo", "input": script(shell(command), say("end")), "tools": tools})
        assert answer.json()["status"] == "completed", answer.text
        (output,) = [item for item in answer.json()["output"] if item["type"] == "shell_call_output"]
        return dict(output)

    with bounded.http(make_key(bounded, "hoarder")) as http, bounded.http(make_key(bounded, "modest")) as other:
        file_id = upload(http, 900_000).json()["id"]
        refused = upload(http, 200_000)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "storage_limit_reached")
        assert upload(other, 200_000).status_code == 200
        told = run(http, "head -c 300000 /dev/zero > /mnt/data/big.bin; echo kept > /mnt/data/small.txt", {"type": "container_auto"})
        assert "not saved: /mnt/data/big.bin" in str(told)
        (container,) = http.get("/containers").json()["data"]
        reference = {"type": "container_reference", "container_id": container["id"]}
        assert "300000" in str(run(http, "wc -c < /mnt/data/big.bin", reference)), "it stays in the sandbox"
        names = {file["path"] for file in http.get(f"/containers/{container['id']}/files").json()["data"]}
        assert names == {"/mnt/data/small.txt"}
        http.delete(f"/files/{file_id}")
        run(http, "true", reference)
        storage = http.get("/me").json()["storage"]
        assert storage == {
            "used_bytes": 300_005,
            "limit_bytes": STORED_BYTES,
            "file_bytes": 0,
            "container_bytes": 300_005,
            "vector_store_bytes": 0,
        }
        http.delete(f"/containers/{container['id']}")
        assert http.get("/me").json()["storage"]["used_bytes"] == 0
        assert other.get("/me").json()["storage"]["used_bytes"] == 200_000


# --- grammars -----------------------------------------------------------------------------------------------------------------------


def checks_of(stack: Stack) -> int:
    """Processes that the stack's processes check grammars in right now."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            is_check = b"moorage.wire.grammar" in path.read_bytes()
            found += is_check and _is_descendant(int(path.parent.name), stack)
    return found


def _is_descendant(pid: int, stack: Stack) -> bool:
    assert stack.process is not None
    while pid > 1:
        if pid == stack.process.pid:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


def test_checks_of_grammars_wait_for_each_other(bounded: Stack) -> None:
    slow = {"type": "custom", "name": "slow", "format": {"type": "grammar", "syntax": "regex", "definition": "(a+)+b"}}
    call = {"call": {"name": "slow", "arguments": {"input": "a" * 40}}}
    body = {"model": "demo", "input": script(call), "tools": [slow]}
    seen = []
    many = limits.GRAMMAR_CHECKS_MAX + 2
    with ThreadPoolExecutor(many) as threads, bounded.http() as http:
        asked = [threads.submit(http.post, "/responses", json=body) for _ in range(many)]
        while not all(one.done() for one in asked):
            seen.append(checks_of(bounded))
            time.sleep(0.05)
    assert {one.result().status_code for one in asked} == {200}
    assert max(seen) == limits.GRAMMAR_CHECKS_MAX
