"""The events of one exec, and the rule by which its output is cut.

An exec is its list of events. They are numbered once and kept as bytes, so that a reader may attach at any number, as often as it
likes, and always gets the same rest. Readers pull from that list at their own pace: a slow one holds up nobody and costs no memory.
Output is bounded where it arrives: the first half of the allowed characters becomes events at once, a ring of the last half is kept,
and everything goes to a spool file of bounded size, so that a command that prints a gigabyte costs the memory of one that prints a
page.
"""

from __future__ import annotations

import asyncio
import codecs
import collections
import contextlib
import hashlib
import json
import os
import re
from typing import Any, AsyncIterator, Deque, Dict, List, Optional, Tuple

HEARTBEAT_SECONDS = 5.0
START_SECONDS = 0.02
"""A command that ends or prints within this time is told of by one piece, beginning and all."""
BATCH_BYTES = 64 * 1024
MARKER = "\n… {count} chars truncated; full output: {path} …\n"


class Transcript:
    """The events of one exec, and the rule by which its output is cut.

    Of ``chars_max`` characters the first half is kept as it comes and the last half at the end, both over stdout and stderr
    together in the order of arrival. Output of at most ``chars_max`` characters is whole. What was cut is counted per stream, and
    each stream that lost something says so where the gap is.
    """

    def __init__(self, chars_max: int, spool: Spool) -> None:
        self.events: List[bytes] = []
        self.event_bytes = 0
        self.is_finished = False
        self._waiting: List[asyncio.Future[None]] = []
        """Of readers that have read all."""
        self._spool = spool
        self._chars_max = chars_max
        self._head_left = chars_max // 2
        self._tail_chars_max = chars_max - chars_max // 2
        self._tail: Deque[Tuple[str, List[str], int]] = collections.deque()
        self._tail_chars = 0
        self._cut = {"stdout": 0, "stderr": 0}
        self._raw: Optional[List[bytes]] = []
        self._pending: List[Tuple[str, str]] = []
        self.pending_chars = 0
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

    def started(self) -> None:
        self._add({"type": "started"})

    def feed(self, stream: str, data: bytes, is_last: bool = False) -> None:
        """Take bytes as they arrived. Invalid UTF-8 becomes U+FFFD; a character may be split over two calls."""
        if self._raw is None:
            self._spool.write(data)
        else:
            self._raw.append(data)
        self.add_text(stream, self._decoders[stream].decode(data, is_last))

    def add_text(self, stream: str, text: str) -> None:
        if self._head_left and text:
            self._pending.append((stream, text[: self._head_left]))
            self.pending_chars += min(len(text), self._head_left)
            text, self._head_left = text[self._head_left :], max(0, self._head_left - len(text))
        if text:
            self._keep_tail(stream, text)

    def flush(self) -> None:
        """Turn pending output into events, one for each run of the same stream."""
        runs: List[Tuple[str, List[str]]] = []
        for stream, text in self._pending:
            if runs and runs[-1][0] == stream:
                runs[-1][1].append(text)
            else:
                runs.append((stream, [text]))
        self._pending, self.pending_chars = [], 0
        for stream, texts in runs:
            self._add({"type": "output", "stream": stream, "text": "".join(texts)})

    def finish(self, kind: str, exit_code: int, extra: Optional[Dict[str, Any]] = None) -> None:
        """Write the tail and the last event (``exit``, ``timeout`` or ``killed``)."""
        for stream in self._decoders:
            self.feed(stream, b"", is_last=True)
        self.flush()
        path = self._spool.path if sum(self._cut.values()) else None
        tails = {stream: "".join("".join(texts) for name, texts, _ in self._tail if name == stream) for stream in self._cut}
        first_in_tail = self._tail[0][0] if self._tail else "stdout"
        for stream in sorted(tails, key=lambda name: name != first_in_tail):
            marker = MARKER.format(count=self._cut[stream], path=path) if self._cut[stream] else ""
            if marker or tails[stream]:
                self._add({"type": "output", "stream": stream, "text": marker + tails[stream]})
        self._tail.clear()
        self._raw = None
        self._spool.close()
        self.is_finished = True
        last = {"type": kind, "exit_code": exit_code, "truncated_chars": sum(self._cut.values()), "spool_path": path}
        self._add({**last, **(extra or {})})

    def forget(self) -> None:
        """Remove the spool: nobody can learn its name any more."""
        self._spool.remove()

    async def lines_after(self, after: int) -> AsyncIterator[bytes]:
        """Event lines with a higher number, as they come, in batches; heartbeats in between."""
        position = after + 1
        if position == 0 and len(self.events) == 1 and not self.is_finished:
            await self._changed(START_SECONDS)
        while True:
            if position < len(self.events):
                batch = self._batch(position)
                position += len(batch)
                yield b"".join(batch)
            elif self.is_finished:
                return
            elif not await self._changed(HEARTBEAT_SECONDS):
                yield b'{"type":"heartbeat"}\n'

    async def _changed(self, seconds: float) -> bool:
        """Wait for the next event; False if there was none for so long. Unlike ``wait_for`` it takes no task for that."""
        loop, count = asyncio.get_running_loop(), len(self.events)
        waiter = loop.create_future()
        self._waiting.append(waiter)
        timer = loop.call_later(seconds, wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiting.remove(waiter)
        return len(self.events) > count

    def _batch(self, position: int) -> List[bytes]:
        end, size = position, 0
        while end < len(self.events) and (end == position or size + len(self.events[end]) <= BATCH_BYTES):
            size += len(self.events[end])
            end += 1
        return self.events[position:end]

    def _add(self, event: Dict[str, Any]) -> None:
        line = json.dumps({"n": len(self.events), **event}, separators=(",", ":")).encode() + b"\n"
        self.events.append(line)
        self.event_bytes += len(line)
        for waiter in self._waiting:
            wake(waiter)

    def _keep_tail(self, stream: str, text: str) -> None:
        last = self._tail[-1] if self._tail else None
        if last and last[0] == stream and last[2] < 4096:
            last[1].append(text)
            self._tail[-1] = (stream, last[1] if len(last[1]) < 64 else ["".join(last[1])], last[2] + len(text))
        else:
            self._tail.append((stream, [text], len(text)))
        self._tail_chars += len(text)
        while self._tail_chars > self._tail_chars_max:
            self._drop(self._tail_chars - self._tail_chars_max)

    def _drop(self, excess: int) -> None:
        if self._raw is not None:
            raw, self._raw = self._raw, None
            for data in raw:
                self._spool.write(data)
        stream, texts, length = self._tail.popleft()
        dropped = min(excess, length)
        if dropped < length:
            self._tail.appendleft((stream, ["".join(texts)[dropped:]], length - dropped))
        self._tail_chars -= dropped
        self._cut[stream] += dropped


class Spool:
    """The full output of one exec on disk, opened when there is something to write, of bounded size."""

    def __init__(self, directory: str, name: str, bytes_max: int) -> None:
        self._directory = directory
        self.path = os.path.join(directory, f"{file_name(name)}.log")
        self._left = bytes_max
        self._fd: Optional[int] = None

    def write(self, data: bytes) -> None:
        """Append as much as fits. A full disk ends the spool, not the command."""
        try:
            while data and self._left > 0:
                written = os.write(self._open(), data[: self._left])
                self._left -= written
                data = data[written:]
        except OSError:
            self._left = 0

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def _open(self) -> int:
        if self._fd is None:
            os.makedirs(self._directory, 0o755, exist_ok=True)
            self.remove()
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        return self._fd


def wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def file_name(exec_id: str) -> str:
    """The id itself if it can be a file's name, else one that no other id has."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", exec_id)
    return plain if plain == exec_id else f"{plain[:100]}-{hashlib.sha256(exec_id.encode()).hexdigest()[:12]}"
