"""Requests to an upstream over HTTP: retries before the first delta, time-outs, and errors with their cause.

A provider touches the network only in ``Upstream.stream``; it gives a body and a decoder (pure: bytes in, deltas out). Keys travel in
headers or an ``httpx.Auth`` and never appear in a repr, an error or a log line.
"""

import asyncio
import json
import random
import re
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import field
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

import httpx
import orjson

from moorage import __version__, large_bodies, limits, tracing
from moorage.dataclass import dataclass
from moorage.errors import UpstreamError, connection_failed
from moorage.model import base
from moorage.model.base import Delta, ModelRequest, StreamStarted
from moorage.parallel import Breath, beside, outweighs, worked
from moorage.telemetry import tell

_T = TypeVar("_T")

_DRAIN_SECONDS: Final = 0.5
"""After the end was said, the rest of the body is read for this long, so that the connection can be used again."""

_PORTION_BYTES: Final = 16 * limits.KIB

_STATUS_OF_KEYS: Final = 401
_MESSAGE_CHARS_MAX: Final = 1_000
_ERROR_BODY_BYTES_MAX: Final = 64 * limits.KIB
_EVENT_STREAM: Final = "text/event-stream"
_STREAM_TYPES: Final = frozenset({"", _EVENT_STREAM, "application/vnd.amazon.eventstream", "text/plain", "application/octet-stream"})


class Decoder(Protocol):
    """One answer's state: bytes of a stream in, deltas out."""

    @property
    def is_finished(self) -> bool:
        """The upstream has said its end; nothing of worth follows."""
        ...

    def feed(self, piece: bytes) -> list[Delta]: ...

    def whole(self, body: dict[str, Any]) -> list[Delta]:
        """The same out of an answer that came as one JSON body from a server that does not stream."""
        ...

    def end(self) -> list[Delta]:
        """The body is over. Raises UpstreamError if the upstream has not said its end."""
        ...


