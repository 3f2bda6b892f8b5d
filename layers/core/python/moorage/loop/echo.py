"""The request's fields that its response repeats."""

from typing import Any

from moorage.tools.registry import ROOMS
from moorage.wire.requests import CreateRequest
from moorage.wire.types import Tool


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
    if tool["type"] == "namespace":
        return {**tool, "tools": [echoed_tool(inner) for inner in tool["tools"]]}
    room = ROOMS.of_tool(tool["type"])
    return tool if room is None else room.response_tool(tool, container_id)
