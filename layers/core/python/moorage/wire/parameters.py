"""What a request tells the model, in one value.

The request that arrives, the record of its response, and what a provider is asked with (``model/base.py: ModelRequest``) all hold these
fields. A new parameter is written here, in the type of the body that checks it (``create.py``), and in the providers that pass it on.
"""

from dataclasses import KW_ONLY, fields
from typing import Any, Final, Literal, Self

from moorage.codec import Codec
from moorage.dataclass import dataclass
from moorage.wire.types import Tool


@dataclass(frozen=True, slots=True)
class Parameters:
    """Names and defaults are the wire's; None means that the client left it open."""

    model: str
    _: KW_ONLY
    instructions: str | None = None
    tools: tuple[Tool, ...] = ()
    """Canonical tools without the values of secrets: safe to store, to echo and to send to the model."""
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: bool = True
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    text: dict[str, Any] | None = None
    """``{"format": ..., "verbosity": ...}``."""
    reasoning: dict[str, Any] | None = None
    truncation: Literal["auto", "disabled"] = "disabled"
    context_management: tuple[dict[str, Any], ...] = ()
    """Compaction entries as they came (``create.py: CompactionEntry``)."""
    include: tuple[str, ...] = ()
    prompt_cache_key: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: str | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    user: str | None = None
    budget: dict[str, Any] | None = None
    """What the response may use (``create.py: Budget``)."""
    approvals: dict[str, Any] | None = None
    """How it waits for a person's word (``create.py: Approvals``)."""
    multi_agent: dict[str, Any] | None = None
    """The team that the model may build (``create.py: MultiAgent``); None without one."""

    @classmethod
    def of(cls, given: "Parameters", **others: Any) -> Self:
        """A value of this class with the parameters of another, but for ``others``."""
        return cls(**({name: getattr(given, name) for name in NAMES} | others))


NAMES: Final = tuple(field.name for field in fields(Parameters))

RECORD: Final = Codec(Parameters, sparse=[field.name for field in fields(Parameters) if field.default in (None, ())])
"""What was given, as JSON. Fields of another version are left out: a response that has ended can always be read."""
