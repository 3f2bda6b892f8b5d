"""What the HTTP side does with refusals, time-outs and retries."""

import asyncio
import contextlib
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from moorage.errors import UpstreamError
from moorage.model import http
from moorage.model.base import Delta, StreamStarted
from moorage.net.transport import UpstreamTransport
from moorage.telemetry import about, open_log

from tests.opened_logs import close_log
from tests.unit.model.encodings import CHAT, OVER_HTTP, Kind, Pieces, Said, answer, folded, hello, provider, replies
from tests.upstream import MockUpstream, broken, garbage, hung, refused, said

NOW = 1_800_000_000.0
OK = CHAT.encode(answer(Said(("ok",))))


@dataclass
class Script:
    """Answers in order; an exception is raised."""

    answers: list[httpx.Response | Exception]
    asked: int = 0
    slept: list[float] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def ok() -> httpx.Response:
    return replies(CHAT, OK)


async def asked(script: Script, *, retries_max: int = 4) -> list[Delta]:
    served = provider(CHAT, script, retries_max=retries_max, sleep=script.sleep)
    return [delta async for delta in served.stream(hello())]


# --- what a status means ----------------------------------------------------------------------------------------------------------

Outcome = tuple[str, bool, float | None]

STATUSES: dict[str, tuple[int, dict[str, str], Any, Outcome]] = {
    "429 with Retry-After in seconds": (429, {"retry-after": "7"}, {"error": {"message": "m"}}, ("rate_limit_exceeded", True, 7.0)),
    "429 with Retry-After as a date": (
        429,
        {"retry-after": "Fri, 15 Jan 2027 08:00:30 GMT"},
        {"error": {"message": "m"}},
        ("rate_limit_exceeded", True, 30.0),
    ),
    "429 with retry-after-ms": (
        429,
        {"retry-after": "9", "retry-after-ms": "250"},
        {"error": {"message": "m"}},
        ("rate_limit_exceeded", True, 0.25),
    ),
    "429 with a Retry-After that is no time": (429, {"retry-after": "soon"}, {"error": "m"}, ("rate_limit_exceeded", True, None)),
    "429 for an empty account": (
        429,
        {},
        {"error": {"message": "m", "code": "insufficient_quota"}},
        ("insufficient_quota", False, None),
    ),
    "500": (500, {}, {"error": {"message": "m"}}, ("server_error", True, None)),
    "500 that must not be retried": (500, {"x-should-retry": "false"}, {}, ("server_error", False, None)),
    "503 with a page": (503, {"retry-after": "2"}, "<html>", ("server_error", True, 2.0)),
    "529 of Anthropic": (
        529,
        {},
        {"type": "error", "error": {"type": "overloaded_error", "message": "m"}},
        ("server_error", True, None),
    ),
    "401": (401, {}, {"error": {"message": "bad key sk-secret"}}, ("server_error", False, None)),
    "403": (403, {}, {"message": "not authorized"}, ("server_error", False, None)),
    "404": (404, {}, {"error": {"message": "no such model", "code": None}}, ("model_not_found", False, None)),
    "400": (400, {}, {"error": {"message": "m", "code": "bad_thing", "param": "x"}}, ("invalid_prompt", False, None)),
    "400 with a published code": (
        400,
        {},
        {"error": {"message": "m", "code": "invalid_image_url"}},
        ("invalid_image_url", False, None),
    ),
    "422 of FastAPI": (422, {}, {"detail": "field required"}, ("invalid_prompt", False, None)),
    "413 without a body": (413, {}, "", ("invalid_prompt", False, None)),
    "context length by code": (
        400,
        {},
        {"error": {"message": "m", "code": "context_length_exceeded"}},
        ("context_length_exceeded", False, None),
    ),
    "context length as vLLM words it": (
        400,
        {},
        {"object": "error", "message": "This model's maximum context length is 8192 tokens."},
        ("context_length_exceeded", False, None),
    ),
    "context length as Anthropic words it": (
        400,
        {},
        {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens"}},
        ("context_length_exceeded", False, None),
    ),
    "context length as Bedrock words it": (
        400,
        {"x-amzn-errortype": "ValidationException:http://internal.amazon.com/"},
        {"message": "Input is too long for requested model."},
        ("context_length_exceeded", False, None),
    ),
    "throttled by Bedrock": (400, {"x-amzn-errortype": "ThrottlingException"}, {"message": "m"}, ("rate_limit_exceeded", True, None)),
    "an error in a list": (500, {}, [{"error": {"message": "m"}}], ("server_error", True, None)),
}


@pytest.mark.parametrize(("status", "headers", "body", "outcome"), STATUSES.values(), ids=STATUSES.keys())
def test_a_refusal_says_what_to_do_next(status: int, headers: Mapping[str, str], body: Any, outcome: Outcome) -> None:
    error = http.refusal(status, headers, body, secrets=("sk-secret",), now=NOW)
    assert (error.code, error.is_retryable, error.retry_after_seconds) == outcome
    assert error.status == status
    assert error.message
    assert "sk-secret" not in error.message


def test_a_long_message_with_control_characters_is_made_fit_for_a_client() -> None:
    error = http.refusal(400, {}, {"error": {"message": "a\x00b\nc" + "x" * 5_000}}, secrets=(), now=NOW)
    assert error.message.startswith("a b cx")
    assert len(error.message) == 1_000


# --- retries ----------------------------------------------------------------------------------------------------------------------


async def test_trouble_before_the_first_delta_is_retried_with_growing_pauses() -> None:
    script = Script([httpx.Response(500), httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), ok()])
    assert folded(await asked(script)).items == (("message", "ok"),)
    assert script.slept == [0.5, 1.0, 2.0]


