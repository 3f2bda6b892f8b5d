"""Work on an event loop grows no faster than its input, whatever a tenant, a model or a server sends: neighbours share the loop.

Four times the input may take at most nine times the processor time: linear work takes four times, quadratic work sixteen. A pair that
exceeds this is measured again, up to three times, and its least ratio counts: the work is the same each time, and only noise differs.
"""

import asyncio
import gc
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from moorage.errors import UpstreamError
from moorage.loop.assemble import Assembler
from moorage.loop.fold import fold
from moorage.loop.team_items import agents_of
from moorage.loop.truncate import fit
from moorage.model import base
from moorage.model.bedrock_converse import ConverseDecoder
from moorage.model.output_checks import Fence
from moorage.model.sequence import Sequence
from moorage.model.text_tool_calls import TextCallParser
from moorage.tools.lowering import OriginalTool, lower
from moorage.tools.mcp import listing
from moorage.wire.choices import check_choice
from moorage.wire.types import Item

from tests.unit.model.encodings import (
    ANTHROPIC,
    CHAT,
    CONVERSE,
    RESPONSES,
    Answer,
    Called,
    Kind,
    Said,
    Thought,
    answer,
    hello,
    provider,
    replies,
)

_RATIO_MAX = 9
_AGAIN_MAX = 3
_SECONDS_LEAST = 0.02
"""What takes less is compared with this, for a clock is no judge of it."""

Work = Callable[[], Any]


def seconds(work: Work) -> float:
    best = float("inf")
    gc.collect()
    gc.freeze()  # else one large piece of work may pay for a collection of all that other tests have left
    try:
        for _ in range(3):
            begun = time.process_time()
            work()
            best = min(best, time.process_time() - begun)
    finally:
        gc.unfreeze()
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


def decoding(kind: Kind, said: Answer) -> Work:
    """A provider reads it from its upstream's words, as they come in small pieces."""
    body = kind.encode(said)
    pieces = [body[at : at + 2_000] for at in range(0, len(body), 2_000)]

    async def read() -> None:
        async for _ in provider(kind, lambda _: replies(kind, *pieces)).stream(hello()):
            pass

    return lambda: asyncio.run(read())


def decoding_one_event(text: str) -> Work:
    body = CONVERSE.encode(answer(Said((text,))))

    def work() -> None:
        decoder = ConverseDecoder()
        for at in range(0, len(body), 100):
            decoder.feed(body[at : at + 100])

    return work


def unfencing(*pieces: str) -> Work:
    def work() -> None:
        fence = Fence()
        for piece in pieces:
            fence.feed(piece)
        fence.end()

    return work


def ordering(count: int) -> Work:
    """So many calls are open at once, and end one after the other."""

    def work() -> None:
        sequence = Sequence()
        for key in range(count):
            sequence.add(key, base.CallStarted("f", "c"))
        sequence.close_all()

    return work


def citing(count: int) -> Work:
    """Events of a text with so many citations, added up."""
    part = {"type": "output_text", "text": "", "annotations": []}
    place = {"output_index": 0, "content_index": 0}
    events: list[Item] = [
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}},
        {"type": "response.content_part.added", **place, "part": part},
        *[{"type": "response.output_text.annotation.added", **place, "annotation": {"index": n}} for n in range(count)],
    ]
    return lambda: fold([event | {"sequence_number": number} for number, event in enumerate(events)])


def alternating(count: int) -> list[base.Delta]:
    """Two texts of one item that grow by turns."""
    return [delta for _ in range(count) for delta in (base.SummaryDelta("word " * 5, 0), base.ReasoningTextDelta("word " * 5))]


def answering(count: int) -> Work:
    """So many calls of an agent's client, each with its output."""
    items = [item for number in range(count) for item in called(number)]
    return lambda: agents_of(items)


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
    "pieces of two texts by turns": (5_000, lambda n: assembling(base.ReasoningStarted(), *alternating(n))),
    **{
        f"pieces of a {name}, {kind.name}": (
            500,
            lambda n, kind=kind, make=make: decoding(kind, answer(make(("word " * 400,) * n))),  # type: ignore[misc]
        )
        for kind in (RESPONSES, CHAT, ANTHROPIC, CONVERSE)
        for name, make in {
            "text": Said,
            "thought": Thought,
            "call": lambda pieces: Called("f", ('{"a": "', *pieces, '"}')),
        }.items()
    },
    "calls without arguments": (1_000, lambda n: decoding(CHAT, answer(*[Called("f", (" ",), f"call_{k}") for k in range(n)]))),
    "a large event in small pieces": (200_000, lambda n: decoding_one_event("word " * n)),
    "calls that are open at once": (20_000, ordering),
    "space within a fence": (2_000, lambda n: unfencing("```json\n", "{", *["        "] * n, "}\n```")),
    "space before a fence": (10_000, lambda n: unfencing(*["        "] * n, "```json\n{}\n```")),
    "another fence": (10_000, lambda n: unfencing("```xml\n", *["word word "] * n)),
    "citations of a text": (5_000, citing),
    "calls of a team's client": (4_000, answering),
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
    measured = list[tuple[float, float, float]]()
    for _ in range(1 + _AGAIN_MAX):
        small, large = (max(seconds(case(n)), _SECONDS_LEAST) for n in (size, 4 * size))
        measured.append((large / small, small, large))
        if large / small < _RATIO_MAX:
            break
    ratio, small, large = min(measured)
    assert ratio < _RATIO_MAX, f"{small:.3f} s, then {large:.3f} s"


def test_a_strangers_pattern_is_compiled_by_nobody() -> None:
    pattern = "(?i)" + "[\u0001-\U0010fffe]" * 30_000
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    assert json.loads(json.dumps(listing.parameters_of(schema))) == {"type": "object", "properties": {"a": {"type": "string"}}}
