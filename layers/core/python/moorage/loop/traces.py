"""The trace of a response as OpenTelemetry has it: projected from the log and the records of its steps when it has ended.

Nothing is measured while a response runs, so nothing is lost with a process, and the same response gives the same spans with the same
ids whoever projects them. A response is a span under its client's (``traceparent``), each round of its loop one under that, and
the call of the model and the calls of tools under the round. Names follow the semantic conventions for generative AI
(https://github.com/open-telemetry/semantic-conventions-genai). No span holds what was asked or answered.

They are sent as OTLP's JSON by HTTP, beside the response's own end and once: a collector that is away costs a line of the log.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, TypeVar

import httpx
import orjson

from moorage import __version__, limits
from moorage.dataclass import dataclass
from moorage.errors import ApiError
from moorage.loop.step_history import StepHistory, unroll
from moorage.parallel import worked
from moorage.runtime import Runtime
from moorage.settings import Settings
from moorage.store.responses import Snapshot, StoredResponse
from moorage.telemetry import tell_error

T = TypeVar("T")
Attributes = Mapping[str, str | int | bool | Sequence[str] | None]
"""What is None is not known, and left out."""

_INTERNAL: Final = 1
_CLIENT: Final = 3
_ERROR: Final = 2
"""OTLP's numbers of span kinds, and of the status of a span that failed."""


@dataclass(frozen=True, slots=True)
class TraceSpan:
    name: str
    span_id: str
    parent_id: str
    """Empty for one that begins its trace."""
    kind: int
    begun_at_ms: int
    ended_at_ms: int
    attributes: Attributes
    error: str | None = None
    """Its code, if it failed."""

    def to_json(self, trace_id: str) -> dict[str, Any]:
        span = {
            "traceId": trace_id,
            "spanId": self.span_id,
            "parentSpanId": self.parent_id,
            "name": self.name,
            "kind": self.kind,
            "startTimeUnixNano": str(self.begun_at_ms * 1_000_000),
            "endTimeUnixNano": str(max(self.begun_at_ms, self.ended_at_ms) * 1_000_000),
            "attributes": _attributes({**self.attributes, "error.type": self.error}),
            "status": {} if self.error is None else {"code": _ERROR, "message": self.error},
        }
        return span if self.parent_id else {name: value for name, value in span.items() if name != "parentSpanId"}


def export_later(runtime: Runtime, stored: StoredResponse) -> None:
    """Send the trace of a response that has just ended, beside everything else, if there is somebody to send it to. One whose client
    said that it is not to be recorded is not; of one that is not stored there is nothing to project from."""
    is_refused = stored.trace is not None and stored.trace.is_sampled is False
    if runtime.settings.otlp_endpoint and stored.is_stored and not is_refused:
        runtime.process.keep(asyncio.create_task(_export(runtime, stored)))


async def _export(runtime: Runtime, stored: StoredResponse) -> None:
    try:
        snapshot = await runtime.stores.responses.snapshot(stored.tenant_id, stored.response_id)
        for body in await exported(runtime, snapshot, await unroll(runtime, snapshot)):
            await _send(runtime, body)
    except ApiError:
        return  # Deleted meanwhile.
    except Exception as error:
        tell_error(error, "a trace was not taken", response_id=stored.response_id, tenant_id=stored.tenant_id)


async def _send(runtime: Runtime, body: Mapping[str, Any]) -> None:
    """By the transport to model upstreams. It keeps its connections."""
    settings = runtime.settings
    assert settings.otlp_endpoint is not None
    url = settings.otlp_endpoint.rstrip("/") + "/v1/traces"
    headers = {**settings.otlp_headers, "content-type": "application/json"}
    request = httpx.Request("POST", url, content=orjson.dumps(body), headers=headers)
    async with asyncio.timeout(limits.OTLP_SECONDS_MAX):
        response = await runtime.models.http.handle_async_request(request)
        await response.aread()
    response.request = request
    if not response.is_success:
        raise httpx.HTTPStatusError(f"the collector answered {response.status_code}", request=request, response=response)


async def exported(runtime: Runtime, snapshot: Snapshot, steps: Sequence[StepHistory]) -> list[dict[str, Any]]:
    """All of :func:`documents`; those of many steps are made on a thread."""
    return await _made(steps, lambda: list(documents(runtime.settings, snapshot, steps)))


async def _made(steps: Sequence[StepHistory], make: Callable[[], T]) -> T:
    return await worked(make) if len(steps) > limits.STEPS_TOLD_HERE_MAX else make()


def documents(settings: Settings, snapshot: Snapshot, steps: Sequence[StepHistory]) -> Iterator[dict[str, Any]]:
    """ExportTraceServiceRequests: one, unless there are more spans than a collector takes at once."""
    spans = list(spans_of(snapshot, steps))
    for first in range(0, len(spans), limits.OTLP_SPANS_MAX):
        yield _document(settings, trace_id_of(snapshot.stored), spans[first : first + limits.OTLP_SPANS_MAX])


async def whole_document(settings: Settings, snapshot: Snapshot, steps: Sequence[StepHistory]) -> dict[str, Any]:
    """All spans of a response that has ended in one, to be kept as a file."""
    return await _made(steps, lambda: _document(settings, trace_id_of(snapshot.stored), list(spans_of(snapshot, steps))))


