"""multipart/form-data as a stream of parts, with flat memory.

    async for part in parts(request):
        if part.name == "file":
            await store(part.chunks())
        else:
            value = await part.text()

A part must be read before the next one is asked for; what is left of it is skipped. The parser is python-multipart's; starlette's
``request.form()`` would put every upload on the local disk first.
"""

from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from fastapi import Request
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from moorage import limits
from moorage.errors import ApiError, bad_request, body_too_large

MULTIPART: Final = "multipart/form-data"


class Part:
    """One part of the form."""

    def __init__(self, headers: dict[bytes, bytes], form: "_Form") -> None:
        _, options = parse_options_header(headers.get(b"content-disposition", b""))
        self.name = _text(options.get(b"name", b""))
        filename = options.get(b"filename")
        self.filename = None if filename is None else _file_name(_text(filename))
        self._form = form
        self._is_read = False

    async def chunks(self) -> AsyncIterator[bytes]:
        """The part's bytes as they come in."""
        while not self._is_read:
            event = await self._form.next_event()
            if event is None:
                raise _broken("it ends in the middle of a part")
            if isinstance(event, bytes):
                yield event
            else:
                self._is_read = True

    async def text(self) -> str:
        """The part's bytes as text; for short fields only."""
        value = bytearray()
        async for chunk in self.chunks():
            value += chunk
            if len(value) > limits.FORM_FIELD_BYTES_MAX:
                raise bad_request(f"The field '{self.name[:80]}' is too long.", param=self.name[:80])
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise bad_request(f"The field '{self.name[:80]}' is not UTF-8.", param=self.name[:80]) from error

    async def skip(self) -> None:
        async for _ in self.chunks():
            pass


FILE_TOO_LARGE: Final = f"A file has at most {limits.FILE_BYTES_MAX >> 20} MiB. Pack it, or send it in several files."


async def parts(request: Request, *, bytes_max: int, too_large: str, parts_max: int = limits.FORM_PARTS_MAX) -> AsyncIterator[Part]:
    """The parts of a form whose body may have up to ``bytes_max`` bytes; ``too_large`` says what to do with more. Raises
    :class:`ApiError` for what is no form."""
    form = _Form(request, bytes_max, too_large)
    count = 0
    while True:
        event = await form.next_event()
        if event is None:
            return
        assert isinstance(event, dict), "a part was left in the middle"
        count += 1
        if count > parts_max:
            raise bad_request(f"The form has more than {parts_max} parts.")
        part = Part(event, form)
        yield part
        await part.skip()


def is_multipart(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == MULTIPART


_END: Final = "end"
_Event = dict[bytes, bytes] | bytes | str
"""A part's headers, a piece of its data, or its end."""


class _Form:
    def __init__(self, request: Request, bytes_max: int, too_large: str) -> None:
        _, options = parse_options_header(request.headers.get("content-type", ""))
        boundary = options.get(b"boundary")
        if not is_multipart(request) or not boundary:
            raise bad_request("The request must be multipart/form-data with a boundary.")
        declared = request.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > bytes_max:
            raise body_too_large(bytes_max, too_large)
        self._body = request.stream()
        self._left = bytes_max
        self._bytes_max, self._too_large = bytes_max, too_large
        self._events: deque[_Event] = deque()
        self._headers: dict[bytes, bytes] = {}
        self._field, self._value = bytearray(), bytearray()
        self._is_over = False
        self._has_ended = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._on_part_begin,
                "on_part_data": lambda data, start, end: self._events.append(bytes(data[start:end])),
                "on_part_end": lambda: self._events.append(_END),
                "on_header_field": lambda data, start, end: self._field.extend(data[start:end]),
                "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
                "on_header_end": self._on_header_end,
                "on_headers_finished": lambda: self._events.append(self._headers),
                "on_end": self._on_end,
            },
        )

    async def next_event(self) -> _Event | None:
        """The next event; None at the end of the form."""
        while not self._events:
            if self._is_over:
                return None
            await self._read()
        return self._events.popleft()

    async def _read(self) -> None:
        chunk = await anext(self._body, None)
        if not chunk:
            self._is_over = chunk is None
            if self._is_over and not self._has_ended:
                raise _broken("its closing boundary is missing")
            return
        self._left -= len(chunk)
        if self._left < 0:
            raise body_too_large(self._bytes_max, self._too_large)
        try:
            self._parser.write(chunk)
        except MultipartParseError as error:
            raise _broken(str(error)) from error

    def _on_part_begin(self) -> None:
        self._headers = {}

    def _on_header_end(self) -> None:
        self._headers[bytes(self._field).lower()] = bytes(self._value)
        self._field.clear()
        self._value.clear()

    def _on_end(self) -> None:
        self._has_ended = True


def _broken(reason: str) -> ApiError:
    return bad_request(f"Could not parse the multipart form data: {reason}.")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _file_name(sent: str) -> str:
    """Undo what form encoding does to a name (WHATWG HTML, multipart/form-data: quotes and line breaks are percent-encoded)."""
    return sent.replace("%22", '"').replace("%0D", "\r").replace("%0A", "\n")