async def test_retry_after_is_honoured() -> None:
    script = Script([httpx.Response(429, headers={"retry-after": "3"}), ok()])
    await asked(script)
    assert script.slept == [3.0]


async def test_a_long_retry_after_is_left_to_the_loop() -> None:
    script = Script([httpx.Response(429, headers={"retry-after": "90"}), ok()])
    with pytest.raises(UpstreamError) as raised:
        await asked(script)
    assert (raised.value.retry_after_seconds, raised.value.is_retryable, script.slept) == (90.0, True, [])


async def test_retries_have_an_end() -> None:
    script = Script([httpx.Response(503) for _ in range(9)])
    with pytest.raises(UpstreamError, match="HTTP 503"):
        await asked(script, retries_max=3)
    assert (script.asked, len(script.slept)) == (4, 3)


async def test_a_refusal_is_not_retried() -> None:
    script = Script([httpx.Response(400, json={"error": {"message": "no"}}), ok()])
    with pytest.raises(UpstreamError, match="no"):
        await asked(script)
    assert script.asked == 1


async def test_nothing_is_retried_after_the_first_delta() -> None:
    spoken = b"\n\n".join(OK.split(b"\n\n")[:2]) + b"\n\n"
    torn = httpx.Response(200, headers={"content-type": CHAT.content_type}, stream=Pieces(spoken, failure=httpx.ReadError("gone")))
    script = Script([torn, ok()])
    with pytest.raises(UpstreamError):
        await asked(script)
    assert script.asked == 1


def named(response: httpx.Response, **headers: str) -> httpx.Response:
    response.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    return response


async def test_what_an_upstream_calls_a_request_comes_first_and_hinders_no_retry() -> None:
    script = Script([named(replies(CHAT, b""), x_request_id="req_1"), named(ok(), request_id="req_2")])
    deltas = await asked(script)
    assert deltas[:2] == [StreamStarted("req_1"), StreamStarted("req_2")]
    assert folded(deltas[2:]).items == (("message", "ok"),)
    odd = named(ok(), x_request_id="<b>no name</b>", x_amzn_requestid="x" * 129)
    assert not any(isinstance(delta, StreamStarted) for delta in await asked(Script([odd])))


async def test_a_stream_that_ends_before_it_says_anything_is_retried() -> None:
    script = Script([replies(CHAT, b""), replies(CHAT, b": only a comment\n\n"), ok()])
    assert folded(await asked(script)).items == (("message", "ok"),)


GARBAGE: dict[str, Callable[[], httpx.Response]] = {
    "a page": lambda: httpx.Response(200, headers={"content-type": "text/html"}, text="<html>It works!</html>"),
    "JSON that is no object": lambda: httpx.Response(200, json=["what"]),
    "an empty body": lambda: httpx.Response(200, headers={"content-type": "application/json"}),
    "an image": lambda: httpx.Response(200, headers={"content-type": "image/png"}, content=b"\x89PNG"),
}


@pytest.mark.parametrize("made", GARBAGE.values(), ids=GARBAGE.keys())
@pytest.mark.parametrize("kind", OVER_HTTP, ids=lambda kind: kind.name)
async def test_an_address_without_a_model_is_said_at_once(kind: Kind, made: Callable[[], httpx.Response]) -> None:
    served = provider(kind, lambda _: made(), retries_max=4)
    with pytest.raises(UpstreamError, match="Check its base URL") as raised:
        [delta async for delta in served.stream(hello())]
    assert not raised.value.is_retryable


async def test_an_error_object_with_a_good_status_is_an_error() -> None:
    served = provider(CHAT, lambda _: httpx.Response(200, json={"error": {"message": "quota", "code": "rate_limit_exceeded"}}))
    with pytest.raises(UpstreamError, match="quota") as raised:
        [delta async for delta in served.stream(hello())]
    assert raised.value.is_retryable


