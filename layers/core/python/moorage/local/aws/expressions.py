"""DynamoDB's expressions, evaluated by ministack's own functions; ``tests/contract/test_ministack.py`` holds what is used of it."""

from collections.abc import Mapping
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
    refusal = dynamodb._validate_item(item, pk, sk, _SIZE)
    return None if refusal is None else _SIZE if _SIZE in str(refusal[2]) else str(refusal[2])
