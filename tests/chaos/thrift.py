"""Clients with budgets, and an address that hears of ends, under the blows of ``make chaos``.

Each step of the scripted model takes the same tokens, so what a key, a tenant or a tree has used is known from outside: the sum over
its responses, whoever was told of them. It comes up to the limit, passes it by one step at most, is counted by the budget, and when all
have ended and somebody is refused, nothing is held. A step that a clock was set forward over counts as dead while it still runs: each
such blow may cost what runs at once.

What is looked at in the end is judged by functions that ask nobody, so that a test can show them what went wrong.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
from moorage.cli.main import main
from moorage.store import keys
from moorage.store.api_keys import hash_of, key_id_of

from tests.chaos.upstream import NAME
from tests.receivers import HANG_UP, Answer, Receiver
from tests.scenarios.test_tenants import make_key
from tests.stack import Stack, say, script

TENANT: Final = "thrifty"
STEP_TOKENS: Final = 18
"""Of each answer of the scripted model (``tests/upstream.py``)."""
KEY_TOKENS, TENANT_TOKENS, TREE_TOKENS = 5 * STEP_TOKENS, 20 * STEP_TOKENS, 6 * STEP_TOKENS
"""The key's is well below its half of the tenant's, so that it comes to its end before that does."""
AT_ONCE: Final = 4
HOLD_SECONDS: Final = 901
SETTLED_SECONDS_MAX: Final = 300
PAUSE_SECONDS: Final = 0.3
_RUN: Final[dict[str, Any]] = {"model": NAME, "input": script(say("x")), "background": True, "max_output_tokens": 16}


@dataclass
class Thrift:
    """Two keys of a tenant that has a budget, one of which has one of its own, and a tree of forks with a third."""

    stack: Stack
    url: str
    """By way of which the load goes."""
    refused: int = 0
    keys: list[str] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def begin(self) -> None:
        """Before anything goes wrong. No key is used before it has its budget: processes remember a key for half a minute."""
        self.keys = [make_key(self.stack, TENANT) for _ in range(2)]
        environ = {"MOORAGE_STATE_DIR": str(self.stack.state_dir)}
        assert main(["keys", "budget", key_id_of(hash_of(self.keys[0])), "--total-tokens", str(KEY_TOKENS), "--json"], environ) == 0
        assert main(["keys", "budget", "--tenant", TENANT, "--total-tokens", str(TENANT_TOKENS), "--json"], environ) == 0
        works = [lambda key=key: self._ask(key) for key in self.keys for _ in range(AT_ONCE // 2)]
        self.threads = [threading.Thread(target=self._until_stopped, args=(work,), daemon=True) for work in (*works, self._fork)]
        for thread in self.threads:
            thread.start()

    def end(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join(130)

    def seen(self) -> "Seen":
        """How it stands once everything has ended; the clock stands beyond what a hold lasts."""
        with self.stack.http(self.keys[0]) as first, self.stack.http(self.keys[1]) as second:
            of_tenant = _settled(first)
            # Whoever is refused gives back what the dead hold.
            refused = {"key": _is_refused(first), "tenant": _is_refused(second)}
            _settled(second)
            standings = {standing["scope"]: standing for standing in first.get("/me").json()["budgets"]}
            assert [one["scope"] for one in second.get("/me").json()["budgets"]] == ["tenant"]
        with self.stack.http() as http:
            forked = _settled(http)
        key_id = key_id_of(hash_of(self.keys[0]))
        return Seen(of_tenant, key_id, standings, _held(self.stack, refused), forked, self.roots)

    def _until_stopped(self, work: Callable[[], None]) -> None:
        while not self.stopped.is_set():
            with suppress(httpx.HTTPError, KeyError, ValueError):
                work()
            self.stopped.wait(PAUSE_SECONDS)

    def _ask(self, key: str) -> None:
        with httpx.Client(base_url=self.url, headers={"authorization": f"Bearer {key}"}, timeout=60) as http:
            self.refused += http.post("/responses", json=_RUN).status_code == 429

    def _fork(self) -> None:
        with httpx.Client(base_url=self.url, headers={"authorization": f"Bearer {self.stack.key}"}, timeout=60) as http:
            if not self.roots:
                made = http.post("/responses", json={**_RUN, "budget": {"total_tokens": TREE_TOKENS, "scope": "tree"}})
                self.roots.append(made.json()["id"])
            root = self.roots[-1]
            if http.get(f"/responses/{root}").json()["status"] == "completed":
                self.refused += http.post(f"/responses/{root}/fork", json={"input": "more", "background": True}).status_code == 429


@dataclass(frozen=True)
class Seen:
    """How it stands when all has ended."""

    of_tenant: list[dict[str, Any]]
    """The rows of the tenant that has a budget ..."""
    key_id: str
    """... of which those of this key draw from another one, too."""
    standings: dict[str, dict[str, Any]]
    """What the budgets say of themselves, by scope ..."""
    held: dict[str, int]
    """... and what they hold, in truth."""
    forked: list[dict[str, Any]]
    """The rows of another tenant, trees of forks among them ..."""
    roots: list[str]
    """... with a budget each."""


def judged(seen: Seen, forward_jumps: int) -> list[str]:
    """All that is not as it must be."""
    spared = STEP_TOKENS * (1 + forward_jumps * AT_ONCE)
    found = [
        f"{what} was overrun: {used} tokens were used, and {limit + spared} is what it may come to"
        for what, used, limit in _budgets(seen)
        if used > limit + spared
    ]
    for scope, (what, used, _) in zip(("key", "tenant"), _budgets(seen), strict=False):
        counted, held = seen.standings[scope]["used"]["total_tokens"], seen.held[scope]
        if counted < used:
            found.append(f"{what} has counted {counted} tokens of {used}")
        if held:
            found.append(f"{what} holds {held} tokens for nobody")
    return found


def untried(seen: Seen) -> list[str]:
    """Budgets that nobody has used up: whether they hold was not seen."""
    unused = [f"{what} was never used up: {used} of {limit} tokens" for what, used, limit in _budgets(seen) if used < limit]
    return unused if seen.roots else [*unused, "no tree of forks was ever begun"]


def _budgets(seen: Seen) -> Iterator[tuple[str, int, int]]:
    """Of each budget its name, what was used of it and its limit."""
    yield "the key's budget", _used(one for one in seen.of_tenant if one["key_id"] == seen.key_id), KEY_TOKENS
    yield "the tenant's budget", _used(seen.of_tenant), TENANT_TOKENS
    for root in seen.roots:
        tree = [one for one in seen.forked if root in (one["id"], one["forked_from"])]
        yield f"the budget of the tree of {root}", _used(tree), TREE_TOKENS


def _used(responses: Any) -> int:
    return sum(one["usage"]["total_tokens"] for one in responses if one["usage"] is not None)


def _is_refused(http: httpx.Client) -> bool:
    return http.post("/responses", json=_RUN).status_code == 429


def _held(stack: Stack, refused: Mapping[str, bool]) -> dict[str, int]:
    """Tokens that the records of the tenant's budgets hold for somebody, whether their time is over or not; by scope. Of one that has
    refused nobody that is nothing wrong."""
    held: dict[str, int] = {}
    for record in (record for record in stack.records() if record["PK"] == keys.budgets(TENANT)):
        entries = [entry for name, entry in record.items() if name.startswith("h_")]
        scope = record["SK"].partition(":")[0]
        held[scope] = sum(entry["held"].get("total_tokens", 0) for entry in entries) if refused[scope] else 0
    return held


def _settled(http: httpx.Client) -> list[dict[str, Any]]:
    """All responses of a key's tenant, when none of them runs any more."""
    deadline = time.monotonic() + SETTLED_SECONDS_MAX
    while True:
        listed: list[dict[str, Any]] = []
        query: dict[str, Any] = {"limit": 100}
        while True:
            page = http.get("/responses", params=query).raise_for_status().json()
            listed += page["data"]
            if not page["has_more"]:
                break
            query["after"] = page["last_id"]
        if not any(one["status"] in ("queued", "in_progress") for one in listed):
            return listed
        assert time.monotonic() < deadline, "a response does not end"
        time.sleep(0.3)


