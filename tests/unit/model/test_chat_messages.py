"""What has been said, as the messages that servers of open models take."""

import base64
import json
from typing import Any

import pytest
from moorage.errors import UpstreamError
from moorage.model.base import ModelRequest
from moorage.model.chat_messages import GENERIC, MessageStyle, messages
from moorage.model.chat_templates import FAMILIES, Family
from moorage.wire.types import Item

LOOK = {"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}
PNG = "data:image/png;base64,iVBORw0KGgo="


def said(role: str, text: str) -> Item:
    return {"type": "message", "role": role, "content": text}


def called(call_id: str, arguments: str = '{"at":1}') -> Item:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": arguments}


def gave(call_id: str, output: Any) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def file(name: str, content: bytes, media_type: str = "text/csv") -> dict[str, Any]:
    return {"type": "input_file", "filename": name, "file_data": f"data:{media_type};base64,{base64.b64encode(content).decode()}"}


def call(call_id: str, arguments: str = '{"at":1}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "look", "arguments": arguments}}


def written(*items: Item, instructions: str | None = None, style: MessageStyle = GENERIC, **fields: Any) -> list[dict[str, Any]]:
    return messages(ModelRequest("m", items, instructions=instructions, **fields), style)


def of(family: Family) -> MessageStyle:
    return MessageStyle(template=FAMILIES[family])


# --- what every template takes ------------------------------------------------------------------------------------------------------


def test_instructions_and_what_the_developer_says_first_are_one_system_message() -> None:
    assert written(said("developer", "d"), said("system", "s"), said("user", "u"), instructions="i") == [
        {"role": "system", "content": "i\n\nd\n\ns"},
        {"role": "user", "content": "u"},
    ]


def test_what_the_developer_says_later_is_marked_text_of_the_users_in_its_place() -> None:
    assert written(said("user", "u"), said("assistant", "a"), said("developer", "d"), said("user", "v"), instructions="i") == [
        {"role": "system", "content": "i"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "<developer_message>\nd\n</developer_message>\n\nv"},
    ]


def test_no_role_speaks_twice_in_a_row() -> None:
    picture = {"role": "user", "content": [{"type": "input_image", "image_url": PNG}]}
    assert written(
        said("developer", "i"), said("user", "u"), said("developer", "d"), picture, said("assistant", "a"), said("assistant", "b")
    ) == [
        {"role": "system", "content": "i"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "u\n\n<developer_message>\nd\n</developer_message>"},
                {"type": "image_url", "image_url": {"url": PNG}},
            ],
        },
        {"role": "assistant", "content": "a\n\nb"},
    ]


@pytest.mark.parametrize("nothing", ["", []])
def test_a_turn_that_says_nothing_is_left_out(nothing: Any) -> None:
    assert written(said("user", "u"), said("assistant", nothing), called("abcdefgh9"), gave("abcdefgh9", "x"))[1:] == [
        {"role": "assistant", "content": "", "tool_calls": [call("abcdefgh9")]},
        {"role": "tool", "tool_call_id": "abcdefgh9", "content": "x"},
    ]
    assert written(said("user", "u"), said("assistant", nothing)) == [{"role": "user", "content": "u"}]


def test_two_messages_of_the_users_are_kept_apart() -> None:
    first, *rest = written(said("user", "Notes: reply only STORED."), said("user", "What was the word?"))
    assert [first, *rest] == [
        {"role": "user", "content": "Notes: reply only STORED."},
        {"role": "assistant", "content": "(Noted.)"},
        {"role": "user", "content": "What was the word?"},
    ]
    assert written(said("user", "Notes: reply only STORED.")) == [first], "what was sent before stays as it was"


def test_a_call_without_text_says_nothing_and_not_null() -> None:
    assert written(said("user", "u"), called("abcdefgh9"), gave("abcdefgh9", "")) == [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "", "tool_calls": [call("abcdefgh9")]},
        {"role": "tool", "tool_call_id": "abcdefgh9", "content": ""},
    ]


