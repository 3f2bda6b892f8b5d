"""Where an answer names a file of its container: ``container_file_citation`` annotations.

A file is named by its path (``/mnt/data/out/plot.png`` or ``/workspace/out/plot.png``, also with ``sandbox:`` before it), by its path
below that, or by its bare name as a word. A bare name counts only if it has a dot in it: a file called ``report`` must not make a
citation of every "report".

Models percent-encode links as they like, and macOS decomposes names that models compose. So a text is read twice, as it stands and
percent-decoded, and each reading is compared with the names in Unicode's composed form (NFC).
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any, Final

from moorage import limits
from moorage.containers.store import LINK, WORKSPACE, ContainerFileRecord
from moorage.dataclass import dataclass

_SCHEME: Final = "sandbox:"
_JOINERS: Final = "_-"
"""Characters that belong to a longer name if they stand beside one."""
_ENCODED: Final = re.compile("(?:%[0-9A-Fa-f]{2})+")


@dataclass(frozen=True, slots=True)
class _NormalisedText:
    """A text in another form."""

    text: str
    at: list[int] | None
    """Where each of its characters, and its end, stands in the original; none if that is the same place."""
    is_decoded: bool = False

    def place(self, index: int) -> int:
        return index if self.at is None else self.at[index]


@dataclass(frozen=True, slots=True)
class _Mention:
    start: int
    end: int
    file: ContainerFileRecord
    is_decoded: bool


def citations(text: str, container_files: Iterable[ContainerFileRecord]) -> list[dict[str, Any]]:
    """The annotations of a text, by position. Indexes count characters: ``text[start_index:end_index]`` names the file."""
    # Of files with the same bare name the one nearest to /mnt/data wins, then the newest.
    files = sorted(container_files, key=lambda file: (file.path.count("/"), -file.created_at))
    readings = list(_readings(text)) if files else []
    found = sorted(
        (mention for reading in readings for mention in _mentions(reading, files)),
        # A longer mention at the same place wins, then one as it stands.
        key=lambda it: (it.start, -it.end, it.is_decoded),
    )
    kept: list[_Mention] = []
    for mention in found:
        if not kept or mention.start >= kept[-1].end:
            kept.append(mention)
    return [_annotation(mention) for mention in kept[: limits.CITATIONS_MAX]]


def _readings(text: str) -> Iterator[_NormalisedText]:
    yield _composed(_NormalisedText(text, None))
    if _ENCODED.search(text):
        yield _composed(_decoded(text))


def _decoded(text: str) -> _NormalisedText:
    """With its percent-encoded UTF-8 decoded (RFC 3986, 2.1); other bytes stay."""
    pieces: list[str] = []
    at: list[int] = []
    end = 0
    for match in _ENCODED.finditer(text):
        pieces.append(text[end : match.start()])
        at += range(end, match.start())
        end = match.end()
        try:
            characters = bytes.fromhex(match[0].replace("%", "")).decode()
        except UnicodeDecodeError:
            pieces.append(match[0])
            at += range(match.start(), end)
            continue
        pieces.append(characters)
        start = match.start()
        for character in characters:
            at.append(start)
            start += len("%00") * len(character.encode())
    pieces.append(text[end:])
    at += range(end, len(text) + 1)
    return _NormalisedText("".join(pieces), at, is_decoded=True)


def _composed(reading: _NormalisedText) -> _NormalisedText:
    """In NFC, with one place for each group of characters that are composed."""
    text = reading.text
    if unicodedata.is_normalized("NFC", text):
        return reading
    pieces: list[str] = []
    at: list[int] = []
    start = 0
    for end in range(1, len(text) + 1):
        if end == len(text) or not _is_composed_with(text[end - 1], text[end]):
            piece = unicodedata.normalize("NFC", text[start:end])
            pieces.append(piece)
            at += [reading.place(start)] * len(piece)
            start = end
    at.append(reading.place(len(text)))
    return _NormalisedText("".join(pieces), at, reading.is_decoded)


def _is_composed_with(before: str, after: str) -> bool:
    """Marks belong to the character before them, as do the vowels and ends of Korean syllables, and a few letters."""
    if after.isascii():
        return False
    if unicodedata.combining(after) or "\u1160" <= after <= "\u11ff":
        return True
    return len(unicodedata.normalize("NFC", before + after)) == 1


def _mentions(reading: _NormalisedText, files: Iterable[ContainerFileRecord]) -> Iterator[_Mention]:
    """Each name is looked for once, for the first of the files that bear it: thousands may, and be named thousands of times."""
    text = reading.text
    paths, names = dict[str, ContainerFileRecord](), dict[str, ContainerFileRecord]()
    is_named = dict[str, bool]()
    for file in files:
        relative, filename = (unicodedata.normalize("NFC", name) for name in (file.path.removeprefix(WORKSPACE), file.filename))
        if filename not in is_named:
            is_named[filename] = filename in text
        if is_named[filename]:
            for path in (WORKSPACE + relative, LINK + relative):
                paths.setdefault(path, file)
            for name in (relative, filename):
                if "." in name:
                    names.setdefault(name, file)

    def mention(start: int, end: int, file: ContainerFileRecord) -> _Mention:
        return _Mention(reading.place(start), reading.place(end), file, reading.is_decoded)

    for path, file in paths.items():
        for start in _occurrences(text, path):
            if _ends_well(text, start + len(path)) and (path.startswith(WORKSPACE) or _begins_well(text, start)):
                has_scheme = text.startswith(_SCHEME, max(0, start - len(_SCHEME))) and start >= len(_SCHEME)
                yield mention(start - len(_SCHEME) if has_scheme else start, start + len(path), file)
    for name, file in names.items():
        for start in _occurrences(text, name):
            if _begins_well(text, start) and _ends_well(text, start + len(name)):
                yield mention(start, start + len(name), file)


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
