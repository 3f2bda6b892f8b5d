"""The canonical form of items, and which calls belong to which outputs."""

from typing import Any

import pytest
from moorage.errors import ApiError
from moorage.wire.items import ID_PREFIXES, check_calls
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


def called(call_id: str, kind: str = "function_call", **fields: Any) -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, **fields}


def answered(call_id: str, kind: str = "function_call_output") -> dict[str, Any]:
    return {"type": kind, "call_id": call_id, "output": "x"}


HOSTED = {"environment": {"type": "container_reference", "container_id": "cntr_1"}}

ORDERLY: dict[str, tuple[list[Any], list[Any]]] = {
    "a call answered in the same input": ([], [called("a"), answered("a")]),
    "calls of the context answered now": ([called("a"), called("b")], [answered("b"), answered("a")]),
    "calls answered long ago": ([called("a"), answered("a")], [{"type": "message"}]),
    "a hosted call that was cut off": ([called("a", "shell_call", **HOSTED)], [{"type": "message"}]),
    "an output that is repeated": ([called("a"), answered("a")], [answered("a")]),
}


@pytest.mark.parametrize(("context", "items"), ORDERLY.values(), ids=ORDERLY.keys())
def test_calls_and_outputs_belong_together(context: list[Any], items: list[Any]) -> None:
    check_calls(context, items)


DISORDERLY: dict[str, tuple[list[Any], list[Any], str]] = {
    "an output of no call": ([], [answered("a")], "No tool call found for function call output with call_id a."),
    "an output before its call": (
        [],
        [answered("a"), called("a")],
        "No tool call found for function call output with call_id a.",
    ),
    "an output of another kind of call": (
        [called("a")],
        [answered("a", "shell_call_output")],
        "No tool call found for shell call output with call_id a.",
    ),
    "a call of the context that stays open": ([called("a")], [{"type": "message"}], "No tool output found for function call a."),
    "a call that stays open": ([], [called("a", "custom_tool_call")], "No tool output found for custom tool call a."),
}


@pytest.mark.parametrize(("context", "items", "message"), DISORDERLY.values(), ids=DISORDERLY.keys())
def test_what_does_not_belong_together_is_refused(context: list[Any], items: list[Any], message: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_calls(context, items)
    assert refused.value.payload() == {"message": message, "type": "invalid_request_error", "param": "input", "code": None}
