"""One name for all that comes of a request, from its client's trace to the request that a model gets: W3C Trace Context, level 1.

A trace comes from the client's ``traceparent``, else from the header of X-Ray, which API Gateway adds, else it begins here. It is kept
with the response, because other processes go on with it. X-Ray's ids are the same 128 and 64 bits in another notation, so that Step
Functions and its functions go on in the trace of the request. Here are no spans with times: the lines of the log have those, and each
names its trace, and the spans of a response are made of its log when it has ended (``loop/traces.py``). ``tracestate`` goes no
further: it is between the client and its own tools, and a model's provider is neither.
"""

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Final

from moorage.dataclass import dataclass

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_ROOT: Final = re.compile(r"1-([0-9a-f]{8})-([0-9a-f]{24})", re.ASCII)
_SPAN: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)
_UNDECIDED: Final = 2


@dataclass(frozen=True, slots=True)
class Trace:
    """A position in a trace."""

    trace_id: str
    """32 hex digits."""
    span_id: str
    """16 hex digits: what is asked next has this as its parent."""
    is_sampled: bool | None = None
    """Whether it is to be recorded; None where nobody has decided."""

    @classmethod
    def begin(cls) -> "Trace":
        return cls(secrets.token_hex(16), secrets.token_hex(8))

    @classmethod
    def of_headers(cls, headers: Sequence[tuple[bytes, bytes]]) -> "Trace":
        """The trace of a request, by its raw headers."""
        return _of_traceparent(_only(headers, b"traceparent")) or _of_xray(_only(headers, b"x-amzn-trace-id")) or cls.begin()

    def child(self) -> "Trace":
        """A new span of the same trace."""
        return replace(self, span_id=secrets.token_hex(8))

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'00' if self.is_sampled is False else '01'}"

    @property
    def xray(self) -> str:
        """As ``X-Amzn-Trace-Id`` and StartExecution's ``traceHeader`` have it."""
        sampled = "" if self.is_sampled is None else f";Sampled={self.is_sampled:d}"
        return f"Root=1-{self.trace_id[:8]}-{self.trace_id[8:]};Parent={self.span_id}{sampled}"

    def pack(self) -> bytes:
        """25 bytes: a plain response's record is close to the size that costs twice as much."""
        decided = _UNDECIDED if self.is_sampled is None else int(self.is_sampled)
        return bytes.fromhex(self.trace_id + self.span_id) + bytes([decided])

    @classmethod
    def unpack(cls, packed: bytes) -> "Trace":
        decided = None if packed[24] == _UNDECIDED else bool(packed[24])
        return cls(packed[:16].hex(), packed[16:24].hex(), decided)


def _only(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> str:
    """The header's value; nothing if it is missing or said twice."""
    values = [value for key, value in headers if key == name]
    return values[0].decode("latin-1").strip() if len(values) == 1 else ""


def _of_traceparent(text: str) -> Trace | None:
    """None for what the specification calls invalid. Later versions may say more after what is known of them, version 0 may not."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return Trace(trace_id, span_id, bool(int(flags, 16) & 1))


def _of_xray(text: str) -> Trace | None:
    fields = dict(field.strip().partition("=")[::2] for field in text.split(";"))
    root = _ROOT.fullmatch(fields.get("Root", ""))
    if root is None:
        return None
    parent = fields.get("Parent", "")
    span_id = parent if _SPAN.fullmatch(parent) else secrets.token_hex(8)
    return Trace(root[1] + root[2], span_id, {"0": False, "1": True}.get(fields.get("Sampled", "")))


_current: Final[ContextVar[Trace | None]] = ContextVar("trace", default=None)


def current() -> Trace | None:
    """The trace of the present task."""
    return _current.get()


@contextmanager
def within(trace: Trace | None) -> Iterator[None]:
    """The work inside belongs to this trace, and so do the tasks that it starts."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)
