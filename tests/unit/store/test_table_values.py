"""What a record holds comes back from the table as it was, and nothing is sent that DynamoDB would not take."""

from enum import StrEnum
from typing import Any

import pytest
from moorage.store.dynamodb import decode, encode

from tests.unit.store.memory import as_stored, copied


@pytest.mark.parametrize("names", [[""], ["\0"], ["", "\0", "\0\0", "\0x", "x\0"]])
def test_names_in_a_map_that_are_empty_come_back(names: list[str]) -> None:
    record = {"metadata": {name: f"value {n}" for n, name in enumerate(names)}, "list": [{name: {name: 1} for name in names}]}
    assert decode(encode(record)) == record


def test_no_name_in_a_map_is_empty_in_the_table() -> None:
    assert encode({"metadata": {"": {"": "x"}, "place": "harbour"}}) == {
        "metadata": {"M": {"\0": {"M": {"\0": {"S": "x"}}}, "place": {"S": "harbour"}}}
    }


@pytest.mark.parametrize("value", ["", "x", 0, -7, 1.5, True, None, b"", b"\0", [], {}, [1, [2, {"a": None}]]])
def test_values_come_back_as_they_were(value: Any) -> None:
    assert decode(encode({"value": value})) == {"value": value}


class Kind(StrEnum):
    PLAIN = "plain"


@pytest.mark.parametrize(
    "value", ["", 7, 1.5, True, None, b"\0", [], (1, [2]), {"": {"\0": (None,)}}, Kind.PLAIN, [Kind.PLAIN], {"a": {"b": Kind.PLAIN}}]
)
def test_the_table_in_memory_makes_of_values_what_the_real_one_does(value: Any) -> None:
    stored = as_stored({"value": value})
    assert stored == decode(encode({"value": value}))
    assert type(stored["value"]) is type(decode(encode({"value": value}))["value"])
    assert copied(stored) == stored
    with pytest.raises(TypeError):
        as_stored({"value": [object()]})
