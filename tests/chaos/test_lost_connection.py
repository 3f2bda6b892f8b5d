"""The API loses sight of a response that the state machine runs, while a client waits for its one answer."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from openai import InternalServerError, OpenAI

from tests.processes import descendants, kill_all
from tests.stack import SHELL, Stack, say, script, shell

TOOLS: Any = [SHELL]
COMMAND = "sleep 321.5"


def until_it_runs(below: int) -> None:
    deadline = time.monotonic() + 60
    while not any(line.startswith(COMMAND) for line in descendants(below).values()):
        assert time.monotonic() < deadline, "the command was never started"
        time.sleep(0.02)


def test_the_sdk_does_not_repeat_a_request_whose_commands_go_on(tmp_path: Path) -> None:
    """Its own rule is to send again what met a 500; ``x-should-retry: false`` tells it that this one must not run twice."""
    stack = Stack(tmp_path / "state").start()
    assert stack.process is not None
    try:
        with OpenAI(base_url=stack.url, api_key=stack.key, max_retries=3, timeout=120) as client, ThreadPoolExecutor() as pool:
            asked = pool.submit(client.responses.create, model="demo", input=script(shell(COMMAND), say("The end.")), tools=TOOLS)
            until_it_runs(stack.process.pid)
            assert kill_all(stack.process.pid, lambda line: "ministack" in line)
            with pytest.raises(InternalServerError) as caught:
                asked.result()
    finally:
        stack.stop()
    assert caught.value.body == {
        "message": "The connection to the running response was lost.",
        "type": "server_error",
        "param": None,
        "code": "server_error",
    }
    assert caught.value.response.headers["x-should-retry"] == "false"
    lines = [json.loads(line) for line in (stack.state_dir / "api.log").read_text().splitlines()]
    told = [(line["method"], line["route"], line["status"]) for line in lines if line["message"] == "request"]
    assert told == [("POST", "/responses", 500)]
