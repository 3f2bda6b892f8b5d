"""A long loop continues in successor executions before a history grows too long, and loses nothing: through three of them, and with
``make soak`` for two thousand rounds."""

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from moorage import limits

from tests.stack import SHELL, Stack, assert_well_formed, raw_events, say, script, shell

ROUNDS = int(os.environ.get("SOAK_ROUNDS", 2 * limits.EXECUTION_ROUNDS_MAX + 1))
CALLS_MAX = 1
"""Calls over the maximum are answered by the loop itself: rounds without a container, so that the loop alone is driven."""


@pytest.mark.timeout(1500)
def test_a_loop_of_many_executions_ends_well(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "state").start()
    try:
        tools: Any = [SHELL]
        client = stack.client()
        text = script({"repeat": {"times": ROUNDS, "step": shell("true")}}, say("The end."))
        queued = client.responses.create(model="demo", input=text, tools=tools, max_tool_calls=CALLS_MAX, background=True)
        while (ended := client.responses.retrieve(queued.id)).status in ("queued", "in_progress"):
            time.sleep(2)
        assert (ended.status, ended.output_text, len(ended.output)) == ("completed", "The end.", 2 * ROUNDS + 1)
        with (
            stack.http() as http,
            http.stream("GET", f"/responses/{queued.id}", params={"stream": "true", "include_obfuscation": "false"}) as answer,
        ):
            assert_well_formed(raw_events(answer.iter_lines()))
        assert executions_of(stack, queued.id) == -(-(ROUNDS + 1) // limits.EXECUTION_ROUNDS_MAX)
    finally:
        assert stack.stop() == 0


def executions_of(stack: Stack, response_id: str) -> int:
    """How many executions ran the response."""
    with closing(sqlite3.connect(f"file:{stack.state_dir / 'executions.sqlite'}?mode=ro", uri=True)) as executions:
        (found,) = executions.execute("SELECT COUNT(*) FROM executions WHERE name LIKE ? || '%'", (response_id,)).fetchone()
    return int(found)
