"""Files of the input and conversations, from the request to the command and back."""

import base64
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.stack import SHELL, outputs, say, script, shell

TOOLS: Any = [SHELL]


def with_files(turns: str, *parts: dict[str, Any]) -> Any:
    return [{"role": "user", "content": [*parts, {"type": "input_text", "text": turns}]}]


def inline(name: str, content: bytes) -> dict[str, Any]:
    return {"type": "input_file", "filename": name, "file_data": base64.b64encode(content).decode()}


def test_files_of_the_input_are_in_the_container_before_the_first_command(client: OpenAI) -> None:
    stored = client.files.create(file=("stored.txt", b"stored\n"), purpose="user_data")
    parts = [{"type": "input_file", "file_id": stored.id}, inline("same.bin", b"\x00one"), inline("same.bin", b"\x00two")]
    commands = shell("cat stored.txt", "cat same.bin same-2.bin | tr -d '\\0'")
    response = client.responses.create(model="demo", input=with_files(script(commands, say("end")), *parts), tools=TOOLS)
    assert outputs(response.output) == [[("stored\n", "", 0), ("onetwo", "", 0)]]
    container_id = response.output[0].environment.container_id  # type: ignore[union-attr]
    files = client.containers.files.list(container_id, order="asc").data
    assert {(file.path, file.source) for file in files} == {
        ("/mnt/data/stored.txt", "user"),
        ("/mnt/data/same.bin", "user"),
        ("/mnt/data/same-2.bin", "user"),
    }


def test_a_history_sent_again_does_not_undo_what_the_model_did(client: OpenAI) -> None:
    part = inline("data.txt", b"before")
    first = client.responses.create(model="demo", input=with_files(script(shell("echo after > data.txt"), say("a")), part), tools=TOOLS)
    history = [*with_files("start", part), *(item.to_dict() for item in first.output)]
    second = client.responses.create(
        model="demo",
        input=[*history, {"role": "user", "content": script(shell("cat data.txt"), say("b"))}],
        tools=TOOLS,
        store=False,
    )
    assert outputs(second.output) == [[("after\n", "", 0)]]


@pytest.mark.parametrize(
    ("part", "status", "code", "field"),
    [
        ({"type": "input_file", "file_id": "file-none"}, 404, "file_not_found", "[0].content[0].file_id"),
        ({"type": "input_image", "file_id": "file-none"}, 404, "file_not_found", "[0].content[0].file_id"),
        ({"type": "input_file", "file_url": "http://169.254.169.254/latest/meta-data/"}, 400, "invalid_file_url", ""),
        ({"type": "input_file", "file_url": "http://localhost/secret"}, 400, "invalid_file_url", ""),
        ({"type": "input_file", "file_data": "&&&"}, 400, "invalid_file_data", ""),
    ],
)
def test_what_cannot_be_had_is_refused_before_a_response_is_made(
    client: OpenAI, part: dict[str, Any], status: int, code: str, field: str
) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        client.responses.create(model="demo", input=with_files("hi", part))
    assert (caught.value.status_code, caught.value.code, caught.value.param) == (status, code, f"input{field}")


def test_a_conversation_grows_by_its_responses(client: OpenAI) -> None:
    conversation = client.conversations.create(items=[{"role": "user", "content": "first words"}])
    for number in range(2):
        client.responses.create(model="demo", input=script(say(f"answer {number}")), conversation=conversation.id)
    client.responses.create(model="demo", input=script(shell("echo done"), say("end")), conversation=conversation.id, tools=TOOLS)
    items = list(client.conversations.items.list(conversation.id, order="asc", limit=3))
    kinds = [item.type if item.type != "message" else f"{item.role}" for item in items]
    assert kinds == ["user", *["user", "assistant"] * 2, "user", "shell_call", "shell_call_output", "assistant"]
    assert len({item.id for item in items}) == len(items)
