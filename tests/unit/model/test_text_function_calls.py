"""Transcripts of small models, whose calls came as text in forms of their own."""

import json
from typing import Any

import pytest
from moorage.model.text_tool_calls import TextCall, TextCallParser

SCHEMAS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"}},
    },
    "shell": {"type": "object", "properties": {"command": {"type": "string"}}},
}


def heard(text: str, step: int) -> list[Any]:
    listener = TextCallParser(frozenset(SCHEMAS), SCHEMAS)
    out: list[Any] = []
    for start in range(0, len(text), step):
        out += listener.feed(text[start : start + step])
    out += listener.end()
    merged: list[Any] = []
    for piece in out:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece if isinstance(piece, str) else (piece.name, json.loads(piece.arguments)))
    return merged


WEATHER = ("get_weather", {"city": "Paris"})

TRANSCRIPTS: dict[str, tuple[str, list[Any]]] = {
    "braces doubled, as in the template's source": ('{{"name": "get_weather", "arguments": {{"city": "Paris"}}}}', [WEATHER]),
    "only the outer braces doubled": ('{{"name": "get_weather", "arguments": {"city": "Paris"}}}', [WEATHER]),
    "doubled and fenced": ('```json\n{{"name": "get_weather", "arguments": {{"city": "Paris"}}}}\n```', [WEATHER]),
    "doubled between tags": ('<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "Paris"}}}}\n</tool_call>', [WEATHER]),
    "fenced after a sentence": (
        'I will look.\n```json\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n```',
        ["I will look.\n", WEATHER],
    ),
    "Qwen3-Coder": (
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
        "</function>\n</tool_call>",
        [("get_weather", {"city": "Paris", "days": 3})],
    ),
    "Qwen3-Coder, after a sentence, its tags forgotten": (
        "Let me see.\n\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>",
        ["Let me see.\n\n", WEATHER],
    ),
    "Qwen3-Coder, with a script of several lines": (
        "<tool_call>\n<function=shell>\n<parameter=command>\nmkdir out\ncat <<EOF > out/a.py\n"
        'print("{}")\nEOF\n</parameter>\n</function>\n</tool_call>',
        [("shell", {"command": 'mkdir out\ncat <<EOF > out/a.py\nprint("{}")\nEOF'})],
    ),
    "Llama 3": ('<function=get_weather>{"city": "Paris"}</function>', [WEATHER]),
    "MiniCPM": (
        '<function name="get_weather"><param name="city">Paris</param><param name="exact">true</param></function>',
        [("get_weather", {"city": "Paris", "exact": True})],
    ),
    "two of them": (
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>",
        [WEATHER, ("get_weather", {"city": "Rome"})],
    ),
    "its end cut off": ("<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n", [WEATHER]),
    "no arguments": ("<function=get_weather>\n</function>", [("get_weather", {})]),
    "a number that is none": (
        "<function=get_weather>\n<parameter=days>\nsome\n</parameter>\n</function>",
        [("get_weather", {"days": "some"})],
    ),
}

TEXTS: dict[str, str] = {
    "a tool that was not offered": "<function=launch>\n<parameter=at>\nnow\n</parameter>\n</function>",
    "a function in a sentence": "In C you write a <function> before main.",
    "a template": 'Write {{name}} where the name shall stand, and {{ "a": 1 }} is no call.',
    "arguments that are none": "<function=get_weather>Paris, please</function>",
    "broken JSON": '<function=get_weather>{"city": </function>',
    "JSON of doubled braces that is no call": '{{"city": "Paris"}}',
}


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize(("text", "expected"), TRANSCRIPTS.values(), ids=TRANSCRIPTS.keys())
def test_a_call_is_understood_in_the_form_that_its_model_writes(text: str, expected: list[Any], step: int) -> None:
    assert heard(text, step) == expected


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_what_is_no_call_stays_text(text: str, step: int) -> None:
    assert heard(text, step) == [text]


def test_a_call_is_one_of_the_answers_pieces() -> None:
    assert TextCallParser(frozenset(SCHEMAS), SCHEMAS).feed('<function=get_weather>{"city": "Paris"}</function>') == [
        TextCall("get_weather", '{"city":"Paris"}')
    ]