def _document(settings: Settings, trace_id: str, spans: Sequence[TraceSpan]) -> dict[str, Any]:
    resource = {"service.name": settings.otlp_service_name or settings.name, "service.version": __version__}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [
                    {
                        "scope": {"name": "moorage", "version": __version__},
                        "spans": [span.to_json(trace_id) for span in spans],
                    }
                ],
            }
        ]
    }


def spans_of(snapshot: Snapshot, steps: Sequence[StepHistory]) -> Iterator[TraceSpan]:
    """The response's own first, then round by round."""
    root = _response(snapshot, steps)
    yield root
    for number, group in groupby(steps, key=lambda step: step.step):
        round_steps = list(group)
        times = [_times(step, root) for step in round_steps]
        whole = TraceSpan(
            name=f"round {number}",
            span_id=_span_id(snapshot.stored, f"round {number}"),
            parent_id=root.span_id,
            kind=_INTERNAL,
            begun_at_ms=min(begun for begun, _ in times),
            ended_at_ms=max(ended for _, ended in times),
            attributes={"moorage.round": number},
        )
        yield whole
        for step, (begun, ended) in zip(round_steps, times, strict=True):
            yield _step(snapshot, step, whole.span_id, begun, ended)


def _begun_at(stored: StoredResponse, steps: Sequence[StepHistory]) -> int:
    """The record knows the second alone; in the foreground a response begins with its first step."""
    begun = stored.created_at * 1000
    known = [step.started_at_ms for step in steps if step.started_at_ms is not None]
    return begun if stored.is_background or not known else max(begun, min(known))


def _response(snapshot: Snapshot, steps: Sequence[StepHistory]) -> TraceSpan:
    stored, final, trace = snapshot.stored, snapshot.final_object, snapshot.stored.trace
    assert snapshot.last is not None
    usage = final.get("usage") or {}
    # A trace that begins here has no span above: its id was drawn for what comes below.
    has_parent = trace is not None and trace.is_sampled is not None
    return TraceSpan(
        name="invoke_agent",
        span_id=_span_id(stored, "response"),
        parent_id=trace.span_id if trace is not None and has_parent else "",
        kind=_INTERNAL,
        begun_at_ms=_begun_at(stored, steps),
        ended_at_ms=snapshot.last.at_ms,
        attributes={
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": "moorage",
            "gen_ai.response.id": stored.response_id,
            "gen_ai.conversation.id": stored.conversation_id,
            "gen_ai.request.model": stored.parameters.model,
            "gen_ai.response.finish_reasons": [final["status"]],
            "gen_ai.usage.input_tokens": usage.get("input_tokens"),
            "gen_ai.usage.output_tokens": usage.get("output_tokens"),
            "moorage.tenant.id": stored.tenant_id,
            "moorage.key.id": stored.key_id or None,
            "moorage.container.id": stored.container_id,
            "moorage.background": stored.is_background,
        },
        error=(final.get("error") or {}).get("code") if final["status"] == "failed" else None,
    )


def _step(snapshot: Snapshot, step: StepHistory, parent_id: str, begun: int, ended: int) -> TraceSpan:
    model = snapshot.stored.parameters.model
    retries: Attributes = {"moorage.attempts": step.attempts, "moorage.attempts.lost": step.lost_attempts or None}
    if step.call_id is None:
        name, kind = f"chat {model}", _CLIENT
        used = step.usage
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "moorage",
            "gen_ai.request.model": model,
            "gen_ai.usage.input_tokens": None if used is None else used.input_tokens,
            "gen_ai.usage.output_tokens": None if used is None else used.output_tokens,
            **retries,
        }
    else:
        tool = step.type.removesuffix("_call")
        name, kind = f"execute_tool {tool}", _INTERNAL
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": step.call_id,
            "gen_ai.tool.type": "extension",
            **retries,
        }
    error = step.status if step.status in ("failed", "cancelled") else None
    return TraceSpan(name, _span_id(snapshot.stored, step.id), parent_id, kind, begun, ended, attributes, error)


def _times(step: StepHistory, root: TraceSpan) -> tuple[int, int]:
    """Missing facts of a step come from its parent."""
    begun = step.started_at_ms or step.queued_at_ms or root.begun_at_ms
    return begun, step.ended_at_ms or root.ended_at_ms


def trace_id_of(stored: StoredResponse) -> str:
    return stored.trace.trace_id if stored.trace is not None else _digest(stored.response_id, "trace")[:32]


def _span_id(stored: StoredResponse, name: str) -> str:
    return _digest(stored.response_id, name)[:16]


def _digest(response_id: str, name: str) -> str:
    return hashlib.sha256(f"{response_id} {name}".encode()).hexdigest()


def _attributes(attributes: Attributes) -> list[dict[str, Any]]:
    """As key-value pairs with a type each."""
    return [{"key": key, "value": _value(value)} for key, value in attributes.items() if value is not None]


def _value(value: str | int | bool | Sequence[str]) -> dict[str, Any]:
    match value:
        case str():
            return {"stringValue": value}
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case _:
            return {"arrayValue": {"values": [{"stringValue": each} for each in value]}}
