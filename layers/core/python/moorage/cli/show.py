"""``moorage show``: one response, and its loop step by step."""

import argparse
import time
from collections.abc import Mapping
from typing import Any, Final

from moorage.cli.ls import waiting
from moorage.cli.output import add_json, duration, moment, say_json, table
from moorage.cli.pages import entries
from moorage.cli.target import answer_of, find
from moorage.command_hints import typed_here
from moorage.terminal import say

_HEAD: Final = ("STEP", "TYPE", "STATUS", "QUEUED", "FIRST OUTPUT", "TOOK", "TOKENS", "DOLLARS", "RUNS", "")


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show a response and its loop, step by step: times, runs and why, tokens, what it waits for."
    parser.add_argument("response_id", metavar="RESPONSE_ID", help="resp_..., of a stored response")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        response = answer_of(http.get(f"/responses/{options.response_id}"))
        steps = list(entries(http, f"/responses/{options.response_id}/steps"))
    if options.json:
        say_json(response | {"steps": steps})
        return 0
    now = time.time()
    say(f"{response['id']}  {response['status']}  {response['model']}  {moment(response['created_at'])}")
    if response["error"]:
        say(typed_here(f"{response['error']['code']}: {response['error']['message']}"), colour="red")
    say(table(_HEAD, [_cells(step, now) for step in steps]))
    if response["usage"]:
        usage = response["usage"]
        cached = usage["input_tokens_details"]["cached_tokens"]
        say(f"{usage['input_tokens']} tokens in ({cached} cached), {usage['output_tokens']} out")
    return 0


def _cells(step: Mapping[str, Any], now: float) -> tuple[str, ...]:
    begun, first, end = step["started_at"], step["first_output_at"], step["ended_at"]
    took = "" if begun is None else duration((now * 1000 if end is None else end) / 1000 - begun / 1000)
    wait, attempts = step["waiting_for"], step["attempts"]
    return (
        str(step["step"]) if step["call_id"] is None else f"  {step['call_id']}",
        step["type"],
        step["status"],
        "" if step["queue_ms"] is None else duration(step["queue_ms"] / 1000),
        "" if begun is None or first is None else duration((first - begun) / 1000),
        took,
        str(step["usage"]["total_tokens"]) if step["usage"] else "",
        "" if step["cost_usd"] is None else f"{step['cost_usd']:.6f}",
        str(attempts["count"]),
        waiting(wait, now) if wait else attempts["why"] or "",
    )
