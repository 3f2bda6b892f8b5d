"""Sessions of agents under blows: what their clients do and were told, and what must be there when all has come to rest.

Each message and each result is sent with a key of its own, again and again until it is accepted. So each is an item once, in the order
in which it was sent, whatever died meanwhile.
"""

import json
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from tests.stack import say, script, shell

HOSTED: Final = {"type": "openai_hosted"}
WEIGH: Final = {
    "type": "function",
    "name": "weigh",
    "description": "The weight of a parcel.",
    "parameters": {"type": "object", "properties": {"parcel": {"type": "string"}}},
}
REST_SECONDS_MAX: Final = 300
LOOK_SECONDS: Final = 0.3
MARKED: Final = ("was not run again", "could not be run", "stopped while this command")


@dataclass
class SessionTold:
    id: str
    sent: dict[str, str] = field(default_factory=dict)
    """Texts by the keys that they were sent with, in their order."""
    accepted: set[str] = field(default_factory=set)
    """Keys."""
    results: dict[str, str] = field(default_factory=dict)
    """Keys by ``call_id``."""
    tokens: list[str] = field(default_factory=list)
    """Of commands."""
    decisions: dict[str, str] = field(default_factory=dict)
    """About orders that waited for a person, by ``sku``: whoever decides twice decides alike."""


class SessionClient:
    """A person, who decides about orders too, and whoever runs the functions of the agent."""

    def __init__(self, told: list[SessionTold], dice: random.Random, stopped: threading.Event, depot_url: str = "") -> None:
        self._told, self._dice, self._stopped, self._depot_url = told, dice, stopped, depot_url

    def drive(self, http: httpx.Client) -> None:
        """One session, from its beginning to its last message."""
        transport = {"type": "http", "server_url": self._depot_url}
        depot = {"type": "mcp", "server_label": "depot", "transport": transport, "require_approval": "always"}
        body = {"agent": {"model": "demo", "tools": [WEIGH, depot] if self._depot_url else [WEIGH]}, "environment": HOSTED}
        answer = http.post("/agents/sessions", json=body)
        answer.raise_for_status()
        session = SessionTold(answer.json()["id"])
        self._told.append(session)
        for _ in range(self._dice.randint(2, 4)):
            key = secrets.token_hex(8)
            session.sent[key] = self._text(session)
            while not self._stopped.is_set() and not delivered(http, session, key, _message(session.sent[key])):
                self._stopped.wait(0.5)
            for _ in range(self._dice.randint(0, 6)):
                self._stopped.wait(self._dice.uniform(0, 0.7))
                if not self._stopped.is_set():
                    answered(http, session)
            if self._dice.random() < 0.15:
                http.post(f"/agents/sessions/{session.id}/events", json={"events": [{"type": "agent.session.input.cancel"}]})

    def _text(self, session: SessionTold) -> str:
        steps: list[Any] = []
        for _ in range(self._dice.randint(0, 2)):
            token = f"tok_{secrets.token_hex(8)}"
            session.tokens.append(token)
            steps.append(shell(f"echo {token} ; sleep {self._dice.uniform(0.2, 1.5):.2f} ; echo end"))
        if self._dice.random() < 0.5:
            steps.insert(0, {"call": {"name": "weigh", "arguments": {"parcel": secrets.token_hex(4)}}})
        if self._depot_url and self._dice.random() < 0.5:
            steps.insert(0, {"call": {"name": "depot__order_part", "arguments": {"sku": secrets.token_hex(8), "count": 1}}})
        return script(*steps, say(f"Heard {secrets.token_hex(8)}."))


def _message(text: str) -> Mapping[str, Any]:
    return {"type": "agent.session.input.message", "input": [{"role": "user", "content": [{"type": "input_text", "text": text}]}]}


def delivered(http: httpx.Client, session: SessionTold, key: str, event: Mapping[str, Any]) -> bool:
    """One try. What is refused for good is no message that was lost, and fails here."""
    try:
        answer = http.post(f"/agents/sessions/{session.id}/events", json={"events": [event]}, headers={"idempotency-key": key})
    except httpx.HTTPError:
        return False
    assert answer.status_code in (202, 409, 429) or answer.status_code >= 500, answer.text
    if answer.status_code == 202:
        session.accepted.add(key)
    return answer.status_code == 202


def answered(http: httpx.Client, session: SessionTold) -> None:
    """Give a result to each call that waits for one, and decide about each order, unless the turn was cancelled meanwhile."""
    shown = http.get(f"/agents/sessions/{session.id}")
    for action in shown.json()["required_actions"] if shown.status_code == 200 else ():
        if action["type"] == "mcp_approval_request":
            _decide(http, session, action)
            continue
        key = session.results.setdefault(action["call_id"], secrets.token_hex(8))
        event = {"type": "agent.session.input.tool_result", "turn_id": action["turn_id"], "call_id": action["call_id"]}
        body = {"events": [{**event, "success": True, "output": f"3 kg {action['call_id']}"}]}
        http.post(f"/agents/sessions/{session.id}/events", json=body, headers={"idempotency-key": key})


