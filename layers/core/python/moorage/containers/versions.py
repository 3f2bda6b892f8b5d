"""The versions of a container's files: one for each moment of a change, as far back as they are kept."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Literal

from moorage import limits
from moorage.containers.history_store import ContainerPast
from moorage.containers.store import ContainerFileRecord, ContainerRecord
from moorage.dataclass import dataclass
from moorage.wire.operator_answers import ContainerVersion

_What = Literal["added", "changed", "removed"]


@dataclass(frozen=True, slots=True)
class Version:
    at_ms: int
    files: int
    bytes: int
    changes: Mapping[str, _What]
    """By path."""

    def to_json(self) -> ContainerVersion:
        shown = list(self.changes.items())[: limits.VERSION_CHANGES_SHOWN]
        return {
            "id": str(self.at_ms),
            "object": "container.version",
            "at": self.at_ms,
            "files": self.files,
            "bytes": self.bytes,
            "change_count": len(self.changes),
            "changes": [{"path": path, "what": what} for path, what in shown],
        }


async def versions(past: ContainerPast, record: ContainerRecord, now: Iterable[ContainerFileRecord]) -> list[Version]:
    """The latest first. ``now`` are the rows that are there, read before this is called, as for the files of a time."""
    changes = await past.since(record, record.past_from_ms)
    ends = [(change.at_ms, row) for change in changes for row in change.rows]
    return list(_versions(now, ends, record.past_from_ms))[::-1]


def _versions(now: Iterable[ContainerFileRecord], ends: Iterable[tuple[int, ContainerFileRecord]], from_ms: int) -> Iterator[Version]:
    """``ends`` are rows that were replaced or removed, with the time of it."""
    over = list(ends)
    begun = {(row.path, row.written_at_ms): row for row in [*now, *(row for _, row in over)]}
    events = [(at_ms, row.path, None) for at_ms, row in over] + [(at_ms, path, row) for (path, at_ms), row in begun.items()]
    files: dict[str, ContainerFileRecord] = {}
    for at_ms, group in groupby(sorted(events, key=lambda event: event[0]), key=lambda event: event[0]):
        same_time = list(group)
        before = {path: files.get(path) for _, path, _ in same_time}
        for _, path, row in sorted(same_time, key=lambda event: event[2] is not None):
            if row is None:
                files.pop(path, None)
            else:
                files[path] = row
        changes = {path: what for path in sorted(before) if (what := _what(before[path], files.get(path))) is not None}
        if changes and at_ms > 0 and at_ms >= from_ms:
            yield Version(at_ms, len(files), sum(row.bytes for row in files.values()), changes)


def _what(before: ContainerFileRecord | None, after: ContainerFileRecord | None) -> _What | None:
    if after is None:
        return None if before is None else "removed"
    if before is None:
        return "added"
    return None if before.sha256 == after.sha256 else "changed"
