"""Anthropic's toolset for computers: a turn's actions become one call, and go back as they came."""

import json
from typing import Any

import pytest
from moorage.model.anthropic_computer import TOOLSET, ToolsetDecoder, actions_for
from moorage.model.anthropic_messages import AnthropicMessages, MessagesDecoder, natives_of, request_body
from moorage.model.base import ItemRelayed, ModelRequest

PNG = "data:image/png;base64,QUJD"
CALL: dict[str, Any] = {
    "type": "computer_call",
    "call_id": "toolu_1",
    "actions": [
        {"type": "click", "button": "left", "x": 10, "y": 20, "keys": ["SHIFT"]},
        {"type": "keypress", "keys": ["CTRL", "s"]},
        {"type": "scroll", "x": 1, "y": 2, "scroll_x": 0, "scroll_y": -300},
        {"type": "drag", "path": [{"x": 1, "y": 2}, {"x": 3, "y": 4}, {"x": 5, "y": 6}]},
        {"type": "screenshot"},
    ],
}
DRAG = {"type": "drag", "path": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]}
OUTPUT = {"type": "computer_call_output", "call_id": "toolu_1", "output": {"type": "computer_screenshot", "image_url": PNG}}


def body(*items: dict[str, Any], tools: tuple[dict[str, Any], ...] = ({"type": "computer"},)) -> dict[str, Any]:
    return request_body(ModelRequest(model="claude-sonnet-5", items=({"role": "user", "content": "go"}, *items), tools=tools))


def test_a_call_goes_back_as_the_tools_of_its_actions() -> None:
    sent = body(CALL, OUTPUT)
    assert sent["tools"] == [TOOLSET]
    _, uses, results = sent["messages"]
    assert [(block["name"], block["input"], block["toolset_name"]) for block in uses["content"]] == [
        ("left_click", {"coordinate": [10, 20], "text": "shift"}, "computer"),
        ("key", {"text": "ctrl+s"}, "computer"),
        ("scroll", {"coordinate": [1, 2], "scroll_direction": "up", "scroll_amount": 3}, "computer"),
        ("left_click_drag", {"start_coordinate": [1, 2], "coordinate": [5, 6]}, "computer"),
        ("screenshot", {}, "computer"),
    ]
    assert [block["tool_use_id"] for block in results["content"]] == [block["id"] for block in uses["content"]]
    *others, last = results["content"]
    assert all(block["content"] == [{"type": "text", "text": "Done."}] for block in others)
    assert last["content"] == [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}]


def test_a_request_without_tools_still_names_the_toolset_that_was_used() -> None:
    sent = body(CALL, OUTPUT, tools=())
    assert (sent["tools"], sent["tool_choice"]) == ([TOOLSET], {"type": "none"})


def stream(*blocks: dict[str, Any], reason: str = "tool_use") -> bytes:
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"usage": {"input_tokens": 5}}}]
    for index, block in enumerate(blocks):
        start, given = ({**block, "input": {}}, block["input"]) if block["type"] == "tool_use" else ({**block, "text": ""}, None)
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        delta = {"type": "text_delta", "text": block["text"]} if given is None else _json_delta(given)
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    events += [{"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 2}}, {"type": "message_stop"}]
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def _json_delta(given: dict[str, Any]) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": json.dumps(given)}


def use(name: str, number: int, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "toolset_name": "computer", "input": given}


def relayed(content: bytes) -> list[dict[str, Any]]:
    decoder = ToolsetDecoder(MessagesDecoder(), (7, 8))
    deltas = [delta for at in range(0, len(content), 11) for delta in decoder.feed(content[at : at + 11])]
    return [delta.item for delta in [*deltas, *decoder.end()] if isinstance(delta, ItemRelayed)]


def test_the_actions_of_a_turn_are_one_call_in_their_order() -> None:
    text = {"type": "text", "text": "I click."}
    (call,) = relayed(stream(text, use("left_click", 1, coordinate=[10, 20]), use("type", 2, text="tea"), use("left_click", 3)))
    assert call == {
        "type": "computer_call",
        "call_id": "toolu_1",
        "status": "completed",
        "actions": [
            {"type": "click", "button": "left", "x": 10, "y": 20},
            {"type": "type", "text": "tea"},
            {"type": "click", "button": "left", "x": 10, "y": 20},
        ],
        "pending_safety_checks": [],
    }


def test_half_a_turn_is_no_call() -> None:
    assert relayed(stream(use("left_click", 1, coordinate=[10, 20]), use("type", 2, text="t"), reason="max_tokens")) == []


@pytest.mark.parametrize(
    ("name", "given", "actions"),
    [
        ("left_click", {}, [{"type": "click", "button": "left", "x": 7, "y": 8}]),
        ("middle_click", {"coordinate": [1.4, 2.6]}, [{"type": "click", "button": "wheel", "x": 1, "y": 3}]),
        ("key", {"text": "Return", "repeat": 2}, [{"type": "keypress", "keys": ["RETURN"]}] * 2),
        ("key", {"text": "+"}, [{"type": "keypress", "keys": ["+"]}]),
        ("wait", {"duration": 5}, [{"type": "wait"}] * 3),
        ("wait", {"duration": 900}, [{"type": "wait"}] * 5),
        (
            "scroll",
            {"coordinate": [1, 2], "scroll_direction": "left", "scroll_amount": 2},
            [{"type": "scroll", "x": 1, "y": 2, "scroll_x": -200, "scroll_y": 0}],
        ),
        (
            "triple_click",
            {"coordinate": [1, 2]},
            [{"type": "double_click", "x": 1, "y": 2}, {"type": "click", "button": "left", "x": 1, "y": 2}],
        ),
        ("left_click_drag", {"start_coordinate": [1, 2], "coordinate": [3, 4]}, [DRAG]),
        ("zoom", {"region": [0, 0, 1, 1]}, [{"type": "zoom"}]),
    ],
)
def test_each_tool_is_one_of_openais_actions(name: str, given: dict[str, Any], actions: list[dict[str, Any]]) -> None:
    assert actions_for(name, given, (7, 8)) == actions


@pytest.mark.parametrize(
    ("model", "is_own", "asked", "has_toolset"),
    [
        ("claude-sonnet-5", True, None, True),
        ("claude-opus-4-8", True, None, True),
        ("claude-sonnet-4-5", True, None, False),
        ("claude-sonnet-5", False, None, False),
        ("claude-sonnet-5", False, "native", True),
        ("claude-sonnet-5", True, "refs", False),
    ],
)
def test_the_toolset_is_for_new_models_of_anthropics_server(model: str, is_own: bool, asked: str | None, has_toolset: bool) -> None:
    natives = natives_of(model, is_anthropics=is_own, asked=asked)
    assert ("computer.hosted" in natives) is has_toolset
    assert AnthropicMessages.__dataclass_fields__["native_tools"].default == {"function"}
