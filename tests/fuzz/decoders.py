"""``make fuzz``: what reads a stranger's stream never fails in a way of its own, and its work grows with the input alone.

Hypothesis damages whole streams of each provider. A provider answers with deltas or an :class:`UpstreamError`, and with nothing else.
``EXAMPLES`` is the number of streams for each test.
"""

import asyncio
import binascii
import os
import struct
import time
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from moorage.model.text_tool_calls import TextCall, TextCallParser
from moorage.net.sse import ServerSentEvent, SseParser

from tests.unit.model.encodings import (
    CONVERSE,
    OVER_HTTP,
    Answer,
    Called,
    Kind,
    Said,
    Thought,
    answer,
    aws_frame,
    hear,
    hello,
)

EXAMPLES: Final = int(os.environ.get("EXAMPLES", "2000"))
fuzzed = settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

TOOL = {"type": "function", "name": "pay", "parameters": {"type": "object", "properties": {"amount": {"type": "number"}}}}
ASKED = hello(tools=(TOOL,))
WHOLE = answer(Thought(("Let me ", "think.")), Said(("I ", "pay: 你好.")), Called("pay", ('{"amount":', "100}"), "call_a"))
SPOKEN = answer(Said(('<tool_call>{"name": "pay", ', '"arguments": {"amount": 1}}', "</tool_call>")))

PIECES: Final = [
    b"\n", b"\r", b"\r\n\r\n", b"data:", b"data: [DONE]\n\n", b"event: error\n", b": comment\n",
    b"\xef\xbb\xbf", b"\x00", b"\xff", b"{", b"}", b"[", b"]",
    b'"', b"\\", b"null", b"-1", b"1e999", b'"\\ud800"',
    b"[" * 1200, b'{"a":' * 1200, b"data: {}", b"data: {",
    b'"index":', b'"error":', b'"delta":', b'"content":', b'"choices":', b'"type":', b"99999999999",
]  # fmt: skip
"""What is put into a stream: the marks that its readers look for."""
CHANGES = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 40), st.sampled_from(PIECES) | st.binary(max_size=12)), max_size=6)
CUTS = st.lists(st.integers(0, 1 << 20), max_size=12)


def raw_frame(payload: bytes, event_type: str) -> bytes:
    """A frame of AWS's event stream around bytes that may be no JSON."""
    empty = aws_frame({}, event_type=event_type)
    headers = empty[12:-6]  # The prelude has 12 bytes; "{}" and the checksum have 6.
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack("!I", binascii.crc32(prelude)) + headers + payload
    return message + struct.pack("!I", binascii.crc32(message))


