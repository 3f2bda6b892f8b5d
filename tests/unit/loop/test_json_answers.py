"""An answer that is not the JSON that was asked for: its model is told once, and then the client is."""

import json
from typing import Any

import pytest
from moorage.model.base import ItemDone, MessageStarted, ReasoningStarted, ReasoningTextDelta, RefusalDelta, StreamFinished, TextDelta

from tests.unit.loop.lab import Lab, Turn, broken, call, say, shell, texts

SCHEMA = {
    "type": "object",
    "properties": {"price": {"type": "number"}},
    "required": ["price"],
    "additionalProperties": False,
}
STRICT: dict[str, Any] = {"format": {"type": "json_schema", "name": "offer", "schema": SCHEMA, "strict": True}}
WISH: dict[str, Any] = {"format": STRICT["format"] | {"strict": False}}
OBJECT: dict[str, Any] = {"format": {"type": "json_object"}}
PAY: dict[str, Any] = {"type": "function", "name": "pay", "parameters": {"type": "object", "properties": {}}}

GOOD = '{"price": 1}'
BAD = '{"price": "1"}'
FAULT = "The model's answer does not fit the schema at $.price: expected number, found string."


async def ended(lab: Lab, text: dict[str, Any], **fields: Any) -> dict[str, Any]:
    stored = await lab.background(parameters={"text": text}, **fields)
    await lab.run(stored)
    return await lab.object_of(stored)


def asked(lab: Lab) -> int:
    return len(lab.model.requests)


async def test_an_answer_that_fits_is_asked_for_once() -> None:
    lab = Lab(say(GOOD))
    response = await ended(lab, STRICT)
    assert (response["status"], texts(response["output"]), asked(lab)) == ("completed", [GOOD], 1)


async def test_a_model_is_told_where_its_answer_does_not_fit() -> None:
    lab = Lab(say(BAD), say(GOOD))
    response = await ended(lab, STRICT)
    assert (response["status"], texts(response["output"])) == ("completed", [GOOD])
    assert response["usage"]["output_tokens"] == 4, "both turns are counted"
    said, complaint = lab.model.requests[1].items[-2:]
    assert (said["role"], said["content"], complaint["role"]) == ("assistant", BAD, "user")
    assert complaint["content"] == (
        "This answer is not the JSON that was asked for, at $.price: expected number, found string. Answer again, with the whole JSON "
        f"and nothing else. The schema is: {json.dumps(SCHEMA, separators=(',', ':'))}"
    )


async def test_an_answer_that_does_not_fit_twice_fails_with_its_place() -> None:
    lab = Lab(say(GOOD[:-1]), say(BAD))
    response = await ended(lab, STRICT)
    assert (response["status"], response["error"]["message"], asked(lab)) == ("failed", FAULT, 2)
    assert texts(response["output"]) == []
    assert response["usage"]["output_tokens"] == 4


async def test_words_in_place_of_json_are_never_shown() -> None:
    lab = Lab(say("Sure! Here it is."), say(GOOD))
    stored = await lab.background(parameters={"text": STRICT})
    await lab.run(stored)
    deltas = [event["delta"] for event in await lab.events(stored) if event["type"] == "response.output_text.delta"]
    assert deltas == [GOOD]


async def test_a_schema_that_is_not_strict_is_asked_for_once_more_and_then_given_as_it_is() -> None:
    lab = Lab(say("Sure!"), say("No."))
    response = await ended(lab, WISH)
    assert (response["status"], texts(response["output"]), asked(lab)) == ("completed", ["No."], 2)


@pytest.mark.parametrize("said", ["[1]", "hello", '{"a": '])
async def test_json_object_is_an_object(said: str) -> None:
    lab = Lab(say(said), say(said))
    response = await ended(lab, OBJECT)
    place = response["error"]["message"].partition(" at $")[0]
    assert (response["status"], place, asked(lab)) == ("failed", "The model's answer does not fit 'json_object'", 2)


async def test_an_empty_answer_does_not_fit() -> None:
    lab = Lab([ReasoningStarted(), ReasoningTextDelta("hm"), ItemDone(), StreamFinished("stop")], say(GOOD))
    response = await ended(lab, STRICT)
    assert (texts(response["output"]), asked(lab)) == ([GOOD], 2)
    assert "at $: it is empty" in lab.model.requests[1].items[-1]["content"]


@pytest.mark.parametrize(
    ("turn", "status"),
    [
        ([MessageStarted(), RefusalDelta("I will not."), ItemDone(), StreamFinished("stop")], "completed"),
        ([MessageStarted(), TextDelta('{"price": '), StreamFinished("max_output_tokens")], "incomplete"),
        ([MessageStarted(), TextDelta('{"price": '), ItemDone(is_cut=True), StreamFinished("max_output_tokens")], "incomplete"),
        ([MessageStarted(), TextDelta("No."), StreamFinished("content_filter")], "incomplete"),
        (call("pay", "{}"), "completed"),
        ([MessageStarted(), TextDelta("I pay."), ItemDone(), *call("pay", "{}")], "completed"),
        (
            [
                MessageStarted("commentary"),
                TextDelta("I think."),
                ItemDone(),
                MessageStarted(),
                TextDelta(GOOD),
                StreamFinished("stop"),
            ],
            "completed",
        ),
    ],
    ids=["a refusal", "a limit", "a limit in an item", "a filter", "a call", "words and a call", "a commentary"],
)
async def test_what_is_no_answer_is_not_checked(turn: Turn, status: str) -> None:
    lab = Lab(turn)
    response = await ended(lab, STRICT, tools=[PAY])
    assert (response["status"], response["error"], asked(lab)) == (status, None, 1)


async def test_words_before_a_hosted_call_are_not_checked_and_the_answer_after_it_is() -> None:
    lab = Lab([MessageStarted(), TextDelta("I look."), ItemDone(), *shell("ls")], say(BAD), say(GOOD))
    response = await ended(lab, STRICT)
    assert (texts(response["output"]), asked(lab)) == (["I look.", GOOD], 3)


async def test_a_stream_that_breaks_and_an_answer_that_does_not_fit_are_each_asked_again() -> None:
    lab = Lab(broken('{"pri'), say(BAD), broken('{"pri'), say(GOOD))
    response = await ended(lab, STRICT)
    assert (response["status"], texts(response["output"]), asked(lab)) == ("completed", [GOOD], 4)


async def test_the_events_of_an_answer_that_does_not_fit_end_with_an_item_without_text() -> None:
    lab = Lab(say(BAD), say(GOOD))
    stored = await lab.background(parameters={"text": STRICT})
    await lab.run(stored)
    events = await lab.events(stored)
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [(item["status"], texts([item])) for item in done] == [("incomplete", []), ("completed", [GOOD])]
    whole = [event["text"] for event in events if event["type"] == "response.output_text.done"]
    assert whole == [GOOD], "the SDKs parse a text when it is done"
