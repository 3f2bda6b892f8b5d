"""``make clients``: programs that people already have, each at a real task against the embedded stack.

Each program under ``programs/`` is one client; it exits with 0 when its task came out right. A client that is not installed is
skipped with the reason. The table goes to standard output, and into ``docs/clients.md`` with ``--docs``.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.mcp_servers import Depot, depot_beside  # noqa: E402
from tests.stack import Stack  # noqa: E402  (the folder of the tests is no package of this environment)

PROGRAMS = Path(__file__).resolve().parent / "programs"
BUILD = ROOT / ".build" / "clients"
NODE = BUILD / "node"
DOCS = ROOT / "docs" / "clients.md"
PORT = 8377
"""Where programs receive webhooks, and serve a model, one after the other."""
_SECONDS_MAX = 300
_BEGIN, _END = "<!-- made by make clients -->\n", "<!-- end -->\n"


@dataclass(frozen=True, slots=True)
class Client:
    package: str
    program: str
    task: str
    is_node: bool = False
    binary: str | None = None
    """A command of the package by its place in ``node_modules``, given to its program."""
    home: str = "python"
    """The environment of one that is written in Python; those that do not fit beside the newest openai SDK have others."""

    @property
    def python(self) -> Path:
        return BUILD / self.home / "bin" / "python"


CLIENTS = (
    Client(
        "openai",
        "use_openai.py",
        "create, retrieve, chain, stream, parse, function, hosted shell with a file, background, conversation, WebSocket, async",
    ),
    Client(
        "openai-agents",
        "use_openai_agents.py",
        "function tool (plain, streamed, WebSocket), hosted shell with skills, remote server, local shell, apply_patch, compaction",
    ),
    Client(
        "@openai/codex",
        "use_codex.py",
        "`codex exec` edits a file over SSE and WebSocket: shell, apply_patch, compaction; `codex app-server` interrupts and steers",
        True,
        ".bin/codex",
    ),
    Client("pydantic-ai-slim", "use_pydantic_ai.py", "tool, typed answer, stream"),
    Client("langchain-openai", "use_langchain_openai.py", "tool, stream, remote server with approvals"),
    Client("llm", "use_llm.py", "a question from the command line"),
    Client("instructor", "use_instructor.py", "typed answers by Responses and Chat Completions, in parts", home="frameworks"),
    Client("litellm", "use_litellm.py", "Responses with the hosted shell, its bridge, chat: tool, stream", home="frameworks"),
    Client("llama-index-llms-openai", "use_llama_index.py", "agent with a tool and stream by Responses, chat", home="frameworks"),
    Client("strands-agents", "use_strands.py", "agent with a tool by both protocols", home="frameworks"),
    Client("dspy", "use_dspy.py", "a signature by both protocols", home="frameworks"),
    Client("agno", "use_agno.py", "agent with a tool and stream by both protocols", home="frameworks"),
    Client("haystack-ai", "use_haystack.py", "agent with a tool by both protocols", home="frameworks"),
    Client("smolagents", "use_smolagents.py", "agent with a tool by chat and by litellm's bridge", home="frameworks"),
    Client("autogen-ext", "use_autogen.py", "AgentChat with a tool by chat", home="frameworks"),
    Client("magentic", "use_magentic.py", "an answer by chat", home="frameworks"),
    Client(
        "agent-framework-openai",
        "use_agent_framework.py",
        "agent with a tool by both protocols, hosted shell over a session, code interpreter",
        home="frameworks",
    ),
    Client("mirascope", "use_mirascope.py", "tool, stream and typed answer by both protocols", home="frameworks"),
    Client("outlines", "use_outlines.py", "an answer and a typed one by chat", home="frameworks"),
    Client("crewai", "use_crewai.py", "a call, a stream and a crew with a tool by both protocols", home="agents"),
    Client(
        "semantic-kernel",
        "use_semantic_kernel.py",
        "agent with a plugin in its second turn, stored and not, and stream by both protocols",
        home="agents",
    ),
    Client("aider-chat", "use_aider.py", "`aider --message` answers and edits a file by both protocols", home="aider"),
    Client(
        "openai",
        "use_openai.mjs",
        "create, retrieve, streams of all calls, shell, remote server with approvals, skills, a stream that breaks, webhook, "
        "conversation, WebSocket",
        True,
    ),
    Client(
        "@openai/agents",
        "use_openai_agents.mjs",
        "function tool (plain, streamed), hosted and local shell, apply_patch, remote server with approvals",
        True,
    ),
    Client("@ai-sdk/openai", "use_ai_sdk.mjs", "tool loop, stream", True),
    Client("@ai-sdk/open-responses", "use_open_responses.mjs", "tool loop, stream; also @ai-sdk/openai-compatible by chat", True),
    Client("@mastra/core", "use_mastra.mjs", "agent with a tool, stream", True),
    Client("@langchain/openai", "use_langchain_openai.mjs", "tool, stream, remote server with approvals", True),
    Client("@mariozechner/pi-coding-agent", "use_pi.py", "`pi -p` edits a file with its bash tool", True, ".bin/pi"),
    Client(
        "opencode-linux-x64",
        "use_opencode.py",
        "opencode-ai's program: `opencode run` writes a file with its bash tool and reads it",
        True,
        "opencode-linux-x64/bin/opencode",
    ),
)


@dataclass(frozen=True, slots=True)
class Result:
    client: Client
    version: str | None
    outcome: str
    """``passed``, ``skipped: <reason>`` or ``failed``."""
    output: str = ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", action="store_true", help="write the table into docs/clients.md")
    parser.add_argument("only", nargs="*", help="names of programs")
    options = parser.parse_args(arguments)
    chosen = [client for client in CLIENTS if not options.only or client.program in options.only]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the stack is stopped too
    with tempfile.TemporaryDirectory(prefix="moorage-clients-") as folder, depot_beside(Depot()) as depot:
        models = Path(folder) / "models.toml"
        # Who serves the model "torn", and how badly, is a program's matter.
        torn = f'[[models]]\nname = "torn"\nprovider = "chat_completions"\nbase_url = "http://127.0.0.1:{PORT}/v1"\n'
        # The Agents SDK compacts with a model that has a name of OpenAI's, and Codex goes by the names of its model families.
        named = "".join(f'[[models]]\nname = "{name}"\nprovider = "demo"\n' for name in ("gpt-5.5", "gpt-6", "gpt-6.2-sol", "demo"))
        models.write_text(f'[mcp.depot]\nurl = "{depot.url}/mcp"\n{torn}{named}')
        environment = {"MOORAGE_EGRESS_PORTS": str(PORT), "MOORAGE_FETCH_ALLOWED_NETWORKS": "127.0.0.0/8,::1/128"}
        stack = Stack(Path(folder) / "state", {"MOORAGE_MODELS_FILE": str(models), **environment}).start()
        try:
            results = [_report(run(client, stack, Path(folder))) for client in chosen]
        finally:
            stack.stop()
    if options.docs:
        write_table(results)
    return 1 if any(result.outcome == "failed" for result in results) else 0


def run(client: Client, stack: Stack, folder: Path) -> Result:
    version = _node_version(client.package) if client.is_node else _python_version(client)
    if version is None:
        return Result(client, None, f"skipped: {client.package} is not installed; 'make clients' installs it where the network allows")
    if client.is_node and shutil.which("node") is None:
        return Result(client, version, "skipped: there is no node")
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("OPENAI_", "MOORAGE_"))},
        "OPENAI_BASE_URL": stack.url,
        "OPENAI_API_KEY": stack.key,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "MOORAGE_CLIENTS_DIR": str(folder),
        "MOORAGE_CLIENTS_PORT": str(PORT),
    }
    try:
        done = subprocess.run(
            _command(client), env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        return Result(client, version, "failed", f"It took more than {_SECONDS_MAX} seconds.")
    return Result(client, version, "failed" if done.returncode else "passed", done.stdout + done.stderr)


def _command(client: Client) -> list[str]:
    if client.program.endswith(".py"):
        python = str(client.python) if client.python.exists() else sys.executable
        binary = [] if client.binary is None else [str(NODE / "node_modules" / client.binary)]
        return [python, str(PROGRAMS / client.program), *binary]
    for name in (client.program, "moorage_script.mjs"):  # Node looks for packages beside the program.
        shutil.copy(PROGRAMS / name, NODE / name)
    return ["node", str(NODE / client.program)]


def _python_version(client: Client) -> str | None:
    if not client.python.exists():
        return None
    code = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    done = subprocess.run([str(client.python), "-c", code, client.package], capture_output=True, text=True)
    return done.stdout.strip() or None


def _node_version(package: str) -> str | None:
    path = NODE / "node_modules" / package / "package.json"
    return str(json.loads(path.read_text())["version"]) if path.exists() else None


def _report(result: Result) -> Result:
    kind = "npm" if result.client.is_node else "PyPI"
    print(f"{result.outcome.split(':')[0]:8}{result.client.package} {result.version or '-'} ({kind}): {result.client.task}", flush=True)
    if result.outcome.startswith("skipped"):
        print(f"        {result.outcome}")
    if result.outcome == "failed":
        print("        " + "\n        ".join(result.output.splitlines()[-20:]))
    return result


def write_table(results: Sequence[Result]) -> None:
    """Put what passed, with its versions, between the marks in docs/clients.md."""
    rows = ["| client | version | task in the test | result |", "|---|---|---|---|"]
    for result in results:
        kind = "npm" if result.client.is_node else "PyPI"
        version = result.version or "not installed"
        rows.append(f"| {result.client.package} ({kind}) | {version} | {result.client.task} | {result.outcome.split(':')[0]} |")
    before, _, rest = DOCS.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    stamp = time.strftime("%d %B %Y", time.gmtime())
    DOCS.write_text(f"{before}{_BEGIN}" + "\n".join(rows) + f"\n\nMade on {stamp}.\n{_END}{after}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
