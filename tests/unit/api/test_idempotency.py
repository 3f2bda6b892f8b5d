"""A repeat that comes while the first request is being put down."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from moorage import limits
from moorage.api.foreground import Foreground
from moorage.api.idempotency import MADE, IdempotentCreate, IdempotentRequests
from moorage.loop.create import PreparedResponse
from moorage.model.remote_servers import RemoteServers
from moorage.store import keys
from moorage.store.idempotency_keys import IdempotencyKeys
from moorage.store.table import Record

from tests.unit.api.served import Served
from tests.unit.loop.lab import FakeExecutions, Lab, say, shell
from tests.unit.loop.test_pause import run_all
from tests.unit.store.deaths import Death, Died
from tests.unit.store.memory import MemoryTable


class SlowToSettle(MemoryTable):
    """The end of a claim is written when the claim has been read twice since its client was answered."""

    def __init__(self) -> None:
        super().__init__()
        self._looks_wanted = 0
        self._looked = asyncio.Event()

    async def put(self, record: Record, *, if_absent: bool = False) -> None:
        if record.get("ended"):
            self._looks_wanted = 2
            await self._looked.wait()
        await super().put(record, if_absent=if_absent)

    async def get(self, pk: str, sk: str, *, consistent: bool = True) -> Record | None:
        if self._looks_wanted and pk.startswith(keys.repeat("t", "")):
            self._looks_wanted -= 1
            if not self._looks_wanted:
                self._looked.set()
        return await super().get(pk, sk, consistent=consistent)


async def test_a_key_of_an_unstored_response_counts_as_used_once_answered() -> None:
    lab = Lab(say("Only once."), table=SlowToSettle())
    catalog = cast("Any", lab.runtime.models.catalog)
    catalog.remote_servers, catalog.default_skills = RemoteServers(), ()
    served = Served.of(lab)
    answers = [
        await served.ask("POST", "/responses", headers={"idempotency-key": "one"}, json={"model": "m", "input": "hi", "store": False})
        for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [200, 409]
    assert answers[1].json()["error"]["code"] == "idempotency_key_used"
    assert len(lab.model.requests) == 1


@pytest.mark.parametrize("seconds", [limits.REPEAT_PENDING_SECONDS, -1000])
async def test_a_key_whose_process_died_is_free_later_although_the_clock_was_set_back(seconds: int) -> None:
    lab = Lab(say("Only once."))
    catalog = cast("Any", lab.runtime.models.catalog)
    catalog.remote_servers, catalog.default_skills = RemoteServers(), ()
    served = Served.of(lab)

    async def send() -> tuple[int, str]:
        body = {"model": "m", "input": "hi", "background": True}
        answer = await served.ask("POST", "/responses", headers={"idempotency-key": "one"}, json=body)
        return answer.status_code, (answer.json().get("error") or {}).get("code", "")

    lab.table.before_write = Death(1)
    with suppress(Died):
        await send()
    lab.table.before_write = None
    assert await send() == (409, "idempotency_key_pending")
    lab.now += seconds
    assert await send() == (200, "")


@pytest.mark.parametrize("count", ["²", "-1", "many", "1000"])
async def test_a_count_of_tries_that_is_none_is_no_reason_to_fail(count: str) -> None:
    served = Served.of(Lab(say("Once."), say("Twice.")))
    headers: dict[str, Any] = {"x-stainless-retry-count": count.encode("latin-1")}
    answers = [await served.ask("POST", "/responses", headers=headers, json={"model": "m", "input": "hi"}) for _ in range(2)]
    assert [answer.json()["output"][0]["content"][0]["text"] for answer in answers] == ["Once.", "Twice."]


class Noting(MemoryTable):
    """Notes when a key is claimed, and when its claim is settled or given back."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    async def put(self, record: Record, *, if_absent: bool = False) -> None:
        await super().put(record, if_absent=if_absent)
        self.seen.append("claimed" if if_absent else "settled")

    async def delete(self, pk: str, sk: str, *, condition: Mapping[str, Any] | None = None) -> Record | None:
        self.seen.append("given back")
        return await super().delete(pk, sk, condition=condition)


@pytest.mark.parametrize(("status", "outcome"), [(200, "settled"), (500, "given back")])
async def test_who_has_the_whole_answer_may_repeat_at_once(status: int, outcome: str) -> None:
    table = Noting()

    async def create(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})
        await send({"type": "http.response.body", "body": b"}"})

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        table.seen.append(message.get("body", "begun"))

    told = {"type": "http", "method": "POST", "path": "/v1/conversations", "query_string": b"", "headers": [(b"idempotency-key", b"k")]}
    await IdempotentRequests(create, Lab(table=table).runtime)({**told, "state": {"tenant_id": "t", "request_id": "r"}}, receive, send)
    assert table.seen == ["claimed", "begun", b"{", outcome, b"}"]


