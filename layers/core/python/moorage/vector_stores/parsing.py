"""The program that reads documents (``functions/sandbox/bin/moorage-text``), run in a sandbox."""

import shlex
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final

from moorage import limits
from moorage.containers.lifecycle import LiveContainer
from moorage.sandbox.exec_client import ExecEnded, ExecOutput
from moorage.vector_stores.documents import Kind, UnreadableDocument, too_long

_FOLDER: Final = ".indexing"
"""Of the container's workspace, where commands run."""
_REFUSED: Final = 10
_TOO_LONG: Final = 11
_OUTPUT_CHARS_MAX: Final = 2_000


class Parsing:
    """One document in a sandbox: its bytes go in, its text comes out, and nothing of it stays."""

    def __init__(self, live: LiveContainer, name: str, run: str, *, bytes_max: int = limits.DOCUMENT_TEXT_BYTES_MAX) -> None:
        """``name`` is the file's in the sandbox, ``run`` tells this attempt from others, ``bytes_max`` bounds the text in UTF-8."""
        self._client = live.client
        self._path, self._target = f"{_FOLDER}/{name}", f"{_FOLDER}/{name}.txt"
        self._run = f"read_{run}"
        self._bytes_max = bytes_max

    async def read(self, kind: Kind, content: AsyncIterator[bytes]) -> bool:
        """Whether the whole text is there; of a longer one its beginning is. Raises
        :class:`UnreadableDocument`, and ``SandboxError`` if the sandbox fails."""
        await self._client.write_file(self._path, content)
        said, ended = await self._ran(kind)
        match ended:
            case ExecEnded(outcome="exit", exit_code=0):
                return True
            case ExecEnded(outcome="exit", exit_code=code) if code == _REFUSED:
                raise UnreadableDocument("invalid_file", _sentence(said))
            case ExecEnded(outcome="exit", exit_code=code) if code == _TOO_LONG:
                return False
            case ExecEnded(outcome="timeout"):
                raise UnreadableDocument("invalid_file", f"Reading the file takes longer than {limits.PARSING_SECONDS_MAX} seconds.")
            case _:
                raise UnreadableDocument(
                    "invalid_file", "The file brings down the program that reads it: it is damaged, or takes too much."
                )

    def text(self) -> AsyncIterator[bytes]:
        """In UTF-8."""
        return self._client.read_file(self._target)

    async def clear(self) -> None:
        for name in (self._path, self._target):
            await self._client.delete_file(name)

    async def _ran(self, kind: Kind) -> tuple[str, ExecEnded | None]:
        bounds = (self._bytes_max, limits.PARSING_MEMORY_BYTES, limits.PARSING_SECONDS_MAX)
        command = shlex.join(["moorage-text", kind, self._path, self._target, *map(str, bounds)])
        said, ended = "", None
        timeout_ms = limits.PARSING_SECONDS_MAX * 1000
        events = self._client.exec(self._run, command, timeout_ms=timeout_ms, max_output_length=_OUTPUT_CHARS_MAX)
        async with aclosing(events):
            async for event in events:
                match event:
                    case ExecOutput(stream="stdout"):
                        said += event.text
                    case ExecEnded():
                        ended = event
        return said, ended


async def whole(parsing: Parsing, kind: Kind, content: AsyncIterator[bytes]) -> None:
    """Read it, or refuse one that is too long. Raises as :meth:`Parsing.read` does."""
    if not await parsing.read(kind, content):
        raise too_long()


def _sentence(said: str) -> str:
    """The program's own words: a document may have influenced them."""
    printable = "".join(character for character in said if character.isprintable() or character == " ").strip()
    return printable[: limits.DOCUMENT_REFUSAL_CHARS_MAX] or "The file cannot be read."
