"""openai-agents' ``OpenAIHostedMultiAgentModel``: its own live test, unchanged, against the embedded stack.

The test asks a model for two agents, each of which calls a function of the client. It answers them over the WebSocket while the
response runs, once by hand and once through the class. Here a scripted server plays the model that it names.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

from tests.conformance.verdicts import Verdict
from tests.stack import Stack
from tests.upstream import MockUpstream, Reply, Request, called, called_all, said

MODEL: Final = "gpt-5.6-sol"
"""The test's own."""
TEST: Final = "tests/extensions/experimental/hosted_multi_agent/test_live.py"
PROPOSALS: Final = ("alpha", "beta")
_NAME: Final = re.compile(r"From here on you are (/root/\w+)")
_SECONDS_MAX: Final = 300


class Coordinator(MockUpstream):
    """A model that does what the test asks for: ``/root`` starts two agents and waits, and each of them calls the function."""

    def reply_to(self, request: Request) -> Reply:
        messages = request.body["messages"]
        told = "\n".join(_text(message) for message in messages)
        names = _NAME.findall(told)
        if names:
            own = names[-1].rpartition("/")[2]
            outputs = [_text(message) for message in messages if message["role"] == "tool"]
            return said(f"{own}: {outputs[-1]}") if outputs else called("get_proposal", {"proposal": own})
        if not any(message["role"] == "assistant" for message in messages):
            return called_all(*(called("spawn_agent", _task(name)) for name in PROPOSALS))
        if told.count("Message Type: FINAL_ANSWER") < len(PROPOSALS):
            return called("wait_agent", call_id=f"call_{len(messages)}")
        return said("Alpha takes 6 weeks, beta takes 8.")


def _task(name: str) -> dict[str, str]:
    return {"task_name": name, "message": f"Look at proposal {name}.", "fork_turns": "none"}


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def live_test(suite: Path, folder: Path) -> Verdict:
    """``suite`` has the source of openai-agents below ``source``, and an environment with it."""
    name = "openai-agents: hosted multi-agent"
    python = suite / "bin" / "python"
    source = next(iter((suite / "source").glob("openai_agents-*/")), None)
    if source is None or not python.exists():
        return Verdict(name, reason="its test is not there; 'make conformance' fetches it where the network allows")
    with Coordinator() as upstream:
        folder.mkdir(parents=True, exist_ok=True)
        models = folder / "models.toml"
        models.write_text(f'[[models]]\nname = "{MODEL}"\nprovider = "chat_completions"\nbase_url = "{upstream.url}"\n')
        stack = Stack(folder / "state", {"MOORAGE_MODELS_FILE": str(models)}).start()
        try:
            given = {"OPENAI_BASE_URL": stack.url, "OPENAI_API_KEY": stack.key, "OPENAI_RUN_LIVE_HOSTED_MULTI_AGENT_TESTS": "1"}
            command = [str(python), "-m", "pytest", "-q", "-o", "addopts=", "--noconftest", "-p", "no:cacheprovider", TEST]
            done = subprocess.run(command, cwd=source, env=os.environ | given, capture_output=True, text=True, timeout=_SECONDS_MAX)
        finally:
            stack.stop()
    if done.returncode == 0 and " passed" in done.stdout:
        return Verdict(name, passed=1)
    return Verdict(name, failures=((done.stdout + done.stderr)[-4000:],))
