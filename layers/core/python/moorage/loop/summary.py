"""Notes on a conversation, written by a model from a transcript.

As plain text a transcript is understood by every provider, also by those that refuse calls of tools which are not offered. One that
is longer than the model can read at once is read in parts, each together with the notes on those before it.
"""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Final

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import UpstreamError, too_long_to_compact
from moorage.loop.cancellation import Cancellable, CancelWatch
from moorage.model.base import ModelRequest, TextDelta, UsageReported
from moorage.model.catalog import ModelEntry
from moorage.model.tokens import estimate_text
from moorage.parallel import worked
from moorage.runtime import ModelAccess
from moorage.wire.responses import TokenUsage
from moorage.wire.types import Item

WANTED: Final = (
    "Note what the user wants and has decided, the constraints, what was done and found out, the names, paths, ids and figures that "
    "matter, and what is left to do next."
)
"""What the notes hold where nobody says otherwise."""

_TASK: Final = (
    "You are given the transcript of a conversation between a user and an assistant that works with tools. You write the notes from "
    "which the assistant will go on without the transcript."
)
_EARLIER: Final = (
    "Where the transcript begins with notes, carry over all in them that still holds: nothing else is left of what they are about."
)
_SIZE: Final = "Write the notes only, in at most {words} words."
_NOTES: Final = "Notes so far:\n\n{notes}\n\nThe transcript goes on:\n\n"
_UNREAD: Final = frozenset({"id", "type", "status", "encrypted_content", "image_url", "file_data", "logprobs", "annotations"})


@dataclass(frozen=True, slots=True)
class NotesWriter:
    """The model of the notes, and their kind."""

    models: ModelAccess
    entry: ModelEntry
    prompt: str | None = None
    instructions: str | None = None
    """Those of the conversation itself."""
    watch: CancelWatch | None = None
    """Says when nobody wants the notes any more."""

    async def write(self, items: Sequence[Item]) -> tuple[str, TokenUsage]:
        """The notes on a model's input, and their cost. Raises :class:`UpstreamError`."""
        share = round(self.entry.context_window_tokens * limits.COMPACTION_PART_SHARE)
        told = await worked(lambda: transcript(items))
        if estimate_text(told) > share * limits.COMPACTION_PARTS_MAX:
            raise too_long_to_compact(share * limits.COMPACTION_PARTS_MAX)
        notes, usage = "", TokenUsage()
        for part in parts_of(told, tokens_max=share):
            notes, cost = await self._ask((_NOTES.format(notes=notes) if notes else "") + part)
            usage += cost
        return notes, usage

    async def _ask(self, text: str) -> tuple[str, TokenUsage]:
        prompt = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
        request = ModelRequest(
            self.entry.upstream_model,
            (prompt,),
            instructions=self.wanted(),
            max_output_tokens=max(limits.OUTPUT_TOKENS_MIN, self.entry.context_window_tokens // 4),
        )
        provider = self.models.catalog.provider(self.entry, self.models.http)
        notes, usage = "", TokenUsage()
        async with Cancellable(self.watch), aclosing(provider.stream(request)) as deltas:
            async for delta in deltas:
                match delta:
                    case TextDelta(text):
                        notes += text
                    case UsageReported():
                        usage += delta.counted
                    case _:
                        pass
        if not notes.strip():
            raise UpstreamError("The model wrote no summary of the conversation.", is_retryable=False)
        return notes, usage

    def wanted(self) -> str:
        """The instructions for the notes."""
        window = self.entry.context_window_tokens
        words = round(min(limits.COMPACTION_NOTES_TOKENS, window * limits.COMPACTION_NOTES_SHARE) * limits.WORDS_PER_TOKEN)
        told = [_TASK, self.prompt or WANTED, _EARLIER, _SIZE.format(words=words)]
        if self.instructions is not None:
            # A beginning will do: they are told to every request beside the notes.
            own = self.instructions[: window // 2]
            told.append(f"The assistant's own instructions were:\n\n{own}")
        return "\n\n".join(told)


def transcript(items: Sequence[Item]) -> str:
    """The conversation as text."""
    return "\n\n".join(line for item in items if (line := _line(item)))


def parts_of(text: str, *, tokens_max: int) -> list[str]:
    """The text in parts of at most so many tokens, between two items if that costs little; at least one."""
    parts = []
    while estimate_text(text) > tokens_max:
        longest = bisect_right(range(1, len(text)), tokens_max, key=lambda chars: estimate_text(text[:chars]))
        between = text.rfind("\n\n", longest * 3 // 4, longest)
        end = longest if between < 0 else between + 2
        parts.append(text[:end])
        text = text[end:]
    return [*parts, text]


def _line(item: Item) -> str:
    if item["type"] == "message":
        texts = [part.get("text") or part.get("refusal") or f"[{part['type']}]" for part in item["content"]]
        return f"{item['role']}: " + "\n".join(texts)
    if item["type"] == "compaction":
        return str(item.get("text", ""))
    if item["type"] in ("additional_tools", "tool_search_output", "compaction_trigger"):
        return ""
    return f"{item['type']}: " + orjson.dumps(_readable(item)).decode()


def _readable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _readable(inner) for key, inner in value.items() if key not in _UNREAD and inner is not None}
    return [_readable(inner) for inner in value] if isinstance(value, list) else value
