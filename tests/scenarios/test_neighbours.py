"""Every bounded input at its bound, and a neighbour who asks meanwhile: one tenant's request never takes the API from the others."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.stack import Stack

_NEIGHBOUR_SECONDS_MAX = 5.0
"""On a quiet machine a neighbour waits a quarter of a second; before the work was bounded, for minutes."""
_LINE = "x " * 100
Json = dict[str, Any]


def said(role: str, count: int, text: str) -> list[Json]:
    return [{"role": role, "content": text}] * count


def pairs(count: int, call: Callable[[int], Json], answer: Callable[[int], Json]) -> list[Json]:
    return [item for number in range(count) for item in (call(number), answer(number))]


def functions(count: int) -> list[Json]:
    return pairs(
        count,
        lambda n: {"type": "function_call", "call_id": f"call_{n}", "name": "f", "arguments": "{}"},
        lambda n: {"type": "function_call_output", "call_id": f"call_{n}", "output": "x" * 60},
    )


def shells(count: int) -> list[Json]:
    ran = {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    return pairs(
        count,
        lambda n: {"type": "shell_call", "call_id": f"call_{n}", "action": {"commands": ["ls"]}, "status": "completed"},
        lambda n: {"type": "shell_call_output", "call_id": f"call_{n}", "output": [ran]},
    )


def customs(count: int) -> list[Json]:
    return pairs(
        count,
        lambda n: {"type": "custom_tool_call", "call_id": f"call_{n}", "name": "f", "input": "a"},
        lambda n: {"type": "custom_tool_call_output", "call_id": f"call_{n}", "output": "b"},
    )


def approvals(count: int) -> list[Json]:
    return pairs(
        count,
        lambda n: {"type": "mcp_approval_request", "id": f"mcpr_{n}", "server_label": "s", "name": "f", "arguments": "{}"},
        lambda n: {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{n}", "approve": False},
    )


def thoughts(count: int) -> list[Json]:
    return [{"type": "reasoning", "id": f"rs_{n}", "summary": [{"type": "summary_text", "text": "t"}]} for n in range(count)]


def properties(count: int, words: int) -> Json:
    return {f"p{n}": {"type": "string", "enum": [f"e{k}" for k in range(words)]} for n in range(count)}


LAST = said("user", 1, "hi")
SERVER = {"type": "mcp", "server_label": "s", "server_url": "https://mcp.example.com/"}
LOOK = {"type": "function", "parameters": {"type": "object", "properties": properties(60, 20)}}
REQUESTS: dict[str, Json] = {
    "messages that are left out": {"input": said("user", 10_000, _LINE), "truncation": "auto"},
    "messages that stay": {"input": said("developer", 5_000, "a") + said("user", 4_900, _LINE), "truncation": "auto"},
    "calls that are left out": {"input": functions(4_900) + LAST, "truncation": "auto"},
    "calls": {"input": functions(4_900) + LAST},
    "calls of the shell": {"input": shells(4_900) + LAST},
    "calls of custom tools": {"input": customs(4_900) + LAST},
    "approvals": {"input": approvals(4_900), "tools": [SERVER]},
    "thoughts": {"input": thoughts(9_999) + LAST},
    "a long text": {"input": "word " * 1_600_000},
    "many parts": {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}] * 9_000}]},
    "many tools": {"input": "hi", "tools": [LOOK | {"name": f"f{n}"} for n in range(128)]},
    "a large schema": {
        "input": "hi",
        "text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": "object", "properties": properties(5_000, 20)}}},
    },
}


@contextmanager
def neighbour(stack: Stack) -> Iterator[list[float]]:
    """Seconds that each of its requests took."""
    took: list[float] = []
    ending = threading.Event()

    def ask() -> None:
        with stack.http() as http:
            while not (ending.is_set() and took):  # a request may be refused before this has asked once
                begun = time.monotonic()
                assert http.get("/models", timeout=120).status_code == 200
                took.append(time.monotonic() - begun)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield took
    finally:
        ending.set()
        thread.join()


@pytest.mark.parametrize("body", REQUESTS.values(), ids=REQUESTS.keys())
def test_a_request_at_its_bound_does_not_take_the_api_from_others(stack: Stack, body: Json) -> None:
    with stack.http() as http, neighbour(stack) as took:
        answer = http.post("/responses", json={"model": "demo", **body}, timeout=120)
    assert answer.status_code in (200, 400), answer.text
    assert max(took) < _NEIGHBOUR_SECONDS_MAX
