"""Codex CLI: ``codex exec`` edits a file, over SSE and over WebSocket, with the tools of three of its model families, and has its
conversation compacted."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from moorage_script import URL, call, expect_in, say, script
from relay import Relay

CONFIG = """
model = "demo"
model_provider = "moorage"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.moorage]
name = "{name}"
base_url = "{url}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
supports_websockets = {websocket}
"""
PATCH = "*** Begin Patch\n*** Update File: notes.txt\n@@\n-hello\n+goodbye\n*** End Patch\n"
BY_SHELL = script(call("exec_command", cmd="sed -i s/hello/goodbye/ notes.txt && cat notes.txt"), say("It says: {{output}}"))
BY_PATCH = script(call("apply_patch", input=PATCH), say("It says: {{output}}"))


def edit(codex: str, folder: Path, model: str, words: str, *, websocket: bool) -> None:
    home, work = folder / "home", folder / "work"
    for path in (home, work):
        path.mkdir()
    (work / "notes.txt").write_text("hello\n")
    with Relay(URL) as relay:
        (home / "config.toml").write_text(CONFIG.format(url=relay.url, name="moorage", websocket=str(websocket).lower()))
        command = [codex, "exec", "-m", model, "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", words]
        done = subprocess.run(
            command,
            cwd=work,
            env=os.environ | {"CODEX_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
        )
    where = f"{model} over {'WebSocket' if websocket else 'SSE'}"
    if done.returncode or (work / "notes.txt").read_text() != "goodbye\n":
        raise SystemExit(f"{where}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    expect_in("It says:", done.stdout)
    if ("GET /v1/responses" in relay.requests) != websocket or ("POST /v1/responses" in relay.requests) == websocket:
        raise SystemExit(f"{where}: it asked {sorted(relay.requests)}")


def compact(codex: str, folder: Path) -> None:
    """Under the name "OpenAI" Codex asks the server to compact what has become too long."""
    home, work = folder / "home", folder / "work"
    for path in (home, work):
        path.mkdir()
    config = CONFIG.format(url=URL, name="OpenAI", websocket="false")
    (home / "config.toml").write_text(f"model_auto_compact_token_limit = 5000\n{config}")
    command = [codex, "exec", "-m", "gpt-5.5", "--skip-git-repo-check"]
    for words in (["hello there"], ["resume", "--last", "and again"]):
        done = subprocess.run(
            [*command, *words],
            cwd=work,
            env=os.environ | {"CODEX_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
        )
        if done.returncode:
            raise SystemExit(f"exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    expect_in("context compacted", done.stdout + done.stderr)
    expect_in("and again", done.stdout)


def main() -> None:
    codex = sys.argv[1]
    root = Path(tempfile.mkdtemp(prefix="codex-", dir=os.environ.get("MOORAGE_CLIENTS_DIR")))
    try:
        for number, (model, words) in enumerate([("demo", BY_SHELL), ("gpt-5.5", BY_PATCH), ("gpt-6", BY_SHELL)]):
            for websocket in (False, True):
                folder = root / f"{number}-{websocket}"
                folder.mkdir()
                edit(codex, folder, model, words, websocket=websocket)
        (root / "compact").mkdir()
        compact(codex, root / "compact")
    finally:
        shutil.rmtree(root, ignore_errors=True)


main()
