"""Answers that carry a file's content."""

import re
from collections.abc import AsyncIterator, Callable
from typing import Final
from urllib.parse import quote

from fastapi import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse

from moorage import limits
from moorage.errors import ApiError
from moorage.settings import Settings
from moorage.stores import Stores

_CONTENT_TYPE: Final = "application/octet-stream"
"""Whatever a file claims to be: a browser must never run a user's file as a page of this origin."""

_RANGE: Final = re.compile(r"bytes=(\d+)-(\d*)")


async def download(
    request: Request,
    stores: Stores,
    settings: Settings,
    *,
    key: str,
    filename: str,
    size: int,
    content: Callable[[int, int | None], AsyncIterator[bytes]],
) -> Response:
    """The content as a stream (``Range: bytes=a-b`` gives a part), or a redirection to S3 if this way is too narrow for it. A page
    may not follow one to another origin: it asks for small parts, which fit through."""
    disposition = content_disposition(filename)
    span = _span(request.headers.get("range"), size)
    is_small = span is not None and span[1] - span[0] < limits.DOWNLOAD_PART_BYTES_MAX
    if settings.presigned_downloads and not is_small:
        url = stores.blobs.presign_get(key, seconds=limits.PRESIGNED_SECONDS, disposition=disposition, content_type=_CONTENT_TYPE)
        return RedirectResponse(url, status_code=302, headers={"cache-control": "no-store"})
    headers = {
        "content-disposition": disposition,
        "x-content-type-options": "nosniff",
        "accept-ranges": "bytes",
    }
    if span is None:
        headers["content-length"] = str(size)
        stream = await begun(content(0, None))
        return StreamingResponse(stream, media_type=_CONTENT_TYPE, headers=headers)
    start, end = span
    headers |= {"content-range": f"bytes {start}-{end}/{size}", "content-length": str(end - start + 1)}
    stream = await begun(content(start, end))
    return StreamingResponse(stream, status_code=206, media_type=_CONTENT_TYPE, headers=headers)


def content_disposition(filename: str) -> str:
    """An attachment under this name (RFC 6266): plain for old clients, UTF-8 for all others."""
    plain = "".join(character if " " <= character < "\x7f" and character not in '"\\%' else "_" for character in filename)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"


def _span(header: str | None, size: int) -> tuple[int, int] | None:
    """First and last byte of a range request; None for the whole (RFC 9110: a form that is not understood is ignored)."""
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None:
        return None
    start = int(match[1])
    end = min(int(match[2]) if match[2] else size - 1, size - 1)
    if start >= size or start > end:
        raise ApiError(416, f"The range lies outside the file's {size} bytes.", headers={"content-range": f"bytes */{size}"})
    return start, end


async def begun(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same stream with its first piece already here, so that a missing object is an error and not a torn answer."""
    first = await anext(chunks, b"")

    async def whole() -> AsyncIterator[bytes]:
        yield first
        async for chunk in chunks:
            yield chunk

    return whole()
