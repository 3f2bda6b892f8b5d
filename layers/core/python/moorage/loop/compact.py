"""Compaction: a long conversation becomes its user's messages and a summary that carries its state.

It is asked for in three ways: by ``POST /v1/responses/compact``, by a ``compaction_trigger`` as the last input item, and by
``context_management`` when the prompt has grown beyond a threshold. What a ``compaction`` item stands for stays stored, but models
do not see it any more (:func:`visible`).

The summary is written by the model itself, from a transcript: as plain text it is understood by every provider, also by those that
refuse calls of tools which are not offered. It is sealed (``store/sealed.py``), so that clients pass it on as it is; the next
request's model reads it as a message.
"""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

import orjson

from moorage import ids, limits
from moorage.errors import UpstreamError, invalid_encrypted_content
from moorage.loop.truncate import stays
from moorage.model.base import ModelRequest, TextDelta, UsageReported
from moorage.model.tokens import at_most, estimate_frame, estimate_item, estimate_items
from moorage.runtime import Runtime
from moorage.store.responses import StoredResponse
from moorage.wire.parameters import Parameters
from moorage.wire.responses import Usage
from moorage.wire.types import Item

INSTRUCTIONS: Final = (
    "You are given the transcript of a conversation between a user and an assistant that works with tools. Write the notes from which "
    "the assistant will go on without the transcript: what the user wants and has decided, the constraints, what was done and found "
    "out, the names, paths, ids and figures that matter, and what is left to do next. Write the notes only."
)
_HEADING: Final = "Notes on the conversation so far, which are all that is left of its earlier part:\n\n"
_UNREAD: Final = frozenset({"id", "type", "status", "encrypted_content", "image_url", "file_data", "logprobs", "annotations"})


def opener(runtime: Runtime, tenant_id: str) -> Callable[[Item], str | None]:
    """What a model reads in place of a ``compaction`` item; None for one that was not made here."""

    def text_of(item: Item) -> str | None:
        text = runtime.sealer.open(tenant_id, item["encrypted_content"])
        return None if text is None else _HEADING + text

    return text_of


def check_readable(
    runtime: Runtime, tenant_id: str, items: Sequence[Item], native_tools: frozenset[str], *, param: str | None = None
) -> None:
    """Raises 400 for a ``compaction`` item that neither this deployment nor the upstream can read: it would be lost silently. ``param``
    is the field that leads to the items; without it they are the ``input``."""
    if "compaction" in native_tools:
        return
    text_of = opener(runtime, tenant_id)
    for index, item in enumerate(items):
        if item["type"] == "compaction" and text_of(item) is None:
            raise invalid_encrypted_content(param or f"input[{index}].encrypted_content")


def visible(items: Sequence[Item]) -> list[Item]:
    """What a model sees of a conversation: of what came before its last compaction, only the user's latest messages and what the
    developer said."""
    last = max((index for index, item in enumerate(items) if item["type"] == "compaction"), default=None)
    if last is None:
        return list(items)
    kept = {id(item) for item in _latest_of_user(items[:last])}
    return [item for item in items[:last] if id(item) in kept or stays(item)] + list(items[last:])


def is_triggered(stored: StoredResponse) -> bool:
    """Whether the request asks for a compaction and nothing else."""
    return bool(stored.input_items) and stored.input_items[-1]["type"] == "compaction_trigger"


async def in_response(runtime: Runtime, stored: StoredResponse, items: Sequence[Item]) -> tuple[Item, Usage] | None:
    """The ``compaction`` item that belongs into a running response before its model is asked, if one does.

    Raises :class:`UpstreamError` only when it was triggered: where it is a precaution, the model is asked anyway.
    """
    parameters = stored.parameters
    if is_triggered(stored):
        if items[-1]["type"] == "compaction":
            return None  # An earlier run of this step has made it.
    elif not _is_due(parameters, runtime.catalog.resolve(parameters.model).context_window_tokens, items):
        return None
    try:
        summary, usage = await _summary(runtime, stored.tenant_id, parameters.model, visible(items), parameters.instructions)
    except UpstreamError:
        if is_triggered(stored):
            raise
        return None
    return _item(runtime, stored.tenant_id, stored.response_id, summary), usage


