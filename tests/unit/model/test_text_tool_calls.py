"""Tool calls that a model writes as text, told apart from ordinary answers."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moorage.model.openai_responses import NATIVE_TO_OPENAI, OpenAIResponses
from moorage.model.text_tool_calls import TextCall, TextCallParser
from moorage.wire.types import Tool

from tests.unit.model.encodings import CHAT, RESPONSES, Kind, Said, Understood, answer, folded, hello, provider, replies

OFFERED = frozenset({"get_weather", "shell"})
CALL = TextCall("get_weather", '{"city":"Oslo"}')
OBJECT = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'


def heard(*pieces: str) -> tuple[str, list[TextCall]]:
    """All text, and all calls."""
    listener = TextCallParser(OFFERED)
    out = [part for piece in pieces for part in listener.feed(piece)] + listener.end()
    return "".join(part for part in out if isinstance(part, str)), [part for part in out if isinstance(part, TextCall)]


CALLS: dict[str, tuple[str, str, list[TextCall]]] = {
    "a bare object": (OBJECT, "", [CALL]),
    "a bare object over several lines": (json.dumps(json.loads(OBJECT), indent=2) + "\n", "", [CALL]),
    "a fenced block": (f"```json\n{OBJECT}\n```", "", [CALL]),
    "a fenced block without a language": (f"```\n{OBJECT}\n```\n", "", [CALL]),
    "a fenced block that is never closed": (f"```json\n{OBJECT}", "", [CALL]),
    "a tag": (f"<tool_call>\n{OBJECT}\n</tool_call>", "", [CALL]),
    "a tag that is never closed": (f"<tool_call>{OBJECT}", "", [CALL]),
    "two tags": (f"<tool_call>{OBJECT}</tool_call>\n<tool_call>{OBJECT}</tool_call>", "", [CALL, CALL]),
    "two objects": (f"{OBJECT}\n{OBJECT}", "", [CALL, CALL]),
    "a list": (f"[{OBJECT}, {OBJECT}]", "", [CALL, CALL]),
    "parameters": ('{"name": "get_weather", "parameters": {"city": "Oslo"}}', "", [CALL]),
    "a typed function": (f'{{"type": "function", "function": {OBJECT}}}', "", [CALL]),
    "tool_calls": (f'{{"tool_calls": [{OBJECT}]}}', "", [CALL]),
    "arguments as a string": ('{"name": "shell", "arguments": "{}"}', "", [TextCall("shell", "{}")]),
    "no arguments": ('{"name": "shell", "arguments": null}', "", [TextCall("shell", "{}")]),
    "braces and quotes in a string": (
        '{"name": "shell", "arguments": {"commands": ["echo \\"}{\\\\\\" ```"]}}',
        "",
        [TextCall("shell", '{"commands":["echo \\"}{\\\\\\" ```"]}')],
    ),
    "a tag after prose": (f"I look.\n<tool_call>{OBJECT}</tool_call>", "I look.\n", [CALL]),
    "a fence at the end of prose": (f"I look.\n\n```json\n{OBJECT}\n```\n", "I look.\n\n", [CALL]),
    "prose after a call": (f"{OBJECT}\nThat is it.", "\nThat is it.", [CALL]),
    "spaces before a call": (f"\n\n  {OBJECT}", "", [CALL]),
}

ANSWERS = {
    "prose": "The weather is fine.",
    "prose with braces": "Use {name} and [list].",
    "code": "```python\nprint({})\n```\nThat prints an object.",
    "code without a language": "```\nls -l\n```",
    "an object that is no call": '{"answer": 42}',
    "an object with a name of somebody": '{"name": "Ada", "arguments": "none"}',
    "an object that names a tool but calls nothing": '{"name": "get_weather", "city": "Oslo"}',
    "a list of numbers": "[1, 2, 3]",
    "a link at the start": "[the docs](https://a.example) say so",
    "JSON in a fence that is no call": '```json\n{"name": "x"}\n```',
    "an example within prose": f"You would write:\n```json\n{OBJECT}\n```\nand get an answer.",
    "an example, then more code": f"First:\n```json\n{OBJECT}\n```\nthen:\n```sh\nls\n```\n",
    "half an object": '{"name": "get_weather", "arg',
    "an unclosed fence": "```json\n{",
    "backticks": "``` is a fence, ` a quote",
    "a tag that is none": "<tool_box>hm</tool_box> and <tool",
    "a tag around prose": "<tool_call>nothing</tool_call>",
    "a call of a tool that was not offered": '{"name": "rm", "arguments": {}}',
    "an object with a tail": '{"name" is how it begins',
}


@pytest.mark.parametrize(("said", "text", "calls"), CALLS.values(), ids=CALLS.keys())
def test_a_call_in_text_is_understood(said: str, text: str, calls: list[TextCall]) -> None:
    assert heard(said) == (text, calls)
    assert heard(*said) == (text, calls)


@pytest.mark.parametrize("said", ANSWERS.values(), ids=ANSWERS.keys())
def test_an_ordinary_answer_is_not_touched(said: str) -> None:
    assert heard(said) == (said, [])
    assert heard(*said) == (said, [])


@given(
    pieces=st.lists(st.sampled_from(["```", "json", "\n", "{", "}", '"name"', ":", '"get_weather"', " ", "x", "<tool_call>", "[", "`"]))
)
@settings(max_examples=300, deadline=None)
def test_no_character_of_an_answer_is_lost(pieces: list[str]) -> None:
    text, calls = heard(*pieces)
    whole = "".join(pieces)
    assert calls or text == whole or not whole.strip()


@given(st.sampled_from(list(CALLS.values())), st.integers(1, 9))
@settings(max_examples=100, deadline=None)
def test_calls_are_understood_wherever_the_text_is_cut(case: tuple[str, str, list[TextCall]], size: int) -> None:
    said, text, calls = case
    assert heard(*(said[start : start + size] for start in range(0, len(said), size))) == (text, calls)


def test_an_ordinary_answer_is_passed_on_as_it_comes() -> None:
    listener = TextCallParser(OFFERED)
    passed = [listener.feed(word) for word in ("The ", "weather ", "is ", '{"fine"', ": 1}\n", "and\n", "`x` ", "so on")]
    assert passed == [["The "], ["weather "], ["is "], ['{"fine"'], [": 1}\n"], ["and\n"], ["`x` "], ["so on"]]


def test_an_object_is_let_go_as_soon_as_it_cannot_be_a_call() -> None:
    listener = TextCallParser(OFFERED)
    assert listener.feed('{"na') == []
    assert listener.feed('tion": ') == ["{", '"nation": ']
    assert listener.feed("1}") == ["1}"]


TOOL: Tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}


local = pytest.mark.parametrize("kind", [CHAT, RESPONSES], ids=lambda kind: kind.name)


async def asked(kind: Kind, said: str, **fields: Any) -> Understood:
    pieces = tuple(said[start : start + 5] for start in range(0, len(said), 5))
    served = provider(kind, lambda _: replies(kind, kind.encode(answer(Said(pieces)))))
    return folded([delta async for delta in served.stream(hello(tools=(TOOL,), **fields))])


@local
async def test_a_model_that_writes_its_call_has_called(kind: Kind) -> None:
    result = await asked(kind, f"```json\n{OBJECT}\n```")
    assert (result.items, result.finish) == ((("call", "get_weather", "", '{"city":"Oslo"}'),), "tool_calls")


@local
async def test_a_model_that_speaks_and_writes_its_call_has_done_both(kind: Kind) -> None:
    result = await asked(kind, f"I look.\n<tool_call>{OBJECT}</tool_call>\nDone?")
    call = ("call", "get_weather", "", '{"city":"Oslo"}')
    assert result.items == (("message", "I look.\n"), call, ("message", "\nDone?"))


@local
async def test_an_ordinary_answer_is_an_answer(kind: Kind) -> None:
    result = await asked(kind, "It is {fine}.")
    assert (result.items, result.finish) == ((("message", "It is {fine}."),), "stop")


async def test_openais_own_models_are_taken_at_their_word() -> None:
    served = provider(RESPONSES, lambda _: replies(RESPONSES, RESPONSES.encode(answer(Said((OBJECT,))))))
    openai = OpenAIResponses(served.upstream, NATIVE_TO_OPENAI)  # type: ignore[attr-defined]
    assert folded([delta async for delta in openai.stream(hello(tools=(TOOL,)))]).items == (("message", OBJECT),)


JSON_WANTED = {"format": {"type": "json_schema", "name": "s", "schema": {}}}
DEAF: dict[str, dict[str, Any]] = {"no tool may be called": {"tool_choice": "none"}, "JSON is the answer wanted": {"text": JSON_WANTED}}


@pytest.mark.parametrize("fields", DEAF.values(), ids=DEAF.keys())
async def test_an_answer_that_only_looks_like_a_call_stays_text(fields: dict[str, Any]) -> None:
    assert (await asked(CHAT, OBJECT, **fields)).items == (("message", OBJECT),)
