"""Reading request bodies within bounds."""

from fastapi import Request

from moorage import limits
from moorage.errors import body_too_large, encoded_body


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
