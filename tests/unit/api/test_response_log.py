"""``/events`` and ``/steps``: the log with its times, and the loop, unrolled."""

import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest
from moorage.api.foreground import Foreground
from moorage.containers.sandbox_wait import SandboxWait
from moorage.containers.sweep import nobody
from moorage.errors import UpstreamError
from moorage.loop.create import PreparedResponse
from moorage.loop.stop import stop
from moorage.model.base import StreamStarted
from moorage.state import LoopState, Next
from moorage.store.responses import StoredResponse

from tests.unit.api.served import Served
from tests.unit.loop.lab import SHELL_TOOL, FakeSandboxes, Lab, Turn, broken, first_state, say, shell


async def ticking(lab: Lab, stored: StoredResponse) -> LoopState:
    """The state machine, with a second between any two tasks, as far as its end."""
    state = first_state(stored)
    while state.next is not Next.DONE:
        lab.now += 1
        if state.next is Next.TOOLS:
            await lab.tools(state)
            lab.now += 1
        if state.next is Next.WAIT:
            lab.now += state.wait_seconds
        state = await lab.step(state)
    return state


async def steps_of(served: Served, stored: StoredResponse, **query: Any) -> list[dict[str, Any]]:
    answer = await served.get(f"/responses/{stored.response_id}/steps", **query)
    assert answer.status_code == 200, answer.text
    data: list[dict[str, Any]] = answer.json()["data"]
    return data


def step(**fields: Any) -> dict[str, Any]:
    attempts = {"count": 1, "lost": 0, "pauses": 0, "why": None}
    common = {"object": "response.step", "status": "completed", "call_id": None, "waiting_for": None, "cost_usd": None}
    common |= {"upstream_request_id": None}
    return common | {"attempts": attempts} | fields


def tokens(count_in: int, count_out: int) -> dict[str, Any]:
    return {
        "input_tokens": count_in,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": count_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": count_in + count_out,
    }


async def test_a_loop_is_unrolled_with_its_times_and_tokens() -> None:
    served = Served.of(Lab(shell("make"), say("done")))
    stored = await served.lab.background()
    start = int(served.lab.now * 1000)
    await ticking(served.lab, stored)
    first, call, last = await steps_of(served, stored)
    assert first == step(
        id="step_0",
        step=0,
        type="model",
        started_at=start + 1000,
        first_output_at=start + 1000,
        ended_at=start + 1000,
        queue_ms=1000,
        usage=tokens(10, 2),
    )
    assert call == step(
        id="step_0_call_1",
        step=0,
        type="shell_call",
        call_id="call_1",
        started_at=start + 2000,
        first_output_at=None,
        ended_at=start + 2000,
        queue_ms=1000,
        usage=None,
    )
    assert last == step(
        id="step_1",
        step=1,
        type="model",
        started_at=start + 3000,
        first_output_at=start + 3000,
        ended_at=start + 3000,
        queue_ms=1000,
        usage=tokens(10, 2),
    )


async def test_each_model_step_says_what_its_upstream_called_the_request() -> None:
    """The latest of them, also of the last step, which has no record of its end. No client is told in the events."""
    turns: list[Turn] = [
        [StreamStarted("req_a"), *shell("make")],
        [StreamStarted("req_b"), *broken("Half")],
        [StreamStarted("req_c"), *say("done")],
    ]
    served = Served.of(Lab(*turns))
    stored = await served.lab.background(tools=[SHELL_TOOL])
    await served.lab.run(stored)
    named = [(each["id"], each["upstream_request_id"]) for each in await steps_of(served, stored)]
    assert named == [("step_0", "req_a"), ("step_0_call_1", None), ("step_1", "req_c")]
    assert not any("req_" in str(event) for event in await served.lab.events(stored))


async def test_a_first_step_that_was_handed_over_says_so_too() -> None:
    served = Served.of(Lab([StreamStarted("req_a"), *shell("make")]))
    lab = served.lab
    stored = lab.stored(is_background=False, is_looping=False)
    run = Foreground(lab.runtime, PreparedResponse(stored, [], False))
    client = asyncio.create_task(run.final())
    async with asyncio.timeout(60):
        while not run.is_handed_over:
            await asyncio.sleep(0)
    client.cancel()
    with suppress(asyncio.CancelledError):
        await client
    assert [each["upstream_request_id"] for each in await steps_of(served, stored)] == ["req_a", None]


async def test_steps_come_in_pages_in_either_order() -> None:
    served = Served.of(Lab(shell("a"), say("done")))
    stored = await served.lab.background()
    await ticking(served.lab, stored)
    ids = ["step_0", "step_0_call_1", "step_1"]
    assert [each["id"] for each in await steps_of(served, stored, order="desc")] == ids[::-1]
    assert [each["id"] for each in await steps_of(served, stored, limit=1, after="step_0")] == ids[1:2]
    path = f"/responses/{stored.response_id}/steps"
    assert (await served.get(path, after="step_9")).status_code == 400
    assert (await served.get(path, colour="red")).status_code == 400


async def test_a_model_that_was_down_says_why_it_took_so_long() -> None:
    down = [UpstreamError("The upstream is overloaded.", is_retryable=True)]
    served = Served.of(Lab(list(down), say("done")))
    stored = await served.lab.background()
    state = await served.lab.step(first_state(stored))
    assert state.next is Next.WAIT
    reason = "The model's provider, which is asked again: The upstream is overloaded."
    (waiting,) = await steps_of(served, stored)
    assert (waiting["status"], waiting["waiting_for"]["kind"], waiting["waiting_for"]["detail"]) == ("in_progress", "pause", reason)
    await served.lab.run(stored, state)
    (ended,) = await steps_of(served, stored)
    assert (ended["status"], ended["attempts"]) == ("completed", {"count": 2, "lost": 0, "pauses": 1, "why": reason})


