"""What is used of ministack beyond its address (``local/aws/seams.py``, ``expressions.py``) is still there, and still means the same.

A new ministack that fails here has moved something: look at the seam before the test.
"""

import json
from importlib.metadata import version
from typing import Any

import pytest
from ministack.services import kms
from moorage.local.aws import expressions, seams


def test_the_version_is_the_one_that_was_looked_at() -> None:
    assert version("ministack") == "1.5.33"


def test_keys_survive_as_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    made = kms._create_key({"Description": "kept"})
    key_id = _json(made)["KeyMetadata"]["KeyId"]
    sealed = _json(kms._encrypt({"KeyId": key_id, "Plaintext": "c2VjcmV0"}))["CiphertextBlob"]
    document = seams.keys_document()
    kms._keys._data.clear()
    seams.restore_keys(document)
    assert _json(kms._decrypt({"CiphertextBlob": sealed}))["Plaintext"] == "c2VjcmV0"


@pytest.mark.parametrize("operation", ["CreateKey", "ScheduleKeyDeletion", "DisableKey", "EnableKeyRotation", "CreateAlias"])
def test_what_changes_keys_is_kept(operation: str) -> None:
    assert seams.changes_keys(operation)


@pytest.mark.parametrize("operation", ["GenerateDataKey", "Decrypt", "Encrypt", "DescribeKey"])
def test_what_only_uses_keys_costs_no_write(operation: str) -> None:
    assert not seams.changes_keys(operation)


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


def _json(answer: Any) -> Any:
    return json.loads(answer[2])
