"""Events that no message of the gateway holds: what is left of them, and what they say of it."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from moorage.api.message_limit import fitted

LONG = "x" * 5_000


def short(event: dict[str, Any], bytes_max: int = 4_000) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(fitted(json.dumps(event), bytes_max=bytes_max))
    return said


def test_what_fits_is_sent_as_it_is() -> None:
    text = json.dumps({"type": "response.output_text.delta", "delta": "é" * 100})
    assert fitted(text, bytes_max=len(text.encode())) == text


def test_the_longest_text_is_left_out_and_named() -> None:
    item = {"id": "msg_1", "content": [{"type": "output_text", "text": LONG}, {"type": "output_text", "text": "short"}]}
    event = {"type": "response.output_item.done", "item": item, "sequence_number": 7}
    content = [{"type": "output_text", "text": ""}, {"type": "output_text", "text": "short"}]
    assert short(event) == {
        **event,
        "item": {"id": "msg_1", "content": content},
        "shortened": {"bytes": len(json.dumps(event)), "members": ["item.content.0.text"]},
    }


def test_no_more_is_left_out_than_has_to_be() -> None:
    event = {"type": "t", "a": "a" * 3_000, "b": "b" * 500, "c": "c" * 2_900}
    left = short(event, 5_500)
    assert (left["a"], left["b"], left["c"], left["shortened"]["members"]) == ("", "b" * 500, "c" * 2_900, ["a"])


def test_many_short_things_are_left_out_together() -> None:
    event = {"type": "response.completed", "response": {"id": "resp_1", "output": [{"id": f"item_{n}"} for n in range(500)]}}
    left = short(event)
    assert left["response"] == {"id": "resp_1", "output": []}
    assert left["shortened"]["members"] == ["response.output"]


def test_an_object_of_many_short_things_is_left_out_at_last() -> None:
    schema = {f"field_{number}": {"type": "string"} for number in range(200)}
    event = {"type": "response.created", "response": {"id": "resp_1", "text": {"format": {"name": "n", "schema": schema}}}}
    left = short(event)
    assert (left["response"], left["shortened"]["members"]) == ({"id": "resp_1", "text": {}}, ["response.text"])


def test_many_long_texts_are_left_out_in_time_that_grows_with_their_number() -> None:
    texts = [{"text": "x" * 300} for _ in range(20_000)]
    left = short({"type": "response.completed", "response": {"id": "resp_1", "output": texts}}, 2_000_000)
    assert len(left["shortened"]["members"]) > 15_000


TEXTS = st.text(max_size=900)
NAMES = st.sampled_from("abcdef")
VALUES = st.recursive(TEXTS | st.integers(), lambda inner: st.lists(inner, max_size=30) | st.dictionaries(NAMES, inner))


@given(st.dictionaries(st.sampled_from(["item", "response", "delta"]), VALUES))
def test_every_event_fits(value: dict[str, Any]) -> None:
    event = {"type": "response.completed", "sequence_number": 3, **value}
    sent = fitted(json.dumps(event), bytes_max=6_000)
    assert len(sent.encode()) <= 6_000 or sent == json.dumps(event)
    said = json.loads(sent)
    assert (said["type"], said["sequence_number"]) == ("response.completed", 3)
    for member in said.get("shortened", {}).get("members", []):
        place = said
        for key in member.split("."):
            place = place[int(key) if isinstance(place, list) else key]
        assert place in ("", [], {})
