"""The events of a response's stream: their names, their fields, and how they are written.

The catalogue holds every event that this service emits. A test compares it with the union of the newest SDK, and has a reason for
each event of the SDK that is missing here. The order of events within an item is that of recorded live streams
(``loop/assemble.py`` produces it).
"""

import random
from collections import ChainMap
from collections.abc import Mapping
from typing import Final

import orjson

from moorage.wire import tool_shapes
from moorage.wire.types import Event

CREATED: Final = "response.created"
QUEUED: Final = "response.queued"
IN_PROGRESS: Final = "response.in_progress"
COMPLETED: Final = "response.completed"
INCOMPLETE: Final = "response.incomplete"
FAILED: Final = "response.failed"
ERROR: Final = "error"
OUTPUT_ITEM_ADDED: Final = "response.output_item.added"
OUTPUT_ITEM_DONE: Final = "response.output_item.done"
CONTENT_PART_ADDED: Final = "response.content_part.added"
CONTENT_PART_DONE: Final = "response.content_part.done"
OUTPUT_TEXT_DELTA: Final = "response.output_text.delta"
OUTPUT_TEXT_DONE: Final = "response.output_text.done"
OUTPUT_TEXT_ANNOTATION_ADDED: Final = "response.output_text.annotation.added"
REFUSAL_DELTA: Final = "response.refusal.delta"
REFUSAL_DONE: Final = "response.refusal.done"
REASONING_TEXT_DELTA: Final = "response.reasoning_text.delta"
REASONING_TEXT_DONE: Final = "response.reasoning_text.done"
REASONING_SUMMARY_PART_ADDED: Final = "response.reasoning_summary_part.added"
REASONING_SUMMARY_PART_DONE: Final = "response.reasoning_summary_part.done"
REASONING_SUMMARY_TEXT_DELTA: Final = "response.reasoning_summary_text.delta"
REASONING_SUMMARY_TEXT_DONE: Final = "response.reasoning_summary_text.done"
FUNCTION_CALL_ARGUMENTS_DELTA: Final = "response.function_call_arguments.delta"
FUNCTION_CALL_ARGUMENTS_DONE: Final = "response.function_call_arguments.done"
CUSTOM_TOOL_CALL_INPUT_DELTA: Final = "response.custom_tool_call_input.delta"
CUSTOM_TOOL_CALL_INPUT_DONE: Final = "response.custom_tool_call_input.done"
COMPACTION_COMPACTING: Final = "response.compaction.compacting"

OF_STATUS: Final[Mapping[str, str]] = {
    "queued": QUEUED,
    "in_progress": IN_PROGRESS,
    "completed": COMPLETED,
    "incomplete": INCOMPLETE,
    "failed": FAILED,
    "cancelled": INCOMPLETE,
}
"""The event that tells of a response's status. The SDKs have none for a response that was cancelled; its status says what it is."""

FINAL: Final = frozenset({COMPLETED, INCOMPLETE, FAILED})
"""Events that end a stream."""

_ITEM: Final = ("item_id", "output_index")
_PART: Final = (*_ITEM, "content_index")
_SUMMARY: Final = (*_ITEM, "summary_index")

