"""DynamoDB's expressions, evaluated by ministack's own functions; ``tests/contract/test_ministack.py`` holds what is used of it."""

from collections.abc import Iterator, Mapping
from typing import Any

from ministack.services import dynamodb

_SIZE = "Item size has exceeded the maximum allowed size"


def holds(expression: str | None, item: dict[str, Any], request: Mapping[str, Any]) -> bool:
    """Whether a condition or a filter holds of the item; raises ``ValueError`` for one that is none."""
    if not expression:
        return True
    values, names = request.get("ExpressionAttributeValues", {}), request.get("ExpressionAttributeNames", {})
    return bool(dynamodb._evaluate_condition(expression, item, values, names))


def apply_update(item: dict[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """The item after the update; raises ``ValueError``."""
    expression = request.get("UpdateExpression")
    if not expression:
        return item
    values, names = request.get("ExpressionAttributeValues", {}), request.get("ExpressionAttributeNames", {})
    changed: dict[str, Any]
    changed, _ = dynamodb._apply_update_expression(item, expression, values, names)
    return changed


def item_error(item: dict[str, Any], pk: str, sk: str) -> str | None:
    """Why DynamoDB would not take the item; None if it would."""
    if _has_empty_name(item):
        return "Empty attribute name"
    refusal = dynamodb._validate_item(item, pk, sk, _SIZE)
    return None if refusal is None else _SIZE if _SIZE in str(refusal[2]) else str(refusal[2])


def _has_empty_name(named: Mapping[str, Any]) -> bool:
    return "" in named or any(_has_empty_name(inner) for value in named.values() for inner in _maps_in(value))


def _maps_in(value: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "M" in value:
        yield value["M"]
    for element in value.get("L", ()):
        yield from _maps_in(element)