def damaged(body: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    for place, gone, put in changes:
        at = place % (len(body) + 1)
        body = body[:at] + put + body[at + gone :]
    return body


def cut(body: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(place % (len(body) + 1) for place in cuts), len(body)]
    return [body[start:end] for start, end in pairwise(places)]


@pytest.mark.parametrize("said", [WHOLE, SPOKEN], ids=["an answer", "a spoken call"])
@pytest.mark.parametrize("kind", OVER_HTTP, ids=lambda kind: kind.name)
@given(changes=CHANGES, cuts=CUTS)
@fuzzed
def test_a_damaged_stream_is_read_or_refused(kind: Kind, said: Answer, changes: list[tuple[int, int, bytes]], cuts: list[int]) -> None:
    body = damaged(kind.encode(said), changes)
    asyncio.run(hear(kind, ASKED, cut(body, cuts)))


@given(changes=CHANGES, cuts=CUTS)
@fuzzed
def test_frames_with_damaged_json_are_read_or_refused(changes: list[tuple[int, int, bytes]], cuts: list[int]) -> None:
    """The two checksums of AWS's event stream are right, so that its decoder comes to see what is in it."""
    start = b'{"contentBlockIndex":0,"start":{"toolUse":{"toolUseId":"t","name":"pay"}}}'
    delta = b'{"contentBlockIndex":0,"delta":{"toolUse":{"input":"{}"}}}'
    frames = [
        raw_frame(damaged(start, changes[:3]), "contentBlockStart"),
        raw_frame(damaged(delta, changes[3:]), "contentBlockDelta"),
        aws_frame({"stopReason": "tool_use"}, event_type="messageStop"),
    ]
    asyncio.run(hear(CONVERSE, ASKED, cut(b"".join(frames), cuts)))


@given(body=st.lists(st.sampled_from(PIECES) | st.binary(max_size=20)).map(b"".join), cuts=CUTS)
@fuzzed
def test_events_are_the_same_wherever_their_bytes_are_cut(body: bytes, cuts: list[int]) -> None:
    def events(pieces: list[bytes]) -> list[ServerSentEvent]:
        parser = SseParser()
        return [event for piece in pieces for event in parser.feed(piece)] + parser.end()

    assert events(cut(body, cuts)) == events([body])


MARKS: Final = [
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "```json\n", "\n```", "<function=pay>", "<parameter=amount>",
    "</parameter>", "</function>", "<|python_tag|>",
    '{"name": "pay", "arguments": {"amount": 1}}',
    '{"name":', '"arguments":', "{", "}", "[", "]", '"', "\\", "\n", " ", "pay", "1", "你", "\u2028",
]  # fmt: skip
"""What models write around calls."""


@given(st.lists(st.sampled_from(MARKS) | st.text(max_size=6), max_size=40))
@fuzzed
def test_spoken_calls_and_text_are_sorted_whatever_a_model_writes(pieces: list[str]) -> None:
    spoken = TextCallParser(frozenset({"pay"}), {"pay": TOOL["parameters"]})  # type: ignore[dict-item]
    out = [part for piece in pieces for part in spoken.feed(piece)] + spoken.end()
    said = "".join(part for part in out if isinstance(part, str))
    assert {part.name for part in out if isinstance(part, TextCall)} <= {"pay"}
    assert is_within(said, "".join(pieces))


def is_within(part: str, whole: str) -> bool:
    """Whether the characters of one are those of the other, in their order, with some left out."""
    rest = iter(whole)
    return all(character in rest for character in part)


# --- growth ---------------------------------------------------------------------------------------------------------------------------

_RATIO_MAX: Final = 9
_AGAIN_MAX: Final = 3
"""So often a ratio that is too large is measured again. The work is the same each time, so the least ratio is nearest to the truth."""
_SECONDS_LEAST: Final = 0.02
"""What takes less is compared with this, for a clock is no judge of it."""


def seconds(kind: Kind, pieces: list[bytes]) -> float:
    begun = time.process_time()
    asyncio.run(hear(kind, ASKED, pieces))
    return time.process_time() - begun


@pytest.mark.parametrize("size", [1, 64, 1 << 16], ids=["a byte at a time", "64 bytes", "64 KiB"])
@pytest.mark.parametrize("kind", OVER_HTTP, ids=lambda kind: kind.name)
@given(parts=st.lists(st.sampled_from(MARKS), min_size=1, max_size=8))
@settings(fuzzed, max_examples=max(1, EXAMPLES // 400))
def test_four_times_the_stream_takes_four_times_the_work(kind: Kind, size: int, parts: list[str]) -> None:
    def took(times: int) -> float:
        body = kind.encode(answer(Said(tuple(parts * times)), Called("pay", ('{"amount":', *("1" * 20,) * times, "}"))))
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        return min(max(seconds(kind, pieces), _SECONDS_LEAST) for _ in range(2))

    ratios = list[float]()
    for _ in range(1 + _AGAIN_MAX):
        small, large = took(100), took(400)
        ratios.append(large / small)
        if ratios[-1] < _RATIO_MAX:
            break
    assert min(ratios) < _RATIO_MAX, ratios
