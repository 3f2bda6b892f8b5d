"""Stopping ``make up`` and starting it again."""

from pathlib import Path
from typing import Any

from tests.stack import SHELL, Stack, outputs, say, script, shell

TOOLS: Any = [SHELL]


def test_what_was_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "state").start()
    key = stack.key
    first = stack.client().responses.create(model="demo", input=script(shell("echo kept > note.txt"), say("a")), tools=TOOLS)
    uploaded = stack.client().files.create(file=("in.txt", b"bytes"), purpose="user_data")
    assert stack.stop() == 0
    stack.start()
    try:
        client = stack.client()
        assert stack.key == key
        assert client.responses.retrieve(first.id) == first
        assert client.files.content(uploaded.id).read() == b"bytes"
        second = client.responses.create(
            model="demo", input=script(shell("cat note.txt"), say("b")), tools=TOOLS, previous_response_id=first.id
        )
        ((stdout, stderr, code),) = outputs(second.output)[0]
        assert (stdout, code) == ("kept\n", 0)
        assert "has been started again" in stderr
    finally:
        assert stack.stop() == 0