@pytest.mark.parametrize("kind", OVER_HTTP, ids=lambda kind: kind.name)
async def test_a_key_is_in_no_repr_and_no_error(kind: Kind) -> None:
    served = provider(kind, lambda _: httpx.Response(400, json={"error": {"message": "you sent sk-secret"}}))
    with pytest.raises(UpstreamError) as raised:
        [delta async for delta in served.stream(hello())]
    assert "sk-secret" not in f"{served!r} {raised.value!r} {raised.value}"


# --- over real sockets --------------------------------------------------------------------------------------------------------------


def served_by(upstream: MockUpstream, transport: httpx.AsyncBaseTransport, **fields: Any) -> Any:
    return CHAT.build(http.Upstream(transport, f"{upstream.url}/chat/completions", **fields))


async def test_a_server_that_throttles_breaks_and_recovers_is_asked_until_it_answers() -> None:
    with MockUpstream() as upstream:
        upstream.plays(refused(429, retry_after=0.01), refused(500), said("Here I am."))
        async with UpstreamTransport() as transport:
            served = served_by(upstream, transport, jitter=lambda: 0.0, sleep=lambda seconds: asyncio.sleep(seconds / 100))
            result = folded([delta async for delta in served.stream(hello())])
        assert result.items == (("message", "Here I am."),)
        assert len(upstream.requests) == 3


async def test_a_server_that_falls_silent_is_given_up_after_the_idle_time() -> None:
    with MockUpstream() as upstream:
        upstream.plays(hung(after=3), hung(after=0))
        async with UpstreamTransport() as transport:
            for _ in range(2):
                served = served_by(upstream, transport, idle_seconds=0.1, retries_max=0)
                with pytest.raises(UpstreamError, match=r"silent for 0\.1 seconds") as raised:
                    [delta async for delta in served.stream(hello())]
                assert raised.value.is_retryable


async def test_a_server_that_cuts_the_connection_or_answers_garbage_is_an_error() -> None:
    with MockUpstream() as upstream:
        upstream.plays(broken(), garbage())
        async with UpstreamTransport() as transport:
            served = served_by(upstream, transport, retries_max=0)
            for words in ("connection to the model upstream failed", "Check its base URL"):
                with pytest.raises(UpstreamError, match=words):
                    [delta async for delta in served.stream(hello())]


async def test_a_server_that_is_down_is_an_error() -> None:
    with MockUpstream() as upstream:
        pass
    async with UpstreamTransport() as transport:
        served = served_by(upstream, transport, retries_max=0)
        with pytest.raises(UpstreamError, match="connection to the model upstream failed") as raised:
            [delta async for delta in served.stream(hello())]
    assert raised.value.is_retryable


async def test_the_connection_is_used_again_after_a_finished_answer() -> None:
    with MockUpstream() as upstream:
        async with UpstreamTransport() as transport:
            served = served_by(upstream, transport)
            for _ in range(3):
                assert folded([delta async for delta in served.stream(hello())]).finish == "stop"
        assert len({request.client_port for request in upstream.requests}) == 1


# --- what the operator is told -----------------------------------------------------------------------------------------------------


async def told(*answers: httpx.Response | Exception) -> list[dict[str, Any]]:
    """The lines of the log, after asking an upstream that answers so."""
    handler = open_log(out := io.StringIO())
    try:
        with about(response_id="resp_1"), contextlib.suppress(UpstreamError):
            await asked(Script(list(answers)), retries_max=1)
    finally:
        close_log(handler)
    own = {"level", "timestamp", "service", "location"}
    return [{name: value for name, value in json.loads(line).items() if name not in own} for line in out.getvalue().splitlines()]


async def test_each_failure_is_told_with_upstream_reason_and_attempt() -> None:
    busy = httpx.Response(503, json={"error": {"message": "busy"}})
    first, last = await told(httpx.ConnectError("[Errno 111] Connection refused"), busy)
    assert first.pop("next_attempt_seconds") > 0
    common = {"message": "upstream_failed", "response_id": "resp_1", "model": "m", "upstream": "upstream.test", "code": "server_error"}
    assert first == common | {
        "reason": "The connection to the model upstream failed: the server of 'm' cannot be reached (ConnectError). "
        "'moorage logs' shows why, 'moorage doctor' asks each model's server.",
        "cause": "ConnectError: [Errno 111] Connection refused",
        "attempt": 1,
    }
    assert (last["status"], last["attempt"], "busy" in last["reason"], "next_attempt_seconds" in last) == (503, 2, True, False)


async def test_what_an_upstream_says_about_a_request_is_not_told_because_it_may_quote_it() -> None:
    (line,) = await told(httpx.Response(400, json={"error": {"message": "bad input: my secret diary"}}))
    assert (line["status"], line["attempt"], "reason" in line) == (400, 1, False)