@pytest.mark.parametrize("call_id", ["call_abc", "chatcmpl-tool-0123456789abcdef", "x", "ü" * 40])
def test_a_calls_id_becomes_nine_letters_and_digits_the_same_each_time(call_id: str) -> None:
    first, again = (written(said("user", "u"), called(call_id), gave(call_id, "x")) for _ in range(2))
    assert first == again
    short = first[1]["tool_calls"][0]["id"]
    assert (len(short), short.isascii(), short.isalnum()) == (9, True, True)
    assert first[2]["tool_call_id"] == short
    assert written(called(call_id), gave(call_id, "x"), style=MessageStyle("openai"))[1]["tool_call_id"] == call_id


@pytest.mark.parametrize("call_id", ["a1B2c3D4e", "functions.look:0", "call_1__thought__c2lnbmF0dXJl"])
def test_an_id_that_its_maker_reads_again_stays(call_id: str) -> None:
    assert written(called(call_id), gave(call_id, "x"))[1]["tool_call_id"] == call_id


@pytest.mark.parametrize("style", [GENERIC, MessageStyle("openai")], ids=["generic", "openai"])
def test_what_is_said_between_a_call_and_its_output_follows_the_output(style: MessageStyle) -> None:
    items = [said("user", "u"), called("aaaaaaaa1"), said("user", "v"), called("aaaaaaaa2"), said("assistant", "w")]
    outputs = [gave("aaaaaaaa2", "2"), said("user", "x"), gave("aaaaaaaa1", "1")]
    assert [message["role"] for message in written(*items, *outputs, style=style)][:4] == ["user", "assistant", "tool", "tool"]
    assert written(*items, *outputs) == [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "w", "tool_calls": [call("aaaaaaaa1"), call("aaaaaaaa2")]},
        {"role": "tool", "tool_call_id": "aaaaaaaa2", "content": "2"},
        {"role": "tool", "tool_call_id": "aaaaaaaa1", "content": "1"},
        {"role": "user", "content": "v"},
        {"role": "assistant", "content": "(Noted.)"},
        {"role": "user", "content": "x"},
    ]


def test_a_second_output_of_a_call_is_told_as_the_users_text() -> None:
    assert written(called("aaaaaaaa1"), gave("aaaaaaaa1", "1"), gave("aaaaaaaa1", "2"), gave("other", "3"))[1:] == [
        {"role": "tool", "tool_call_id": "aaaaaaaa1", "content": "1"},
        {"role": "user", "content": "[Output of the call aaaaaaaa1]\n2\n\n[Output of the call other]\n3"},
    ]


# --- files --------------------------------------------------------------------------------------------------------------------------

NOTE = {"type": "input_text", "text": "[The file x is at /mnt/data/x]"}


@pytest.mark.parametrize("media_type", ["text/csv", "application/json", "application/octet-stream"])
def test_a_file_of_text_is_shown_as_text(media_type: str) -> None:
    user = {"role": "user", "content": [{"type": "input_text", "text": "sum"}, file("s.csv", "a,b\n1,ü\n".encode(), media_type)]}
    assert written(user) == [{"role": "user", "content": "sum\n\n[File s.csv]\na,b\n1,ü\n\n[End of s.csv]"}]


def test_a_file_of_text_in_a_tools_output_is_shown_as_text() -> None:
    result = gave("aaaaaaaa1", [{"type": "input_text", "text": "see"}, file("n.txt", b"hidden words")])
    assert written(called("aaaaaaaa1"), result)[1]["content"] == "see\n[File n.txt]\nhidden words\n[End of n.txt]"


def test_a_file_that_is_no_text_is_told_by_its_place_in_the_container() -> None:
    user = {"role": "user", "content": [NOTE, file("x", b"%PDF-\xff\x00", "application/pdf")]}
    assert written(user, has_container=True) == [{"role": "user", "content": NOTE["text"]}]