_OF_NO_TOOL: Final[dict[str, frozenset[str]]] = {
    name: frozenset(("sequence_number", *fields))
    for name, fields in {
        CREATED: ("response",),
        QUEUED: ("response",),
        IN_PROGRESS: ("response",),
        COMPLETED: ("response",),
        INCOMPLETE: ("response",),
        FAILED: ("response",),
        # Nested, as the live API sends it: both SDKs raise from that form. The SDK's own type is the flat one.
        ERROR: ("error",),
        OUTPUT_ITEM_ADDED: ("output_index", "item"),
        OUTPUT_ITEM_DONE: ("output_index", "item"),
        CONTENT_PART_ADDED: (*_PART, "part"),
        CONTENT_PART_DONE: (*_PART, "part"),
        OUTPUT_TEXT_DELTA: (*_PART, "delta", "logprobs"),
        OUTPUT_TEXT_DONE: (*_PART, "text", "logprobs"),
        OUTPUT_TEXT_ANNOTATION_ADDED: (*_PART, "annotation_index", "annotation"),
        REFUSAL_DELTA: (*_PART, "delta"),
        REFUSAL_DONE: (*_PART, "refusal"),
        REASONING_TEXT_DELTA: (*_PART, "delta"),
        REASONING_TEXT_DONE: (*_PART, "text"),
        REASONING_SUMMARY_PART_ADDED: (*_SUMMARY, "part"),
        REASONING_SUMMARY_PART_DONE: (*_SUMMARY, "part"),
        REASONING_SUMMARY_TEXT_DELTA: (*_SUMMARY, "delta"),
        REASONING_SUMMARY_TEXT_DONE: (*_SUMMARY, "text"),
        FUNCTION_CALL_ARGUMENTS_DELTA: (*_ITEM, "delta"),
        FUNCTION_CALL_ARGUMENTS_DONE: (*_ITEM, "name", "arguments"),
        CUSTOM_TOOL_CALL_INPUT_DELTA: (*_ITEM, "delta"),
        CUSTOM_TOOL_CALL_INPUT_DONE: (*_ITEM, "input"),
        COMPACTION_COMPACTING: _ITEM,
    }.items()
}
CATALOGUE: Final[Mapping[str, frozenset[str]]] = ChainMap(tool_shapes.EVENTS, _OF_NO_TOOL)
"""Every event and the fields it always has, ``type`` aside; those of a tool stand in its folder."""

_OBFUSCATED: Final = frozenset(
    {
        OUTPUT_TEXT_DELTA,
        REFUSAL_DELTA,
        REASONING_TEXT_DELTA,
        REASONING_SUMMARY_TEXT_DELTA,
        FUNCTION_CALL_ARGUMENTS_DELTA,
        CUSTOM_TOOL_CALL_INPUT_DELTA,
    }
)
"""Those of no tool."""

_OBFUSCATION_BLOCK: Final = 16


def sse(event: Event) -> bytes:
    """The event as one chunk, blank line included: some clients lose an event that is split over two."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), one_line(event))


def one_line(value: object) -> bytes:
    """JSON that every reader of lines takes for one line. Python's ``str.splitlines`` ends a line at three characters more than the
    standard of event streams does, and clients are built on it."""
    written = orjson.dumps(value)
    if written.isascii():
        return written
    for character, escaped in _LINE_ENDS.items():
        if character in written:
            written = written.replace(character, escaped)
    return written


_LINE_ENDS: Final = {mark.encode(): f"\\u{ord(mark):04x}".encode() for mark in "\u0085\u2028\u2029"}


def is_obfuscated(name: str) -> bool:
    """Whether an event's length would give the model's words away to someone who sees only the encrypted stream."""
    return name in _OBFUSCATED or name in tool_shapes.OBFUSCATED


def obfuscated(event: Event) -> Event:
    """The event with an ``obfuscation`` that fills its delta up to a multiple of 16 characters; others are returned as they are.

    It is added where an event is sent, never where it is stored.
    """
    return filled(event) if is_obfuscated(event["type"]) else event


def filled(event: Event) -> Event:
    """An event with a delta, whatever its type, with what hides how long that is."""
    missing = _OBFUSCATION_BLOCK - len(event["delta"]) % _OBFUSCATION_BLOCK
    # Only its length matters. It is random so that nothing on the way compresses it, and a system call for each delta would be felt.
    return {**event, "obfuscation": f"{random.getrandbits(4 * _OBFUSCATION_BLOCK):016x}"[:missing]}


def frame(event: Event, stream_id: str | None = None) -> bytes:
    """The event as a WebSocket text frame; ``stream_id`` names the lane, if the client opened one."""
    return orjson.dumps(event if stream_id is None else {**event, "stream_id": stream_id})
