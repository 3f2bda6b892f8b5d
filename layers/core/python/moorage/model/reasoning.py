"""``encrypted_content`` of reasoning items, marked with the kind of provider that it belongs to.

OpenAI's is opaque. Providers whose reasoning is not sealed (thinking blocks with signatures, reasoning text that must come back)
pack it here, so that it round-trips through items of the client's like any other; a chain that changes its model drops what the
new one cannot read. What is packed is encrypted before anybody sees it, as the field's name says, and opened again before a model's
next turn.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from moorage.wire.types import Item

_MARK: Final = "moorage.v1."


def pack(kind: str, payload: Mapping[str, Any]) -> str:
    """An ``encrypted_content`` that only the same kind of provider unpacks."""
    return f"{_MARK}{kind}.{base64.urlsafe_b64encode(orjson.dumps(payload)).decode()}"


def unpack(kind: str, item: Item) -> dict[str, Any] | None:
    """The input of ``pack`` for this reasoning item, or None if another kind of provider made it."""
    content = item.get("encrypted_content")
    if not isinstance(content, str) or not content.startswith(f"{_MARK}{kind}."):
        return None
    try:
        payload = orjson.loads(base64.urlsafe_b64decode(content.removeprefix(f"{_MARK}{kind}.")))
    except ValueError:
        return None
    return payload if isinstance(payload, dict) else None


def is_packed(item: Item) -> bool:
    """Whether the item was packed here, for a provider other than OpenAI's."""
    content = item.get("encrypted_content")
    return isinstance(content, str) and content.startswith(_MARK)


_TEXT: Final = "text"
"""The kind of raw reasoning text, which a client may not send back."""


def sealed(item: Item, content: str | None, seal: Callable[[str], str], *, with_text: bool) -> str | None:
    """The ``encrypted_content`` of an item of an upstream's reasoning: its own, the packed one, or its raw text."""
    if content is None and with_text and text_of(item):
        content = pack(_TEXT, {"text": text_of(item)})
    return seal(content) if content is not None and content.startswith(_MARK) else content


def opened(item: Item, open_: Callable[[str], str | None]) -> Item:
    """The item as the upstream made it. Sealed content that nobody here can open is left as it is: no provider takes it for its own."""
    content = item.get("encrypted_content")
    packed = open_(content) if item.get("type") == "reasoning" and isinstance(content, str) else None
    if packed is None:
        return item
    whole = item | {"encrypted_content": packed}
    raw = unpack(_TEXT, whole)
    if raw is None:
        return whole
    rest = {key: value for key, value in item.items() if key != "encrypted_content"}
    content_ = item.get("content") or [{"type": "reasoning_text", "text": str(raw.get("text", ""))}]
    return rest | {"content": content_}


def text_of(item: Item) -> str:
    """The raw reasoning text of an open model."""
    return "".join(part.get("text", "") for part in item.get("content") or [])
