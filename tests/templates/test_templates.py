"""Ordinary conversations through the chat templates of open models: no template raises, and none loses a word.

``make test-templates`` fetches the templates that llama.cpp collects.
"""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from moorage.model import chat_completions
from moorage.model.base import ModelRequest
from moorage.model.chat_messages import MessageStyle
from moorage.model.chat_templates import FAMILIES, family_of
from moorage.wire.types import Item, Tool

from tests.templates.rendering import FOLDER, ChatTemplate

PATHS = sorted(FOLDER.glob("*.jinja"))
pytestmark = pytest.mark.skipif(not PATHS, reason="the templates are not here: make test-templates fetches them")

TEMPLATES_MIN = 60
SERVER_SHOWS_TOOLS = ("deepseek-ai-DeepSeek-V3.1", "fireworks-ai-llama-3-firefunction-v2")
"""Templates that are not given the tools: their servers show them in a way of their own."""

LOOK: Tool = {
    "type": "function",
    "name": "look",
    "description": "zlooks",
    "parameters": {"type": "object", "properties": {"at": {"type": "string", "description": "Where."}}, "required": ["at"]},
}
PNG = "data:image/png;base64,AA"


def user(text: str) -> Item:
    return {"type": "message", "role": "user", "content": text}


def assistant(text: str) -> Item:
    return {"type": "message", "role": "assistant", "content": text}


def developer(text: str) -> Item:
    return {"type": "message", "role": "developer", "content": text}


def called(call_id: str, at: str) -> Item:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": orjson.dumps({"at": at}).decode()}


def gave(call_id: str, output: Any) -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


SILENT = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": ""}
PICTURE = [{"type": "input_text", "text": "zresult"}, {"type": "input_image", "image_url": PNG}]
REASONING = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}

CONVERSATIONS: dict[str, ModelRequest] = {
    name: ModelRequest("m", items, instructions=instructions, tools=tools)
    for name, instructions, tools, items in (
        ("a question", "zrules", (), (user("zone"),)),
        ("Codex's first turn", "zrules", (LOOK,), (developer("zdev"), user("zenvironment"), user("zone"))),
        ("turns", "zrules", (), (user("zone"), assistant("ztwo"), user("zthree"))),
        ("the developer speaks later", "zrules", (), (user("zone"), assistant("ztwo"), developer("zdev"), user("zthree"))),
        ("the developer speaks last", None, (), (user("zone"), developer("zdev"))),
        ("a call", None, (LOOK,), (user("zone"), called("call_1", "zthere"), gave("call_1", "zresult"))),
        (
            "a call without arguments",
            None,
            (LOOK,),
            (user("zone"), SILENT, gave("call_1", ""), assistant("ztwo"), user("znow")),
        ),
        (
            "said and called",
            "zrules",
            (LOOK,),
            (user("zone"), assistant("zsay"), called("call_1", "zthere"), gave("call_1", "zresult"), assistant("ztwo"), user("znow")),
        ),
        (
            "two calls at once",
            "zrules",
            (LOOK,),
            (
                *(user("zone"), called("call_1", "zthere"), called("call_2", "zhere")),
                *(gave("call_1", "zresult"), gave("call_2", "zother"), assistant("ztwo"), user("znow")),
            ),
        ),
        (
            "two rounds",
            "zrules",
            (LOOK,),
            (user("zone"), called("call_1", "zthere"), gave("call_1", "zresult"), called("call_2", "zhere"), gave("call_2", "zother")),
        ),
        (
            "the user after an output",
            None,
            (LOOK,),
            (user("zone"), called("call_1", "zthere"), gave("call_1", "zresult"), user("znow")),
        ),
        (
            "the developer after an output",
            "zrules",
            (LOOK,),
            (user("zone"), called("call_1", "zthere"), gave("call_1", "zresult"), developer("znow")),
        ),
        (
            "the user before an output",
            None,
            (LOOK,),
            (user("zone"), called("call_1", "zthere"), user("znow"), gave("call_1", "zresult")),
        ),
        ("a picture out of a tool", "zrules", (LOOK,), (user("zone"), called("call_1", "zthere"), gave("call_1", PICTURE))),
        ("two answers", None, (), (user("zone"), assistant("ztwo"), assistant("zthree"), user("znow"))),
        ("the assistant begins", None, (), (assistant("ztwo"), user("znow"))),
        ("reasoning", "zrules", (), (user("zone"), REASONING, assistant("ztwo"), user("znow"))),
    )
}


read = lru_cache(ChatTemplate.read)


def words(request: ModelRequest) -> set[str]:
    said = orjson.dumps([request.instructions, request.items, request.tools]).decode()
    return set(re.findall(r"\bz[a-z]+", said))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_a_template_takes_a_conversation_and_shows_all_of_it(path: Path, conversation: str) -> None:
    template, request = read(path), CONVERSATIONS[conversation]
    body = chat_completions.request_body(request, MessageStyle(template=FAMILIES[family_of(template.name)]))
    rendered = template.render(body["messages"], body.get("tools", []))
    expected = words(request) - ({"zlooks"} if template.name in SERVER_SHOWS_TOOLS else set())
    assert {word for word in expected if word not in rendered} == set()


def test_all_templates_of_the_archive_are_looked_at() -> None:
    assert len(PATHS) >= TEMPLATES_MIN
