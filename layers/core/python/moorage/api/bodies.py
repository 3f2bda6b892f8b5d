"""Request bodies, read within bounds and checked: ``async def create(body: Annotated[CreateContainer, body_of(CreateContainer)])``."""

import zlib
from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

from fastapi import Depends, Request

from moorage import large_bodies, limits
from moorage.errors import body_too_large, encoded_body, unreadable_body
from moorage.parallel import Breath, beside
from moorage.wire.validation import JsonValidator

_GZIP: Final = 16 + zlib.MAX_WBITS


async def read_body(request: Request, bytes_max: int = limits.REQUEST_BODY_BYTES_MAX) -> bytes:
    """The whole body, unpacked if it is gzip; 413 as soon as it is known to be too large, 415 if it is compressed otherwise,
    429 if the tenant has sent too much at once."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise encoded_body(encoding)
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > bytes_max:
        raise body_too_large(bytes_max)
    chunks: list[bytes] = []
    size = 0
    async for chunk in _unpacked(request.stream(), bytes_max) if encoding.endswith("gzip") else request.stream():
        size += len(chunk)
        if size > bytes_max:
            raise body_too_large(bytes_max)
        await large_bodies.counted(len(chunk))
        chunks.append(chunk)
    await large_bodies.entered()
    return await beside(size, lambda: _joined(chunks))


def _joined(chunks: list[bytes]) -> bytes:
    """Of a large body both the copy and the freeing of its chunks take long."""
    body = b"".join(chunks)
    chunks.clear()
    return body


async def _unpacked(packed: AsyncIterator[bytes], bytes_max: int) -> AsyncIterator[bytes]:
    """What is in a gzip file of one or more members (RFC 1952, section 2.2), in pieces: a packet may hold a thousand times its length,
    which takes long to unpack at once. A file of empty members unpacks to nothing, and could go on for ever."""
    member, breath = zlib.decompressobj(_GZIP), Breath()
    has_begun = has_more = False
    size = members = 0
    try:
        async for chunk in packed:
            size += len(chunk)
            if size > bytes_max:
                raise body_too_large(bytes_max)
            while chunk or has_more:
                await breath.taken()
                if member.eof:
                    members += 1
                    if members >= limits.GZIP_MEMBERS_MAX:
                        raise unreadable_body("gzip")
                    member = zlib.decompressobj(_GZIP)
                has_begun = True
                piece = member.decompress(chunk, limits.BLOB_READ_BYTES)
                yield piece
                chunk = member.unconsumed_tail or member.unused_data
                has_more = not member.eof and len(piece) == limits.BLOB_READ_BYTES  # A part of it may wait inside.
    except zlib.error as error:
        raise unreadable_body("gzip") from error
    if has_begun and not member.eof:
        raise unreadable_body("gzip")


async def _raw(request: Request) -> bytes:
    return await read_body(request)


RawBody = Annotated[bytes, Depends(_raw)]


def body_of(model: Any) -> Any:
    """The body as ``model`` says. FastAPI's own reading of bodies knows neither bounds nor this API's errors."""
    parse: JsonValidator[Any] = JsonValidator(model)

    async def read(body: RawBody) -> Any:
        return await beside(len(body), lambda: parse.body(body))

    read.model = model  # type: ignore[attr-defined]  # what the OpenAPI document tells of it
    return Depends(read)
