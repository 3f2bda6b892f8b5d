"""How events are written to a stream."""

import orjson
from moorage.wire import events
from moorage.wire.events import frame, obfuscated, sse
from moorage.wire.types import Event


def delta(text: str) -> Event:
    return {"type": events.OUTPUT_TEXT_DELTA, "sequence_number": 4, "delta": text}


def test_an_event_is_one_chunk_that_ends_with_a_blank_line() -> None:
    chunk = sse(delta("line\nbreak"))
    name, data, *end = chunk.split(b"\n")
    assert name == b"event: response.output_text.delta"
    assert data == b'data: {"type":"response.output_text.delta","sequence_number":4,"delta":"line\\nbreak"}'
    assert end == [b"", b""]


def test_an_event_is_one_line_to_every_reader_of_lines() -> None:
    """``str.splitlines`` knows more line ends than the standard of event streams: clients lost what followed (dify issue 39008)."""
    text = "a\u2028b\u2029c\u0085d"
    _, data, *_ = sse(delta(text)).decode().splitlines()
    assert orjson.loads(data.removeprefix("data: ")) == delta(text)


def test_a_frame_names_its_lane_if_there_is_one() -> None:
    assert orjson.loads(frame(delta("x"))) == delta("x")
    assert orjson.loads(frame(delta("x"), "lane")) == {**delta("x"), "stream_id": "lane"}


def test_obfuscation_hides_how_long_a_delta_is() -> None:
    lengths = {len(event["delta"]) + len(event["obfuscation"]) for event in (obfuscated(delta("x" * n)) for n in range(16))}
    assert lengths == {16}
    assert obfuscated(delta("hello"))["obfuscation"] != obfuscated(delta("hello"))["obfuscation"]


def test_obfuscation_changes_neither_other_events_nor_the_event_itself() -> None:
    event = delta("x")
    obfuscated(event)
    assert event == delta("x")
    done: Event = {"type": events.OUTPUT_TEXT_DONE, "text": "x"}
    assert obfuscated(done) is done