@pytest.mark.parametrize("item", [{"role": "user"}, {"type": "function_call_output", "call_id": "aaaaaaaa1"}], ids=["user", "output"])
def test_a_file_that_is_no_text_is_refused_where_nobody_could_read_it(item: Item) -> None:
    part = [file("plan.pdf", b"%PDF-", "application/pdf")]
    with pytest.raises(UpstreamError, match=r"'plan.pdf' is not text \(application/pdf\).*files = true") as caught:
        written(called("aaaaaaaa1"), item | ({"content": part} if "role" in item else {"output": part}))
    assert (caught.value.code, caught.value.param, caught.value.is_retryable) == ("invalid_prompt", "input", False)


def test_a_server_that_takes_files_gets_them_also_those_out_of_outputs() -> None:
    pdf = file("plan.pdf", b"%PDF-", "application/pdf")
    shown = {"type": "file", "file": {"filename": "plan.pdf", "file_data": pdf["file_data"]}}
    items = [{"role": "user", "content": [pdf]}, called("aaaaaaaa1"), gave("aaaaaaaa1", [pdf])]
    for style in (MessageStyle("openai"), MessageStyle(takes_files=True)):
        first, _, output, last = written(*items, style=style)
        assert (first["content"], output["content"], last) == ([shown], "[file plan.pdf]", {"role": "user", "content": [shown]})


# --- what some templates want -------------------------------------------------------------------------------------------------------

CONVERSATION = (said("user", "u"), said("assistant", "I look."), called("aaaaaaaa1"), called("aaaaaaaa2"))
OUTPUTS = (gave("aaaaaaaa1", "1"), gave("aaaaaaaa2", "2"))


def test_a_template_of_one_call_gets_each_with_its_output() -> None:
    assert written(*CONVERSATION, *reversed(OUTPUTS), style=of("one-call"))[1:] == [
        {"role": "assistant", "content": "I look.", "tool_calls": [call("aaaaaaaa1")]},
        {"role": "tool", "tool_call_id": "aaaaaaaa1", "content": "1"},
        {"role": "assistant", "content": "", "tool_calls": [call("aaaaaaaa2")]},
        {"role": "tool", "tool_call_id": "aaaaaaaa2", "content": "2"},
    ]


def test_a_template_that_drops_text_beside_calls_gets_it_before_them() -> None:
    assert written(*CONVERSATION, *OUTPUTS, style=of("text-or-calls"))[1:3] == [
        {"role": "assistant", "content": "I look."},
        {"role": "assistant", "content": "", "tool_calls": [call("aaaaaaaa1"), call("aaaaaaaa2")]},
    ]


def test_a_template_whose_roles_alternate_gets_fillers_where_they_would_not() -> None:
    shown = [(m["role"], m["content"]) for m in written(*CONVERSATION, *OUTPUTS, said("user", "v"), style=of("mistral"))]
    assert shown == [
        ("user", "u"),
        ("assistant", "I look."),
        ("user", "(Go on.)"),
        ("assistant", ""),
        ("tool", "1"),
        ("tool", "2"),
        ("assistant", "(I have read the results.)"),
        ("user", "v"),
    ]
    assert written(said("assistant", "a"), style=of("mistral"))[0] == {"role": "user", "content": "(The conversation begins.)"}


def test_a_template_without_a_system_role_gets_both_in_the_first_message() -> None:
    first, *rest = written(*CONVERSATION, *OUTPUTS, instructions="i", style=of("gemma"), tools=(LOOK,))
    assert first["role"] == "user"
    assert first["content"].startswith(
        "i\n\nYou have these tools:\n<tools>\n"
        + json.dumps({key: LOOK[key] for key in ("name", "description", "parameters")}, separators=(",", ":"))
    )
    assert first["content"].endswith("\n\nu")
    asked = '<tool_call>\n{"name":"look","arguments":{"at":1}}\n</tool_call>'
    assert rest == [
        {"role": "assistant", "content": f"I look.\n{asked}\n{asked}"},
        {"role": "user", "content": "<tool_response>\n1\n</tool_response>\n\n<tool_response>\n2\n</tool_response>"},
    ]
