"""A file from the API onto this disk."""

import os
from pathlib import Path, PurePosixPath

import httpx

from moorage.cli.target import TargetError, answer_of


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
