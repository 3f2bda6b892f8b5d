"""Where an answer names a file of its container: ``container_file_citation`` annotations.

A file is named by its path (``/mnt/data/out/plot.png``, also with ``sandbox:`` before it and percent-encoded, as models write
links), by its path below ``/mnt/data``, or by its bare name as a word. A bare name counts only if it has a dot in it: a file called
``report`` must not make a citation of every "report".
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from moorage import limits
from moorage.store.containers import WORKSPACE, ContainerFile

_SCHEME: Final = "sandbox:"
_JOINERS: Final = "_-"
"""Characters that belong to a longer name if they stand beside one."""


@dataclass(frozen=True, slots=True)
class _Mention:
    start: int
    end: int
    file: ContainerFile


def citations(text: str, container_files: Iterable[ContainerFile]) -> list[dict[str, Any]]:
    """The annotations of a text, by position. Indexes count characters: ``text[start_index:end_index]`` is what names the file."""
    files = list(container_files)
    found = sorted(
        (mention for file in files for mention in _mentions(text, file)),
        # A longer mention at the same place wins; of files with the same bare name the one nearest to /mnt/data, then the newest.
        key=lambda mention: (mention.start, -mention.end, mention.file.path.count("/"), -mention.file.created_at),
    )
    kept: list[_Mention] = []
    for mention in found:
        if not kept or mention.start >= kept[-1].end:
            kept.append(mention)
    return [_annotation(mention) for mention in kept[: limits.CITATIONS_MAX]]


def _mentions(text: str, file: ContainerFile) -> Iterator[_Mention]:
    relative = file.path.removeprefix(WORKSPACE)
    for path in dict.fromkeys((file.path, quote(file.path))):
        for start in _occurrences(text, path):
            if _ends_well(text, start + len(path)):
                has_scheme = text.startswith(_SCHEME, max(0, start - len(_SCHEME))) and start >= len(_SCHEME)
                yield _Mention(start - len(_SCHEME) if has_scheme else start, start + len(path), file)
    for name in dict.fromkeys((relative, file.filename)):
        if "." in name:
            for start in _occurrences(text, name):
                if _begins_well(text, start) and _ends_well(text, start + len(name)):
                    yield _Mention(start, start + len(name), file)


def _occurrences(text: str, name: str) -> Iterator[int]:
    start = text.find(name)
    while start >= 0:
        yield start
        start = text.find(name, start + len(name))


def _begins_well(text: str, start: int) -> bool:
    """Nothing before a name makes it the end of a longer one."""
    if start == 0:
        return True
    before = text[start - 1]
    return not (before.isalnum() or before in _JOINERS or before in "./")


def _ends_well(text: str, end: int) -> bool:
    """Nothing after a name makes it the beginning of a longer one; a full stop ends a sentence unless a word follows."""
    if end == len(text):
        return True
    after = text[end]
    if after in "./":
        return end + 1 == len(text) or not (text[end + 1].isalnum() or text[end + 1] in _JOINERS)
    return not (after.isalnum() or after in _JOINERS)


def _annotation(mention: _Mention) -> dict[str, Any]:
    return {
        "type": "container_file_citation",
        "container_id": mention.file.container_id,
        "file_id": mention.file.id,
        "filename": mention.file.filename,
        "start_index": mention.start,
        "end_index": mention.end,
    }
