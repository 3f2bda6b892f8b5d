"""A fault in the proxy's own code lets nothing pass: each hook of the gate fails once while a secret is about to be sent or echoed."""

import ast
import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.egress.conftest import ROOT, ArenaClient, Opened, Sandbox
from tests.egress.moves import connect_line, fill, get, hello

HOST = "echo.example"
VALUE = "faulty-value-0123456789"
NO_HOOKS = {"http_layers_of", "sweep", "cut"}

LAST_REQUEST = get(HOST, "/echo", "X-Key: {KEY}\n")
REQUEST = LAST_REQUEST.replace("Connection: close\n", "")
BREAKS_OFF = REQUEST.replace("/echo", "/interims")
WEBSOCKET = (
    "GET /ws HTTP/1.1\nHost: echo.example\nAuthorization: {KEY}\nUpgrade: websocket\nConnection: Upgrade\n"
    "Sec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n"
)
TO_ITS_END = ["until", "\0never\0"]


def opened(box: Opened, request: str, *after: list[Any]) -> list[list[Any]]:
    return [["send", connect_line(box, f"{HOST}:443")], ["head"], ["tls", HOST], ["send", fill(request, box)], *after, TO_ITS_END]


def only_connect(box: Opened, host: str) -> list[list[Any]]:
    return [["send", connect_line(box, f"{host}:443")], TO_ITS_END]


def broken_handshake(box: Opened) -> list[list[Any]]:
    first = ["send64", base64.b64encode(hello(HOST.encode())).decode()]
    return [["send", connect_line(box, f"{HOST}:443")], ["head"], first, ["send", "this is no TLS"], TO_ITS_END]


SAYS_GOODBYE: list[list[Any]] = [["sleep", 0.5], ["send", "\x88\x80abcd"]]

FAULTS: dict[str, tuple[Callable[[Opened], list[list[Any]]], int]] = {
    "client_connected": (lambda box: only_connect(box, HOST), 0),
    "client_disconnected": (lambda box: opened(box, LAST_REQUEST), 1),
    "server_connect": (lambda box: only_connect(box, HOST), 0),
    "next_layer": (lambda box: only_connect(box, HOST), 0),
    "tls_failed_client": (broken_handshake, 0),
    "http_connect": (lambda box: only_connect(box, HOST), 0),
    "http_connect_error": (lambda box: only_connect(box, "silent.example"), 0),
    "requestheaders": (lambda box: opened(box, REQUEST), 0),
    "request": (lambda box: opened(box, REQUEST), 0),
    "responseheaders": (lambda box: opened(box, REQUEST), 1),
    "body": (lambda box: opened(box, REQUEST), 1),
    "response": (lambda box: opened(box, REQUEST), 1),
    "error": (lambda box: opened(box, BREAKS_OFF), 1),
    "websocket_message": (lambda box: opened(box, WEBSOCKET), 1),
    "websocket_end": (lambda box: opened(box, WEBSOCKET, *SAYS_GOODBYE), 1),
}
"""What makes a hook run, and how many requests its host may have seen by then."""


@pytest.fixture(scope="module")
def faulty(arena: ArenaClient) -> Iterator[Path]:
    file = arena.directory / "faulty-hook"
    file.write_text("")
    arena("restart_proxy", module="tests.egress.faulty_proxy")
    yield file
    arena("restart_proxy")


def test_every_hook_of_the_gate_has_its_fault() -> None:
    source = ast.parse((ROOT / "functions/egress_proxy/addon.py").read_text())
    gate = next(node for node in source.body if isinstance(node, ast.ClassDef) and node.name == "EgressAddon")
    methods = {node.name for node in gate.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert {name for name in methods if not name.startswith("_")} - NO_HOOKS == set(FAULTS) - {"body"}


@pytest.mark.parametrize("hook", FAULTS)
def test_a_hook_that_fails_lets_nothing_pass_and_ends_the_connection(
    hook: str, arena: ArenaClient, sandbox: Sandbox, faulty: Path
) -> None:
    box = arena.open(HOST, "silent.example", secrets=[{"domain": HOST, "name": "KEY", "value": VALUE, "places": ["headers"]}])
    at = arena.log_file.stat().st_size
    arena("clear")
    steps, requests_max = FAULTS[hook]
    faulty.write_text(hook)
    try:
        heard = sandbox.talk(*steps(box), seconds=20)
        arena.wait_for_line(at, lambda line: line.get("message") == "egress_error")
    finally:
        faulty.write_text("")
    assert VALUE not in "".join(text for text, _ in heard)
    assert heard[-1][1] != "open", heard
    assert sum(bool(note["raw"]) for note in arena("seen")) <= requests_max
    assert sandbox.talk(*opened(box, LAST_REQUEST))[2][0].startswith("HTTP/1.1 200")
