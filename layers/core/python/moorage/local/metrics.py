"""``/metrics`` of a local stack, in Prometheus' text form, at a port of its own on this machine alone.

Events are counted from the lines of the log, from the stack's start on; the API and the workers of the steps write these lines anyhow.
States (running responses and their waits, sandboxes, undelivered events) are read from the records at each question. No value names a
tenant, a key or a response: a reader needs no key, and sees no tenant's data.
"""

import os
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import field
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from moorage.dataclass import dataclass
from moorage.errors import ApiError, SettingsConflict
from moorage.local.address import LocalOriginGuard
from moorage.local.logs import API, STEPS, LogLines
from moorage.loop.waiting import wait_of
from moorage.parallel import side_by_side
from moorage.runtime import Runtime
from moorage.settings import SettingsError

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_HOST: Final = "127.0.0.1"

_FAMILIES: Final[Mapping[str, tuple[str, str]]] = {
    "moorage_requests_total": ("counter", "Requests, by route, method and status."),
    "moorage_request_seconds": ("summary", "Time to the last byte of an answer, by route."),
    "moorage_responses_total": ("counter", "Responses that have ended, by status."),
    "moorage_responses_running": ("gauge", "Responses with tools or in the background that have not ended."),
    "moorage_responses_waiting": ("gauge", "The same, by what they wait for."),
    "moorage_model_steps_total": ("counter", "Answers of models."),
    "moorage_first_output_seconds": ("summary", "Time to the first output of a response in the foreground."),
    "moorage_tokens_total": ("counter", "Tokens, by kind; cached ones are input too."),
    "moorage_tool_calls_total": ("counter", "Runs of calls that run here, by type."),
    "moorage_tool_seconds": ("summary", "How long runs of calls took, by type."),
    "moorage_upstream_errors_total": ("counter", "Requests to models that failed, by code."),
    "moorage_sandboxes": ("gauge", "Sandboxes that run or start."),
    "moorage_sandbox_start_seconds": ("summary", "Time from the claim on a sandbox until it has its files."),
    "moorage_webhook_attempts_total": ("counter", "Attempts to deliver an event, by what came of them."),
    "moorage_webhook_deliveries_pending": ("gauge", "Events that an endpoint has not taken yet."),
    "moorage_errors_total": ("counter", "Lines of the log with the level ERROR."),
}
"""Kind and meaning of each metric."""
_TOKENS: Final = {"InputTokens": "input", "CachedTokens": "cached", "OutputTokens": "output"}

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]


class Counters:
    """The sums of the lines of the log."""

    def __init__(self) -> None:
        self._values: Counter[tuple[str, Labels]] = Counter()

    def take(self, line: Mapping[str, Any]) -> None:
        if line.get("level") == "ERROR":
            self._add("moorage_errors_total")
        match line.get("message"):
            case "request":
                route = str(line.get("route") or "unknown")
                self._add("moorage_requests_total", method=str(line["method"]), route=route, status=str(line["status"]))
                self._time("moorage_request_seconds", line["duration_ms"], route=route)
            case "model_step":
                self._model_step(line)
            case "tool_step":
                kind = str(line["call_type"])
                self._add("moorage_tool_calls_total", type=kind)
                self._time("moorage_tool_seconds", line["duration_ms"], type=kind)
            case "response_ended":
                self._add("moorage_responses_total", status=str(line["status"]))
            case "upstream_failed":
                self._add("moorage_upstream_errors_total", code=str(line.get("code") or "unknown"))
            case "sandbox_started":
                self._time("moorage_sandbox_start_seconds", line["duration_ms"])
            case "webhook":
                outcome = "delivered" if line["delivered"] else "gave_up" if line.get("gave_up") else "failed"
                self._add("moorage_webhook_attempts_total", outcome=outcome)
            case _:
                pass

    def _model_step(self, line: Mapping[str, Any]) -> None:
        self._add("moorage_model_steps_total")
        if "status" in line:
            self._add("moorage_responses_total", status=str(line["status"]))
        for metric, kind in _TOKENS.items():
            for tokens in line.get(metric, ()):
                self._add("moorage_tokens_total", tokens, kind=kind)
        for milliseconds in line.get("TimeToFirstToken", ()):
            self._time("moorage_first_output_seconds", milliseconds)

    def _time(self, name: str, milliseconds: float, /, **labels: str) -> None:
        self._add(f"{name}_sum", milliseconds / 1000, **labels)
        self._add(f"{name}_count", **labels)

    def _add(self, name: str, value: float = 1, /, **labels: str) -> None:
        self._values[name, tuple(labels.items())] += value  # type: ignore[assignment]

    def samples(self) -> Iterator[Sample]:
        for (name, labels), value in self._values.items():
            yield name, labels, value