async def test_a_stream_that_fails_before_it_begins_leaves_its_session_to_the_repeat() -> None:
    found: list[Any] = []

    async def create(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        found.append(scope["state"].get(MADE))
        scope["state"][MADE] = "session_1"
        raise RuntimeError

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    requests = IdempotentRequests(create, Lab().runtime)
    told = {
        "type": "http",
        "method": "POST",
        "path": "/v1/agents/sessions",
        "query_string": b"",
        "headers": [(b"idempotency-key", b"k")],
    }
    for request_id in ("r1", "r2"):
        with suppress(RuntimeError):
            await requests({**told, "state": {"tenant_id": "t", "request_id": request_id}}, receive, send)
    assert found == [None, "session_1"]


# --- retries that bring no key ---


@dataclass
class SlowToStart(FakeExecutions):
    """An execution runs before whoever started it has heard of that."""

    has_started: asyncio.Event = field(default_factory=asyncio.Event)
    may_be_heard: asyncio.Event = field(default_factory=asyncio.Event)

    async def start_soon(self, name: str, state: dict[str, Any], trace: Any) -> bool:
        await self.start(name, state, trace)
        self.has_started.set()
        await self.may_be_heard.wait()
        return True


class SlowToNote(MemoryTable):
    """Where a retry goes on is written when the retry has looked for it longer than it would for a client that is still there."""

    def __init__(self) -> None:
        super().__init__()
        self.looks_wanted = round(1.1 * limits.RETRY_NOTE_SECONDS / limits.RETRY_NOTE_POLL_SECONDS)
        self._looked = asyncio.Event()

    async def put(self, record: Record, *, if_absent: bool = False) -> None:
        if record["SK"].startswith("LEFT#"):
            await self._looked.wait()
        await super().put(record, if_absent=if_absent)

    async def query(self, pk: str, **bounds: Any) -> list[Record]:
        if pk.startswith(keys.repeat("t", "")):
            self.looks_wanted -= 1
            if not self.looks_wanted:
                self._looked.set()
        return await super().query(pk, **bounds)


def attempt(lab: Lab, retries: int) -> IdempotentCreate:
    return IdempotentCreate(
        lab.runtime, IdempotencyKeys(lab.table, lab.runtime.clock), "t", f"req_{retries}", "key", "the same", None, retries
    )


async def test_a_client_that_leaves_during_the_hand_over_runs_nothing_twice() -> None:
    lab, executions = Lab(shell("ls"), say("done")), SlowToStart()
    lab.executions = cast("Any", executions)
    lab.runtime.stores = replace(lab.runtime.stores, executions=lab.executions)
    stored = lab.stored(is_background=False, is_looping=False)
    client = asyncio.create_task(Foreground(lab.runtime, PreparedResponse(stored, [], False), attempt=attempt(lab, 0)).final())
    await executions.has_started.wait()
    client.cancel()
    with suppress(asyncio.CancelledError):
        await client
    retry = asyncio.create_task(attempt(lab, 1).earlier())
    asyncio.get_running_loop().call_later(0.2, executions.may_be_heard.set)
    earlier = await retry
    assert earlier is not None
    assert (earlier.stored.response_id, earlier.is_final) == (stored.response_id, False)
    await run_all(lab, stored.response_id)
    assert (await lab.object_of(stored))["status"] == "completed"
    assert (len(lab.sandboxes.executed), await attempt(lab, 2).earlier()) == (1, None)
    assert (dict(lab.runtime.process.attempts), dict(lab.runtime.process.farewells)) == ({}, {})


@pytest.mark.parametrize("is_slow", [False, True])
async def test_a_retry_waits_for_a_note_that_is_on_its_way(is_slow: bool) -> None:
    lab = Lab(shell("ls"), table=SlowToNote() if is_slow else MemoryTable())
    stored = lab.stored(is_background=False, is_looping=False)
    run = Foreground(lab.runtime, PreparedResponse(stored, [], False), attempt=attempt(lab, 0))
    client = asyncio.create_task(run.final())
    async with asyncio.timeout(60):
        while not run.is_handed_over:
            await asyncio.sleep(0)
    client.cancel()
    with suppress(asyncio.CancelledError):
        await client
    earlier = await attempt(lab, 1).earlier()
    assert earlier is not None
    assert earlier.stored.response_id == stored.response_id