async def test_a_run_whose_process_was_lost_is_told_from_one_that_paused() -> None:
    served = Served.of(Lab(say("done")))
    stored = await served.lab.background()
    await served.lab.runtime.stores.steps.begin(stored, 0)
    await served.lab.run(stored)
    (ended,) = await steps_of(served, stored)
    assert ended["attempts"] == {"count": 2, "lost": 1, "pauses": 0, "why": "A process that ran it was lost."}


async def test_each_kind_of_wait_is_told_while_it_lasts() -> None:
    served = Served.of(Lab(shell("make"), say("done")))
    stored = await served.lab.background()

    async def kind() -> Any:
        (row,) = (await served.get("/responses")).json()["data"]
        return (row["waiting_for"] or {}).get("kind"), row["status"]

    assert await kind() == ("start", "queued")
    seen: list[Any] = []

    async def look() -> None:
        seen.append((await kind())[0])

    served.lab.model.before_answer = look
    state = await served.lab.step(first_state(stored))
    assert seen == ["model"]
    assert await kind() == ("container", "in_progress")

    class Slow(FakeSandboxes):
        async def ensure(self, tenant_id: str, container_id: str, *, seen: Any = None) -> Any:
            live = await super().ensure(tenant_id, container_id, seen=seen)
            whole = live.exec

            async def exec_(identity: str, command: str, **options: Any) -> Any:
                await look()
                async for event in whole(identity, command, **options):
                    yield event

            live.exec = exec_
            return live

    served.lab.runtime.computers.containers.waiting = SandboxWait(cast("Any", Slow()), cast("Any", None), nobody)
    await served.lab.tools(state)
    assert seen[1:] == ["tool"]
    assert await kind() == ("start", "in_progress")
    await served.lab.run(stored, await served.lab.step(state))
    assert await kind() == (None, "completed")


async def test_a_response_in_the_foreground_that_took_one_step_has_that_step() -> None:
    served = Served.of(Lab([StreamStarted("req_a"), *say("hello")]))
    answer = await served.post("/responses", {"model": "m", "input": "hi"})
    (only,) = await steps_of(served, await served.lab.responses.load("t", answer.json()["id"]))
    now = int(served.lab.now * 1000)
    times = {"started_at": now, "first_output_at": now, "ended_at": now, "queue_ms": None}
    assert only == step(id="step_0", step=0, type="model", usage=tokens(10, 2), upstream_request_id="req_a", **times)


async def test_a_cancelled_call_says_that_it_ended_with_its_response() -> None:
    served = Served.of(Lab(shell("make")))
    stored = await served.lab.background()
    await served.lab.step(first_state(stored))
    await stop(served.lab.runtime, await served.lab.responses.snapshot("t", stored.response_id))
    assert [(each["id"], each["status"]) for each in await steps_of(served, stored)] == [
        ("step_0", "completed"),
        ("step_0_call_1", "cancelled"),
    ]


async def test_the_pages_of_a_log_show_its_events_with_their_times() -> None:
    served = Served.of(Lab(broken("Half a"), say("Whole.")))
    stored = await served.lab.background()
    await ticking(served.lab, stored)
    path = f"/responses/{stored.response_id}/events"
    page = (await served.get(path, limit=1000)).json()
    told = await served.lab.events(stored)
    assert [each["event"] for each in page["data"]] == told
    assert {each["at"] for each in page["data"]} == {1_800_000_000_000, 1_800_000_001_000}
    assert [each["id"] for each in page["data"]] == [str(event["sequence_number"]) for event in told]
    backwards = (await served.get(path, limit=2, order="desc")).json()
    assert ([each["event"] for each in backwards["data"]], backwards["has_more"]) == (told[:-3:-1], True)
    some = (await served.get(path, types="response.created,response.completed")).json()
    assert [each["event"]["type"] for each in some["data"]] == ["response.created", "response.completed"]
    going_on = (await served.get(path, limit=1, types="response.completed", after=page["data"][0]["id"])).json()
    assert [each["event"]["type"] for each in going_on["data"]] == ["response.completed"]


async def test_no_event_of_a_stream_tells_its_time() -> None:
    served = Served.of(Lab(say("done")))
    stored = await served.lab.background()
    await served.lab.run(stored)
    answer = await served.get(f"/responses/{stored.response_id}", stream="true")
    assert [word in answer.text for word in ("response.completed", '"at"', '"times"')] == [True, False, False]


@pytest.mark.parametrize("query", [{"after": "x"}, {"after": "-1"}, {"limit": "1001"}, {"order": "up"}, {"colour": "red"}], ids=str)
async def test_what_a_log_does_not_know_is_refused_by_name(query: dict[str, str]) -> None:
    served = Served.of(Lab(say("done")))
    stored = await served.lab.background()
    answer = await served.get(f"/responses/{stored.response_id}/events", **query)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(query)))


@pytest.mark.parametrize("what", ["events", "steps"])
async def test_a_foreign_response_has_no_log(what: str) -> None:
    served = Served.of(Lab(say("done")))
    stored = await served.lab.background()
    assert (await served.get(f"/responses/{stored.response_id}/{what}", by="key-b")).status_code == 404
    assert (await served.get(f"/responses/resp_unknown/{what}")).status_code == 404
