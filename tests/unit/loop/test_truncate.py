"""What is left out of an input that is too long, and what never is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moorage.errors import UpstreamError
from moorage.loop.context import OUTPUT_OF
from moorage.loop.truncate import fit
from moorage.model.tokens import at_most, estimate_items, estimate_text
from moorage.wire.types import Item

_LONG = "x" * 400
"""100 tokens."""


def said(text: str, role: str = "user") -> Item:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def called(call_id: str) -> Item:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": _LONG}


def answered(call_id: str) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": _LONG}


def thought() -> Item:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": _LONG}]}


def shortened(items: list[Item], window_tokens: int, **more: Any) -> list[Item]:
    return fit(items, frame_tokens=0, window_tokens=window_tokens, output_tokens=0, **({"is_auto": True} | more))


def test_what_fits_stays_whole() -> None:
    items = [said(_LONG), said("hi")]
    assert shortened(items, 1000) == items
    assert shortened(items, 1000, is_auto=False) == items


def test_the_oldest_go_first_and_the_last_question_stays() -> None:
    items = [said(_LONG), said(_LONG, "assistant"), said(_LONG), said("last")]
    assert shortened(items, 200) == items[2:]
    assert shortened(items, 30) == items[3:]


def test_system_and_developer_messages_stay() -> None:
    items = [said("rules", "system"), said(_LONG), said("more rules", "developer"), said(_LONG), said("last")]
    assert shortened(items, 60) == [items[0], items[2], items[4]]


def test_a_call_is_not_parted_from_its_output_nor_reasoning_from_its_call() -> None:
    items = [said(_LONG), thought(), called("a"), called("b"), answered("a"), answered("b"), said("last")]
    assert shortened(items, 600) == items[1:]
    assert shortened(items, 500) == items[6:]


def test_room_for_the_answer_is_kept() -> None:
    items = [said(_LONG), said(_LONG), said("last")]
    window_tokens = estimate_items(items) + 10
    assert fit(items, frame_tokens=0, window_tokens=window_tokens, output_tokens=10, is_auto=True) == items
    assert fit(items, frame_tokens=0, window_tokens=window_tokens, output_tokens=11, is_auto=True) == items[1:]
    assert fit(items, frame_tokens=0, window_tokens=window_tokens, output_tokens=None, is_auto=True) == items[1:]


@pytest.mark.parametrize("is_auto", [True, False])
def test_what_cannot_fit_is_refused_with_both_numbers(is_auto: bool) -> None:
    with pytest.raises(UpstreamError) as refusal:
        shortened([said(_LONG * 10)], 100, is_auto=is_auto)
    assert (refusal.value.code, refusal.value.status, refusal.value.is_retryable) == ("context_length_exceeded", 400, False)
    assert "100 tokens" in refusal.value.message
    assert str(estimate_items([said(_LONG * 10)])) in refusal.value.message


def test_a_little_too_long_by_estimate_is_left_to_the_provider() -> None:
    items = [said(_LONG)]
    assert shortened(items, 90, is_auto=False) == items


@given(
    st.lists(st.sampled_from(["user", "assistant", "developer", "call", "think"]), max_size=30),
    st.integers(min_value=10, max_value=2_000),
)
def test_whatever_is_cut_the_rest_is_whole_and_fits(kinds: list[str], window_tokens: int) -> None:
    items: list[Item] = []
    for number, kind in enumerate(kinds):
        items += {"call": [called(str(number)), answered(str(number))], "think": [thought(), said("so", "assistant")]}.get(
            kind, [said(f"{number} {_LONG}", kind)]
        )
    items.append(said("last"))
    try:
        left = shortened(items, window_tokens)
    except UpstreamError:
        return
    assert estimate_items(left) <= window_tokens
    kept = {id(item) for item in left}
    assert [item for item in items if id(item) in kept] == left
    calls = {item["call_id"] for item in left if item["type"] in OUTPUT_OF}
    assert calls == {item["call_id"] for item in left if item["type"] in OUTPUT_OF.values()}
    assert left[-1] == items[-1]


@pytest.mark.parametrize(
    ("what", "text", "tokens"),
    [("nothing", "", 0), ("English", "four", 1), ("CJK", "錨地", 3), ("an accent", "café", 1), ("an emoji", "⚓", 2)],
)
def test_the_estimate_of_a_text(what: str, text: str, tokens: int) -> None:
    assert estimate_text(text) == tokens, what


_TEXTS = st.text() | st.sampled_from(["x" * 400, "é" * 99, "漢" * 99, "😀" * 99])
_LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _TEXTS
_PARTS = st.sampled_from(
    [
        {"type": "input_image", "file_id": "f"},
        {"type": "computer_screenshot", "image_url": "data:image/png;base64," + "A" * 9000},
        {"type": "input_file", "file_data": "A" * 5000},
    ]
)
_VALUES = st.recursive(_LEAVES | _PARTS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
_ITEMS = st.lists(st.builds(lambda rest: {"type": "message", **rest}, st.dictionaries(st.sampled_from("abcdef"), _VALUES)))


@given(_ITEMS)
def test_the_quick_bound_is_never_below_the_estimate(items: list[Item]) -> None:
    assert at_most(items) >= estimate_items(items)
