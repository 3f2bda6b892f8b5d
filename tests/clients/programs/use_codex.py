"""Codex CLI: ``codex exec`` edits a file, over SSE and over WebSocket, with the tools of three of its model families, and has its
conversation compacted. ``codex app-server`` interrupts a turn over WebSocket, and steers another one."""

import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moorage_script import URL, call, expect, expect_in, say, script
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


class AppServer:
    """Codex as editors run it: JSON-RPC by lines (``codex app-server generate-json-schema`` has the messages)."""

    def __init__(self, codex: str, home: Path, work: Path) -> None:
        self.process = subprocess.Popen(
            [codex, "app-server"],
            cwd=work,
            env=os.environ | {"CODEX_HOME": str(home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.heard: queue.Queue[dict[str, Any]] = queue.Queue()
        self.passed_over: list[dict[str, Any]] = []
        """What was not waited for yet: an answer and what it leads to come in either order."""
        self.asked = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.heard.put(json.loads(line))

    def send(self, method: str, **params: Any) -> None:
        self._write({"method": method, "params": params})

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self.asked += 1
        self._write({"id": self.asked, "method": method, "params": params})
        answer = self.until(lambda message: message.get("id") == self.asked and "method" not in message)
        if "error" in answer:
            raise SystemExit(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        for message in self.passed_over:
            if wanted(message):
                self.passed_over.remove(message)
                return message
        while True:
            try:
                message = self.heard.get(timeout=60)
            except queue.Empty:
                raise SystemExit(f"codex app-server says nothing more: {self.passed_over[-3:]}") from None
            if wanted(message):
                return message
            self.passed_over.append(message)

    def next(self, method: str) -> dict[str, Any]:
        params: dict[str, Any] = self.until(lambda message: message.get("method") == method)["params"]
        return params


def interrupt_and_steer(codex: str, folder: Path, model: str) -> list[str]:
    """The types of the frames that Codex has sent for a turn that is interrupted, and for one that is steered."""
    home, work = folder / "home", folder / "work"
    for path in (home, work):
        path.mkdir(parents=True)
    with Relay(URL) as relay:
        (home / "config.toml").write_text(CONFIG.format(url=relay.url, name="moorage", websocket="true"))
        server = AppServer(codex, home, work)
        try:
            server.ask("initialize", clientInfo={"name": "moorage", "title": "moorage", "version": "1"})
            server.send("initialized")
            begun = server.ask("thread/start", model=model, approvalPolicy="never", sandbox="danger-full-access", cwd=str(work))
            thread = begun["thread"]["id"]

            def text(*steps: dict[str, Any]) -> list[dict[str, str]]:
                return [{"type": "text", "text": script(*steps)}]

            def begin(words: str) -> str:
                """A turn that speaks for a while, and has begun to speak."""
                server.passed_over.clear()
                turn = server.ask("turn/start", threadId=thread, input=text({"delta_ms": 200}, say(words)))["turn"]["id"]
                server.next("item/agentMessage/delta")
                return str(turn)

            server.ask("turn/interrupt", threadId=thread, turnId=begin("slow " * 60))
            expect(server.next("turn/completed")["turn"]["status"], "interrupted")
            turn = begin("slow " * 30)
            server.ask("turn/steer", threadId=thread, expectedTurnId=turn, input=text(say("Steered.")))
            said = []
            while (message := server.until(lambda each: each.get("method") in ("item/completed", "turn/completed")))["method"] != (
                "turn/completed"
            ):
                said += [message["params"]["item"].get("text")]
            expect(message["params"]["turn"]["status"], "completed")
            expect(said[-1], "Steered.")
        finally:
            server.process.kill()
            server.process.wait()
    frames = [json.loads(frame) for frame in relay.frames]
    expect("previous_response_id" in frames[-1], True)
    return [frame["type"] for frame in frames]


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
        # Of these families one ends the response that it steers, the other waits for its end.
        expect("response.interrupt" in interrupt_and_steer(codex, root / "lite", "gpt-6.2-sol"), True)
        expect("response.interrupt" in interrupt_and_steer(codex, root / "plain", "demo"), False)
    finally:
        shutil.rmtree(root, ignore_errors=True)


main()
