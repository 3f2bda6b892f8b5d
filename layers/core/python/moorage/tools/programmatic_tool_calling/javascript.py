"""A program in the container: its JavaScript runs in a thread of its own beside ``js_repl``, and only what it has come to leaves it.

Each run begins at the first line. The results of calls that the program has made before are given to it from what is recorded, in the
same rounds, so that it comes to the same place and asks for what follows. A run has no effect, and may be repeated at any time.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from moorage import limits
from moorage.errors import SandboxGone, SandboxUnreachable
from moorage.sandbox.exec_client import ExecOutput, PythonEnded
from moorage.tools.execs import exec_id
from moorage.tools.function_items import compact_json
from moorage.tools.run import Run
from moorage.wire.types import Item

_MARK: Final = "moorage-program:"
_NO_NODE: Final = "There is no Node.js in this container, so that no program can run. Call the tools themselves."
_KILLED: Final = "It was ended in the middle, with the JavaScript session of the container."
_CHANGED: Final = "It did not repeat its earlier calls when it went on, so that their results fit no more."
_TOO_MUCH: Final = "The results of its calls are too large."


def fingerprint_of(code: str) -> str:
    """The key of a program that comes back."""
    return "fp_" + hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()[:48]


def call_id_of(program: str, number: int, name: str, arguments: str) -> str:
    """The id of the so-maniest call of a program: the same in each run, and another one for another call."""
    named = f"{program}\0{number}\0{name}\0{arguments}"
    return "call_" + hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def run_id(response_id: str, order: Item) -> str:
    """The exec server's id of a run."""
    return exec_id(response_id, f"{order['call_id'][:64]}-program", len(order["recorded"]))


async def ran(run: Run) -> Item:
    """The state of the program: its output, or under ``calls`` its open calls."""
    order = run.known.item
    given = _given(order)
    if len(given) > limits.PROGRAM_RECORDED_CHARS_MAX:
        return output(order, "", _TOO_MUCH)
    said, exit_code = await _said(run, given)
    line = next((line for line in said.splitlines() if line.startswith(_MARK)), None)
    if line is None:
        return output(order, "", _NO_NODE if exit_code == _NOT_STARTED else _KILLED)
    try:
        told: dict[str, Any] = orjson.loads(line.removeprefix(_MARK))
        calls = [
            {"call_id": call_id_of(order["call_id"], number, call["name"], call["arguments"]), **call}
            for number, call in enumerate(told["made"])
        ]
    except (orjson.JSONDecodeError, KeyError, TypeError):  # Code of the session has printed this.
        return output(order, "", _KILLED)
    recorded = [each["call_id"] for each in order["recorded"]]
    if told.get("is_waiting"):
        if [call["call_id"] for call in calls[: len(recorded)]] != recorded or len(calls) == len(recorded):
            return output(order, "", _CHANGED)
        return {"type": order["type"], "call_id": order["call_id"], "calls": calls[len(recorded) :]}
    return output(order, str(told["result"]), told["error"])


def output(call: Item, result: str, error: str | None) -> Item:
    """The item that ends a program. It is whole also if the program failed: the model reads why."""
    text = result if error is None else f"{result}The program failed. {error}"
    return {"type": f"{call['type']}_output", "call_id": call["call_id"], "result": text.rstrip("\n"), "status": "completed"}


_NOT_STARTED: Final = 126


async def _said(run: Run, code: str) -> tuple[str, int]:
    """The output of the session, and its exit code. A next attempt runs a lost session anew."""
    identity = run_id(run.known.response_id, run.known.item)
    after, printed = -1, ""
    for tries_left in reversed(range(limits.CALL_ATTEMPTS_MAX)):
        try:
            async for event in run.workplace.client.javascript(
                identity,
                code,
                timeout_ms=limits.PROGRAM_RUN_MS_MAX + limits.PROGRAM_START_MS_MAX,
                max_output_length=limits.OUTPUT_CHARS_MAX,
                after=after,
            ):
                if isinstance(event, ExecOutput) and event.n > after:
                    after = event.n
                    printed += event.text if event.stream == "stdout" else ""
                elif isinstance(event, PythonEnded):
                    return printed, event.exit_code
        except (SandboxGone, SandboxUnreachable):
            if not await run.workplace.is_alive() or not tries_left:
                raise
    raise AssertionError("a run of a program had no end")


def _given(order: Item) -> str:
    """The code for the session."""
    inside = {
        "tools": order["tools"],
        "recorded": [compact_json(each["output"]) for each in order["recorded"]],
        "seed": int(hashlib.sha256(order["call_id"].encode()).hexdigest()[:8], 16),
        "calls_max": limits.PROGRAM_CALLS_MAX,
        "arguments_chars_max": limits.PROGRAM_ARGUMENTS_CHARS_MAX,
        "result_chars_max": limits.PROGRAM_RESULT_CHARS_MAX,
    }
    given = {
        "thread": _source("thread.js"),
        "inside": _source("inside.js"),
        "code": order["code"],
        "given": compact_json(inside),
        "mark": _MARK,
        "timeout_ms": limits.PROGRAM_RUN_MS_MAX,
        "memory_mb": limits.PROGRAM_MEMORY_MB_MAX,
    }
    return _source("session.js").replace("$GIVEN", compact_json(given))


@cache
def _source(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")
