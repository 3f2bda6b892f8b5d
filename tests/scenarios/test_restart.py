"""Stopping ``make up`` and starting it again."""

from pathlib import Path
from typing import Any

from tests.processes import until
from tests.scenarios.test_approvals import parked
from tests.stack import SHELL, Stack, outputs, say, script, shell

TOOLS: Any = [SHELL]


def test_what_was_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "state").start()
    key = stack.key
    first = stack.client().responses.create(model="demo", input=script(shell("echo kept > note.txt"), say("a")), tools=TOOLS)
    uploaded = stack.client().files.create(file=("in.txt", b"bytes"), purpose="user_data")
    held_id, approval_id = parked(stack, stack.client())
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
        assert client.responses.retrieve(held_id).status == "in_progress"
        with stack.http() as http:
            decided = http.post(f"/responses/{held_id}/approvals/{approval_id}", json={"approve": True})
            assert decided.json()["status"] == "approved"
        until(lambda: client.responses.retrieve(held_id).status == "completed")
        assert "made" in client.responses.retrieve(held_id).output_text, "what waited over the restart has run"
    finally:
        assert stack.stop() == 0
