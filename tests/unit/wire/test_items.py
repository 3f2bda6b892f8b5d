"""The canonical form of items."""

from typing import Any

import pytest
from moorage.wire.item import ID_PREFIXES
from moorage.wire.requests import parse_create


def canonical(item: dict[str, Any]) -> dict[str, Any]:
    return parse_create({"model": "m", "input": [item]}).input_items[0]


FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "text of the user": (
        {"role": "user", "content": "x"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
    ),
    "text of the assistant": (
        {"role": "assistant", "content": "x", "phase": "commentary"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "x", "annotations": []}],
            "phase": "commentary",
        },
    ),
    "input text said by the assistant": (
        {"role": "assistant", "content": [{"type": "input_text", "text": "x"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x", "annotations": []}]},
    ),
    "an image without detail": (
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,eA==", "file_id": None}]},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_image", "image_url": "data:image/png;base64,eA==", "detail": "auto"}],
        },
    ),
    "a reference without a type": ({"id": "msg_9"}, {"type": "item_reference", "id": "msg_9"}),
    "an output of a local shell call": (
        {"type": "local_shell_call_output", "id": "call_1", "output": "x"},
        {"type": "local_shell_call_output", "id": "call_1", "call_id": "call_1", "output": "x"},
    ),
    "an agent's answer": (
        {"type": "message", "role": "assistant", "content": "x", "agent": {"agent_name": "/root/a"}},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "x", "annotations": []}],
            "agent": {"agent_name": "/root/a"},
        },
    ),
    "an item of a beta client": (
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}", "agent": None},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
    ),
    "a reference of a beta client": ({"id": "msg_9", "agent": None}, {"type": "item_reference", "id": "msg_9"}),
    "nulls and what clients leave behind": (
        {"type": "message", "role": "user", "content": "x", "status": None, "created_by": "me"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
    ),
}


@pytest.mark.parametrize(("given", "expected"), FORMS.values(), ids=FORMS.keys())
def test_an_item_is_brought_into_canonical_form(given: dict[str, Any], expected: dict[str, Any]) -> None:
    made = canonical(given)
    assert made == {**expected, "id": made["id"]}


def test_the_canonical_form_is_its_own_canonical_form() -> None:
    for given, _ in FORMS.values():
        made = canonical(given)
        assert canonical(made) == made


def test_an_id_of_the_client_is_kept_and_a_missing_one_tells_the_type() -> None:
    assert canonical({"role": "user", "content": "x", "id": "anything"})["id"] == "anything"
    call = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": ""}
    assert canonical(call)["id"].startswith(ID_PREFIXES["function_call"] + "_")
