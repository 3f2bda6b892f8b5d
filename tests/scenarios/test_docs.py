"""The documentation's Python, run as a reader would: block by block, each alone, against a running stack."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.test_tenants import make_key
from tests.stack import ROOT, Stack

PAGES = sorted(
    str(page.relative_to(ROOT)) for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] if "```python\n" in page.read_text()
)
READERS_HAVE = {"openai"}
"""The packages that a reader has installed."""
BLOCK_BY_BLOCK = """
import json, sys
for block in json.load(sys.stdin):
    exec(compile(block, "a block of the page", "exec"), {"__name__": "__main__"})
"""


def program_of(page: str) -> str:
    """The page's Python blocks as one program, each line at its own number."""
    lines: list[str] = []
    is_python = False
    for line in (ROOT / page).read_text().splitlines():
        is_fence = line.startswith("```")
        lines.append(line if is_python and not is_fence else "")
        is_python = line == "```python" if is_fence else is_python
    return "\n".join(lines)


def blocks_of(page: str) -> list[str]:
    """Each block as a program, its lines at their own numbers."""
    program = program_of(page).splitlines()
    blocks: list[str] = []
    is_python = False
    for number, line in enumerate((ROOT / page).read_text().splitlines()):
        if line.startswith("```"):
            is_python = line == "```python" and not is_python
            blocks += ["\n" * number] if is_python else []
        elif is_python:
            blocks[-1] += f"\n{program[number]}"
    return blocks


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_needs_the_sdk_alone(page: str) -> None:
    nodes = list(ast.walk(ast.parse(program_of(page))))
    imported = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    imported += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    assert {name.partition(".")[0] for name in imported} - READERS_HAVE - sys.stdlib_module_names == set()


NEEDS = {"docs/computer.md": "chromium"}
"""Programs of the machine without which a page cannot be tried."""


@pytest.mark.parametrize("page", PAGES)
def test_each_block_of_a_page_runs_alone(page: str, stack: Stack, tmp_path: Path) -> None:
    if page in NEEDS and shutil.which(NEEDS[page]) is None:
        pytest.skip(f"{NEEDS[page]} is not installed ('make setup-dev' installs it).")
    (tmp_path / "data.csv").write_text("month,amount\n1,30\n2,12\n")
    key = make_key(stack, re.sub("[^a-z0-9]", "-", page.lower()))
    blocks = [block.replace("http://127.0.0.1:8080/v1", stack.url).replace("sk-moorage-...", key) for block in blocks_of(page)]
    run = subprocess.run(
        [sys.executable, "-c", BLOCK_BY_BLOCK],
        input=json.dumps(blocks),
        cwd=tmp_path,
        env=os.environ | {"OPENAI_BASE_URL": stack.url, "OPENAI_API_KEY": key},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.stderr == ""
    assert run.returncode == 0
    assert [response["input_preview"] for response in responses(stack, key) if is_idle(response)] == []


def responses(stack: Stack, key: str) -> list[dict[str, Any]]:
    """What a page's program has stored, each as it is listed and as it is read."""
    with stack.http(key) as http:
        listed = http.get("/responses", params={"limit": 100}).json()["data"]
        return [one | http.get(f"/responses/{one['id']}").json() for one in listed]


def is_idle(response: dict[str, Any]) -> bool:
    """A reader is shown how commands or code are run, and the scripted model, which they try it on, ran nothing."""
    offered = {tool["type"] for tool in response["tools"]} & {"shell", "code_interpreter"}
    is_example = offered and response["input_preview"] not in ("", "hello") and not response.get("forked_from")
    return bool(is_example) and not any(item["type"].endswith("_call") for item in response["output"])
