"""Files of commands under ``/mnt/data``: found by comparison (``containers/workspace.py``), stored, and listed with the container."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from math import ceil

from moorage import limits
from moorage.containers.history_store import ContainerPast, time_after
from moorage.containers.lifecycle import LiveContainer
from moorage.containers.store import ContainerFileRecord, ContainerRecord, ContainerStore
from moorage.containers.transfers import (
    bounded,
    bytes_of,
    goes_by_bucket,
    new_bytes,
    one_piece,
    store_by_bucket,
    store_content,
    stored_content,
)
from moorage.containers.workspace import Diff, absolute, diff, note_of_no_room, stamp_of, without
from moorage.dataclass import dataclass
from moorage.errors import ApiError, SandboxError, SandboxFileMissing, SandboxGone, StorageFull
from moorage.files.store import Clock
from moorage.sandbox.exec_client import FileListing, SandboxFile
from moorage.store.blobs import Blobs
from moorage.store.stored_bytes import Holder, StoredBytes
from moorage.store.table import TABLE_ERRORS

_Stored = tuple[ContainerFileRecord | None, str | None]
"""The row of a changed file whose bytes are stored; or a note why they are not; or neither, if it has vanished."""


@dataclass(frozen=True, slots=True)
class SyncedFiles:
    """The files of ``/mnt/data`` after a command."""

    files: tuple[ContainerFileRecord, ...]
    """All stored files of the container."""
    changed: tuple[ContainerFileRecord, ...]
    """Those that this call stored anew."""
    notes: tuple[str, ...]
    """Words for the model about what is not stored; each set of notes is given once."""
    at_ms: int
    """As of when that is so, by the rows' times."""


@dataclass(frozen=True, slots=True)
class _Look:
    files: SyncedFiles
    has_processes: bool
    is_outdated: bool
    """Somebody else has changed rows meanwhile: they stay, and it takes another look."""


