"""Skills: folders that commands may read and not change."""

from __future__ import annotations

import asyncio
import io
import os
import re
import secrets
import shutil
import zipfile
from typing import AsyncIterator

from configuration import ServerConfig
from request_errors import RequestError

ARCHIVE_BYTES_MAX = 64 * 1024 * 1024
BYTES_MAX = 256 * 1024 * 1024
FILES_MAX = 1_000
"""Whoever sends a bundle has checked it; these bounds keep a mistake from filling the disk."""
_DIRECTORY = re.compile(r"[a-z0-9][a-z0-9_-]{0,127}\Z")


class SkillFolders:
    """The folders below one directory. They belong to root; commands are somebody else."""

    def __init__(self, config: ServerConfig) -> None:
        self._root = config.skills
        self._is_protected = os.geteuid() == 0 and config.uid is not None

    async def add(self, directory: str, pieces: AsyncIterator[bytes]) -> None:
        """Unpack a zip (one top-level folder of any name) as ``directory``. An existing one stays as it is."""
        if not _DIRECTORY.match(directory):
            raise RequestError(400, "invalid_path", "A skill's folder is called by lower-case letters, digits, '-' and '_'.")
        if not self._is_protected:
            raise RequestError(409, "not_protected", "Commands could change what this server writes: it runs as their user.")
        archive = bytearray()
        async for piece in pieces:
            archive += piece
            if len(archive) > ARCHIVE_BYTES_MAX:
                raise RequestError(413, "request_too_large", "The bundle is larger than %d bytes." % ARCHIVE_BYTES_MAX)
        target = os.path.join(self._root, directory)
        await asyncio.get_running_loop().run_in_executor(None, self._unpack, bytes(archive), target)

    def _unpack(self, archive: bytes, target: str) -> None:
        """As a whole: a folder with the name is complete."""
        if os.path.isdir(target):
            return
        aside = "%s.%s" % (target, secrets.token_hex(8))
        try:
            os.makedirs(aside, mode=0o755)
            unpack(archive, aside)
            os.rename(aside, target)
        except (zipfile.BadZipFile, ValueError) as error:
            raise RequestError(400, "invalid_request", "The bundle is no zip of files: %s" % error) from error
        except OSError:
            if not os.path.isdir(target):  # else another request was faster
                raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def unpack(archive: bytes, directory: str) -> None:
    """Write a bundle's files below ``directory``, for everybody to read and for nobody to change."""
    with zipfile.ZipFile(io.BytesIO(archive)) as bundle:
        infos = [info for info in bundle.infolist() if not info.is_dir()]
        if len(infos) > FILES_MAX or sum(info.file_size for info in infos) > BYTES_MAX:
            raise ValueError("it has too many files or bytes")
        for info in infos:
            parts = info.filename.split("/")[1:]
            if not parts or any(part in ("", ".", "..") for part in parts):
                raise ValueError("it has a file outside its folder")
            path = os.path.join(directory, *parts)
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            with open(path, "xb") as file, bundle.open(info) as content:
                shutil.copyfileobj(content, file, 1024 * 1024)
            os.chmod(path, 0o555 if info.external_attr >> 16 & 0o111 else 0o444)