def text_of(samples: Iterable[Sample]) -> str:
    """https://prometheus.io/docs/instrumenting/exposition_formats/, "Text-based format": samples of a metric stand together."""
    by_family: dict[str, list[Sample]] = {name: [] for name in _FAMILIES}
    for sample in samples:
        by_family[_family(sample[0])].append(sample)
    lines = []
    for name, (kind, meaning) in _FAMILIES.items():
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
        lines += [f"{sample}{_labels(labels)} {value:.12g}" for sample, labels, value in sorted(by_family[name])]
    return "\n".join([*lines, ""])


def _family(name: str) -> str:
    return name if name in _FAMILIES else name.rpartition("_")[0]


def _labels(labels: Labels) -> str:
    told = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{told}}}" if told else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@dataclass
class Metrics:
    runtime: Runtime
    state_dir: Path
    counters: Counters = field(default_factory=Counters)
    _lines: list[LogLines] = field(init=False)

    def __post_init__(self) -> None:
        paths = [self.state_dir / name for name in (API, STEPS)]
        self._lines = [LogLines(path, path.stat().st_size if path.exists() else 0) for path in paths]

    def read(self) -> None:
        """The new lines since then; also to be called before the files are cut."""
        for lines in self._lines:
            for line in lines.read():
                self.counters.take(line)

    def close(self) -> None:
        for lines in self._lines:
            lines.close()

    async def text(self) -> str:
        self.read()
        return text_of([*self.counters.samples(), *await self._standing()])

    async def _standing(self) -> list[Sample]:
        runtime = self.runtime
        waits = [wait for wait in await side_by_side(self._wait_of, await runtime.stores.responses.inflight(), at_once=16) if wait]
        kinds = Counter(waits)
        sandboxes = sum([len(await fleet.owner.running()) for fleet in runtime.computers.fleets])
        return [
            ("moorage_responses_running", (), len(waits)),
            *(("moorage_responses_waiting", (("for", kind),), number) for kind, number in kinds.items()),
            ("moorage_sandboxes", (), sandboxes),
            ("moorage_webhook_deliveries_pending", (), await runtime.stores.webhooks.pending()),
        ]

    async def _wait_of(self, place: tuple[str, str]) -> str | None:
        """The cause of a response's wait; None for one that has ended meanwhile."""
        try:
            snapshot = await self.runtime.stores.responses.snapshot(*place)
        except ApiError:
            return None
        if snapshot.is_final:
            return None
        wait = wait_of(snapshot, await self.runtime.stores.steps.accounts(*place))
        return None if wait is None else wait.kind

    def app(self) -> LocalOriginGuard:
        async def answer(_: Request) -> Response:
            return PlainTextResponse(await self.text(), media_type=MEDIA_TYPE)

        return LocalOriginGuard(Starlette(routes=[Route("/metrics", answer)]))

    async def serve(self, listener: socket.socket) -> None:
        await _MetricsServer(uvicorn.Config(self.app(), log_level="warning", access_log=False, lifespan="off")).serve(
            sockets=[listener]
        )


class _MetricsServer(uvicorn.Server):
    """Signals are for the API's."""

    def capture_signals(self) -> Any:
        return nullcontext()


@contextmanager
def listening(environ: Mapping[str, str]) -> Iterator[socket.socket | None]:
    """Listen at a port of this machine that other machines cannot reach. Raises the error that prevents it."""
    wanted = environ.get("MOORAGE_METRICS_PORT", "")
    if not wanted:
        yield None
        return
    if not (wanted.isascii() and wanted.isdigit() and int(wanted) < 65536):
        raise SettingsError(f"MOORAGE_METRICS_PORT takes a port number, not '{wanted}'.")
    with socket.socket(socket.AF_INET, proto=socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, int(wanted)))
        except OSError as error:
            said = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise SettingsConflict(f"Port {wanted} cannot be had for metrics: {said}. MOORAGE_METRICS_PORT takes another.") from error
        yield listener


def address_of(listener: socket.socket) -> str:
    return f"http://{_HOST}:{listener.getsockname()[1]}/metrics"