class Artifacts:
    def __init__(self, store: ContainerStore, past: ContainerPast, blobs: Blobs, stored: StoredBytes, clock: Clock) -> None:
        self._store = store
        self._stored = stored
        self._past = past
        self._blobs = blobs
        self._clock = clock

    async def sync(self, live: LiveContainer, *, after_ms: int = 0, listing: FileListing | None = None) -> SyncedFiles:
        """Store what changed under ``/mnt/data``; to be called after each command. Twice at once stores the same twice, harmlessly.
        A file that its user puts there meanwhile stays. What is stored is later than ``after_ms``. A ``listing`` from behind the
        command tells that nothing has changed; where it tells more, another one is asked for.

        Raises :class:`SandboxGone` if the sandbox dies meanwhile, and :class:`StorageFull`; what was stored by then stays.
        """
        changed: dict[str, ContainerFileRecord] = {}
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            look = await self._look(live, after_ms, listing)
            listing = None
            changed |= {file.path: file for file in look.files.changed}
            if not look.is_outdated:
                break
        is_stored = not (look.files.notes or look.is_outdated)
        await self._note_processes(live.record, has_processes=look.has_processes, is_stored=is_stored)
        notes = await self._new_notes(live.record, look.files.notes)
        return replace(look.files, changed=tuple(changed.values()), notes=notes)

    async def _look(self, live: LiveContainer, after_ms: int, listing: FileListing | None) -> _Look:
        """Compare the files with their rows once, and store the differences."""
        record = live.record
        rows = await self._store.files(record)
        change = None if listing is None or not listing.is_complete else diff(listing, rows, record.incarnation)
        if listing is None or change != Diff():
            # Rows that are newer than the listing have files that it does not show: such a difference is none of the command's.
            listing = await live.client.list_files()
            change = diff(listing, rows, record.incarnation)
        before = {row.path: row for row in rows}
        saved, notes = await self._store_changed(live, change.changed, rows)
        now, at_ms = self._clock(), max(time_after(rows, int(self._clock() * 1000)), after_ms + 1)
        saved += [
            replace(row, path=absolute(file), created_at=int(now), source="assistant", stamp=stamp_of(file), origin=None, upload_id="")
            for row, file in change.renamed
        ]
        saved = [_timed(row, before.get(row.path), at_ms) for row in saved]
        replaced = [before[row.path] for row in saved if row.written_at_ms == at_ms and row.path in before]
        removed = [row for row in change.removed if row not in replaced]
        if replaced or removed:
            await self._past.note(record, (*replaced, *removed), at_ms)
        wanted = dict.fromkeys((row.path for row in change.removed), None) | {row.path: row for row in saved}
        others = await self._store.replace_files(saved, change.removed, before)
        if (replaced or removed) and at_ms % limits.CONTAINER_PRUNE_ONE_IN == 0:
            await self._past.prune(await self._store.get(record.tenant_id, record.id))
        there = before | wanted | others
        files = SyncedFiles(
            files=tuple(file for path in sorted(there) if (file := there[path]) is not None),
            changed=tuple(file for row in saved if (file := there[row.path]) is not None and _is_same(file, row)),
            notes=(*change.notes, *notes),
            at_ms=at_ms if removed else max([after_ms, *(file.written_at_ms for file in there.values() if file is not None)]),
        )
        is_outdated = any(not _is_same(row, wanted[path]) for path, row in others.items())
        return _Look(files, has_processes=listing.has_processes, is_outdated=is_outdated)

    async def _note_processes(self, record: ContainerRecord, *, has_processes: bool, is_stored: bool) -> None:
        """Whether anything can still change there (``ContainerRecord.is_quiet``)."""
        if has_processes or (record.is_quiet and not is_stored):
            await self._store.note_processes(record)
        elif is_stored and not record.is_quiet:
            await self._store.note_quiet(record)

    async def _store_changed(
        self, live: LiveContainer, changed: Sequence[SandboxFile], rows: Sequence[ContainerFileRecord]
    ) -> tuple[list[ContainerFileRecord], list[str]]:
        """Store those of the changed files that their tenant has room for: their rows, and notes about the others. Room is taken before
        anything is stored, and given back if the content was there already."""
        holder = Holder.container(live.record.tenant_id, live.record.id)
        places = await self._stored.add_some(holder, [file.size for file in changed])
        fitting = [changed[place] for place in places]
        try:
            stored = await self._store_all(live, fitting, rows)
        except BaseException:
            with suppress(*TABLE_ERRORS):  # What has happened matters more; the stop of the sandbox has it counted.
                await asyncio.shield(self._stored.settle(holder, lambda: bytes_of(self._blobs, live.record.tenant_id, live.record.id)))
            raise
        saved = [file for file, _ in stored if file is not None]
        notes = [note for _, note in stored if note is not None]
        await self._stored.correct(holder, new_bytes(saved, rows) - sum(file.size for file in fitting))
        if len(fitting) < len(changed):
            notes.append(note_of_no_room(without(changed, fitting), self._stored.most))
        return saved, notes

    async def _store_all(self, live: LiveContainer, files: Sequence[SandboxFile], rows: Sequence[ContainerFileRecord]) -> list[_Stored]:
        before, known = {row.path: row for row in rows}, stored_content(rows)
        small = [file for file in files if file.size <= limits.BATCH_FILE_BYTES_MAX]
        large = [[file] for file in files if file.size > limits.BATCH_FILE_BYTES_MAX]
        batches = [
            *await bounded(lambda batch: self._store_batch(live, batch, before, known), _batches(small), limits.BATCHES_MAX),
            *await bounded(lambda alone: self._store_batch(live, alone, before, known), large),
        ]
        return [each for batch in batches for each in batch]

    async def _store_batch(
        self, live: LiveContainer, batch: Sequence[SandboxFile], before: Mapping[str, ContainerFileRecord], known: dict[str, str]
    ) -> list[_Stored]:
        """Store files that were read by one request; one alone is streamed."""
        if len(batch) == 1:
            return [await self._store_artifact(live, batch[0], None, before, known)]
        contents = live.client.read_files([file.path for file in batch])
        async with aclosing(contents):
            return [await self._store_artifact(live, file, await anext(contents), before, known) for file in batch]

    async def _store_artifact(
        self,
        live: LiveContainer,
        file: SandboxFile,
        content: bytes | None,
        before: Mapping[str, ContainerFileRecord],
        known: dict[str, str],
    ) -> _Stored:
        """Store a changed file; without ``content`` it is read. ``known`` (SHA-256 to key) grows by what is stored: large trees hold
        many equal files."""
        record, path = live.record, absolute(file)
        earlier = before.get(path)
        try:
            blob = None
            if content is None and goes_by_bucket(live.client, file.size) and file.size <= limits.ARTIFACT_BYTES_MAX:
                blob = await store_by_bucket(self._blobs, record, live.client, file.path, file.size, known=known)
            if blob is None:
                chunks = live.client.read_file(file.path) if content is None else one_piece(content)
                blob = await store_content(self._blobs, record, chunks, known=known, bytes_max=limits.ARTIFACT_BYTES_MAX)
        except SandboxFileMissing:
            return None, None  # deleted since it was listed: the next listing tells
        except StorageFull:
            raise  # There will be room again, and until then it is in the sandbox.
        except ApiError:
            return None, f"Note: files over {limits.ARTIFACT_BYTES_MAX} bytes are not saved: {path}."
        except SandboxGone:
            raise
        except SandboxError as error:
            return None, f"Note: {path} could not be saved: {error.message}"
        known.setdefault(blob.sha256, blob.key)
        is_same = earlier is not None and earlier.sha256 == blob.sha256
        return ContainerFileRecord(
            tenant_id=record.tenant_id,
            container_id=record.id,
            path=path,
            bytes=blob.bytes,
            created_at=earlier.created_at if earlier is not None else int(self._clock()),
            source=earlier.source if earlier is not None and is_same else "assistant",
            sha256=blob.sha256,
            key=blob.key,
            staged_in=record.incarnation,
            stamp=stamp_of(file),
            origin=earlier.origin if earlier is not None else None,
            upload_id=earlier.upload_id if earlier is not None else "",
        ), None

    async def _new_notes(self, record: ContainerRecord, notes: tuple[str, ...]) -> tuple[str, ...]:
        """The notes, if they are others than those that were given last."""
        if not notes and not record.noted:
            return ()
        noted = hashlib.sha256("\n".join(notes).encode()).hexdigest() if notes else ""
        if noted == record.noted == "":
            return ()
        current = await self._store.get(record.tenant_id, record.id)
        if noted == current.noted:
            return ()
        await self._store.change(current, set={"noted": noted})
        return notes


def _timed(row: ContainerFileRecord, earlier: ContainerFileRecord | None, at_ms: int) -> ContainerFileRecord:
    """A row with the time of its content: a touched file keeps it."""
    is_same = earlier is not None and earlier.sha256 == row.sha256
    return replace(row, written_at_ms=earlier.written_at_ms if earlier is not None and is_same else at_ms)


def _is_same(one: ContainerFileRecord | None, other: ContainerFileRecord | None) -> bool:
    """Whether two rows have the same file of the same sandbox, or neither has one."""
    if one is None or other is None:
        return one is other
    return (one.staged_in, one.stamp) == (other.staged_in, other.stamp)


def _batches(files: Sequence[SandboxFile]) -> list[Sequence[SandboxFile]]:
    """Small files that are read by one request each: together, but not so many that other requests have nothing to do."""
    size = max(1, min(limits.BATCH_FILES_MAX, ceil(len(files) / limits.BATCHES_MAX)))
    return [files[start : start + size] for start in range(0, len(files), size)]