@dataclass(frozen=True, slots=True)
class Upstream:
    """One endpoint of one provider."""

    transport: httpx.AsyncBaseTransport = field(repr=False)
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    auth: httpx.Auth | None = field(default=None, repr=False)
    """Signs the request; it is not asked about the answer."""
    secrets: Collection[str] = field(default=(), repr=False)
    """Texts that an upstream might quote back and that no error may hold. A key that is renewed is added."""
    rekeyed: "Callable[[Upstream, bool], Upstream] | None" = field(default=None, repr=False)
    """The same with the key as it is now; the flag says that the one it has was refused."""
    idle_seconds: float = limits.UPSTREAM_IDLE_SECONDS
    retries_max: int = limits.UPSTREAM_RETRIES_MAX
    sleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep, repr=False)
    jitter: Callable[[], float] = field(default=random.random, repr=False)
    """0 to 1; spreads the retries of many steps."""

    async def stream(
        self, write: Callable[[], Mapping[str, Any]], new_decoder: Callable[[], Decoder], *, is_long: bool
    ) -> AsyncGenerator[Delta, None]:
        """POST the body that ``write`` makes, on a thread if it ``is_long``, and yield deltas. Trouble before the first delta is
        retried within the bounds, later it is raised."""

        def written() -> tuple[Mapping[str, Any], bytes]:
            made = write()
            return made, orjson.dumps(made)

        body, payload = await worked(written) if is_long else written()
        large_bodies.left()
        upstream, was_refused = self.renewed(is_refused=False), False
        for attempt in range(self.retries_max + 1):
            has_spoken = False
            try:
                async with aclosing(upstream._once(payload, new_decoder(), str(body.get("model") or ""))) as batches:
                    async for deltas in batches:
                        for delta in deltas:
                            has_spoken = has_spoken or not isinstance(delta, StreamStarted)
                            yield delta
                return
            except UpstreamError as error:
                wait, key_is_new = self._wait(error, attempt), False
                if error.status == _STATUS_OF_KEYS and not was_refused:
                    was_refused, used = True, upstream
                    upstream = used.renewed(is_refused=True)
                    wait, key_is_new = 0.0, upstream is not used
                is_last = has_spoken or not (error.is_retryable or key_is_new) or attempt == self.retries_max
                is_given_up = is_last or wait > limits.UPSTREAM_RETRY_AFTER_SECONDS_MAX
                tell_failure(error, self.url, body, attempt=attempt + 1, wait=None if is_given_up else wait)
                if is_given_up:
                    raise
            await self.sleep(wait)

    def renewed(self, *, is_refused: bool) -> "Upstream":
        """With the key as it is now; itself if that is the one it has."""
        return self if self.rekeyed is None else self.rekeyed(self, is_refused)

    def _wait(self, error: UpstreamError, attempt: int) -> float:
        if error.retry_after_seconds is not None:
            return error.retry_after_seconds
        return limits.UPSTREAM_BACKOFF_SECONDS * 2.0**attempt * (0.75 + 0.5 * self.jitter())

    async def _once(self, payload: bytes, decoder: Decoder, model: str) -> AsyncGenerator[list[Delta], None]:
        """The deltas that come together, together."""
        try:
            response = await self.transport.handle_async_request(self._request(payload))
            try:
                if response.status_code != 200:
                    raise await self._refusal(response)
                if request_id := _request_id(response.headers):
                    yield [StreamStarted(request_id)]
                async with aclosing(self._answer(response, decoder)) as batches:
                    async for deltas in batches:
                        yield deltas
            finally:
                await response.aclose()
        except httpx.TimeoutException as error:
            raise self._timeout(error) from error
        except httpx.HTTPError as error:
            raise UpstreamError(connection_failed(error, model), is_retryable=True) from error

    def _request(self, payload: bytes) -> httpx.Request:
        """The request, without the additions of an ``httpx.AsyncClient``: no cookies, no redirects, no hooks."""
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",
            "user-agent": f"moorage/{__version__}",
            **_traced(),
            **self.headers,
        }
        timeout = httpx.Timeout(self.idle_seconds, connect=limits.UPSTREAM_CONNECT_SECONDS)
        request = httpx.Request("POST", _url(self.url), headers=headers, content=payload, extensions={"timeout": timeout.as_dict()})
        return request if self.auth is None else next(self.auth.sync_auth_flow(request))

    async def _answer(self, response: httpx.Response, decoder: Decoder) -> AsyncGenerator[list[Delta], None]:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in _STREAM_TYPES:
            content = await _bounded(response, limits.UPSTREAM_EVENT_BYTES_MAX)
            yield await beside(len(content), lambda: _decoded(decoder.whole, self._json(content, kind)))
            return
        pieces, breath = _pieces(response), Breath()
        beginning = bytearray()
        has_spoken, unread, after_cr = False, 0, False
        async with aclosing(_portions(pieces)) as portions:
            async for piece in portions:
                unread += len(piece)
                # A part of a line is put to the others, here. What ends one, or follows a CR, may have all of them read.
                has_line = kind != _EVENT_STREAM or after_cr or b"\n" in piece or b"\r" in piece
                after_cr = piece.endswith(b"\r")
                deltas = await beside(unread if has_line else 0, partial(_decoded, decoder.feed, piece))
                unread = 0 if deltas else unread
                await breath.taken()
                has_spoken = has_spoken or bool(deltas)
                if not has_spoken and len(beginning) < _ERROR_BODY_BYTES_MAX:
                    beginning += piece
                yield deltas
                if decoder.is_finished:
                    await _drain(pieces)
                    return
        if not has_spoken and (found := _error_object(_json_value(beginning))):
            raise self.error(found)  # A server that fails after it has promised a stream may send its error as a bare body.
        yield _decoded(_end_of, decoder)

    def _json(self, content: bytes, kind: str) -> dict[str, Any]:
        """A whole body. Anything but a JSON object means that no model lives at this address."""
        value = _json_value(content)
        if not isinstance(value, dict):
            raise UpstreamError(
                f"The model upstream answered with something that is not a model's answer (content type '{kind}'). Check its base URL.",
                is_retryable=False,
            )
        if value.get("error"):
            raise self.error(value["error"] if isinstance(value["error"], dict) else {"message": value["error"]})
        return value

    async def _refusal(self, response: httpx.Response) -> UpstreamError:
        body = _json_value(await _bounded(response, _ERROR_BODY_BYTES_MAX))
        return refusal(response.status_code, response.headers, body, secrets=self.secrets, now=time.time())

    def error(self, payload: Mapping[str, Any]) -> UpstreamError:
        """An error object that came inside an answer."""
        return error_in_stream(payload, secrets=self.secrets)

    def _timeout(self, error: httpx.TimeoutException) -> UpstreamError:
        if isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout):
            return UpstreamError("The model upstream could not be reached in time.", is_retryable=True)
        return UpstreamError(f"The model upstream was silent for {self.idle_seconds:g} seconds.", is_retryable=True)


