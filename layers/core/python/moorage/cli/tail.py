"""``moorage tail``: watch a response, from its beginning or from any event. One that has ended is shown just the same."""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TextIO

import httpx
import orjson

from moorage.cli.output import add_json, say_json
from moorage.cli.target import TargetError, answer_of, find
from moorage.dataclass import dataclass
from moorage.terminal import say
from moorage.tools.registry import ROOMS
from moorage.tools.room import HostedTool

Event = dict[str, Any]
_FINALS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_COLOURS: Final = {"call": "cyan", "output": "", "problem": "yellow", "note": "dim", "failure": "red"}
_ROUNDS_WITHOUT_EVENTS_MAX: Final = 20
"""A quarter of an hour each on AWS, which is more than a command may take."""
_LIVE_SECONDS: Final = 0.5
"""What comes after such a pause, or so soon after the response was made, comes as it happens; what comes at once had been stored."""


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Watch a response live, or replay one that has ended. Exit code 1 says that it did not complete."
    parser.add_argument("response_id", metavar="RESPONSE_ID", help="resp_..., of a stored response")
    parser.add_argument("--from", dest="start", type=int, default=0, metavar="N", help="begin with event N")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        events = follow(http, options.response_id, options.start)
        if options.json:
            for event in events:
                if event is not None:
                    say_json(event)
            return 0
        return TranscriptView(sys.stdout).show(events)


def follow(http: httpx.Client, response_id: str, start: int) -> Iterator[Event | None]:
    """The events from number ``start`` to the last; None for a sign of life in between. A stream that ends before (on AWS each does
    after 15 minutes) is taken up again."""
    position, rounds_without_events = start - 1, 0
    while rounds_without_events < _ROUNDS_WITHOUT_EVENTS_MAX:
        rounds_without_events += 1
        with contextlib.suppress(httpx.RemoteProtocolError, httpx.ReadError):
            for event in _stream(http, response_id, position):
                if event is None:
                    yield None
                    continue
                position, rounds_without_events = event["sequence_number"], 0
                yield event
                if event["type"] in _FINALS:
                    return
        if answer_of(http.get(f"/responses/{response_id}"))["status"] not in ("queued", "in_progress"):
            return
    raise TargetError(f"The stream of {response_id} ended again and again without an event. 'moorage doctor' looks at the deployment.")


def _stream(http: httpx.Client, response_id: str, starting_after: int) -> Iterator[Event | None]:
    """One stream to its end; comments keep it awake, and are None."""
    query: dict[str, Any] = {"stream": "true", "include_obfuscation": "false"}
    if starting_after >= 0:
        query["starting_after"] = starting_after
    with http.stream("GET", f"/responses/{response_id}", params=query, timeout=httpx.Timeout(30, read=None)) as answer:
        if not answer.is_success:
            answer.read()
            answer_of(answer)
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                yield orjson.loads(line.removeprefix("data: "))
            elif line.startswith(":"):
                yield None