def _is_due(parameters: Parameters, window_tokens: int, items: Sequence[Item]) -> bool:
    """Over the threshold, and with enough after the last compaction to be worth another."""
    if not parameters.context_management:
        return False
    fallback = round(window_tokens * limits.COMPACTION_WINDOW_SHARE)
    threshold = min(entry.get("compact_threshold") or fallback for entry in parameters.context_management)
    last = max((index for index, item in enumerate(items) if item["type"] == "compaction"), default=-1)
    fresh = [item for item in items[last + 1 :] if not stays(item) and item.get("role") != "user"]
    if not fresh or (last >= 0 and estimate_items(fresh) * 4 < threshold):
        return False
    frame, seen = estimate_frame(parameters.instructions, parameters.tools), visible(items)
    return frame + at_most(seen) > threshold and frame + estimate_items(seen) > threshold


async def compact(
    runtime: Runtime, tenant_id: str, model: str | None, items: Sequence[Item], instructions: str | None
) -> tuple[str, list[Item], Usage]:
    """The new response's id, its output items, and what the summary cost. Raises :class:`UpstreamError`."""
    summary, usage = await _summary(runtime, tenant_id, model, visible(items), instructions)
    response_id = ids.new_response_id()
    kept = [
        item | {"id": ids.new_item_id("msg", response_id), "status": "completed"} for item in _latest_of_user(items)
    ]
    return response_id, [*kept, _item(runtime, tenant_id, response_id, summary)], usage


async def _summary(
    runtime: Runtime, tenant_id: str, model: str | None, items: Sequence[Item], instructions: str | None
) -> tuple[str, Usage]:
    entry = runtime.catalog.resolve(model)
    provider = runtime.catalog.provider(entry, runtime.http)
    told = transcript(items, opener(runtime, tenant_id), tokens_max=entry.context_window_tokens // 2)
    prompt = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": told}]}
    wanted = INSTRUCTIONS if instructions is None else f"{INSTRUCTIONS}\n\nThe assistant's own instructions were:\n\n{instructions}"
    summary, usage = "", Usage()
    async with aclosing(provider.stream(ModelRequest(entry.upstream_model, (prompt,), instructions=wanted))) as deltas:
        async for delta in deltas:
            match delta:
                case TextDelta(text):
                    summary += text
                case UsageReported():
                    usage += Usage(
                        delta.input_tokens, delta.output_tokens, delta.cached_tokens, delta.cache_write_tokens, delta.reasoning_tokens
                    )
                case _:
                    pass
    if not summary.strip():
        raise UpstreamError("The model wrote no summary of the conversation.", is_retryable=False)
    return summary, usage


def _item(runtime: Runtime, tenant_id: str, response_id: str, summary: str) -> Item:
    sealed = runtime.sealer.seal(tenant_id, summary)
    return {"id": ids.new_item_id("cmp", response_id), "type": "compaction", "encrypted_content": sealed}


def _latest_of_user(items: Sequence[Item]) -> list[Item]:
    """The user's latest messages, in their own words."""
    kept: list[Item] = []
    room = limits.COMPACTION_KEPT_TOKENS
    for item in reversed([item for item in items if item.get("role") == "user"]):
        room -= estimate_item(item)
        if room < 0:
            break
        kept.append(item)
    return kept[::-1]


def transcript(items: Sequence[Item], compaction_text: Callable[[Item], str | None], *, tokens_max: int) -> str:
    """The conversation as text. What is too long for the model loses its middle: the task stands at the beginning, the latest state
    at the end."""
    told = "\n\n".join(line for line in (_line(item, compaction_text) for item in items) if line)
    chars_max = tokens_max * 4
    if len(told) <= chars_max:
        return told
    left_out = len(told) - chars_max
    return f"{told[: chars_max // 2]}\n\n[{left_out} characters left out]\n\n{told[-(chars_max // 2) :]}"


def _line(item: Item, compaction_text: Callable[[Item], str | None]) -> str:
    if item["type"] == "message":
        texts = [part.get("text") or part.get("refusal") or f"[{part['type']}]" for part in item["content"]]
        return f"{item['role']}: " + "\n".join(texts)
    if item["type"] == "compaction":
        return compaction_text(item) or ""
    if item["type"] in ("additional_tools", "tool_search_output", "compaction_trigger"):
        return ""
    return f"{item['type']}: " + orjson.dumps(_readable(item)).decode()


def _readable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _readable(inner) for key, inner in value.items() if key not in _UNREAD and inner is not None}
    return [_readable(inner) for inner in value] if isinstance(value, list) else value
