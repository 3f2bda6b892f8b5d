"""``encrypted_content`` of reasoning items, marked with the kind of provider that it belongs to.

OpenAI's is opaque. Providers whose reasoning is not sealed (thinking blocks with signatures, reasoning text that must come back)
pack it here, so that it round-trips through items of the client's like any other; a chain that changes its model drops what the
new one cannot read.
"""

import base64
from collections.abc import Mapping
from typing import Any, Final

import orjson

from moorage.wire.types import Item

_MARK: Final = "moorage.v1."


def pack(kind: str, payload: Mapping[str, Any]) -> str:
    """An ``encrypted_content`` that only the same kind of provider unpacks."""
    return f"{_MARK}{kind}.{base64.urlsafe_b64encode(orjson.dumps(payload)).decode()}"


def unpack(kind: str, item: Item) -> dict[str, Any] | None:
    """What ``pack`` was given for this reasoning item, or None if another kind of provider made it."""
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


def text_of(item: Item) -> str:
    """The raw reasoning text of an open model."""
    return "".join(part.get("text", "") for part in item.get("content") or [])
