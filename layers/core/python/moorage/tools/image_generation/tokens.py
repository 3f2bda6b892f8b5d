"""Tokens of images, as OpenAI's Images API tells them and as ``tool_usage`` of a response adds them up.

https://developers.openai.com/api/reference/resources/images: ``usage`` of an answer, and of the last event of a stream.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

_COUNTS: Final = ("input_tokens", "output_tokens", "total_tokens")
_INPUT: Final = "input_tokens_details"
_OUTPUT: Final = "output_tokens_details"
_PARTS: Final = ("image_tokens", "text_tokens")


def tokens_of(usage: Any) -> dict[str, Any] | None:
    """The counts of an answer's ``usage``; None if they are missing or not complete, as with most servers of one's own."""
    counts, given = _counted(usage, _COUNTS), _counted(_part(usage, _INPUT), _PARTS)
    if counts is None or given is None:
        return None
    made = _counted(_part(usage, _OUTPUT), _PARTS)
    return {**counts, _INPUT: given, **({} if made is None else {_OUTPUT: made})}


def total(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The sum. How the output is made up is known only if it is known of each."""
    summed: dict[str, Any] = {name: sum(one[name] for one in each) for name in _COUNTS}
    for details in (_INPUT, _OUTPUT):
        if all(details in one for one in each):
            summed[details] = {name: sum(one[details][name] for one in each) for name in _PARTS}
    return summed


def _part(usage: Any, name: str) -> Any:
    return usage.get(name) if isinstance(usage, dict) else None


def _counted(value: Any, names: Sequence[str]) -> dict[str, int] | None:
    """These fields of an object, if each is a count."""
    if not isinstance(value, dict) or not all(type(value.get(name)) is int and value[name] >= 0 for name in names):
        return None
    return {name: value[name] for name in names}
