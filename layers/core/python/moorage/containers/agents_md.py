"""``AGENTS.md``: what whoever made the files wants to be known by who works on them, read from the container when a turn begins.

Each folder from the workspace's root down to the one that is worked in may have one. They are told in this order, because what stands
nearer to the work holds if two disagree, and if not all fits, what is farthest away is left out.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from moorage import limits
from moorage.containers.file_map import before_the_first_message
from moorage.containers.store import ContainerFileRecord

NAME: Final = "AGENTS.md"

Read = Callable[[ContainerFileRecord, int], Awaitable[bytes]]
"""So many bytes of a file."""


def of_folder(files: Iterable[ContainerFileRecord], folder: str) -> list[ContainerFileRecord]:
    """Those that hold for a folder, the outermost first."""
    inner = f"{folder}/"
    by_path = {file.path: file for file in files if file.path.endswith(f"/{NAME}") and inner.startswith(file.path.removesuffix(NAME))}
    return [by_path[path] for path in sorted(by_path, key=len)]


async def text_of(files: Sequence[ContainerFileRecord], folder: str, read: Read) -> str | None:
    """The model's text, in the form of its training; None if there is nothing."""
    left = limits.AGENTS_MD_BYTES_MAX
    told: list[str] = []
    for file in reversed(files):
        if left <= 0:
            told.append(f"[{file.path} is left out: the nearer ones take all the room that there is.]")
            continue
        content = (await read(file, left)).decode(errors="ignore").strip()
        cut = f"\n[The rest of {file.path} is left out.]" if file.bytes > left else ""
        left -= min(file.bytes, left)
        told.append(f"[{file.path}]\n{content}{cut}")
    if not told:
        return None
    order = "Where they disagree, the later one holds.\n\n" if len(told) > 1 else ""
    return f"{_head(folder)}\n\n<INSTRUCTIONS>\n{order}" + "\n\n".join(reversed(told)) + "\n</INSTRUCTIONS>"


def with_instructions(items: Sequence[dict[str, Any]], chain: Iterable[dict[str, Any]], folder: str, text: str) -> list[dict[str, Any]]:
    """The items of a request with the instructions before their first message, unless the chain has just these."""
    return before_the_first_message(items, chain, _head(folder), text)


def _head(folder: str) -> str:
    return f"# {NAME} instructions for {folder}"
