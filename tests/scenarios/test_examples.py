"""Each program of examples/ runs as its reader would run it, on a stack with the demo model."""

import json
import stat
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mcp_servers import Depot, depot_beside
from tests.stack import ROOT, Stack, clean_environment

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose operator names an MCP server."""
    folder = Path(tmp_path_factory.mktemp("examples"))
    with depot_beside(Depot()) as depot:
        (folder / "models.toml").write_text(f'[mcp.shop]\nurl = "{depot.url}/mcp"\n')
        stack = Stack(folder / "state", {"MOORAGE_MODELS_FILE": str(folder / "models.toml")}).start()
        yield stack
        assert stack.stop() == 0


def environment(stack: Stack) -> dict[str, str]:
    return clean_environment() | {"OPENAI_BASE_URL": stack.url, "OPENAI_API_KEY": stack.key, "MOORAGE_MODEL": "demo"}


def run(stack: Stack, folder: Path, *command: str, **more: str) -> str:
    """What the command prints."""
    done = subprocess.run(command, cwd=folder, env=environment(stack) | more, capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def program(name: str) -> tuple[str, str]:
    return sys.executable, str(EXAMPLES / name)


def test_the_data_analyst_writes_a_workbook_and_a_chart(shop: Stack, tmp_path: Path) -> None:
    printed = run(shop, tmp_path, *program("data_analyst.py"))
    assert "buoy" in printed
    assert {"sales.csv", "report.xlsx", "chart.png"} <= {path.name for path in tmp_path.iterdir()}


def test_the_support_bot_cites_documents_and_asks_the_shop(shop: Stack, tmp_path: Path) -> None:
    (tmp_path / "faq").mkdir()
    (tmp_path / "faq" / "returns.md").write_text("Goods can be returned within 30 days.")
    (tmp_path / "faq" / "hours.md").write_text("The shop opens at nine.")
    first = run(shop, tmp_path, *program("support_bot.py"), "faq", 'call file_search with {"query": "When can goods be returned?"}')
    assert first.startswith("indexed 2 of 2 documents\nsearched: When can goods be returned? -> ")
    assert "returns.md" in first
    second = run(shop, tmp_path, *program("support_bot.py"), "faq", 'call shop__find_part with {"sku": "A-7"}', "shop")
    assert "indexed" not in second
    assert "called find_part: 14 of A-7 in stock" in second


def test_the_nightly_report_starts_once_a_day(shop: Stack, tmp_path: Path) -> None:
    first = run(shop, tmp_path, *program("nightly_report.py"))
    (report,) = tmp_path.glob("report-*.md")
    assert first.endswith(f"wrote {report.name}\n")
    assert "Filesystem" in report.read_text()
    assert run(shop, tmp_path, *program("nightly_report.py")) == first


def test_the_evaluation_tells_right_from_wrong_and_from_failed(shop: Stack, tmp_path: Path) -> None:
    rows = [line.split(" | ") for line in run(shop, tmp_path, *program("evaluate_models.py"), "demo", "no-such-model!").splitlines()]
    assert [row[1].strip() for row in rows] == ["result", "right", "right"], "every name is served by the demo model here"
    assert rows[1][4].strip() == "1 calls"


def test_the_evaluation_leaves_out_models_that_only_embed(shop: Stack, tmp_path: Path) -> None:
    rows = run(shop, tmp_path, *program("evaluate_models.py")).splitlines()
    assert [row.partition(" ")[0] for row in rows] == ["model", "demo"]


def test_the_coding_agent_gives_codex_the_stack(shop: Stack, tmp_path: Path) -> None:
    """The program that stands for Codex shows its home's settings and its arguments; 'make clients' runs the real one."""
    codex = tmp_path / "codex"
    codex.write_text('#!/bin/sh\ncat "$CODEX_HOME/config.toml"\necho "arguments = \'$*\'"\n')
    codex.chmod(codex.stat().st_mode | stat.S_IXUSR)
    said = tomllib.loads(run(shop, tmp_path, "sh", str(EXAMPLES / "coding_agent.sh"), "Fix the test.", CODEX=str(codex)))
    provider = said["model_providers"]["moorage"]
    assert (said["model"], said["model_provider"]) == ("demo", "moorage")
    assert provider == {
        "name": "moorage",
        "base_url": shop.url,
        "env_key": "OPENAI_API_KEY",
        "wire_api": "responses",
        "arguments": "exec --skip-git-repo-check --sandbox workspace-write Fix the test.",
    }


def test_the_browser_chat_streams_and_goes_on(shop: Stack) -> None:
    command = [*program("browser_chat/serve.py"), "0"]
    with subprocess.Popen(command, env=environment(shop), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            with urllib.request.urlopen(url) as page:
                assert b"<title>Chat</title>" in page.read()
            first = chat(url, {"input": "Run `echo ahoy > note.txt`."})
            second = chat(url, {"input": "Run `cat note.txt`.", "previous_response_id": str(first["id"])})
            assert "ahoy" in json.dumps(second["output"])
            foreign = urllib.request.Request(f"{url}/chat", b"{}", {"origin": "https://evil.example.com"})
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(foreign)
        finally:
            server.terminate()


def chat(url: str, message: dict[str, str]) -> dict[str, object]:
    """Send one message as the page does; the response with which its stream ends."""
    request = urllib.request.Request(f"{url}/chat", json.dumps(message).encode(), {"origin": url})
    with urllib.request.urlopen(request) as answer:
        events = [json.loads(line[6:]) for line in answer.read().decode().splitlines() if line.startswith("data: ")]
    assert events[-1]["type"] == "response.completed"
    response: dict[str, object] = events[-1]["response"]
    return response


def test_every_example_is_named_on_its_page() -> None:
    page = (EXAMPLES / "README.md").read_text()
    names = {path.name + "/" * path.is_dir() for path in EXAMPLES.iterdir() if path.name != "README.md"} - {"__pycache__/"}
    assert {name for name in names if f"| `{name}` |" not in page} == set()
