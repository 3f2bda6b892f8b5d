"""How an answer ends, in the words of every upstream.

An end is good only where its word is known to be: a server that says ``error`` or ``abort`` after some words has failed, although its
status was 200.
"""

from collections.abc import Mapping
from typing import Any, Final

from moorage.errors import UpstreamError
from moorage.model.base import FinishReason

_STOPPED: Final = frozenset(
    {
        *("stop", "tool_calls", "function_call"),  # Chat Completions
        *("end_turn", "tool_use", "stop_sequence", "pause_turn"),  # Anthropic and Converse
        *("eos", "eos_token", "stop_str", "complete", "completed", "finished"),  # TGI, Together, Cohere and others that follow them
    }
)
_AT_A_LIMIT: Final = frozenset(
    {
        *("length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"),
    }
)
_FILTERED: Final = frozenset(
    {
        *("content_filter", "content_filtered", "refusal", "guardrail_intervened", "safety", "sensitive", "recitation", "blocklist"),
    }
)
_PASSING: Final = frozenset({"error", "abort", "aborted", "cancelled", "network_error", "insufficient_system_resource"})
"""OpenRouter, vLLM and SGLang, Zhipu and DeepSeek: the answer was given up, and asking again may help."""


def finish_reason(word: str | None, *, has_calls: bool) -> FinishReason:
    """The meaning of an upstream's word for the end; None is its silence. Raises :class:`UpstreamError` if it means a failure."""
    known = "stop" if word is None else word.lower()
    if known in _AT_A_LIMIT:
        return "max_output_tokens"
    if known in _FILTERED:
        return "content_filter"
    if known not in _STOPPED:
        raise UpstreamError(
            f"The model upstream gave its answer up: it ended with the reason {word!r}.", is_retryable=known in _PASSING
        )
    return "tool_calls" if has_calls else "stop"


def incomplete_reason(word: str | None) -> FinishReason:
    """What ended an answer that the Responses protocol calls incomplete; its API knows a limit and a filter. Raises
    :class:`UpstreamError` if the server gave the answer up."""
    known = "length" if word is None else word.lower()
    return finish_reason(known if known in _FILTERED | _PASSING else "length", has_calls=False)


def error_beside(chunk: Mapping[str, Any]) -> dict[str, Any] | None:
    """The error that an event of a good stream tells: in ``error``, in ``error_message`` (DeepInfra), or as the whole event (vLLM)."""
    error = chunk.get("error")
    if isinstance(error, dict):
        return error
    if error:
        return {"message": str(error)}
    if chunk.get("error_message"):
        return {"message": str(chunk["error_message"]), "code": chunk.get("error_code")}
    return dict(chunk) if chunk.get("object") == "error" else None


def counted(usage: Mapping[str, Any], *names: str) -> int:
    """The first of these fields that holds a number of tokens, as a whole number; 0 if none does. Some servers write numbers as
    text, or as floats, and a bill is no reason to lose an answer."""
    for name in names:
        try:
            number = int(float(usage.get(name) or 0))
        except (TypeError, ValueError, OverflowError):
            continue
        if number > 0:
            return number
    return 0


def details(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a usage that some servers leave out, or write otherwise."""
    found = usage.get(name)
    return found if isinstance(found, dict) else {}