_REQUEST_IDS: Final = ("x-request-id", "request-id", "x-amzn-requestid", "apim-request-id")
"""How OpenAI and most others, Anthropic, Bedrock and Azure name a request in their answers."""
_REQUEST_ID: Final = re.compile(r"[\w.:/+=-]{1,128}")


def _request_id(headers: Mapping[str, str]) -> str | None:
    """The upstream's name for the request, if that looks like a name."""
    return next((found for name in _REQUEST_IDS if _REQUEST_ID.fullmatch(found := headers.get(name, ""))), None)


def _traced() -> dict[str, str]:
    """A span of its own for each attempt, so that traces of both ends can tell them apart."""
    trace = tracing.current()
    return {} if trace is None else {"traceparent": trace.child().traceparent}


@lru_cache(maxsize=limits.UPSTREAM_URLS_MAX)
def _url(url: str) -> httpx.URL:
    """httpx takes as long to parse a URL as for the rest of a request; there are as many as models are configured."""
    return httpx.URL(url)


def says_much(request: ModelRequest) -> bool:
    """Whether to write its body takes long: a text file alone may have 50 MiB."""
    return outweighs([request.items, request.tools, request.instructions, request.text], limits.LOWERED_HERE_MAX)


# --- what an answer means ------------------------------------------------------------------------------------------------------


_CAUSE_CHARS_MAX: Final = 300
_ABOUT_THE_REQUEST: Final = frozenset({400, 413, 422})
"""Statuses whose words may quote what was asked."""


def tell_failure(error: UpstreamError, url: str, body: Mapping[str, Any], *, attempt: int, wait: float | None) -> None:
    """One line for the operator: the failed upstream, the attempt and the reason.

    The upstream's words about the request are left out, because they may quote it.
    """
    cause = error.__cause__ if isinstance(error.__cause__, httpx.HTTPError) else None
    is_quotable = cause is not None or (error.status is not None and error.status not in _ABOUT_THE_REQUEST)
    tell(
        "upstream_failed",
        {
            "model": body.get("model"),
            "upstream": urlsplit(url).netloc,
            "code": error.code,
            "status": error.status,
            "reason": error.message[:_CAUSE_CHARS_MAX] if is_quotable else None,
            "cause": f"{type(cause).__name__}: {cause}"[:_CAUSE_CHARS_MAX] if cause is not None else None,
            "attempt": attempt,
            "next_attempt_seconds": None if wait is None else round(wait, 1),
        },
    )


def refusal(status: int, headers: Mapping[str, str], body: Any, *, secrets: Collection[str], now: float) -> UpstreamError:
    """The error that a status other than 200 stands for. ``now`` is Unix seconds, for Retry-After dates."""
    found = _error_object(body)
    code, kind = str(found.get("code") or ""), str(found.get("type") or headers.get("x-amzn-errortype", "").partition(":")[0])
    message = _clean(str(found.get("message") or ""), secrets)
    wait = retry_after_seconds(headers, now)
    if status in (401, 403):
        # The upstream's own words may quote the key.
        return UpstreamError(
            f"The model upstream refused this deployment's credentials (HTTP {status}). The operator has to check the key that "
            "models.toml refers to, and the account's access to the model.",
            status=status,
            is_retryable=False,
        )
    is_throttle = status == 429 or "Throttling" in kind
    if _is_context_length(code, kind, message, is_throttle=is_throttle) and status < 500:
        return UpstreamError(
            message or "The input is longer than the model's context window.",
            code="context_length_exceeded",
            status=status,
            param="input",
            is_retryable=False,
        )
    if code == "insufficient_quota" or kind == "insufficient_quota":
        return UpstreamError(message, code="insufficient_quota", status=status, is_retryable=False)
    if is_throttle:
        text = message or "The model upstream is limiting the rate of requests."
        return UpstreamError(text, code="rate_limit_exceeded", status=status, is_retryable=True, retry_after_seconds=wait)
    if status >= 500 or status in (408, 409, 425):
        return UpstreamError(
            f"The model upstream failed (HTTP {status})" + (f": {message}" if message else "."),
            status=status,
            is_retryable=headers.get("x-should-retry") != "false",
            retry_after_seconds=wait,
        )
    if status < 400 or (status in (404, 405) and not message):
        # No model lives here: a gateway answers, or the address lacks its ``/v1``. The operator has to mend that, not the client.
        return UpstreamError(
            f"The model upstream answered with HTTP {status}, which is no model's answer. Check its base URL.",
            status=status,
            is_retryable=False,
        )
    return UpstreamError(
        message or _REFUSED.get(status, f"The model upstream refused the request (HTTP {status})."),
        code=_published(code, "model_not_found" if status == 404 else "invalid_prompt"),
        status=status,
        param=found.get("param") if isinstance(found.get("param"), str) else None,
        is_retryable=False,
    )


