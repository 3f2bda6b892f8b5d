"""Work on an event loop grows no faster than its input, whatever a tenant, a model or a server sends: neighbours share the loop.

Four times the input may take at most nine times the processor time: linear work takes four times, quadratic work sixteen.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from moorage.errors import UpstreamError
from moorage.loop.assemble import Assembler
from moorage.loop.truncate import fit
from moorage.model import base
from moorage.model.text_tool_calls import TextCallParser
from moorage.tools.lowering import OriginalTool, lower
from moorage.tools.mcp import listing
from moorage.wire.choices import check_choice
from moorage.wire.types import Item

_RATIO_MAX = 9
_SECONDS_LEAST = 0.02
"""What takes less is compared with this, for a clock is no judge of it."""

Work = Callable[[], Any]


def seconds(work: Work) -> float:
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return best


def message(role: str, text: str = "x " * 50) -> Item:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def called(number: int) -> list[Item]:
    call = {"type": "function_call", "call_id": f"call_{number}", "name": "f", "arguments": "{}"}
    return [call, {"type": "function_call_output", "call_id": f"call_{number}", "output": "x" * 100}]


def truncating(items: list[Item]) -> Work:
    def work() -> None:
        try:
            fit(items, frame_tokens=0, window_tokens=1_000, output_tokens=0, is_auto=True)
        except UpstreamError:
            return

    return work


def hearing(*pieces: str) -> Work:
    def work() -> None:
        spoken = TextCallParser(frozenset({"f"}))
        for piece in pieces:
            spoken.feed(piece)
        spoken.end()

    return work


def assembling(*deltas: base.Delta) -> Work:
    def work() -> None:
        assembler = Assembler("resp_" + "a" * 48, lambda event: None, 0, lambda name: OriginalTool("function", name))
        for delta in deltas:
            assembler.feed(delta)
        assembler.feed(base.StreamFinished("stop"))

    return work


def choosing(count: int) -> Work:
    """All of so many tools are allowed."""
    tools = [{"type": "function", "name": f"f{n}", "parameters": {}} for n in range(count)]
    choice: Item = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": tool["name"]} for tool in tools]}

    def work() -> None:
        check_choice(choice, tools, ())
        lower((), tuple(tools), choice, frozenset())

    return work


CASES: dict[str, tuple[int, Callable[[int], Work]]] = {
    "messages that are left out": (2_500, lambda n: truncating([message("user") for _ in range(n)])),
    "messages that stay": (2_500, lambda n: truncating([message("developer")] * (n // 2) + [message("user")] * (n // 2))),
    "calls that are left out": (2_500, lambda n: truncating([item for k in range(n // 2) for item in called(k)] + [message("user")])),
    "parameters without an end": (2_000, lambda n: hearing(*["<function=f><parameter=a>"] * n)),
    "parameters without an end, at once": (10_000, lambda n: hearing("<function=f><parameter=a>" * n + "</function>")),
    "tags and doubled braces": (4_000, lambda n: hearing('<tool_call>{{"' * n)),
    "openings of calls": (2_000, lambda n: hearing('<tool_call>{"name":"f",' * n + "}" * n)),
    "a call that does not end": (10_000, lambda n: hearing('{"name": "f", "arguments": {"a": "', *["word "] * n)),
    "fences": (2_000, lambda n: hearing("```json\n{}\n```\ntext\n" * n)),
    "calls one after the other": (500, lambda n: hearing('<tool_call>{"name":"f","arguments":{}}</tool_call>' * n)),
    "space before an answer": (5_000, lambda n: hearing(*[" " * 50] * n, "word")),
    "allowed tools": (1_000, lambda n: choosing(n)),
    "brackets": (10_000, lambda n: hearing("[" * n, "]" * n)),
    "pieces of a text": (10_000, lambda n: assembling(base.MessageStarted(), *[base.TextDelta("twenty-five characters. ")] * n)),
    "pieces of a thought": (10_000, lambda n: assembling(base.ReasoningStarted(), *[base.ReasoningTextDelta("word " * 5)] * n)),
    "pieces of a call": (10_000, lambda n: assembling(base.CallStarted("f", "c"), *[base.CallDelta("word " * 5)] * n)),
    "a schema with many patterns": (
        2_000,
        lambda n: (
            lambda: listing.parameters_of(
                {"type": "object", "properties": {f"p{k}": {"type": "string", "pattern": "(a+)+$"} for k in range(n)}}
            )
        ),
    ),
}


@pytest.mark.parametrize(("size", "case"), CASES.values(), ids=CASES.keys())
def test_four_times_the_input_takes_four_times_the_work(size: int, case: Callable[[int], Work]) -> None:
    small, large = (max(seconds(case(n)), _SECONDS_LEAST) for n in (size, 4 * size))
    assert large / small < _RATIO_MAX, f"{small:.3f} s, then {large:.3f} s"


def test_a_strangers_pattern_is_compiled_by_nobody() -> None:
    pattern = "(?i)" + "[\u0001-\U0010fffe]" * 30_000
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    assert json.loads(json.dumps(listing.parameters_of(schema))) == {"type": "object", "properties": {"a": {"type": "string"}}}
