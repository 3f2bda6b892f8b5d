"""What changed under ``/mnt/data``: a pure comparison of what is there with what is stored.

A file counts as changed when its time, size or inode differ from those it had when it was stored: reading every file after every
command would cost more than the command. Only regular files are stored. A changed file that has the stamp of a vanished one has
been renamed, and its bytes need not be moved.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from moorage import limits
from moorage.containers.store import WORKSPACE, ContainerFileRecord
from moorage.dataclass import dataclass
from moorage.sandbox.exec_client import FileListing, SandboxFile

_NAMED_MAX: Final = 3
"""Paths that a note names before it says "and n more"."""


@dataclass(frozen=True, slots=True)
class Diff:
    changed: tuple[SandboxFile, ...] = ()
    """New or changed regular files, to be read and stored."""
    renamed: tuple[tuple[ContainerFileRecord, SandboxFile], ...] = ()
    """A vanished file's row, and the file that has its bytes now."""
    removed: tuple[ContainerFileRecord, ...] = ()
    """Rows whose files are gone (renamed ones among them)."""
    notes: tuple[str, ...] = ()
    """What is not stored, and why, in words for the model."""


def stamp_of(file: SandboxFile) -> str:
    return f"{file.mtime_ns}:{file.size}:{file.inode}"


def absolute(file: SandboxFile) -> str:
    return WORKSPACE + file.path


def diff(listing: FileListing, rows: Sequence[ContainerFileRecord], incarnation: int) -> Diff:
    """Compare a listing of ``/mnt/data`` with the container's rows.

    Rows that this incarnation's sandbox has not been given yet are left alone: their bytes are on their way in. If the listing is
    not complete, nothing counts as removed but what is seen to be something else now.
    """
    known = {row.path: row for row in rows}
    storable = [file for file in listing.files if _problem(file) is None]
    pending = {row.path for row in rows if row.staged_in != incarnation}
    changed = [
        file
        for file in storable
        if absolute(file) not in pending and (absolute(file) not in known or known[absolute(file)].stamp != stamp_of(file))
    ]
    present = {absolute(file) for file in storable}
    seen = {absolute(file) for file in listing.files if _is_text(file.path)}
    removed = [
        row for row in rows if row.staged_in == incarnation and row.path not in present and (listing.is_complete or row.path in seen)
    ]
    room = limits.ARTIFACTS_MAX - (len(rows) - len(removed))
    replaced = [file for file in changed if absolute(file) in known]
    added = sorted((file for file in changed if absolute(file) not in known), key=lambda file: file.path)
    kept, refused = added[: max(0, room)], added[max(0, room) :]
    too_much = _beyond_bytes([*replaced, *kept], rows, removed)
    removed += [known[absolute(file)] for file in too_much if absolute(file) in known]
    replaced, kept = without(replaced, too_much), without(kept, too_much)
    vanished = {row.stamp: row for row in removed}
    renamed = [(vanished[stamp_of(file)], file) for file in kept if stamp_of(file) in vanished]
    moved = {file.path for _, file in renamed}
    return Diff(
        changed=tuple(file for file in (*replaced, *kept) if file.path not in moved),
        renamed=tuple(renamed),
        removed=tuple(removed),
        notes=tuple(_notes(listing, refused, too_much)),
    )


def without(files: Iterable[SandboxFile], others: Iterable[SandboxFile]) -> list[SandboxFile]:
    """Those of the files of a listing that are none of the others."""
    paths = {file.path for file in others}
    return [file for file in files if file.path not in paths]


def note_of_no_room(files: Sequence[SandboxFile], most: int) -> str:
    """About changed files that exceed their tenant's storage, in words for the model."""
    paths = sorted(map(absolute, files))
    return (
        f"Note: the storage of this account is full: at most {most} bytes are saved of all its files, containers and vector stores "
        f"together; not saved: {_some(paths)}. They stay in this sandbox, and are saved after a later command once something else was "
        "deleted; what was saved of them before stays saved."
    )


def _beyond_bytes(
    files: Sequence[SandboxFile], rows: Sequence[ContainerFileRecord], removed: Sequence[ContainerFileRecord]
) -> list[SandboxFile]:
    """The files, in their order, that do not fit beside the kept ones."""
    paths, gone = {absolute(file) for file in files}, {row.path for row in removed}
    room = limits.ARTIFACTS_BYTES_MAX - sum(row.bytes for row in rows if row.path not in paths | gone)
    beyond = []
    for file in files:
        if file.size <= room:
            room -= file.size
        else:
            beyond.append(file)
    return beyond


def _problem(file: SandboxFile) -> str | None:
    """Why a file cannot be stored; None if it can."""
    if file.kind == "not_utf8" or not _is_text(file.path):
        return "names that are not UTF-8 are not saved"
    match file.kind:
        case "symlink":
            return "symbolic links are not saved"
        case "other":
            return "sockets, pipes and devices are not saved"
        case "file":
            if file.size > limits.ARTIFACT_BYTES_MAX:
                return f"files over {limits.ARTIFACT_BYTES_MAX} bytes are not saved"
            return None


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _notes(listing: FileListing, refused: Sequence[SandboxFile], too_much: Sequence[SandboxFile]) -> Iterable[str]:
    unsaved: dict[str, list[str]] = {}
    for file in listing.files:
        problem = _problem(file)
        if problem is not None:
            unsaved.setdefault(problem, []).append(_printable(absolute(file)))
    for problem, paths in sorted(unsaved.items()):
        yield f"Note: {problem}: {_some(sorted(paths))}."
    if refused:
        paths = [absolute(file) for file in refused]
        yield f"Note: at most {limits.ARTIFACTS_MAX} files are saved; not saved: {_some(paths)}."
    if too_much:
        paths = [absolute(file) for file in too_much]
        yield f"Note: at most {limits.ARTIFACTS_BYTES_MAX} bytes are saved of all files together; not saved: {_some(paths)}."
    if not listing.is_complete:
        yield f"Note: /mnt/data has more than {limits.SANDBOX_FILES_MAX} files; those beyond are not saved."


def _printable(path: str) -> str:
    return path.encode(errors="replace").decode()


def _some(paths: Sequence[str]) -> str:
    named = ", ".join(paths[:_NAMED_MAX])
    return named if len(paths) <= _NAMED_MAX else f"{named} and {len(paths) - _NAMED_MAX} more"
