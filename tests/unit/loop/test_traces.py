"""The trace of a response, as a collector gets it when the response has ended."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from moorage import limits
from moorage.errors import UpstreamError
from moorage.loop import finish
from moorage.loop.step_history import unroll
from moorage.loop.traces import documents
from moorage.store.responses import StoredResponse
from moorage.tracing import Trace

from tests.collector import Collector, Malformed, check, collecting
from tests.unit.api.served import Served
from tests.unit.loop.lab import Lab, Turn, say, shell

CLIENTS = Trace("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", is_sampled=True)
PLANTED = "planted-4f1c9b"


async def test_a_trace_is_sent_before_the_last_byte_of_an_answer() -> None:
    async with lab_with(say("hello")) as (lab, collector):
        lab.runtime.settings = replace(lab.runtime.settings, stream_seconds_max=870)
        answer = await Served.of(lab).post("/responses", {"model": "m", "input": "hi"})
        assert answer.json()["status"] == "completed"
        assert [span["name"] for span in collector.spans] == ["invoke_agent", "round 0", "chat m"]
        assert not lab.runtime.process.tasks


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OTLP_SPANS_MAX", 4)


@asynccontextmanager
async def lab_with(*turns: Turn, answers: tuple[int, ...] = ()) -> AsyncIterator[tuple[Lab, Collector]]:
    async with collecting(*answers) as collector:
        lab = Lab(*turns)
        lab.runtime.settings = replace(
            lab.runtime.settings, otlp_endpoint=f"{collector.url}/", otlp_headers={"x-team": "ours"}, name="mine"
        )
        yield lab, collector
        await lab.runtime.models.http.aclose()


async def ended(lab: Lab, **changes: Any) -> StoredResponse:
    async def think() -> None:
        lab.now += 2

    lab.model.before_answer = think
    stored = await lab.background(PLANTED, **changes)
    lab.now += 1
    await lab.run(stored)
    await lab.runtime.process.rest(60)
    return stored


def tree(spans: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """The names of the spans in order, each with its depth below the response."""
    depth: dict[str, int] = {}
    for span in spans:
        depth[span["spanId"]] = depth.get(span.get("parentSpanId", ""), -1) + 1
    assert len(depth) == len(spans)
    return [(depth[span["spanId"]], span["name"]) for span in spans]


async def test_a_response_is_a_tree_of_rounds_with_their_calls_under_its_clients_span() -> None:
    async with lab_with(shell("ls"), say(PLANTED)) as (lab, collector):
        began = int(lab.now)
        stored = await ended(lab, trace=CLIENTS, key_id="key_1")
        assert collector.refused == []
        assert collector.asked[0][0] == "/v1/traces"
        assert collector.asked[0][1]["x-team"] == "ours"
        spans = collector.spans
        assert tree(spans) == [
            (0, "invoke_agent"),
            (1, "round 0"),
            (2, "chat m"),
            (2, "execute_tool shell"),
            (1, "round 1"),
            (2, "chat m"),
        ]
        assert {span["traceId"] for span in spans} == {CLIENTS.trace_id}
        response, _, first, tool, _, second = spans
        assert response["parentSpanId"] == CLIENTS.span_id
        assert response["attributes"] == {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "moorage",
            "gen_ai.response.id": stored.response_id,
            "gen_ai.request.model": "m",
            "gen_ai.response.finish_reasons": ["completed"],
            "gen_ai.usage.input_tokens": 20,
            "gen_ai.usage.output_tokens": 4,
            "moorage.tenant.id": "t",
            "moorage.key.id": "key_1",
            "moorage.container.id": "cntr_1",
            "moorage.background": True,
        }
        assert (
            first["attributes"]
            == second["attributes"]
            == {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "moorage",
                "gen_ai.request.model": "m",
                "gen_ai.usage.input_tokens": 10,
                "gen_ai.usage.output_tokens": 2,
                "moorage.attempts": 1,
            }
        )
        assert tool["attributes"] == {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "shell",
            "gen_ai.tool.call.id": "call_1",
            "gen_ai.tool.type": "extension",
            "moorage.attempts": 1,
        }
        assert [(span["kind"], span["status"]) for span in (response, first, tool)] == [(1, {}), (3, {}), (1, {})]
        times = [(int(span["startTimeUnixNano"]) // 10**9 - began, int(span["endTimeUnixNano"]) // 10**9 - began) for span in spans]
        assert times == [(0, 3), (1, 3), (1, 3), (3, 3), (3, 3), (3, 3)]
        resource = collector.taken[0]["resourceSpans"][0]["resource"]["attributes"]
        assert {"key": "service.name", "value": {"stringValue": "mine"}} in resource
        assert PLANTED not in str(collector.taken)


async def test_whoever_projects_it_the_trace_is_the_same() -> None:
    async with lab_with(say("done")) as (lab, collector):
        stored = await ended(lab)
        snapshot = await lab.responses.snapshot(stored.tenant_id, stored.response_id)
        assert collector.taken == list(documents(lab.runtime.settings, snapshot, await unroll(lab.runtime, snapshot)))


@pytest.mark.usefixtures("few_at_once")
async def test_a_long_trace_comes_in_parts() -> None:
    async with lab_with(shell("ls"), say("done")) as (lab, collector):
        await ended(lab)
        assert [len(body["resourceSpans"][0]["scopeSpans"][0]["spans"]) for body in collector.taken] == [4, 2]
        assert len(tree(collector.spans)) == 6


async def test_a_trace_that_begins_here_has_no_span_above() -> None:
    async with lab_with(say("done"), say("done")) as (lab, collector):
        trace = Trace.begin()
        await ended(lab, trace=trace)
        await ended(lab)
        roots = [span for span in collector.spans if span["name"] == "invoke_agent"]
        assert [span.get("parentSpanId") for span in roots] == [None, None]
        assert roots[0]["traceId"] == trace.trace_id


async def test_what_failed_says_so() -> None:
    async with lab_with([UpstreamError("gone", is_retryable=False)]) as (lab, collector):
        await ended(lab)
        response, _, model = collector.spans
        assert response["status"] == {"code": 2, "message": "server_error"}
        assert response["attributes"]["error.type"] == "server_error"
        assert model["status"] == {"code": 2, "message": "failed"}


async def test_an_end_from_outside_is_sent_once() -> None:
    async with lab_with() as (lab, collector):
        stored = await lab.background()
        for _ in range(2):
            await finish.end_from_outside(lab.runtime, stored, status="cancelled")
        await lab.runtime.process.rest(60)
        (response,) = collector.spans
        assert response["attributes"]["gen_ai.response.finish_reasons"] == ["cancelled"]


@pytest.mark.parametrize("changes", [{"trace": replace(CLIENTS, is_sampled=False)}, {"is_stored": False}])
async def test_what_is_not_to_be_recorded_and_what_is_not_stored_is_not_sent(changes: dict[str, Any]) -> None:
    async with lab_with(say("done")) as (lab, collector):
        await ended(lab, **changes)
        assert collector.asked == []


async def test_without_a_collector_nothing_is_read_for_it() -> None:
    async with lab_with(say("done"), say("done")) as (lab, collector):
        before = lab.table.reads
        await ended(lab)
        with_one, before = lab.table.reads - before, lab.table.reads
        lab.runtime.settings = replace(lab.runtime.settings, otlp_endpoint=None)
        await ended(lab)
        assert (with_one - (lab.table.reads - before), len(collector.taken)) == (3, 1)


@pytest.mark.parametrize("answers", [(500,), (307,), (400,)])
async def test_a_collector_that_does_not_take_it_harms_no_response(answers: tuple[int, ...]) -> None:
    async with lab_with(say("done"), answers=answers) as (lab, collector):
        stored = await ended(lab)
        assert (await lab.object_of(stored))["status"] == "completed"
        assert (len(collector.asked), collector.taken) == (1, [])


async def test_a_collector_that_is_away_harms_no_response() -> None:
    async with lab_with(say("done")) as (lab, _):
        lab.runtime.settings = replace(lab.runtime.settings, otlp_endpoint="http://127.0.0.1:9")
        stored = await ended(lab)
        assert (await lab.object_of(stored))["status"] == "completed"


@pytest.mark.parametrize(
    "broken",
    [
        {"traceId": "0" * 32},
        {"spanId": "xyz"},
        {"kind": "SPAN_KIND_CLIENT"},
        {"startTimeUnixNano": 5},
        {"endTimeUnixNano": "1"},
        {"attributes": [{"key": "a", "value": {"intValue": 1}}]},
        {"attributes": [{"key": "a", "value": "b"}]},
        {"extra": 1},
    ],
    ids=str,
)
async def test_the_collector_of_these_tests_refuses_what_is_malformed(broken: dict[str, Any]) -> None:
    async with lab_with(say("done")) as (lab, collector):
        await ended(lab)
        body = collector.taken[0]
        check(body)
        body["resourceSpans"][0]["scopeSpans"][0]["spans"][0] |= broken
        with pytest.raises(Malformed):
            check(body)


async def test_the_trace_is_a_file_too_whole_and_without_a_collector(few_at_once: None) -> None:
    lab = Lab(shell("echo"), say("done"))
    stored = await ended(lab)
    served = Served.of(lab)
    answer = (await served.get(f"/responses/{stored.response_id}/trace")).json()
    snapshot = await lab.runtime.stores.responses.snapshot(stored.tenant_id, stored.response_id)
    sent = list(documents(lab.runtime.settings, snapshot, await unroll(lab.runtime, snapshot)))
    spans = [span for body in sent for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"]]
    assert len(sent) > 1
    assert answer["resourceSpans"][0]["scopeSpans"][0]["spans"] == spans
    assert PLANTED not in str(answer)
    assert (await served.get(f"/responses/{stored.response_id}/trace", by="key-b")).status_code == 404


async def test_there_is_no_file_of_a_response_that_runs() -> None:
    lab = Lab(say("done"))
    stored = await lab.background()
    refused = await Served.of(lab).get(f"/responses/{stored.response_id}/trace")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "response_not_ended")
