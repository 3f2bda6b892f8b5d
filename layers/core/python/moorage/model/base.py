"""What every model provider takes and gives.

The canonical form of a conversation is a list of Responses items (plain JSON objects, validated at the API). A provider turns a
:class:`ModelRequest` into its upstream's request and the upstream's stream into :data:`Delta` values. The deltas are sequential:
at most one item is open at a time; starting another closes it. Providers know nothing of events, ids, storage or tools that run
here: hosted and client tools that the upstream does not know natively have been lowered to functions before
(``tools/lowering.py``), and ``loop/assemble.py`` turns deltas into items and events afterwards.
"""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import field, replace
from itertools import chain, groupby
from typing import Any, Final, Literal, Protocol

from moorage.dataclass import dataclass
from moorage.wire.parameters import Parameters
from moorage.wire.responses import TokenUsage
from moorage.wire.types import Event, Item


@dataclass(frozen=True, slots=True)
class ModelRequest(Parameters):
    """One model step's input, already resolved: ``model`` is the upstream's name of it, tools and items are such as it knows, and
    ``max_output_tokens`` is what is left of the response's budget."""

    items: tuple[Item, ...]
    has_container: bool = field(default=False, kw_only=True)
    """The input's files lie in a container, and notes in the input say where."""


HOSTED_SHELL: Final = "shell.hosted"
"""Among the native tools of an upstream: it runs a hosted shell by itself, in its own containers."""

FinishReason = Literal["stop", "tool_calls", "max_output_tokens", "content_filter"]


@dataclass(frozen=True, slots=True)
class StreamStarted:
    """The upstream has begun to answer. It says nothing yet: a failure after this may still be retried."""

    request_id: str
    """What the upstream calls the request: whoever complains there is asked for it."""


@dataclass(frozen=True, slots=True)
class MessageStarted:
    phase: Literal["commentary", "final_answer"] | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str
    logprobs: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class RefusalDelta:
    text: str


@dataclass(frozen=True, slots=True)
class AnnotationAdded:
    annotation: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReasoningStarted:
    pass


@dataclass(frozen=True, slots=True)
class SummaryDelta:
    """A piece of visible reasoning summary; ``index`` numbers the summary parts of one reasoning item from 0."""

    text: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class ReasoningTextDelta:
    """A piece of raw reasoning text, as open models show it."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A tool call opens. ``kind`` ``function`` has JSON arguments, ``custom`` has free text.

    ``name`` is the name that the upstream was given; the assembler maps a lowered name back to its tool.
    ``call_id`` is None if the upstream gives none: the assembler makes one.
    """

    name: str
    call_id: str | None = None
    kind: Literal["function", "custom"] = "function"
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class CallDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ItemDone:
    """Closes the open item. ``encrypted_content`` belongs to a reasoning item (opaque, must round-trip)."""

    encrypted_content: str | None = None
    is_cut: bool = False
    """The answer's limit was reached in the middle of it."""


@dataclass(frozen=True, slots=True)
class ItemRelayed:
    """A whole item that the upstream made and that is passed on unchanged but for its id: ``shell_call``, ``apply_patch_call``,
    ``local_shell_call``, ``computer_call``, ``tool_search_call``, ``web_search_call``, ``compaction`` ... Also the end of one that was
    opened by :class:`ItemOpened`."""

    item: Item


@dataclass(frozen=True, slots=True)
class ItemOpened:
    """An item that the upstream runs itself begins: it is shown as it grows."""

    item: Item


@dataclass(frozen=True, slots=True)
class ItemEvent:
    """An event of the open item, as the upstream sent it."""

    event: Event


@dataclass(frozen=True, slots=True)
class UsageReported:
    """Tokens of this step. ``input_tokens`` includes the cached ones, ``output_tokens`` the reasoning ones (OpenAI's counting)."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    service_tier: str | None = None
    """The tier that the upstream says it used."""

    @property
    def counted(self) -> TokenUsage:
        return TokenUsage(self.input_tokens, self.output_tokens, self.cached_tokens, self.cache_write_tokens, self.reasoning_tokens)


@dataclass(frozen=True, slots=True)
class StreamFinished:
    """The upstream ended in good order. Without it the stream counts as broken."""

    reason: FinishReason

    @property
    def is_cut(self) -> bool:
        """The answer ended before the model was done with it."""
        return self.reason in ("max_output_tokens", "content_filter")


Delta = (
    StreamStarted
    | MessageStarted
    | TextDelta
    | RefusalDelta
    | AnnotationAdded
    | ReasoningStarted
    | SummaryDelta
    | ReasoningTextDelta
    | CallStarted
    | CallDelta
    | ItemDone
    | ItemRelayed
    | ItemOpened
    | ItemEvent
    | UsageReported
    | StreamFinished
)

TEXTS: Final = (TextDelta, RefusalDelta, SummaryDelta, ReasoningTextDelta, CallDelta)
"""A piece of an item's text each."""


def joined(deltas: list[Delta]) -> list[Delta]:
    """Deltas that came together, with neighbours of one text as one: each that goes on becomes an event, which is sent and stored."""
    if len(deltas) < 2:
        return deltas
    out: list[Delta] = []
    for _, run in groupby(deltas, lambda delta: (type(delta), delta.index if isinstance(delta, SummaryDelta) else 0)):
        same = list(run)
        out += [_as_one(same)] if len(same) > 1 and isinstance(same[0], TEXTS) else same
    return out


def _as_one(same: list[Any]) -> Delta:
    text = "".join(each.text for each in same)
    if isinstance(same[0], TextDelta):
        return TextDelta(text, tuple(chain.from_iterable(each.logprobs for each in same)))
    whole: Delta = replace(same[0], text=text)
    return whole


class Provider(Protocol):
    """One upstream, ready to be asked. Implementations hold the transport that they were given."""

    @property
    def native_tools(self) -> frozenset[str]:
        """Tool types that this upstream takes as they are, ``function`` always among them."""
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Ask, and yield deltas as they come.

        Raises :class:`moorage.errors.UpstreamError` for refusals, failures, hangs (no byte for ``limits.UPSTREAM_IDLE_SECONDS``)
        and streams that end without an end. Closing the iterator closes the connection.
        """
        ...
