"""A rough count of tokens, for upstreams that report none.

Four characters of JSON or English a token is the usual rule of thumb; it is an estimate and is only used where there is nothing
better.
"""

from typing import Any, Final

from moorage.model.base import Item, ModelRequest

_CHARS_PER_TOKEN: Final = 4
_IMAGE_TOKENS: Final = 800
"""A middling picture; the data of its URL says nothing about its cost."""


def estimate_text(text: str) -> int:
    return (len(text) + _CHARS_PER_TOKEN - 1) // _CHARS_PER_TOKEN


def estimate_request(request: ModelRequest) -> int:
    """Tokens of a whole prompt: instructions, tools and items."""
    return estimate_text(request.instructions or "") + _estimate(list(request.tools)) + estimate_items(request.items)


def estimate_items(items: tuple[Item, ...] | list[Item]) -> int:
    return sum(_estimate(item) + 3 for item in items)


def _estimate(value: Any) -> int:
    match value:
        case {"type": "input_image"}:
            return _IMAGE_TOKENS
        case str():
            return estimate_text(value)
        case dict():
            return sum(_estimate(inner) for key, inner in value.items() if key not in ("id", "type", "status"))
        case list() | tuple():
            return sum(_estimate(inner) for inner in value)
    return 1
