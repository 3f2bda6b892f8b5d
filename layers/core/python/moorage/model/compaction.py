"""How a conversation is compacted: by the request, else by models.toml for its model, else by this."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from moorage import limits
from moorage.dataclass import dataclass

Strategy = Literal["llm", "truncate"]
"""``llm``: a model writes notes; ``truncate``: what is oldest is left out, and nothing is written."""


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    strategy: Strategy = "llm"
    prompt: str | None = None
    """What the notes shall hold; None: ``loop/summary.py`` says it."""
    keep_recent_items: int | None = None
    """How many of the latest items stay as they are. None: none beside notes, and as many as fit where there are no notes."""
    model: str | None = None
    """The public name of the model that writes the notes; None: the one that goes on from them."""

    def asked(self, entry: Mapping[str, Any]) -> Self:
        """With the fields of an entry of ``context_management``. A given prompt asks for notes."""
        given = {name: entry[name] for name in ("strategy", "prompt", "keep_recent_items") if name in entry}
        return replace(self, **({"strategy": "llm"} if "prompt" in given else {}) | given)


class CompactionTable(BaseModel):
    """The same in models.toml, of a model or of all."""

    model_config = ConfigDict(extra="forbid")
    strategy: Strategy | None = None
    prompt: str | None = Field(default=None, min_length=1, max_length=limits.COMPACTION_PROMPT_CHARS_MAX)
    keep_recent_items: int | None = Field(default=None, ge=0, le=limits.COMPACTION_RECENT_ITEMS_MAX)
    model: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.strategy == "truncate" and (self.prompt is not None or self.model is not None):
            raise ValueError("nobody writes notes under the strategy 'truncate': leave out 'prompt' and 'model'")
        return self

    def over(self, other: "CompactionTable") -> CompactionSettings:
        """The fields of this table, and the other one's for its gaps."""
        return CompactionSettings(**(other.model_dump(exclude_none=True) | self.model_dump(exclude_none=True)))