_REFUSED: Final = {413: "The request is larger than the model upstream takes (HTTP 413). Send less, or smaller files."}


def error_in_stream(payload: Mapping[str, Any], *, secrets: Collection[str] = ()) -> UpstreamError:
    """An error that came after a good status: the code says whether asking again can help."""
    code = str(payload.get("code") or payload.get("type") or "server_error")
    message = _clean(str(payload.get("message") or "The model upstream reported an error."), secrets)
    is_throttle = re.search(r"rate.?limit|throttl|too.?many|\b429\b", code, re.IGNORECASE) is not None
    if _is_context_length(code, str(payload.get("type") or ""), message, is_throttle=is_throttle):
        return UpstreamError(message, code="context_length_exceeded", param="input", is_retryable=False)
    is_passing = re.search(r"server.?error|internal|overloaded|unavailable|timeout|^(error|api_error|5\d\d)$", code, re.IGNORECASE)
    if is_throttle:
        code = "rate_limit_exceeded"
    elif is_passing:
        code = "server_error"
    else:
        code = _published(code, "invalid_prompt")
    param = payload.get("param")
    return UpstreamError(
        message, code=code, param=param if isinstance(param, str) else None, is_retryable=bool(is_throttle or is_passing)
    )


_CODES: Final = frozenset(
    {
        "server_error",
        "rate_limit_exceeded",
        "invalid_prompt",
        "insufficient_quota",
        "context_length_exceeded",
        "model_not_found",
        "data_residency_mismatch",
        "bio_policy",
        "misalignment_policy_violation",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "image_content_policy_violation",
        "invalid_image_mode",
        "image_file_too_large",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
        "image_file_not_found",
    }
)
"""``response.error.code``: the SDK's ``ResponseError``, and three that the live API uses besides."""


def _published(code: str, otherwise: str) -> str:
    """Upstreams have codes of their own; clients parse the published ones. The upstream's message says the rest."""
    return code if code in _CODES else otherwise


def broken(detail: str) -> UpstreamError:
    """The stream ended, or went wrong, before its end was said."""
    return UpstreamError(f"The model upstream's answer broke off: {detail}.", is_retryable=True)


def _decoded(step: Callable[[_T], list[Delta]], value: _T) -> list[Delta]:
    """A decoder reads the fields that the protocol promises; an answer without them is broken."""
    try:
        deltas = step(value)
        for delta in deltas:
            _check_types(delta)
        return base.joined(deltas)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise broken(f"it does not have the shape of its protocol ({type(error).__name__}: {error})") from error


def _check_types(delta: Delta) -> None:
    """Decoders pass values on as they are. Raises TypeError if JSON had a value of the wrong type."""
    match delta:
        case base.CallStarted(name, call_id, _, namespace):
            are_right = isinstance(name, str) and isinstance(call_id, str | None) and isinstance(namespace, str | None)
        case base.TextDelta(text, logprobs):
            are_right = isinstance(text, str) and all(isinstance(entry, dict) for entry in logprobs)
        case base.SummaryDelta(text) | base.RefusalDelta(text) | base.ReasoningTextDelta(text) | base.CallDelta(text):
            are_right = isinstance(text, str)
        case base.AnnotationAdded(annotation):
            are_right = isinstance(annotation, dict)
        case base.ItemDone(encrypted_content):
            are_right = isinstance(encrypted_content, str | None)
        case _:
            return
    if not are_right:
        raise TypeError(f"a field of {type(delta).__name__} has the wrong type")


