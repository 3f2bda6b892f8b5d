"""``make fuzz``: atheris is led by the coverage of the decoders to streams that nobody thought of.

The first byte of an input names what reads it, the second the size of its pieces. The rest is the stream; for Converse it is a line for
each frame, whose checksums are then made. It begins with the recorded streams, goes on for ``SECONDS``, and ends in the input that
broke a rule: a provider answers with deltas or an ``UpstreamError``, and what reads pieces says the same wherever they are cut.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

try:
    import atheris
except ImportError:
    print("atheris is not installed; 'make fuzz' installs it where there is a wheel of it (Linux, CPython 3.11 to 3.13).")
    sys.exit(0)

with atheris.instrument_imports(include=["moorage.model", "moorage.net", "moorage.tools.source_marks", "moorage.loop.assemble"]):
    from botocore.eventstream import EventStreamBuffer
    from moorage.model.chat_completions import Characters
    from moorage.model.output_checks import Fence
    from moorage.model.text_tool_calls import TextCallParser
    from moorage.net.sse import ServerSentEvent, SseParser
    from moorage.tools.source_marks import MarkedText
    from moorage.wire.chat_answers import StopWords

    from tests.fuzz.decoders import ASKED, TOOL, is_within, raw_frame
    from tests.unit.model.encodings import CONVERSE, OVER_HTTP, Kind, hear
    from tests.unit.model.recorded import RECORDED

SECONDS: Final = int(os.environ.get("SECONDS_GUIDED", "120"))
BYTES_MAX: Final = 8192


def pieces_of(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)] if size else [body]


def a_provider(kind: Kind, body: bytes, size: int) -> None:
    if kind is CONVERSE:
        named = [line.partition(b"\t") for line in body.split(b"\n")]
        body = b"".join(raw_frame(payload, name.decode("latin-1")[:40]) for name, _, payload in named)
    LOOP.run_until_complete(hear(kind, ASKED, pieces_of(body, size)))


def damaged_frames(body: bytes, size: int) -> None:
    LOOP.run_until_complete(hear(CONVERSE, ASKED, pieces_of(body, size)))


def events(body: bytes, size: int) -> None:
    def read(pieces: list[bytes]) -> list[ServerSentEvent]:
        parser = SseParser()
        return [event for piece in pieces for event in parser.feed(piece)] + parser.end()

    assert read(pieces_of(body, size)) == read([body])


def texts(body: bytes, size: int) -> None:
    """What reads the text of a model."""
    text = body.decode(errors="replace")
    cut = [text[at : at + size] for at in range(0, len(text), size)] if size else [text]
    readers: dict[str, Callable[[], Any]] = {
        "a fence": Fence,
        "marks": lambda: MarkedText(frozenset({"fs", "ws"})),
        "stop words": lambda: StopWords(("stop", "</s>", "\n\n")),
    }
    for name, make in readers.items():
        one, other = make(), make()
        assert "".join(map(one.feed, cut)) + one.end() == other.feed(text) + other.end(), name
    calls = TextCallParser(frozenset({"pay"}), {"pay": TOOL["parameters"]})  # type: ignore[dict-item]
    parts = [part for piece in cut for part in calls.feed(piece)] + calls.end()
    assert is_within("".join(part for part in parts if isinstance(part, str)), text)
    characters = Characters()
    assert is_within("".join(map(characters.feed, cut)), text)


TARGETS: Final[list[Callable[[bytes, int], None]]] = [
    *(lambda body, size, kind=kind: a_provider(kind, body, size) for kind in OVER_HTTP),
    damaged_frames,
    events,
    texts,
]
LOOP: Final = asyncio.new_event_loop()


def one_input(data: bytes) -> None:
    if len(data) > 2:
        TARGETS[data[0] % len(TARGETS)](data[2:], data[1])


def _lines(body: bytes) -> bytes:
    buffer: Any = EventStreamBuffer()
    buffer.add_data(body)
    return b"\n".join(message.headers[":event-type"].encode() + b"\t" + message.payload for message in buffer)


def seeds() -> list[bytes]:
    recorded = [(OVER_HTTP.index(each.kind), _lines(each.body) if each.kind is CONVERSE else each.body) for each in RECORDED]
    frames = [(len(OVER_HTTP), each.body) for each in RECORDED if each.kind is CONVERSE]
    spoken = [
        (len(OVER_HTTP) + 2, text) for text in (b'```json\n{"name": "pay", "arguments": {}}\n```', b"a \xe3\x80\x90fs:1\xe3\x80\x91 b")
    ]
    return [bytes([target, size]) + body for target, body in (*recorded, *frames, *spoken) for size in (0, 7)]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="moorage-fuzz-") as folder:
        for number, seed in enumerate(seeds()):
            (Path(folder) / f"{number}").write_bytes(seed)
        found = Path(__file__).resolve().parents[2] / ".build" / "fuzz-found"
        found.mkdir(parents=True, exist_ok=True)
        options = [
            f"-max_total_time={SECONDS}",
            f"-max_len={BYTES_MAX}",
            "-timeout=20",
            "-rss_limit_mb=2048",
            f"-artifact_prefix={found}/",
        ]
        atheris.Setup([sys.argv[0], folder, *options, *sys.argv[1:]], one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