# --- webhooks ----------------------------------------------------------------------------------------------------------------


def moods(seed: int) -> list[Answer]:
    """What the receiver answers at first: not always well."""
    dice = random.Random(seed)
    return [dice.choice((500, HANG_UP)) if dice.random() < 0.2 else 200 for _ in range(40)]


def listen(stack: Stack, receiver: Receiver) -> None:
    types = [f"response.{status}" for status in ("completed", "failed", "cancelled", "incomplete")]
    with stack.http() as http:
        http.post("/webhook_endpoints", json={"name": "chaos", "url": receiver.url, "event_types": types}).raise_for_status()


def unheard(stack: Stack, receiver: Receiver, response_ids: Any) -> list[str]:
    """Background responses that are there and whose end nobody was told of, after all the time that takes."""
    with stack.http() as http:
        ends = {}
        for response_id in response_ids:
            answer = http.get(f"/responses/{response_id}")
            if answer.status_code == 200:
                ends[response_id] = f"response.{answer.json()['status']}"
    deadline = time.monotonic() + SETTLED_SECONDS_MAX
    while True:
        missing = untold(ends, receiver.taken)
        if not missing or time.monotonic() > deadline:
            return missing
        time.sleep(0.3)


def untold(ends: Mapping[str, str], events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of these responses and the types of their ends, those that no event is of; and events of ends that were others."""
    heard: dict[str, set[str]] = {}
    for event in events:
        heard.setdefault(event["data"]["id"], set()).add(event["type"])
    if not ends:
        return ["no response in the background has ended"]
    silent = [response_id for response_id, kind in ends.items() if kind not in heard.get(response_id, ())]
    return [f"{response_id}: nobody was told of its end" for response_id in silent] + [
        f"{response_id} ended with {kind}, and was told of as {sorted(heard[response_id])}"
        for response_id, kind in ends.items()
        if heard.get(response_id, {kind}) - {kind}
    ]
