"""``moorage tail``: watch a response, from its beginning or from any event. One that has ended is shown just the same."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TextIO

import httpx
import orjson

from moorage.cli.show import paint
from moorage.cli.target import answer_of, find

Event = dict[str, Any]


def add_to(commands: Any) -> None:
    parser = commands.add_parser("tail", help="watch a response live, or replay it")
    parser.add_argument("response_id", metavar="RESPONSE_ID")
    parser.add_argument("--from", dest="start", type=int, default=0, metavar="N", help="begin with event N")
    parser.add_argument("--json", action="store_true", help="print the events as they are, one a line")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    query: dict[str, Any] = {"stream": "true", "include_obfuscation": "false"}
    if options.start > 0:
        query["starting_after"] = options.start - 1
    with find(environ).http() as http, http.stream(
        "GET", f"/responses/{options.response_id}", params=query, timeout=httpx.Timeout(30, read=None)
    ) as answer:
        if not answer.is_success:
            answer.read()
            answer_of(answer)
        events = _events(answer.iter_lines())
        if options.json:
            for event in events:
                print(orjson.dumps(event).decode(), flush=True)
            return 0
        return View(sys.stdout).show(events)


def _events(lines: Iterable[str]) -> Iterator[Event]:
    """The events of an SSE stream; comments keep it awake and say nothing."""
    for line in lines:
        if line.startswith("data: {"):
            yield orjson.loads(line.removeprefix("data: "))


@dataclass(slots=True)
class View:
    """A response as a transcript: what was said, run and printed, in the order in which it came."""

    out: TextIO
    _at: tuple[Any, ...] = ()
    """What the current line belongs to; a delta of anything else begins a new one."""
    _column: int = 0

    def show(self, events: Iterable[Event]) -> int:
        """0 if the response completed, 1 otherwise."""
        final = ""
        for event in events:
            self._event(event)
            if "response" in event:
                final = event["response"]["status"]
        self._line()
        return 0 if final == "completed" else 1

    def _event(self, event: Event) -> None:
        index = event.get("output_index", -1)
        match event["type"].removeprefix("response."):
            case "output_text.delta" | "refusal.delta":
                self._text((index,), event["delta"])
            case "reasoning_summary_text.delta" | "reasoning_text.delta":
                self._text((index, "thought"), event["delta"], "dim")
            case "output_item.added":
                self._added(event["item"])
            case "function_call_arguments.delta" | "custom_tool_call_input.delta" | "code_interpreter_call_code.delta":
                self._text((index, "arguments"), event["delta"], "cyan")
            case "shell_call_command.done":
                self._whole(f"$ {event['command']}", "cyan")
            case "shell_call_output_content.delta":
                for stream, text in event["delta"].items():
                    if text:
                        key = (index, event["command_index"])
                        self._text((*key, stream), text, "yellow" if stream == "stderr" else "")
            case "shell_call_output_content.done":
                outcome = event["output"][0]["outcome"]
                said = "timed out" if outcome["type"] == "timeout" else f"exit {outcome['exit_code']}"
                self._whole(f"[{said}]", "dim" if outcome.get("exit_code") == 0 else "red")
            case "created" | "queued" | "in_progress" as word:
                self._whole(f"[{event['sequence_number']}] {event['response']['id']} {word}", "dim")
            case "error":
                self._whole(f"error {event['error']['code']}: {event['error']['message']}", "red")
            case "completed" | "incomplete" | "failed" | "cancelled" as word:
                self._ended(event, word)

    def _added(self, item: dict[str, Any]) -> None:
        match item["type"]:
            case "function_call" | "custom_tool_call":
                self._whole(f"calls {item['name']}", "bold")
            case "reasoning" | "message" | "shell_call" | "shell_call_output":
                pass
            case other:
                self._whole(other, "bold")

    def _ended(self, event: Event, word: str) -> None:
        usage = event["response"].get("usage") or {}
        counted = f", {usage['input_tokens']} tokens in, {usage['output_tokens']} out" if usage else ""
        self._whole(f"[{event['sequence_number']}] {word}{counted}", "green" if word == "completed" else "red")

    def _text(self, at: tuple[Any, ...], text: str, colour: str = "") -> None:
        if at != self._at:
            self._line()
            self._at = at
        self.out.write(paint(text, colour, self.out) if colour else text)
        self._column = 0 if text.endswith("\n") else 1
        self.out.flush()

    def _whole(self, text: str, colour: str) -> None:
        self._line()
        self.out.write(paint(text, colour, self.out) + "\n")
        self.out.flush()

    def _line(self) -> None:
        if self._column:
            self.out.write("\n")
        self._column, self._at = 0, ()
