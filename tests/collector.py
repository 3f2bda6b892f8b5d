"""A collector of OpenTelemetry's on this machine, which takes traces as OTLP's JSON and refuses what is malformed.

The rules are those of the protocol's protobuf and its JSON mapping (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding):
ids are hex digits, 64-bit numbers are text, enumerations are numbers, and nothing is there that the message does not have.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

_TRACE = re.compile(r"(?!0{32})[0-9a-f]{32}")
_SPAN = re.compile(r"(?!0{16})[0-9a-f]{16}")
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_SPAN_FIELDS = {
    *("traceId", "spanId", "parentSpanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes", "status"),
}


class Malformed(Exception):
    pass


@dataclass
class Collector:
    answers: list[int] = field(default_factory=list)
    """The next ones; after them it takes what is well-formed."""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and headers, by their names in small letters."""
    taken: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def spans(self) -> list[dict[str, Any]]:
        """All that were taken, with their attributes as a dictionary."""
        return [
            span | {"attributes": {pair["key"]: _plain(pair["value"]) for pair in span["attributes"]}}
            for body in self.taken
            for resource in body["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        self.asked.append((path, headers))
        if self.answers:
            return self.answers.pop(0)
        try:
            if (path, headers.get("content-type")) != ("/v1/traces", "application/json"):
                raise Malformed(f"{path}: {headers}")
            parsed = orjson.loads(body)
            check(parsed)
        except (Malformed, orjson.JSONDecodeError) as error:
            self.refused.append(str(error))
            return 400
        self.taken.append(parsed)
        return 200


def check(body: Any) -> None:
    """Raises :class:`Malformed`."""
    for resource in _list(body, {"resourceSpans"}, "resourceSpans"):
        _fields(resource, {"resource", "scopeSpans"})
        _fields(resource["resource"], {"attributes"})
        _check_attributes(resource["resource"]["attributes"])
        for scope in _list(resource, {"resource", "scopeSpans"}, "scopeSpans"):
            _fields(scope, {"scope", "spans"})
            _fields(scope["scope"], {"name", "version"})
            for span in _list(scope, {"scope", "spans"}, "spans"):
                _check_span(span)


def _check_span(span: Any) -> None:
    _fields(span, _SPAN_FIELDS)
    _demand(_TRACE.fullmatch(span["traceId"]), span)
    _demand(_SPAN.fullmatch(span["spanId"]), span)
    _demand("parentSpanId" not in span or _SPAN.fullmatch(span["parentSpanId"]), span)
    _demand(isinstance(span["name"], str) and span["name"], span)
    _demand(span["kind"] in range(1, 6), span)
    start, end = span["startTimeUnixNano"], span["endTimeUnixNano"]
    _demand(isinstance(start, str) and isinstance(end, str) and start.isdigit() and end.isdigit(), span)
    _demand(0 < int(start) <= int(end) < 2**64, span)
    _check_attributes(span["attributes"])
    _fields(span["status"], {"code", "message"})
    _demand(span["status"].get("code", 0) in (0, 1, 2), span)


def _check_attributes(attributes: Any) -> None:
    _demand(isinstance(attributes, list), attributes)
    names = [pair["key"] for pair in attributes]
    _demand(len(names) == len(set(names)), names)
    for pair in attributes:
        _fields(pair, {"key", "value"})
        _check_value(pair["value"])


def _check_value(value: Any) -> None:
    _demand(isinstance(value, dict) and len(value) == 1, value)
    match value:
        case {"stringValue": str()} | {"boolValue": bool()}:
            pass
        case {"intValue": str(number)}:
            _demand(_NUMBER.fullmatch(number), value)
        case {"arrayValue": {"values": list(values)}}:
            for inner in values:
                _check_value(inner)
        case _:
            raise Malformed(str(value))


def _list(holder: Any, known: set[str], name: str) -> list[Any]:
    _fields(holder, known)
    _demand(isinstance(holder.get(name), list) and holder[name], holder)
    return list(holder[name])


def _fields(thing: Any, known: set[str]) -> None:
    _demand(isinstance(thing, dict) and thing.keys() <= known, thing)


def _demand(condition: object, thing: Any) -> None:
    if not condition:
        raise Malformed(str(thing)[:300])


def _plain(value: dict[str, Any]) -> Any:
    ((kind, inner),) = value.items()
    match kind:
        case "intValue":
            return int(inner)
        case "arrayValue":
            return [_plain(each) for each in inner["values"]]
        case _:
            return inner


@asynccontextmanager
async def collecting(*answers: int) -> AsyncIterator[Collector]:
    collector = Collector(list(answers))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
            status = collector.take(first.split(" ")[1], headers, await reader.readexactly(int(headers["content-length"])))
            writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}".encode())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    collector.port = server.sockets[0].getsockname()[1]
    async with server:
        yield collector
