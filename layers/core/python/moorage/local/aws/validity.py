"""What DynamoDB refuses before it looks at any item: a request that passes here must not fail there.

DynamoDB Local, AWS's own program, says of each of these what it answers (``tests/judges``).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

_PK_BYTES_MAX: Final = 2048
_SK_BYTES_MAX: Final = 1024
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""
_FIELDS: Final = ("ConditionExpression", "UpdateExpression", "KeyConditionExpression", "FilterExpression")
_GIVEN: Final = ("ExpressionAttributeNames", "ExpressionAttributeValues")
_PLACEHOLDER: Final = re.compile(r"[#:]\w+")
_CLAUSE: Final = re.compile(r"(?<![#:\w])(SET|REMOVE|ADD|DELETE)(?!\w)", re.IGNORECASE)
_SEPARATOR: Final = re.compile(r",(?![^()]*\))")
_ADDED: Final = frozenset({"N", "NS", "SS", "BS"})


def refusal(request: Mapping[str, Any]) -> str | None:
    """Why the request is invalid, whatever the table holds; None if it is not."""
    if "Limit" in request and request["Limit"] < 1:
        return "Value at 'limit' failed to satisfy constraint: Member must have value greater than or equal to 1"
    if any(request.get(name) == {} for name in _GIVEN):
        return "ExpressionAttributeNames and ExpressionAttributeValues must not be empty"
    used = {each for field in _FIELDS for each in _PLACEHOLDER.findall(request.get(field) or "")}
    given = {placeholder for name in _GIVEN for placeholder in request.get(name) or {}}
    if used - given:
        return f"An expression uses what is not defined: {', '.join(sorted(used - given))}"
    if given - used:
        return f"Value provided that is unused in expressions: {', '.join(sorted(given - used))}"
    return None


def key_refusal(pk: str, sk: str) -> str | None:
    too_long = len(pk.encode()) > _PK_BYTES_MAX or len(sk.encode()) > _SK_BYTES_MAX
    return "Size of hashkey or rangekey has exceeded the maximum size limit" if too_long else None


def update_refusal(request: Mapping[str, Any], keys: tuple[str, str]) -> str | None:
    """Of an update whose placeholders are all defined. ``keys`` are the names of the key's attributes, which no update may name."""
    expression = request.get("UpdateExpression")
    if expression is None:
        return None
    before, *clauses = _CLAUSE.split(expression)
    words = [word.upper() for word in clauses[::2]]
    if before.strip() or not words or len(set(words)) != len(words):
        return "Invalid UpdateExpression: Syntax error; each of its sections can be there once"
    names, values = (request.get(name) or {} for name in _GIVEN)
    paths = []
    for word, path, operand in _actions(words, clauses[1::2]):
        if not path:
            return f"Invalid UpdateExpression: Syntax error; {word} without an attribute"
        if word == "ADD" and not _ADDED & set(values.get(operand, {})):
            return "Invalid UpdateExpression: Incorrect operand type for operator or function; operator: ADD"
        paths.append(tuple(names.get(part, part) for part in re.split(r"\.|(?=\[)", path)))
    if any(path[0] in keys for path in paths):
        return f"One or more parameter values were invalid: Cannot update attribute of the key ({', '.join(keys)})"
    if any(one == other[: len(one)] for n, one in enumerate(paths) for m, other in enumerate(paths) if n != m):
        return "Invalid UpdateExpression: Two document paths overlap with each other"
    return None


def _actions(words: list[str], bodies: list[str]) -> Iterator[tuple[str, str, str]]:
    """The word of a clause, the path that it changes, and what with."""
    for word, body in zip(words, bodies, strict=True):
        for action in _SEPARATOR.split(body):
            path, _, operand = action.strip().partition("=" if word == "SET" else " ")
            yield word, path.strip(), operand.strip()
