"""Files between the API and this disk."""

import mimetypes
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

import httpx

from moorage.cli.target import TargetError, answer_of

_PART_BYTES: Final = 4 * 1024 * 1024
"""What one request brings at most: the gateway of a deployment on AWS takes no more."""


def upload(http: httpx.Client, path: Path, purpose: str) -> dict[str, Any]:
    """Make a file of the Files API of one of this disk. A long one goes in parts."""
    size = path.stat().st_size
    with path.open("rb") as content:
        if size <= _PART_BYTES:
            return answer_of(http.post("/files", data={"purpose": purpose}, files={"file": (path.name, content)}))
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        about = {"bytes": size, "filename": path.name, "mime_type": kind, "purpose": purpose}
        begun = answer_of(http.post("/uploads", json=about))
        parts = [answer_of(http.post(f"/uploads/{begun['id']}/parts", files={"data": part}))["id"] for part in _parts(content)]
        ended = answer_of(http.post(f"/uploads/{begun['id']}/complete", json={"part_ids": parts}))
    return dict(ended["file"])


def _parts(content: BinaryIO) -> Iterator[bytes]:
    while part := content.read(_PART_BYTES):
        yield part


def download(http: httpx.Client, path: str, to: Path, name: str) -> Path:
    """Write bytes to a file, or under their own name into a folder. An earlier file is replaced at the end."""
    last = PurePosixPath(name).name
    if to.is_dir() and last in ("", "..", "."):
        raise TargetError(f"'{name}' is no name for a file here. Name one.")
    target = to / last if to.is_dir() else to
    part = target.with_name(f".{target.name}.part")
    try:
        with http.stream("GET", path, follow_redirects=True) as answer, part.open("wb") as file:
            if not answer.is_success:
                answer.read()
                answer_of(answer)
            for chunk in answer.iter_bytes():
                file.write(chunk)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target
