"""What is used of ministack beyond its address (``local/aws/expressions.py``) is still there, and still means the same.

A new ministack that fails here has moved something: look at the seam before the test.
"""

from importlib.metadata import version
from typing import Any

import pytest
from moorage.local.aws import expressions


def test_the_version_is_the_one_that_was_looked_at() -> None:
    assert version("ministack") == "1.5.33"


@pytest.mark.parametrize(
    ("expression", "item", "is_held"),
    [
        ("attribute_not_exists(#a)", {}, True),
        ("attribute_not_exists(#a)", {"x": {"S": "1"}}, False),
        ("#a = :v", {"x": {"S": "1"}}, True),
        ("#a = :v", {"x": {"S": "2"}}, False),
        ("#a = :v AND attribute_exists(#b)", {"x": {"S": "1"}}, False),
        ("#a < :v OR #a > :v", {"x": {"S": "2"}}, True),
    ],
)
def test_conditions(expression: str, item: dict[str, Any], is_held: bool) -> None:
    names, values = {"#a": "x", "#b": "y"}, {":v": {"S": "1"}}
    request = {
        "ExpressionAttributeNames": {k: v for k, v in names.items() if k in expression},
        "ExpressionAttributeValues": {k: v for k, v in values.items() if k in expression},
    }
    assert expressions.holds(expression, item, request) is is_held


def test_updates_leave_their_item_alone_and_do_what_they_say() -> None:
    item = {"n": {"N": "1"}, "gone": {"S": "x"}}
    request = {
        "UpdateExpression": "SET #s = :s, #o = if_not_exists(#o, :s) ADD #n :one REMOVE #g",
        "ExpressionAttributeNames": {"#s": "s", "#o": "o", "#n": "n", "#g": "gone"},
        "ExpressionAttributeValues": {":s": {"S": "new"}, ":one": {"N": "1"}},
    }
    assert expressions.apply_update(item, request) == {"n": {"N": "2"}, "s": {"S": "new"}, "o": {"S": "new"}}
    assert item == {"n": {"N": "1"}, "gone": {"S": "x"}}


def test_items_have_a_size() -> None:
    key = {"PK": {"S": "p"}, "SK": {"S": "s"}}
    assert expressions.item_error(key | {"b": {"S": "x" * 1000}}, "PK", "SK") is None
    assert "size" in str(expressions.item_error(key | {"b": {"S": "x" * 410_000}}, "PK", "SK"))
