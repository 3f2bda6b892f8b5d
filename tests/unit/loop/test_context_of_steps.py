import pytest
from moorage.errors import ApiError
from moorage.loop.context import answer_orphans, check_calls, container_of, output_items
from moorage.wire.types import Item

HOSTED = {"type": "container_reference", "container_id": "cntr_1"}


def called(call_id: str = "c", type_: str = "function_call", **fields: object) -> Item:
    return {"type": type_, "call_id": call_id, **fields}


def answered(call_id: str = "c", type_: str = "function_call_output") -> Item:
    return {"type": type_, "call_id": call_id}


@pytest.mark.parametrize(
    ("situation", "items"),
    [
        ("no calls", [{"type": "message", "id": "m"}]),
        ("a call and its output", [called(), answered()]),
        ("calls answered out of order", [called("a"), called("b"), answered("b"), answered("a")]),
        ("one id for calls of two kinds", [called(), called(type_="shell_call"), answered(), answered(type_="shell_call_output")]),
        ("a code interpreter call holds its output", [{"type": "code_interpreter_call", "id": "ci"}]),
    ],
)
def test_calls_and_outputs_that_belong_together_pass(situation: str, items: list[Item]) -> None:
    check_calls(items)


@pytest.mark.parametrize(
    ("situation", "items", "message"),
    [
        ("no output", [called()], "No tool output found for function call c."),
        ("no call", [answered()], "No tool call found for function call output with call_id c."),
        ("output before its call", [answered(), called()], "No tool call found for function call output with call_id c."),
        (
            "output of another kind",
            [called(), answered(type_="shell_call_output")],
            "No tool call found for shell call output with call_id c.",
        ),
        (
            "one id twice",
            [{"type": "message", "id": "m"}, {"type": "message", "id": "m"}],
            "Duplicate item found with id m. Remove duplicate items from your input and try again.",
        ),
    ],
)
def test_calls_and_outputs_that_do_not_are_refused(situation: str, items: list[Item], message: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_calls(items)
    assert (caught.value.status, caught.value.param, caught.value.message) == (400, "input", message)


def test_an_id_of_the_chain_is_taken_though_the_chain_may_hold_it_twice() -> None:
    twice: list[Item] = [{"type": "message", "id": "m"}, {"type": "message", "id": "m"}]
    check_calls([{"type": "message", "id": "n"}], twice)
    with pytest.raises(ApiError, match="Duplicate item found with id m"):
        check_calls([{"type": "message", "id": "m"}], twice)


def test_a_hosted_call_that_was_cut_off_gets_an_output_right_behind_it() -> None:
    call = called(type_="shell_call", environment=HOSTED)
    items = answer_orphans([call, {"type": "message", "id": "m"}])
    assert [(item["type"], item.get("status")) for item in items] == [
        ("shell_call", None),
        ("shell_call_output", "incomplete"),
        ("message", None),
    ]
    check_calls(items)


@pytest.mark.parametrize(
    "items",
    [
        [called(type_="shell_call", environment=HOSTED), answered(type_="shell_call_output")],
        [called(type_="shell_call", environment={"type": "local"})],
        [called()],
    ],
)
def test_other_calls_are_left_as_they_are(items: list[Item]) -> None:
    assert answer_orphans(items) == items


def test_the_container_of_a_chain_is_the_last_that_was_used() -> None:
    shell = called(type_="shell_call", environment=HOSTED)
    python = {"type": "code_interpreter_call", "container_id": "cntr_2"}
    local = called(type_="shell_call", environment={"type": "local"})
    assert [container_of(items) for items in ([], [shell], [shell, python], [python, shell], [shell, local], [local])] == [
        None,
        "cntr_1",
        "cntr_2",
        "cntr_1",
        "cntr_1",
        None,
    ]


def test_what_answers_a_call_of_a_deleted_response_is_left_out() -> None:
    items = [answered("gone"), called("c"), answered("c"), {"type": "message", "id": "m"}]
    assert answer_orphans(items) == items[1:]


def test_only_whole_items_count_for_what_comes_after() -> None:
    items: list[Item] = [
        {"type": "reasoning", "status": "incomplete"},
        {"type": "message", "status": "incomplete"},
        {"type": "message", "status": "completed"},
        {"type": "function_call", "status": "in_progress"},
    ]
    assert output_items(items) == [items[2]]


def test_a_message_that_a_limit_cut_off_counts_as_far_as_it_came() -> None:
    said: Item = {"type": "message", "status": "incomplete", "content": [{"type": "output_text", "text": "so far"}]}
    silent: Item = {"type": "message", "status": "incomplete", "content": []}
    call: Item = {"type": "function_call", "status": "incomplete", "arguments": '{"a'}
    assert [output_items([said, last], is_cut=True) for last in (said, silent, call)] == [[said], [], []]
