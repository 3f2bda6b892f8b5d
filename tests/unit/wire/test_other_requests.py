"""The requests beside creating: frames of the WebSocket, counting, conversations."""

from typing import Any

import orjson
import pytest
from moorage.errors import ApiError
from moorage.wire.requests import (
    ConversationCreateRequest,
    CountRequest,
    parse_conversation_create,
    parse_conversation_items,
    parse_conversation_update,
    parse_create,
    parse_create_event,
    parse_input_tokens,
    parse_stream_id,
)

from tests.unit.wire.test_requests import parsed, said


def test_a_frame_of_the_websocket_is_a_streaming_request_without_its_own_keys() -> None:
    frame: dict[str, Any] = {
        "type": "response.create",
        "stream_id": "lane.1",
        "generate": False,
        "stream": True,
        "background": False,
        "model": "m",
        "input": [said("hi")],
    }
    event = parse_create_event(orjson.dumps(frame))
    assert (parse_stream_id(frame), parse_stream_id({}), event.generate) == ("lane.1", None, False)
    assert event.request == parsed(input=[said("hi")], stream=True)


def test_only_a_warm_up_needs_no_input() -> None:
    frame = {"type": "response.create", "model": "m", "instructions": "Be brief."}
    assert parse_create_event({**frame, "generate": False}).request.input_items == ()
    with pytest.raises(ApiError, match="Missing required parameter: 'input'"):
        parse_create_event(frame)


@pytest.mark.parametrize("stream_id", ["", "a b", "é", "x" * 257, 5])
def test_a_lane_has_a_plain_name(stream_id: Any) -> None:
    with pytest.raises(ApiError) as refused:
        parse_stream_id({"stream_id": stream_id})
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, "stream_id", "invalid_stream_id")


@pytest.mark.parametrize(
    ("frame", "param", "code"),
    [
        ({"type": "response.steer"}, "type", "invalid_value"),
        ({}, "type", "missing_required_parameter"),
        ({"type": "response.create", "background": True, "model": "m", "input": "x"}, "background", "unsupported_value"),
        ({"type": "response.create", "stream": "yes", "model": "m", "input": "x"}, "stream", "invalid_type"),
        ({"type": "response.create", "generate": 1, "model": "m", "input": "x"}, "generate", "invalid_type"),
        ({"type": "response.create", "input": "x"}, "model", "missing_required_parameter"),
    ],
)
def test_a_bad_frame_is_refused(frame: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_create_event(frame)
    assert (refused.value.param, refused.value.code) == (param, code)


def test_counting_takes_the_fields_that_make_the_prompt() -> None:
    body = {"model": "m", "input": [said("hi")], "instructions": "i", "tools": [{"type": "local_shell"}], "truncation": "auto"}
    assert parse_input_tokens(orjson.dumps(body)) == CountRequest(
        model="m", input_items=(said("hi"),), instructions="i", tools=({"type": "local_shell"},), truncation="auto"
    )
    with pytest.raises(ApiError, match="Unknown parameter: 'stream'"):
        parse_input_tokens(orjson.dumps({**body, "stream": True}))


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "unsupported_value"),
        ({"previous_response_id": "resp_1", "conversation": "conv_1"}, "conversation", "mutually_exclusive_parameters"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice", "invalid_value"),
    ],
)
def test_counting_refuses_what_creating_refuses(fields: dict[str, Any], param: str, code: str) -> None:
    for parse in (parse_input_tokens, parse_create):
        with pytest.raises(ApiError) as refused:
            parse({"model": "m", "input": "x", **fields})
        assert (refused.value.param, refused.value.code) == (param, code)


def test_a_conversation_starts_empty_or_with_items_and_metadata() -> None:
    assert parse_conversation_create(b"") == ConversationCreateRequest()
    made = parse_conversation_create(orjson.dumps({"items": [said("hi")], "metadata": {"a": "b"}}))
    assert made == ConversationCreateRequest(items=(said("hi"),), metadata={"a": "b"})
    assert parse_conversation_update(b'{"metadata": {"a": "b"}}') == {"a": "b"}
    assert parse_conversation_update(b'{"metadata": null}') == {}
    assert parse_conversation_items(orjson.dumps({"items": [said("hi")]})) == (said("hi"),)


@pytest.mark.parametrize(
    ("items", "param", "code"),
    [
        ([], "items", "array_below_min_length"),
        ([{"role": "user", "content": "x"}] * 21, "items", "array_above_max_length"),
        ([{"type": "item_reference", "id": "msg_1"}], "items[0].type", "unsupported_value"),
    ],
)
def test_a_conversation_takes_1_to_20_items_at_a_time(items: list[Any], param: str, code: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_conversation_items(orjson.dumps({"items": items}))
    assert (refused.value.param, refused.value.code) == (param, code)
