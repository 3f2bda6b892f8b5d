"""A rough count of tokens, if there is nothing better: upstreams that report none, ``/v1/responses/input_tokens``, truncation.

The heuristic: four ASCII characters a token, the usual rule of thumb for English and JSON; each UTF-8 byte beyond the first of a
character counts three eighths more, which makes a CJK character about one token, an accented letter 0.6 and an emoji 1.4. Against
the tokenizers of common models it is right within about a quarter, and it costs no vocabulary and next to no time. A picture
counts 800, a file one token for 16 characters of its data (at most 20,000), and every item 3 for its frame.
"""

from collections.abc import Sequence
from typing import Any, Final

import orjson

from moorage.model.base import ModelRequest
from moorage.wire.types import Item

_CHARS_PER_TOKEN: Final = 4
_MORE_BYTES_PER_TOKEN: Final = 8 / 3
_IMAGES: Final = ("input_image", "computer_screenshot")
_IMAGE_TOKENS: Final = 800
"""A middling picture; the data of its URL says nothing about its cost."""

_UNSEEN: Final = ("id", "type", "status", "result", "kept")
"""Of an item: what no model reads. An image that was made lies in ``result``."""

_FILE_CHARS_PER_TOKEN: Final = 16
_FILE_TOKENS_MAX: Final = 20_000
_ITEM_TOKENS: Final = 3


def estimate_text(text: str) -> int:
    whole = (len(text) + _CHARS_PER_TOKEN - 1) // _CHARS_PER_TOKEN
    if text.isascii():
        return whole
    return whole + round((len(text.encode("utf-8", "surrogatepass")) - len(text)) / _MORE_BYTES_PER_TOKEN)


def weight(text: str) -> float:
    """The same without rounding: the sums of a text's pieces equal the sum of the text."""
    whole = len(text) / _CHARS_PER_TOKEN
    if text.isascii():
        return whole
    return whole + (len(text.encode("utf-8", "surrogatepass")) - len(text)) / _MORE_BYTES_PER_TOKEN


def estimate_request(request: ModelRequest) -> int:
    """Tokens of a whole prompt: instructions, tools and items."""
    return estimate_frame(request.instructions, request.tools) + estimate_items(request.items)


def estimate_frame(instructions: str | None, tools: tuple[dict[str, Any], ...] | list[dict[str, Any]]) -> int:
    """The frame around the items."""
    return estimate_text(instructions or "") + _estimate(list(tools))


def estimate_items(items: tuple[Item, ...] | list[Item]) -> int:
    return sum(map(estimate_item, items))


def at_most(items: Sequence[Item]) -> int:
    """No less than :func:`estimate_items`, at a sixth of its price: most prompts are so far from every limit that this will do.

    Two bytes of JSON are at least a token's worth of anything but a picture, whose URL may be short.
    """
    packed = orjson.dumps(items)
    pictures = sum(packed.count(b'"%b"' % kind.encode()) for kind in _IMAGES)
    return len(packed) // 2 + 1 + _IMAGE_TOKENS * pictures


def estimate_item(item: Item) -> int:
    return _estimate(item) + _ITEM_TOKENS


def _estimate(value: Any) -> int:
    match value:
        case {"type": kind} if kind in _IMAGES:
            return _IMAGE_TOKENS
        case {"type": "input_file", "file_data": str(data)}:
            return min(len(data) // _FILE_CHARS_PER_TOKEN, _FILE_TOKENS_MAX)
        case str() if value.startswith("data:image/"):
            return _IMAGE_TOKENS
        case str():
            return estimate_text(value)
        case dict():
            return sum(_estimate(inner) for key, inner in value.items() if key not in _UNSEEN)
        case list() | tuple():
            return sum(_estimate(inner) for inner in value)
    return 1
