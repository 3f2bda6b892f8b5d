"""Request bodies, read within bounds and checked: ``async def create(body: Annotated[CreateContainer, body_of(CreateContainer)])``."""

from typing import Annotated, Any

from fastapi import Depends, Request

from moorage import limits
from moorage.errors import body_too_large, encoded_body
from moorage.wire.validation import Parser


async def read_body(request: Request, bytes_max: int = limits.REQUEST_BODY_BYTES_MAX) -> bytes:
    """The whole body; 413 as soon as it is known to be too large, 415 if it is compressed."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() not in ("", "identity"):
        raise encoded_body(encoding)
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > bytes_max:
        raise body_too_large(bytes_max)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > bytes_max:
            raise body_too_large(bytes_max)
        chunks.append(chunk)
    return b"".join(chunks)


async def _raw(request: Request) -> bytes:
    return await read_body(request)


RawBody = Annotated[bytes, Depends(_raw)]


def body_of(model: Any) -> Any:
    """The body as ``model`` says. FastAPI's own reading of bodies knows neither bounds nor this API's errors."""
    parse: Parser[Any] = Parser(model)

    async def read(body: RawBody) -> Any:
        return parse.body(body)

    return Depends(read)