def _decide(http: httpx.Client, session: SessionTold, action: Mapping[str, Any]) -> None:
    sku = action["request"]["arguments"]["sku"]
    decision = session.decisions.setdefault(sku, "approve" if int(sku, 16) % 3 else "deny")
    response = {"type": "mcp_tool_call", "decision": decision}
    event = {"type": "agent.session.input.mcp_approval_request_result", "request_id": action["request_id"], "response": response}
    http.post(f"/agents/sessions/{session.id}/events", json={"events": [event]})


# --- afterwards --------------------------------------------------------------------------------------------------------------


def session_violations(
    http: httpx.Client, session: SessionTold, begun: Mapping[str, set[tuple[int, str]]], dice: random.Random
) -> list[str]:
    """All of one session that is not as it must be, once its client has got rid of everything, and has said a last word."""
    for key, text in session.sent.items():
        _until(
            lambda key=key, text=text: key in session.accepted or delivered(http, session, key, _message(text)), "it is not accepted"
        )
    _until_rest(http, session)
    last = secrets.token_hex(8)
    session.sent[last] = script(say("The end."))
    _until(lambda: delivered(http, session, last, _message(session.sent[last])), "the last word is not accepted")
    _until_rest(http, session)
    turns = _all(http, f"/agents/sessions/{session.id}/turns")
    items = _all(http, f"/agents/sessions/{session.id}/items")
    heard = [item["content"][0]["text"] for item in items if item["type"] == "message" and item["role"] == "user"]
    found: list[str] = []
    if heard != list(session.sent.values()):
        counts = Counter(heard)
        numbers = [counts[text] for text in session.sent.values()]
        found.append(
            f"{session.id}: its messages are there {numbers} times, or in another order, beside {len(heard) - sum(numbers)} others"
        )
    outputs = Counter(item["call_id"] for item in items if item["type"] == "function_call_output")
    found += [f"{session.id}: {call_id} has {times} results" for call_id, times in outputs.items() if times > 1]
    found += [f"{session.id}: {turn['id']} is {turn['status']}" for turn in turns if turn["status"] not in ("completed", "cancelled")]
    said = [json.dumps(item) for item in items if item["type"] == "command_execution"]
    for token in session.tokens:
        whole = next((text for text in said if token in text), "")
        if len(begun.get(token, ())) > 1 and not any(words in whole for words in MARKED):
            found.append(f"{session.id}: {token} has begun {len(begun[token])} times, and nothing says so")
    return found + _told_wrong(http, session, turns, dice)


def ordered_wrong(session: SessionTold, orders: Sequence[tuple[str, int]]) -> list[str]:
    """Orders that were denied and made all the same."""
    made = {sku for sku, _ in orders}
    return [f"{session.id}: {sku} was denied and ordered" for sku, said in session.decisions.items() if said == "deny" and sku in made]


def _told_wrong(http: httpx.Client, session: SessionTold, turns: list[dict[str, Any]], dice: random.Random) -> list[str]:
    """Its stream tells what there is, once, and goes on from anywhere."""
    told = _replay(http, session.id, "0", len(turns))
    found: list[str] = []
    if len({event["event_id"] for event in told}) != len(told):
        found.append(f"{session.id}: an event's id is there twice")
    ends = [event["turn"]["status"] for event in told if event["type"].startswith("agent.session.turn.") and "usage" in event]
    if ends != [turn["status"] for turn in turns]:
        found.append(f"{session.id}: its stream tells of {ends}")
    at = dice.randrange(len(told) - 1)
    if _replay(http, session.id, told[at]["event_id"], len(turns)) != told[at + 1 :]:
        found.append(f"{session.id}: replayed behind {told[at]['event_id']} it is another stream")
    return found


def _replay(http: httpx.Client, session_id: str, after: str, turns: int) -> list[dict[str, Any]]:
    query = {"include_obfuscation": "false", "after": after}
    found: list[dict[str, Any]] = []
    with http.stream("GET", f"/agents/sessions/{session_id}/events", params=query) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line.removeprefix("data: ")))
                if found[-1]["type"] == "agent.session.idle" and found[-1]["event_id"].startswith(f"evt_{turns:08x}"):
                    return found
    raise AssertionError("the stream has ended")


def _until_rest(http: httpx.Client, session: SessionTold) -> None:
    def rests() -> bool:
        answered(http, session)
        answer = http.get(f"/agents/sessions/{session.id}")
        return bool(answer.status_code == 200 and answer.json()["status"] == "idle")

    _until(rests, "it does not come to rest")


def _until(condition: Any, otherwise: str) -> None:
    deadline = time.monotonic() + REST_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(LOOK_SECONDS)


def _all(http: httpx.Client, path: str) -> list[dict[str, Any]]:
    """In order, page by page."""
    found: list[dict[str, Any]] = []
    while True:
        query: dict[str, Any] = {"order": "asc", "limit": 100} | ({"after": found[-1]["id"]} if found else {})
        answer = http.get(path, params=query)
        answer.raise_for_status()
        found += answer.json()["data"]
        if not answer.json()["has_more"]:
            return found
