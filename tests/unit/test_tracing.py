"""Traces: what a request's headers say, in both notations, and who goes on in the trace of a response."""

import asyncio
import io
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import boto3
import httpx
import pytest
from botocore.stub import Stubber
from moorage import tracing
from moorage.loop.recover import continue_loop, fail_response, recover
from moorage.model.http import Upstream
from moorage.state import Next
from moorage.store.step_functions import StepFunctions
from moorage.telemetry import open_log, tell, tell_error
from moorage.tracing import Trace

from tests.opened_logs import close_log
from tests.unit.loop.lab import TENANT, Lab, first_state, say, shell

ID, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACE = Trace(ID, SPAN, is_sampled=True)
XRAY = f"Root=1-{ID[:8]}-{ID[8:]}"


def of(**headers: str) -> Trace:
    return Trace.of_headers([(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()])


UNDERSTOOD = {
    "sampled": (f"00-{ID}-{SPAN}-01", TRACE),
    "not sampled": (f"00-{ID}-{SPAN}-00", replace(TRACE, is_sampled=False)),
    "flags that nobody knows yet": (f"00-{ID}-{SPAN}-ff", TRACE),
    "a later version": (f"01-{ID}-{SPAN}-01", TRACE),
    "a later version that says more": (f"cc-{ID}-{SPAN}-01-what-the-future-will-be-like", TRACE),
    "with spaces around": (f" 00-{ID}-{SPAN}-01 ", TRACE),
}


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_clients_trace_is_taken(name: str) -> None:
    text, trace = UNDERSTOOD[name]
    assert of(traceparent=text, x_amzn_trace_id="Root=1-5759e988-bd862e3fe1be46a994272793") == trace


INVALID = {
    "capitals": f"00-{ID.upper()}-{SPAN}-01",
    "a forbidden version": f"ff-{ID}-{SPAN}-01",
    "a version 0 that says more": f"00-{ID}-{SPAN}-01-more",
    "no trace": f"00-{'0' * 32}-{SPAN}-01",
    "no span": f"00-{ID}-{'0' * 16}-01",
    "too short": f"00-{ID[1:]}-{SPAN}-01",
    "digits of another script": f"00-{'٣' * 32}-{SPAN}-01",
    "a line of its own": f"00-{ID}-{SPAN}-01\nx: y",
    "empty": "",
}


@pytest.mark.parametrize("name", INVALID)
def test_a_trace_that_is_none_is_left_alone_and_a_new_one_begins(name: str) -> None:
    begun = of(traceparent=INVALID[name])
    assert begun.trace_id != ID
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", begun.traceparent)


def test_two_traces_are_none() -> None:
    headers = [(b"traceparent", f"00-{ID}-{SPAN}-01".encode())] * 2
    assert Trace.of_headers(headers).trace_id != ID


def test_the_gateways_trace_is_taken_where_the_client_has_none() -> None:
    whole = of(x_amzn_trace_id=f"Self=1-67891234-12456789abcdef0123456789;{XRAY};Parent={SPAN};Sampled=0")
    root = of(x_amzn_trace_id=XRAY)
    assert (whole, root.trace_id, root.is_sampled) == (replace(TRACE, is_sampled=False), ID, None)
    assert of(x_amzn_trace_id="Root=2-nonsense;Sampled=1").is_sampled is None


@pytest.mark.parametrize(("sampled", "xray", "flags"), [(True, ";Sampled=1", "01"), (False, ";Sampled=0", "00"), (None, "", "01")])
def test_a_trace_is_kept_and_said_in_both_notations(sampled: bool | None, xray: str, flags: str) -> None:
    trace = replace(TRACE, is_sampled=sampled)
    assert (trace.xray, trace.traceparent) == (f"{XRAY};Parent={SPAN}{xray}", f"00-{ID}-{SPAN}-{flags}")
    assert Trace.unpack(trace.pack()) == trace


def test_an_execution_is_started_in_the_trace() -> None:
    client = boto3.client("stepfunctions", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s")
    with Stubber(client) as stubber, ThreadPoolExecutor(1) as executor:
        machine, started = "arn:aws:states:us-east-1:000000000000:stateMachine:loop", {"executionArn": "arn:aws:e", "startDate": 0}
        asked = {"stateMachineArn": machine, "name": "resp_1", "input": "{}"}
        stubber.add_response("start_execution", started, {**asked, "traceHeader": TRACE.xray})
        stubber.add_response("start_execution", started, asked)
        executions = StepFunctions(client, machine, executor)
        asyncio.run(executions.start("resp_1", {}, TRACE))
        asyncio.run(executions.start("resp_1", {}, None))
        stubber.assert_no_pending_responses()


async def test_successors_go_on_in_the_trace_of_their_response() -> None:
    lab = Lab(say("end"))
    stored = await lab.background(trace=TRACE)
    assert (await lab.responses.load(TENANT, stored.response_id)).trace == TRACE
    await continue_loop(lab.runtime.stores, replace(first_state(stored), step=150, next=Next.CONTINUE))
    lab.executions.states.clear()
    lab.now += 1_000
    assert await recover(lab.runtime) == 1
    assert list(lab.executions.traces.values()) == [TRACE] * 3


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    written = io.StringIO()
    handler = open_log(written)
    yield written
    close_log(handler)


async def test_every_line_of_a_response_names_its_trace(out: io.StringIO) -> None:
    lab = Lab(shell("ls"), say("end"))
    stored = await lab.background(trace=TRACE)
    await lab.run(stored)
    await fail_response(lab.runtime, first_state(stored))
    with tracing.within(TRACE):
        tell_error(ValueError("secret"))
    tell("elsewhere", {})
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["message"], line.get("trace_id")) for line in lines] == [
        ("model_step", ID),
        ("tool_step", ID),
        ("model_step", ID),
        ("response_failed", ID),
        ("error", ID),
        ("elsewhere", None),
    ]


class _Ended:
    is_finished = True

    def feed(self, piece: bytes) -> list[Any]:
        return []

    def whole(self, body: dict[str, Any]) -> list[Any]:
        return []

    def end(self) -> list[Any]:
        return []


async def test_each_attempt_at_a_model_has_a_span_of_its_own_in_the_trace() -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("traceparent"))
        return httpx.Response(500 if len(seen) == 1 else 200, json={})

    async def at_once(seconds: float) -> None:
        pass

    upstream = Upstream(httpx.MockTransport(answer), "http://model.test/v1", sleep=at_once)
    with tracing.within(TRACE):
        assert [delta async for delta in upstream.stream(dict, _Ended, is_long=False)] == []
    assert [delta async for delta in upstream.stream(dict, _Ended, is_long=False)] == []
    first, second, outside = seen
    assert outside is None
    spans = {re.fullmatch(rf"00-{ID}-([0-9a-f]{{16}})-01", str(said))[1] for said in (first, second)}  # type: ignore[index]
    assert len(spans | {SPAN}) == 3
