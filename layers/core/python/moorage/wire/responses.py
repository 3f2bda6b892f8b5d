"""The objects that the Responses API answers with.

The Response object has every key of the API with null if nothing is known, because clients differ in what they tolerate: the
Open Responses schema wants all of them, numbers if OpenAI sends numbers, and a string as ``service_tier``.
``conversation`` and ``prompt_cache_options`` are there only if they were asked for, as in every recording.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from moorage.dataclass import dataclass
from moorage.errors import type_of
from moorage.wire.answers import CompactedResponse, Deleted, InputTokens, Kind, ListOf, One, Usage
from moorage.wire.types import Item

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens. ``input_tokens`` includes the cached ones, ``output_tokens`` the reasoning ones."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )

    def __sub__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.cached_tokens - other.cached_tokens,
            self.cache_write_tokens - other.cache_write_tokens,
            self.reasoning_tokens - other.reasoning_tokens,
        )

    @classmethod
    def from_json(cls, usage: Mapping[str, Any]) -> "TokenUsage":
        """A ``usage`` object, read back."""
        return cls(
            input_tokens=usage["input_tokens"],
            output_tokens=usage["output_tokens"],
            cached_tokens=usage["input_tokens_details"]["cached_tokens"],
            cache_write_tokens=usage["input_tokens_details"]["cache_write_tokens"],
            reasoning_tokens=usage["output_tokens_details"]["reasoning_tokens"],
        )

    def to_json(self) -> Usage:
        """``usage`` on the wire. Codex CLI fails on a usage without ``total_tokens``."""
        return {
            "input_tokens": self.input_tokens,
            "input_tokens_details": {"cached_tokens": self.cached_tokens, "cache_write_tokens": self.cache_write_tokens},
            "output_tokens": self.output_tokens,
            "output_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
            "total_tokens": self.input_tokens + self.output_tokens,
        }


@dataclass(frozen=True, slots=True)
class ResponseState:
    """What a response is at one moment: the part that the request fixed (``echo``) and the part that changes."""

    id: str
    created_at: int
    """Unix seconds."""
    status: Status
    echo: Mapping[str, Any]
    """Made once by ``loop/create.py: echo``."""
    output: Sequence[Item] = ()
    completed_at: int | None = None
    """Unix seconds; only of a completed response."""
    error: Mapping[str, Any] | None = None
    """``{"code", "message"}``, and the ``param`` that is to blame if one is."""
    incomplete_reason: str | None = None
    usage: TokenUsage | None = None
    tool_usage: Mapping[str, Any] | None = None
    """What its hosted tools have used, by tool; only of a response that has ended."""
    service_tier: str | None = None
    """The tier that was really used, once the upstream has said it."""


def response_object(state: ResponseState) -> dict[str, Any]:
    """The Response object with all its keys."""
    echoed = state.echo
    response = {
        "id": state.id,
        "object": "response",
        "created_at": state.created_at,
        "status": state.status,
        "completed_at": state.completed_at,
        "error": None if state.error is None else {"param": None, "type": type_of(state.error["code"]), **state.error},
        "incomplete_details": None if state.incomplete_reason is None else {"reason": state.incomplete_reason},
        "output": list(state.output),
        "usage": None if state.usage is None else state.usage.to_json(),
        **echoed,
    }
    if state.tool_usage is not None:
        response["tool_usage"] = dict(state.tool_usage)
    if state.service_tier is not None:
        response["service_tier"] = state.service_tier
    return response


# --- Listings and deletions -----------------------------------------------------------------------------------------------


def list_object(data: Sequence[One], *, has_more: bool) -> ListOf[One]:
    """One page. The SDKs go on after ``data[-1].id``, conversations after ``last_id``."""
    ids = [cast("Mapping[str, Any]", one)["id"] for one in (*data[:1], *data[-1:])]
    return {
        "object": "list",
        "data": list(data),
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": has_more,
    }


def deleted(resource_id: str, kind: Kind) -> Deleted[Kind]:
    """The answer to a DELETE; ``kind`` is ``response``, ``conversation.deleted``, ``container.deleted`` ..."""
    return {"id": resource_id, "object": kind, "deleted": True}


def input_tokens_object(input_tokens: int) -> InputTokens:
    return {"object": "response.input_tokens", "input_tokens": input_tokens}


def compaction_object(response_id: str, created_at: int, output: Sequence[Item], usage: TokenUsage) -> CompactedResponse:
    """The answer of ``POST /v1/responses/compact``; its id leads nowhere."""
    return {
        "id": response_id,
        "object": "response.compaction",
        "created_at": created_at,
        "output": list(output),
        "usage": usage.to_json(),
    }
