"""Counting the values of a body before it is parsed."""

import random
from typing import Any

import orjson
import pytest
from moorage import limits
from moorage.errors import ApiError
from moorage.wire.validation import parse_object
from moorage.wire.values import holds_more


def building(value: Any) -> int:
    """What a parsed value was built of: brackets that open, and commas."""
    match value:
        case dict():
            return 1 + max(0, len(value) - 1) + sum(map(building, value.values()))
        case list():
            return 1 + max(0, len(value) - 1) + sum(map(building, value))
        case _:
            return 0


def drawn(dice: random.Random, depth: int = 0) -> Any:
    kind = dice.random()
    if depth < 4 and kind < 0.5:
        return [drawn(dice, depth + 1) for _ in range(dice.randrange(6))]
    if depth < 4 and kind < 0.8:
        return {drawn_text(dice): drawn(dice, depth + 1) for _ in range(dice.randrange(6))}
    return drawn_text(dice) if kind < 0.95 else dice.choice([None, True, 1.5, 12])


def drawn_text(dice: random.Random) -> str:
    return "".join(dice.choice(['"', "\\", ",", "{", "[", "]", "\n", "a", "ü"]) for _ in range(dice.randrange(12)))


@pytest.mark.parametrize("seed", range(200))
def test_the_count_is_exact_whatever_stands_in_texts(seed: int) -> None:
    dice = random.Random(seed)
    value = [drawn(dice) for _ in range(20)]
    body, count = orjson.dumps(value), building(value)
    assert not holds_more(body, count)
    assert holds_more(body, count - 1)


@pytest.mark.parametrize("window", [1, 2, 3, 7])
def test_windows_may_end_anywhere(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.wire.values._WINDOW_BYTES", window)
    value = {'a,"': ["\\", '\\",[', {"b": [1, 2]}], "c": "{{{["}
    assert not holds_more(orjson.dumps(value), building(value))
    assert holds_more(orjson.dumps(value), building(value) - 1)


def test_a_body_of_too_many_values_is_refused_before_it_is_parsed() -> None:
    most = limits.REQUEST_VALUES_MAX
    bodies = (b'{"metadata":{' + b'"k":"v",' * most, b'{"input":[' + b"[]," * most, b'{"input":[' + b"{}," * most)
    for body in (*bodies, b"[" * (most + 1)):
        with pytest.raises(ApiError) as refused:
            parse_object(body)  # What follows is missing: a parser would have said so.
        assert (refused.value.status, refused.value.code) == (400, "too_many_values")


def test_a_long_text_is_no_value_more() -> None:
    text = 'one, "two", [three] and {four} ' * 100_000
    assert parse_object(orjson.dumps({"input": text})) == {"input": text}
