"""``moorage backup`` of a running stack, and ``moorage restore`` into an empty place: what was there is there again."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.stack import SHELL, Stack, outputs, say, script, shell

tools: Any = [SHELL]


def moorage(state_dir: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "moorage.cli.main", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": str(state_dir.parent), "MOORAGE_STATE_DIR": str(state_dir)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_backup_of_a_running_stack_is_restored_elsewhere(tmp_path: Path) -> None:
    first = Stack(tmp_path / "first").start()
    try:
        client = first.client()
        file = client.files.create(file=("a.txt", b"lines"), purpose="user_data")
        steps = script(shell("echo kept > kept.txt"), say("done"))
        response = client.responses.create(model="demo", input=steps, tools=tools)
        backed_up = moorage(first.state_dir, "backup", str(tmp_path / "backup.tar"))
        assert (backed_up.returncode, backed_up.stderr) == (0, "")
        later = client.responses.create(model="demo", input="hi")
        key = first.key
    finally:
        assert first.stop() == 0
    restored = moorage(tmp_path / "second", "restore", str(tmp_path / "backup.tar"))
    assert (restored.returncode, restored.stderr) == (0, "")
    assert "A backup holds no models.toml: bring the one along that names the models of these responses." in restored.stdout
    second = Stack(tmp_path / "second").start()
    try:
        client = second.client(key)
        assert client.responses.retrieve(response.id).output_text == "done"
        assert client.files.content(file.id).read() == b"lines"
        with second.http(key) as http:
            assert http.get(f"/responses/{later.id}").status_code == 404
        steps = script(shell("cat kept.txt"), say("read"))
        again = client.responses.create(model="demo", input=steps, tools=tools, previous_response_id=response.id)
        (((printed, note, exit_code),),) = outputs(again.output)
        assert (printed, exit_code) == ("kept\n", 0)
        assert "has been started again" in note
    finally:
        assert second.stop() == 0
