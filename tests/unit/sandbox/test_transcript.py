"""The rule by which output is cut, against a plain statement of it, for any text in any pieces."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from transcript import Spool, Transcript

pieces = st.lists(
    st.tuples(st.sampled_from(["stdout", "stderr"]), st.text(st.characters(codec="utf-8"), max_size=30), st.booleans()), max_size=30
)


def transcript_of(arrivals: list[tuple[str, bytes, bool]], chars_max: int, directory: str) -> list[dict[str, Any]]:
    transcript = Transcript(chars_max, Spool(directory, "exec_1", 1_000_000))
    transcript.started()
    for stream, data, is_flushed in arrivals:
        transcript.feed(stream, data)
        if is_flushed:
            transcript.flush()
    transcript.finish("exit", 0)
    return [json.loads(line) for line in transcript.events]


def output(events: list[dict[str, Any]], stream: str) -> str:
    return "".join(event["text"] for event in events if event["type"] == "output" and event["stream"] == stream)


@given(pieces, st.integers(0, 200))
def test_head_and_tail_are_kept_and_the_rest_is_counted(arrivals: list[tuple[str, str, bool]], chars_max: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        events = transcript_of([(stream, text.encode(), flushed) for stream, text, flushed in arrivals], chars_max, directory)
        characters = [(stream, character) for stream, text, _ in arrivals for character in text]
        head = characters[: chars_max // 2]
        rest = characters[chars_max // 2 :]
        cut = max(0, len(characters) - chars_max)
        path = f"{directory}/exec_1.log"
        for stream in ("stdout", "stderr"):
            lost = sum(1 for name, _ in rest[:cut] if name == stream)
            marker = f"\n… {lost} chars truncated; full output: {path} …\n" if lost else ""
            kept_head = "".join(character for name, character in head if name == stream)
            kept_tail = "".join(character for name, character in rest[cut:] if name == stream)
            assert output(events, stream) == kept_head + marker + kept_tail
        assert events[-1] == {
            "n": len(events) - 1,
            "type": "exit",
            "exit_code": 0,
            "truncated_chars": cut,
            "spool_path": path if cut else None,
        }
        assert [event["n"] for event in events] == list(range(len(events)))
        assert Path(path).exists() == bool(cut)
        if cut:
            assert Path(path).read_bytes() == "".join(text for _, text, _ in arrivals).encode()


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(max_size=12)), max_size=30))
def test_any_bytes_become_text_as_if_they_had_come_in_one_piece(arrivals: list[tuple[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        events = transcript_of([(stream, data, True) for stream, data in arrivals], 10_000, directory)
    for stream in ("stdout", "stderr"):
        whole = b"".join(data for name, data in arrivals if name == stream)
        assert output(events, stream) == whole.decode("utf-8", "replace")


@given(pieces, st.integers(0, 60), st.integers(-1, 40))
@settings(deadline=None)
def test_a_reader_that_attaches_anywhere_gets_the_rest(arrivals: list[tuple[str, str, bool]], chars_max: int, after: int) -> None:
    async def read(transcript: Any) -> bytes:
        return b"".join([batch async for batch in transcript.lines_after(after)])

    with tempfile.TemporaryDirectory() as directory:
        transcript = Transcript(chars_max, Spool(directory, "exec_1", 1_000_000))
        for stream, text, _ in arrivals:
            transcript.feed(stream, text.encode())
            transcript.flush()
        transcript.finish("exit", 0)
        runner = asyncio.Runner()
        with runner:
            assert runner.run(read(transcript)) == b"".join(transcript.events[after + 1 :])


async def test_a_short_command_is_told_of_in_one_piece(tmp_path: Path) -> None:
    transcript = Transcript(10, Spool(str(tmp_path), "exec_1", 1_000))
    transcript.started()
    asyncio.get_running_loop().call_soon(transcript.finish, "exit", 0)
    assert [batch async for batch in transcript.lines_after(-1)] == [b"".join(transcript.events)]
    assert len(transcript.events) == 2


async def test_the_beginning_of_a_longer_command_does_not_wait_for_its_end(tmp_path: Path) -> None:
    transcript = Transcript(10, Spool(str(tmp_path), "exec_1", 1_000))
    transcript.started()
    assert await anext(transcript.lines_after(-1)) == transcript.events[0]


def test_a_spool_stops_at_its_bound_and_the_count_goes_on(tmp_path: Path) -> None:
    transcript = Transcript(10, Spool(str(tmp_path), "exec_1", 1_000))
    for _ in range(100):
        transcript.feed("stdout", b"x" * 100)
    transcript.finish("exit", 0)
    assert (tmp_path / "exec_1.log").stat().st_size == 1_000
    assert json.loads(transcript.events[-1])["truncated_chars"] == 10_000 - 10


def test_a_spool_that_cannot_be_written_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    transcript = Transcript(10, Spool(str(tmp_path / "file"), "exec_1", 1_000))
    transcript.feed("stdout", b"x" * 100)
    transcript.finish("exit", 0)
    assert json.loads(transcript.events[-1])["truncated_chars"] == 90
