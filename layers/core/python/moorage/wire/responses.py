"""The objects that the Responses API answers with.

The Response object has every key of the API with null where nothing is known, because clients differ in what they tolerate: the
Open Responses schema wants all of them, numbers where OpenAI sends numbers, and a string as ``service_tier``.
``conversation`` and ``prompt_cache_options`` are there only if they were asked for, as in every recording.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from moorage.errors import type_of
from moorage.wire.requests import CreateRequest
from moorage.wire.types import Item, Tool

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens. ``input_tokens`` includes the cached ones, ``output_tokens`` the reasoning ones."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )

    def to_json(self) -> dict[str, Any]:
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
    """Made once by :func:`echo`."""
    output: Sequence[Item] = ()
    completed_at: int | None = None
    """Unix seconds; only of a completed response."""
    error: Mapping[str, Any] | None = None
    """``{"code", "message"}``, and the ``param`` that is to blame if one is."""
    incomplete_reason: str | None = None
    usage: Usage | None = None
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
    if state.service_tier is not None:
        response["service_tier"] = state.service_tier
    return response


def echo(request: CreateRequest, container_id: str | None = None) -> dict[str, Any]:
    """The keys of the Response object that repeat the request, with the API's defaults filled in.

    ``container_id`` is the container that the hosted shell got: ``container_auto`` is answered as a reference to it, already in
    ``response.created``, and so files, policies and secrets never appear in a response; which version of a skill it has, does. A code
    interpreter's ``auto`` stays ``auto`` (recorded live), without them.
    """
    echoed: dict[str, Any] = {
        "background": request.background,
        "frequency_penalty": 0.0,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "metadata": request.metadata,
        "model": request.model,
        "parallel_tool_calls": request.parallel_tool_calls,
        "presence_penalty": 0.0,
        "previous_response_id": request.previous_response_id,
        "prompt_cache_key": request.prompt_cache_key,
        "prompt_cache_retention": request.prompt_cache_retention,
        "reasoning": {"effort": None, "summary": None, **(request.reasoning or {})},
        "safety_identifier": request.safety_identifier,
        "service_tier": request.service_tier or "auto",
        "store": request.store,
        "temperature": 1.0 if request.temperature is None else request.temperature,
        "text": {"format": {"type": "text"}, "verbosity": "medium", **(request.text or {})},
        "tool_choice": request.tool_choice,
        "tools": [echoed_tool(tool, container_id) for tool in request.tools],
        "top_logprobs": request.top_logprobs or 0,
        "top_p": 1.0 if request.top_p is None else request.top_p,
        "truncation": request.truncation,
        "user": request.user,
    }
    if request.conversation_id is not None:
        echoed["conversation"] = {"id": request.conversation_id}
    if request.prompt_cache_options is not None:
        echoed["prompt_cache_options"] = {"mode": "implicit", "ttl": "30m", **request.prompt_cache_options}
    return echoed


def echoed_tool(tool: Tool, container_id: str | None = None) -> Tool:
    """A tool as the response shows it: complete, with nulls, and a hosted shell as a reference to its container."""
    match tool["type"]:
        case "function":
            return {"description": None, "parameters": None, "strict": None, **tool}
        case "custom":
            return {"description": None, "format": {"type": "text"}, **tool}
        case "namespace":
            return {**tool, "tools": [echoed_tool(inner) for inner in tool["tools"]]}
        case "shell":
            return {**tool, "environment": _echoed_environment(tool.get("environment"), container_id)}
        case "code_interpreter" if not isinstance(tool["container"], str):
            return {**tool, "container": {"type": "auto"}}
        case _:
            return tool


def _echoed_environment(environment: Mapping[str, Any] | None, container_id: str | None) -> dict[str, Any]:
    if environment is None or environment["type"] == "local":
        return {"type": "local"}
    shown = {"type": "container_reference", "container_id": environment.get("container_id", container_id)}
    return {**shown, "skills": environment["skills"]} if environment.get("skills") else shown


# --- Listings and deletions -----------------------------------------------------------------------------------------------

_LISTED_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "message": {"status": "completed"},
    "function_call": {"status": "completed"},
    "function_call_output": {"status": "completed"},
    "custom_tool_call": {"status": "completed"},
    "custom_tool_call_output": {"status": "completed"},
    "shell_call": {"status": "completed", "environment": None},
    "shell_call_output": {"status": "completed", "max_output_length": None},
    "code_interpreter_call": {"status": "completed", "code": None, "outputs": None},
    "local_shell_call": {"status": "completed"},
    "apply_patch_call": {"status": "completed"},
    "computer_call": {"status": "completed", "pending_safety_checks": []},
    "computer_call_output": {"status": "completed"},
    "tool_search_call": {"status": "completed", "execution": "client"},
    "tool_search_output": {"status": "completed", "execution": "client"},
}
"""What an item has in a listing although a client may leave it out of its input."""


def listed_item(item: Item, include: Iterable[str] = ()) -> Item:
    """An item as ``input_items`` and conversations list it: complete, but with URLs of images and outputs of the code interpreter
    only if ``include`` asks for them."""
    listed = {**item, **{key: value for key, value in _LISTED_DEFAULTS.get(item["type"], {}).items() if key not in item}}
    wanted = frozenset(include)
    if item["type"] == "message" and "message.input_image.image_url" not in wanted:
        listed["content"] = [_without_url(part) if part["type"] == "input_image" else part for part in item["content"]]
    if item["type"] == "computer_call_output" and "computer_call_output.output.image_url" not in wanted:
        listed["output"] = _without_url(item["output"])
    if item["type"] == "code_interpreter_call" and "code_interpreter_call.outputs" not in wanted:
        listed["outputs"] = None
    return listed


def _without_url(part: Mapping[str, Any]) -> dict[str, Any]:
    return {**part, "image_url": None} if "image_url" in part else dict(part)


def list_object(data: Sequence[Mapping[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """One page. The SDKs go on after ``data[-1].id``, conversations after ``last_id``."""
    return {
        "object": "list",
        "data": list(data),
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }


def deleted(resource_id: str, kind: str) -> dict[str, Any]:
    """The answer to a DELETE; ``kind`` is ``response``, ``conversation.deleted``, ``container.deleted`` ..."""
    return {"id": resource_id, "object": kind, "deleted": True}


def input_tokens_object(input_tokens: int) -> dict[str, Any]:
    return {"object": "response.input_tokens", "input_tokens": input_tokens}


def compaction_object(response_id: str, created_at: int, output: Sequence[Item], usage: Usage) -> dict[str, Any]:
    """The answer of ``POST /v1/responses/compact``; its id leads nowhere."""
    return {
        "id": response_id,
        "object": "response.compaction",
        "created_at": created_at,
        "output": list(output),
        "usage": usage.to_json(),
    }