def _end_of(decoder: Decoder) -> list[Delta]:
    """A last event without its empty line is read here."""
    return decoder.end()


def json_event(data: str) -> dict[str, Any]:
    """The JSON object of one event. Raises UpstreamError for anything else."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = _loose_json(data)
    if not isinstance(value, dict):
        raise broken("it sent an event that is not a JSON object")
    return value


def _loose_json(data: str) -> Any:
    """Text that some servers take for JSON: halves of characters, ``NaN``, ``Infinity``. Raises UpstreamError for anything else."""
    try:
        return json.loads(data, parse_constant=_CONSTANTS.get)
    except (ValueError, RecursionError) as error:
        raise broken("it sent an event that is not JSON") from error


_CONSTANTS: Final = {"NaN": None, "Infinity": sys.float_info.max, "-Infinity": -9999.0}
"""The last is what OpenAI's API says for the logarithm of no chance at all."""


def retry_after_seconds(headers: Mapping[str, str], now: float) -> float | None:
    """``retry-after-ms``, or ``retry-after`` in seconds or as a date (RFC 9110, section 10.2.3)."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            return max(0.0, float(value) * scale)
        except ValueError:
            pass
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - now)
        except ValueError:
            continue
    return None


_CONTEXT_LENGTH: Final = re.compile(
    r"context.?(length|window|size|limit)|maximum (context|prompt|model) length|max_model_len|prompt is too long|input is too long"
    r"|too many (input )?tokens|input tokens exceed|input token count|exceeded model token limit|`inputs` (tokens|must have)"
    r"|reduce the length",
    re.IGNORECASE,
)
"""How OpenAI, Anthropic, Bedrock's models, Gemini, xAI, Kimi, vLLM, llama.cpp, Ollama and TGI say it; few of them have a code."""


def _is_context_length(code: str, kind: str, message: str, *, is_throttle: bool) -> bool:
    """Bedrock's throttling has matching words too ("Too many tokens, please wait"), so throttling needs a code."""
    if re.search(r"context_(length|size)", f"{code} {kind}"):
        return True
    return not is_throttle and _CONTEXT_LENGTH.search(message) is not None


def _error_object(body: Any) -> dict[str, Any]:
    """The error inside the bodies that servers answer: ``{"error": {...}}``, ``{"error": "..."}``, ``{"message": "..."}``."""
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return {}
    error = body.get("error", body)
    if isinstance(error, str):
        return {"message": error}
    if not isinstance(error, dict):
        return {}
    return error if error.get("message") else {"message": error.get("Message") or error.get("detail") or "", **error}


def _clean(message: str, secrets: Collection[str]) -> str:
    for secret in secrets:
        if secret:
            message = message.replace(secret, "***")
    message = re.sub(r"[\x00-\x1f\x7f]+", " ", message).strip()
    return message if len(message) <= _MESSAGE_CHARS_MAX else message[: _MESSAGE_CHARS_MAX - 1] + "…"


def _json_value(content: bytes | bytearray) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None


def _pieces(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body as it comes; a server may compress it although it was asked not to."""
    if "content-encoding" in response.headers:
        return response.aiter_bytes()
    assert isinstance(response.stream, httpx.AsyncByteStream)
    return aiter(response.stream)


async def _portions(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The same bytes in pieces. Each piece is decoded in some milliseconds, however many events it has."""
    async for piece in pieces:
        for start in range(0, len(piece), _PORTION_BYTES):
            yield piece[start : start + _PORTION_BYTES]


async def _bounded(response: httpx.Response, bytes_max: int) -> bytes:
    """The body, as far as the bound. A cut body is no JSON any more, and its reader then says so."""
    pieces, size = [], 0
    async for piece in _pieces(response):
        pieces.append(piece)
        size += len(piece)
        if size > bytes_max:
            break
    return b"".join(pieces)


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in pieces:
                pass
    except (TimeoutError, httpx.HTTPError):
        return  # The connection is closed instead of kept; the answer is whole already.