@dataclass(slots=True)
class TranscriptView:
    """A response as a transcript: its texts, commands and output, in order."""

    out: TextIO
    now: Callable[[], float] = time.time
    """Unix seconds."""
    _created_at: float | None = None
    _heard_at: float = 0.0
    """When the last event came."""
    _is_live: bool = False
    """Events come as they happen: the clock means something."""
    _awaits: str = "the model"
    _raw: int = -1
    """The output index of reasoning whose raw text was shown. Its summary may repeat that text."""
    _agent: str | None = None
    """Who speaks, of the agents of a team."""
    _at: tuple[Any, ...] = ()
    """What the current line belongs to; a delta of anything else begins a new one."""
    _column: int = 0

    def show(self, events: Iterable[Event | None]) -> int:
        """0 if the response completed, 1 otherwise."""
        final = ""
        for event in events:
            if event is None:
                self._silence()
                continue
            self._hear(event)
            self._event(event)
            if "response" in event:
                final = event["response"]["status"]
        self._line()
        return 0 if final == "completed" else 1

    def _hear(self, event: Event) -> None:
        now = self.now()
        self._created_at = event.get("response", {}).get("created_at", self._created_at)
        is_new = self._created_at is not None and now - self._created_at < 2 + _LIVE_SECONDS  # It counts in whole seconds.
        self._is_live = self._is_live or is_new or (self._heard_at > 0 and now - self._heard_at >= _LIVE_SECONDS)
        self._heard_at = now

    def _silence(self) -> None:
        """Nothing has come for a while, and somebody watches."""
        if self._heard_at:
            self._is_live = True
            self._whole(f"[{round(self.now() - self._heard_at)} s without a word, waiting for {self._awaits}]", "dim")

    def _event(self, event: Event) -> None:
        index = event.get("output_index", -1)
        agent = event.get("agent", {}).get("agent_name", self._agent)
        if agent != self._agent:
            self._agent = agent
            self._whole(f"{agent}:", "green")
        match event["type"].removeprefix("response."):
            case "output_text.delta" | "refusal.delta":
                self._text((index,), event["delta"])
            case "reasoning_text.delta":
                self._raw = index
                self._text((index, "thought"), event["delta"], "dim")
            case "reasoning_summary_text.delta":
                if self._raw != index:
                    self._text((index, "thought"), event["delta"], "dim")
            case "output_item.added":
                self._added(event["item"])
            case "function_call_arguments.delta" | "custom_tool_call_input.delta":
                self._text((index, "arguments"), event["delta"], "cyan")
            case "created" | "queued" | "in_progress" as word:
                self._whole(f"[{event['sequence_number']}] {event['response']['id']} {word}{_told_of(event['response'])}", "dim")
            case "error":
                self._whole(f"error {event['error']['code']}: {event['error']['message']}", "red")
            case "completed" | "incomplete" | "failed":
                self._ended(event, event["response"]["status"])  # A cancelled response ends with the event 'incomplete'.
            case name:
                self._told(index, name, event)

    def _added(self, item: dict[str, Any]) -> None:
        room = ROOMS.of_item(item["type"])
        is_result = isinstance(room, HostedTool) and room.result_type == item["type"]
        self._awaits = f"the {item['type'].removesuffix('_output')}" if is_result else "the model"
        title = room.title(item) if room is not None else None if item["type"] in ("reasoning", "message") else item["type"]
        if title is not None:
            self._whole(title, "bold")
        if "author" in item:  # A message of another agent of the team comes in one piece.
            self._text((item["id"],), "".join(part["text"] for part in item["content"]), "dim")

    def _told(self, index: int, name: str, event: Event) -> None:
        """The lines of the tool's room about an event."""
        room = ROOMS.of_event(name)
        for told in room.log_notes(name, event) if room is not None else ():
            if told.at:
                self._text((index, *told.at), told.text, _COLOURS[told.tone])
            else:
                self._whole(told.text, _COLOURS[told.tone])

    def _ended(self, event: Event, word: str) -> None:
        usage = event["response"].get("usage") or {}
        counted = f", {usage['input_tokens']} tokens in, {usage['output_tokens']} out" if usage else ""
        taken = event["response"].get("completed_at")
        took = "" if taken is None or self._created_at is None else f", {round(taken - self._created_at)} s in all"
        self._whole(f"[{event['sequence_number']}] {word}{counted}{took}", "green" if word == "completed" else "red")

    def _text(self, at: tuple[Any, ...], text: str, colour: str = "") -> None:
        if at != self._at:
            self._line()
            self._at = at
        say(text, colour=colour, out=self.out, end="")
        self._column = 0 if text.endswith("\n") else 1

    def _whole(self, text: str, colour: str) -> None:
        self._line()
        clock = f"  {self.now() - self._created_at:.1f} s" if self._is_live and self._created_at is not None else ""
        say(text + clock, colour=colour, out=self.out)

    def _line(self) -> None:
        if self._column:
            self.out.write("\n")
        self._column, self._at = 0, ()


def _told_of(response: Mapping[str, Any]) -> str:
    """The model that answers, and the place of its commands."""
    environments = [tool.get("environment") or {} for tool in response.get("tools") or ()]
    container_id = next((found for one in environments if (found := one.get("container_id"))), None)
    model = response.get("model")
    return (f", model {model}" if model else "") + (f", container {container_id}" if container_id else "")
