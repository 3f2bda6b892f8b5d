"""The life of a container: a record, its stored files, and now and then a sandbox.

A container is made by a write and has no sandbox until somebody wants to run a command in it. It loses its sandbox by idleness, by
accident or on purpose, and gets another one, with its files, under the same id. Each sandbox is one *incarnation*, counted on the
record; it runs through

    (none) -> starting -> running -> stopping -> (none)

and every arrow is a conditional write, so that of many processes that want the same thing one does it:

* ``starting`` carries a claim with an end. The claimant starts the sandbox and writes the files into it, renewing its claim; the
  others are told to come back. A claim that has run out is taken over, with the same incarnation.
* ``running`` is believed only as long as the exec server answers.
* ``stopping`` comes before the stop, so that nobody is handed a sandbox that is being stopped; whoever meets it may finish it.

On AWS no process can do it all: ECS is asked from outside the sandboxes' network, sandboxes are reached from inside (an endpoint that
would join the two costs $7.30 a month). So a ``starting`` sandbox may be *placed*: the claimant outside has noted where it will
listen, and the one inside goes on from there; and a ``stopping`` one is noted inside and stopped outside. Who meets a step that is
not his raises :class:`SandboxElsewhere`, and the loop goes by way of the other. :meth:`Containers.place` is the outside's part of
:meth:`Containers.ensure`, :meth:`Containers.retire_idle` the inside's of :meth:`Containers.expire_due`.

Every sandbox also has a ``LIFE#`` record, from before it is started until it is known to be stopped: the sweep finds by it what the
dead have left running.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from math import ceil
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from moorage import limits
from moorage.egress.policy import Policy
from moorage.egress.secrets import DomainSecret
from moorage.egress.service import Egress
from moorage.errors import (
    ApiError,
    ConditionFailed,
    SandboxCapacity,
    SandboxElsewhere,
    SandboxError,
    SandboxFileMissing,
    SandboxGone,
    SandboxStarting,
    container_expired,
    container_file_not_found,
    file_not_found,
    file_too_large,
    network_unavailable,
    too_many_container_files,
)
from moorage.sandbox.exec_client import ExecClient, FileListing, Health, SandboxFile
from moorage.sandbox.provisioner import EgressSpec, Handle, Provisioner, SandboxSpec
from moorage.sandbox.workspace import absolute, diff, stamp_of
from moorage.store import keys
from moorage.store.blobs import Blob, BlobNotFound, Blobs, BlobTooLarge
from moorage.store.containers import (
    WORKSPACE,
    ContainerFile,
    ContainerFilePage,
    ContainerPage,
    ContainerRecord,
    ContainerStore,
    SandboxRecord,
    container_of,
    sandbox_attribute,
)
from moorage.store.files import Clock, File, Files, file_name, free_name
from moorage.store.table import Record, Table
from moorage.telemetry import Metric, tell
from moorage.wire.queries import Page
from moorage.wire.tools import NetworkPolicy

_A = TypeVar("_A")
_T = TypeVar("_T")


class Sandbox(Protocol):
    """What is used of :class:`~moorage.sandbox.exec_client.ExecClient` here."""

    async def health(self) -> Health: ...
    async def list_files(self, root: str = "/mnt/data") -> FileListing: ...
    def read_file(self, path: str) -> AsyncIterator[bytes]: ...
    def read_files(self, paths: Sequence[str]) -> AsyncGenerator[bytes | None, None]: ...
    async def write_file(self, path: str, content: AsyncIterator[bytes]) -> None: ...
    async def delete_file(self, path: str) -> None: ...
    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LiveContainer:
    """A container with a sandbox that answers. Use as ``async with`` or close it."""

    record: ContainerRecord
    handle: Handle
    client: ExecClient
    is_revived: bool
    """This call gave the container a new sandbox: its files are there, the processes of earlier sandboxes are not."""
    notes: tuple[str, ...] = ()
    """Words for the model about stored files that could not be written into the sandbox."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.client.aclose()

    async def aclose(self) -> None:
        await self.client.aclose()


@dataclass(frozen=True, slots=True)
class Incoming:
    """A file on its way into a container."""

    filename: str
    """Its name under ``/mnt/data``."""
    sha256: str
    """Of its content: what is there already need not be read."""
    chunks: Callable[[], AsyncIterator[bytes]]


@dataclass(frozen=True, slots=True)
class Artifacts:
    """What ``/mnt/data`` holds after a command."""

    files: tuple[ContainerFile, ...]
    """All stored files of the container."""
    changed: tuple[ContainerFile, ...]
    """Those that this call stored anew."""
    notes: tuple[str, ...]
    """Words for the model about what is not stored; each set of notes is given once."""


class Containers:
    def __init__(
        self,
        table: Table,
        blobs: Blobs,
        provisioner: Provisioner,
        files: Files,
        *,
        clock: Clock,
        content_key: bytes,
        retention_seconds: int = limits.RETENTION_SECONDS,
        strict_expiry: bool = False,
        egress: Egress | None = None,
        egress_proxy: str | None = None,
        connect: Callable[[Handle], ExecClient] | None = ExecClient,
    ) -> None:
        """``connect`` None: sandboxes cannot be reached from here, only started and stopped."""
        self._store = ContainerStore(table, clock=clock, retention_seconds=retention_seconds)
        self._blobs = blobs
        self._provisioner = provisioner
        self._files = files
        self._clock = clock
        self._content_key = content_key
        self._strict_expiry = strict_expiry
        self._egress = egress
        self._egress_proxy = egress_proxy
        self._connect = connect

    # --- Records -------------------------------------------------------------------------------------------------------------

    async def reserve(
        self,
        tenant_id: str,
        *,
        name: str,
        file_ids: Sequence[str] = (),
        idle_minutes: int = limits.CONTAINER_IDLE_MINUTES_DEFAULT,
        memory_limit: str = "1g",
        network_policy: NetworkPolicy | None = None,
        param: str = "",
    ) -> ContainerRecord:
        """A new container without a sandbox, holding copies of these files. ``param`` is the place of these options in the
        request, such as ``tools[0].environment.``; errors name it."""
        policy, domain_secrets = self._checked_policy(network_policy, f"{param}network_policy")
        files = [await self._files.get(tenant_id, file_id, param=f"{param}file_ids") for file_id in dict.fromkeys(file_ids)]
        record = await self._store.create(
            tenant_id,
            name=name,
            idle_minutes=idle_minutes,
            memory_limit=memory_limit,
            network_policy=_shown(network_policy),
        )
        if self._egress is not None and policy is not None:
            await self._egress.open(tenant_id, record.id, policy, domain_secrets)
        return await self._copy_in(record, files) if files else record

    async def has_policy(self, record: ContainerRecord, asked: NetworkPolicy, *, param: str = "network_policy") -> bool:
        """Whether a container reaches just what is asked for, with just these secrets; if so, they have the values of ``asked`` from
        now on. A policy is fixed for a container's life: another one takes another container, because what ran under the old policy
        may still be there."""
        if asked.type == "disabled" or record.network_policy["type"] == "disabled":
            return bool(asked.type == record.network_policy["type"])
        if set(record.network_policy["allowed_domains"]) != set(asked.allowed_domains):
            return False
        _, domain_secrets = self._checked_policy(asked, param)
        return self._egress is None or await self._egress.replace_secrets(record.tenant_id, record.id, domain_secrets)

    def _checked_policy(
        self, network_policy: NetworkPolicy | None, param: str
    ) -> tuple[Policy | None, tuple[DomainSecret, ...]]:
        """The policy inside the operator's ceiling; None for no network at all."""
        if network_policy is None or network_policy.type == "disabled":
            return None, ()
        if self._egress is None:
            raise network_unavailable(param)
        return self._egress.validate(network_policy.to_json(), param=param)

    async def get(self, tenant_id: str, container_id: str, *, param: str | None = None) -> ContainerRecord:
        """The record as it stands; 404 for unknown, foreign and deleted ones."""
        return await self._store.get(tenant_id, container_id, param=param)

    async def page(self, tenant_id: str, page: Page, *, name: str | None = None) -> ContainerPage:
        return await self._store.page(tenant_id, page, name=name)

    async def touch(self, tenant_id: str, container_id: str, *, param: str | None = None) -> ContainerRecord:
        """Get it and note that it is in use. An expired one stays expired: only using it again revives it."""
        record = await self._store.get(tenant_id, container_id, param=param)
        return record if self.is_expired(record) else await self._store.touch(record)

    async def use(self, tenant_id: str, container_id: str, *, param: str | None = None) -> ContainerRecord:
        """Get it in order to use it: an expired one comes back to life, or is refused where expiry is strict."""
        return await self._in_use(await self._store.get(tenant_id, container_id, param=param))

    async def _in_use(self, record: ContainerRecord) -> ContainerRecord:
        if self._strict_expiry and self.is_expired(record):
            raise container_expired()
        return await self._store.touch(record)

    def is_expired(self, record: ContainerRecord) -> bool:
        return record.expires_at <= self._clock()

    async def delete(self, tenant_id: str, container_id: str) -> None:
        """Stop its sandbox and erase its files; a deletion that breaks off is finished by the sweep."""
        record = await self._store.get(tenant_id, container_id)
        await self._store.mark_deleted(record)
        try:
            await self._erase(tenant_id, container_id)
        except SandboxError:
            return  # it is out of reach already; the sweep stops its sandbox when it can

    # --- Files ---------------------------------------------------------------------------------------------------------------

    async def file_page(self, record: ContainerRecord, page: Page) -> ContainerFilePage:
        return await self._store.file_page(record, page)

    async def file(self, record: ContainerRecord, file_id: str) -> ContainerFile:
        return await self._store.file(record, file_id)

    async def content(self, file: ContainerFile, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The file's stored bytes from ``start`` up to and with ``end``; 404 if it was deleted or replaced in between."""
        try:
            async for chunk in self._blobs.get_stream(file.key, start=start, end=end):
                yield chunk
        except BlobNotFound as error:
            raise container_file_not_found(file.id) from error

    async def add_file(self, record: ContainerRecord, *, filename: str, chunks: AsyncIterator[bytes]) -> ContainerFile:
        """Put a user's file at ``/mnt/data/<filename>``, replacing what is there; a running sandbox has it by the next command."""
        rows = await self._store.files(record)
        path = WORKSPACE + file_name(filename)
        _check_room(rows, [path])
        blob = await self._put_content(record, chunks, _known(rows), limits.FILE_BYTES_MAX)
        file = self._row(record, path, blob)
        await self._add_rows(record, [file])
        return file

    async def add_files(self, record: ContainerRecord, file_ids: Sequence[str], *, param: str = "file_ids") -> ContainerRecord:
        """Put copies of files of the Files API at ``/mnt/data/<filename>``; those that are there already stay as they are."""
        files = [await self._files.get(record.tenant_id, file_id, param=param) for file_id in dict.fromkeys(file_ids)]
        return await self._copy_in(record, files) if files else record

    async def add_file_of(self, record: ContainerRecord, file_id: str) -> ContainerFile:
        """Put a copy of a file of the Files API at ``/mnt/data/<filename>``, replacing what is there."""
        file = await self._files.get(record.tenant_id, file_id, param="file_id")
        path = WORKSPACE + file.filename
        _check_room(await self._store.files(record), [path])
        row = await self._copy(record, path, file)
        await self._add_rows(record, [row])
        return row

    async def delete_file(self, record: ContainerRecord, file_id: str) -> None:
        """Delete a file, in the running sandbox too: at once, or from where that cannot be reached by the next command."""
        file = await self._store.file(record, file_id)
        if record.sandbox is not None and record.sandbox.state == "running":
            await self._remove(record, file.path)
        await self._store.delete_files([file])
        if all(row.key != file.key for row in await self._store.files(record)):
            await self._blobs.delete(file.key)

    async def _remove(self, record: ContainerRecord, path: str) -> None:
        if self._connect is None:
            await self._note_removal(record, path)
            return
        client = self._connect(self._handle(record))
        try:
            await client.delete_file(path)
        except SandboxGone:
            pass
        finally:
            await client.aclose()

    async def _note_removal(self, record: ContainerRecord, path: str) -> None:
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            removals = {"removals": [*record.removals, path]}
            try:
                await self._store.change(record, set=removals, add={"files_added": 1}, condition={"files_added": record.files_added})
            except ConditionFailed:
                record = await self._store.get(record.tenant_id, record.id)
            else:
                return

    async def put_inputs(self, record: ContainerRecord, inputs: Sequence[Incoming]) -> ContainerRecord:
        """Put the files of a request's input at ``/mnt/data/<filename>``. One that was put there before stays as it is now, changed
        or not: clients without state send their whole history every time."""
        rows = await self._store.files(record)
        before = {row.path: row for row in rows}
        # Of files with the same name the latest counts, and it alone: an earlier one must not come back over it.
        latest = {WORKSPACE + each.filename: each for each in inputs}
        new = [(path, each) for path, each in latest.items() if not _has(before.get(path), each.sha256)]
        _check_room(rows, [path for path, _ in new])
        known = _known(rows)
        added = await _bounded(lambda place: self._take_in(record, *place, known), new)
        return await self._add_rows(record, added) if added else record

    async def _take_in(self, record: ContainerRecord, path: str, incoming: Incoming, known: Mapping[str, str]) -> ContainerFile:
        return self._row(record, path, await self._put_content(record, incoming.chunks(), known, limits.FILE_BYTES_MAX))

    async def _copy_in(self, record: ContainerRecord, files: Sequence[File]) -> ContainerRecord:
        rows = await self._store.files(record)
        before = {row.path: row for row in rows}
        placed: dict[str, File] = {}
        for file in files:
            placed[free_name(file.filename, placed)] = file
        new = {WORKSPACE + name: file for name, file in placed.items() if not _has(before.get(WORKSPACE + name), file.sha256)}
        _check_room(rows, new)
        copies = await _bounded(lambda place: self._copy(record, *place), new.items())
        return await self._add_rows(record, copies) if copies else record

    async def _copy(self, record: ContainerRecord, path: str, file: File) -> ContainerFile:
        key = keys.container_object(record.tenant_id, record.id, file.sha256)
        try:
            await self._blobs.copy(file.key, key)
        except BlobNotFound as error:
            raise file_not_found(file.id) from error
        return self._row(record, path, Blob(key, file.bytes, file.sha256))

    def _row(self, record: ContainerRecord, path: str, blob: Blob) -> ContainerFile:
        return ContainerFile(
            tenant_id=record.tenant_id,
            container_id=record.id,
            path=path,
            bytes=blob.bytes,
            created_at=int(self._clock()),
            source="user",
            sha256=blob.sha256,
            key=blob.key,
            origin=blob.sha256,
        )

    async def _add_rows(self, record: ContainerRecord, rows: Sequence[ContainerFile]) -> ContainerRecord:
        """The rows first, then the count that makes the next command fetch them."""
        await self._store.put_files(rows)
        return await self._store.change(record, set={"last_active_at": int(self._clock())}, add={"files_added": len(rows)})

    async def _put_content(
        self, record: ContainerRecord, chunks: AsyncIterator[bytes], known: Mapping[str, str], bytes_max: int
    ) -> Blob:
        try:
            return await self._blobs.put_addressed(
                keys.container_objects(record.tenant_id, record.id),
                chunks,
                known=known,
                bytes_max=bytes_max,
            )
        except BlobTooLarge as error:
            raise file_too_large(bytes_max) from error

    # --- The sandbox ------------------------------------------------------------------------------------------------------------

    async def ensure(self, tenant_id: str, container_id: str, *, seen: Record | None = None) -> LiveContainer:
        """The container with a running sandbox that has all its files. ``seen`` is its record, if the caller has just read it.

        Starts or revives the sandbox. Raises :class:`SandboxStarting` while it is not there (call again; :class:`SandboxElsewhere` if
        :meth:`place` has to be called first, in another place), :class:`SandboxCapacity` when none can be had, and
        ``container_expired`` in strict mode. Safe to call from anywhere at any time, and twice at once.
        """
        known = None if seen is None else container_of(seen)
        record = await (self.use(tenant_id, container_id) if known is None or known.is_deleted else self._in_use(known))
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            try:
                return await self._advance(record)
            except ConditionFailed:
                record = await self._store.get(tenant_id, container_id)
            except SandboxElsewhere:
                self._say_refusal(await self._store.get(tenant_id, container_id))
                raise
        raise SandboxStarting(limits.CONTAINER_POLL_SECONDS)

    def _say_refusal(self, record: ContainerRecord) -> None:
        """Raise what stood in the way of another place, if that was just now."""
        sandbox = record.sandbox
        if sandbox is not None and sandbox.refused_at + limits.SANDBOX_REFUSAL_SECONDS > self._clock():
            raise SandboxError(sandbox.refusal)

    async def running(self, tenant_id: str, container_id: str) -> LiveContainer | None:
        """The sandbox that the container has now; None if it has none that answers. Starts nothing."""
        record = await self._store.peek(tenant_id, container_id)
        if self._connect is None or record is None or record.sandbox is None or record.sandbox.state != "running":
            return None
        return await self._attach(record)

    async def place(self, tenant_id: str, container_id: str) -> None:
        """Have a sandbox started for the container, because it will soon be wanted: while the model thinks, or after a tool step has
        come back without. Looks into none that runs: from outside their network a healthy one looks dead.

        Where sandboxes cannot be reached, it stays until one is placed, at most ``SANDBOX_WAIT_SECONDS``. What stands in the way is
        noted, for the tool step to say. Safe to call at any time, and twice at once.
        """
        record = await self._store.get(tenant_id, container_id)
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            try:
                await self._place(record)
            except ConditionFailed:
                record = await self._store.get(tenant_id, container_id)
            except SandboxError:
                return  # it is noted
            else:
                return

    async def files_of(self, tenant_id: str, container_id: str) -> list[ContainerFile]:
        """All stored files; none of a container that is gone."""
        record = await self._store.peek(tenant_id, container_id)
        return [] if record is None else await self._store.files(record)

    async def is_news(self, live: LiveContainer) -> bool:
        """Whether the model has still to be told that the container has been revived; True once for each incarnation."""
        record = live.record
        if record.incarnation == 1 or record.told >= record.incarnation:
            return False
        try:
            await self._store.change(record, set={"told": record.incarnation}, condition={"told": record.told})
        except ConditionFailed:
            return False
        return True

    async def confirm_gone(self, live: LiveContainer) -> bool:
        """After a :class:`SandboxGone`: True if the sandbox is dead (the next :meth:`ensure` revives the container), False if only
        the connection was torn (attach again)."""
        if await self._answers(live.client):
            return False
        record = await self._store.get(live.record.tenant_id, live.record.id)
        if record.incarnation == live.record.incarnation and record.sandbox is not None:
            with suppress(SandboxElsewhere):
                await self._end(record, _sandbox_id(record))
        return True

    async def _place(self, record: ContainerRecord) -> None:
        match record.sandbox:
            case SandboxRecord(state="running"):
                return
            case SandboxRecord(state="starting", claimed_until=until) if until > self._clock():
                return
            case SandboxRecord(state="stopping"):
                await self._end_or_note(record)
                await self._place(await self._store.get(record.tenant_id, record.id))
            case SandboxRecord(state="starting"):
                await self._place_claimed(await self._claim(record, record.incarnation))
            case None:
                await self._place_claimed(await self._claim(record, record.incarnation + 1))

    async def _place_claimed(self, record: ContainerRecord) -> None:
        if self._connect is not None:
            await (await self._start(record)).aclose()
            return
        began = time.perf_counter()
        handle = await self._begin(record, seconds=limits.SANDBOX_WAIT_SECONDS)
        placed = SandboxRecord("starting", _claim_of(record), sandbox_id=handle.sandbox_id, endpoint=handle.endpoint)
        await self._write_claimed(record, {"sandbox": sandbox_attribute(placed)})
        _tell_started(record, began)

    async def _end_or_note(self, record: ContainerRecord) -> None:
        try:
            await self._end(record, _sandbox_id(record))
        except SandboxError as error:
            await self._write_claimed(record, {"sandbox": sandbox_attribute(self._refused(record, error))})
            raise

    async def _advance(self, record: ContainerRecord) -> LiveContainer:
        """One step towards a running sandbox; ``ConditionFailed`` if somebody else took it."""
        match record.sandbox:
            case None:
                return await self._start(await self._claim(record, record.incarnation + 1))
            case SandboxRecord(state="starting", claimed_until=until):
                if until > self._clock():
                    raise SandboxStarting(limits.CONTAINER_POLL_SECONDS)
                return await self._start(await self._claim(record, record.incarnation))
            case SandboxRecord(state="running"):
                live = await self._attach(record)
                if live is not None:
                    return live
                await self._end(record, _sandbox_id(record))
            case SandboxRecord(state="stopping"):
                await self._end(record, _sandbox_id(record))
        return await self._advance(await self._store.get(record.tenant_id, record.id))

    async def _claim(self, record: ContainerRecord, incarnation: int) -> ContainerRecord:
        """Become the one who starts this incarnation; ``ConditionFailed`` if another was faster."""
        earlier = record.sandbox if incarnation == record.incarnation else None
        sandbox = replace(
            earlier or SandboxRecord("starting", claim=""), claim=secrets.token_hex(8), claimed_until=self._lease_end()
        )
        claimed = await self._store.change(
            record,
            set={"sandbox": sandbox_attribute(sandbox), "incarnation": incarnation},
            condition={"sandbox": sandbox_attribute(record.sandbox), "incarnation": record.incarnation},
        )
        await self._store.put_life(claimed, sandbox.sandbox_id)
        return claimed

    async def _begin(self, record: ContainerRecord, *, seconds: float = 0) -> Handle:
        """Where the claimed incarnation listens, or will; waits so long for one that is on its way, or for room. When it raises, the
        claim has been given up. Repeating it finds the same sandbox."""
        deadline = time.monotonic() + seconds
        try:
            spec = await self._spec(record)
            while True:
                try:
                    handle = await self._provisioner.start(spec)
                    break
                except (SandboxStarting, SandboxCapacity) as error:
                    pause = _pause(error)
                    if time.monotonic() + pause > deadline:
                        raise
                await asyncio.sleep(pause)
        except (SandboxError, asyncio.CancelledError) as error:
            with suppress(ConditionFailed):
                await self._release(record, error)
            raise
        await self._store.put_life(record, handle.sandbox_id)
        return handle

    async def _start(self, record: ContainerRecord) -> LiveContainer:
        """Start the claimed incarnation, or find where it was placed, and give it its files."""
        began, was_placed = time.perf_counter(), record.sandbox is not None and record.sandbox.endpoint is not None
        handle = await self._begin(record)
        client = self._client(handle)
        try:
            # It may be one that a starter of an earlier incarnation left behind, with another token: that one must go.
            await client.health()
            record, notes = await self._stage(record, client, await self._store.files(record))
            running = SandboxRecord("running", _claim_of(record), sandbox_id=handle.sandbox_id, endpoint=handle.endpoint)
            staged = {"files_staged": record.files_added, "removals": []}
            record = await self._write_claimed(record, {"sandbox": sandbox_attribute(running), **staged})
        except SandboxError:
            await client.aclose()
            await self._end(record, handle.sandbox_id)
            raise SandboxStarting(limits.CONTAINER_POLL_SECONDS) from None
        except asyncio.CancelledError as error:
            await client.aclose()
            with suppress(ConditionFailed):
                await self._release(record, error)
            raise
        except BaseException:
            await client.aclose()
            raise
        if not was_placed:
            _tell_started(record, began)
        return LiveContainer(record, handle, client, is_revived=record.incarnation > 1, notes=notes)

    async def _attach(self, record: ContainerRecord) -> LiveContainer | None:
        """The running sandbox, with the files that came in meanwhile; None if it does not answer."""
        handle = self._handle(record)
        client = self._client(handle)
        notes: tuple[str, ...] = ()
        try:
            if not await self._answers(client):
                await client.aclose()
                return None
            if record.files_added > record.files_staged:
                for path in record.removals:
                    await client.delete_file(path)
                rows = [row for row in await self._store.files(record) if row.staged_in != record.incarnation]
                _, notes = await self._stage(record, client, rows)
                record = await self._store.change(
                    record,
                    set={"files_staged": record.files_added, "removals": []},
                    condition={"incarnation": record.incarnation, "files_added": record.files_added},
                )
        except SandboxGone:
            await client.aclose()
            return None
        except BaseException:
            await client.aclose()
            raise
        return LiveContainer(record, handle, client, is_revived=False, notes=notes)

    async def _stage(
        self, record: ContainerRecord, client: Sandbox, rows: Sequence[ContainerFile]
    ) -> tuple[ContainerRecord, tuple[str, ...]]:
        """Write rows' bytes into the sandbox and note on the rows what they look like there; answers the record with its renewed
        claim, and notes about what could not be written (those rows stay as they are)."""
        if not rows:
            return record, ()
        lease = _Lease(self, record)
        problems = await _bounded(lambda row: self._write_in(client, row, lease), rows)
        listed = {absolute(file): stamp_of(file) for file in (await client.list_files()).files}
        written = [row for row, problem in zip(rows, problems, strict=True) if problem is None and row.path in listed]
        await _bounded(lambda row: self._mark_staged(client, row, record.incarnation, listed[row.path]), written)
        return lease.record, tuple(problem for problem in problems if problem is not None)

    async def _write_in(self, client: Sandbox, row: ContainerFile, lease: "_Lease") -> str | None:
        """Write one file into the sandbox; a note if that is not possible."""
        try:
            await client.write_file(row.path, lease.watched(self._blobs.get_stream(row.key)))
        except SandboxGone:
            raise
        except SandboxError as error:
            return f"Note: {row.path} could not be put into the container: {error.message}"
        except BlobNotFound:
            return f"Note: {row.path} could not be put into the container: its stored content is lost."
        return None

    async def _mark_staged(self, client: Sandbox, row: ContainerFile, incarnation: int, stamp: str) -> None:
        try:
            await self._store.mark_staged(row, incarnation, stamp)
        except ConditionFailed as error:
            # Replaced meanwhile: the next ensure writes the new bytes. Deleted meanwhile: so it must not be there.
            if error.item is None:
                await client.delete_file(row.path)

    async def _answers(self, client: Sandbox) -> bool:
        try:
            await client.health()
        except SandboxError:
            return False
        return True

    async def _release(self, record: ContainerRecord, error: BaseException) -> None:
        """Give up the claim, so that the next caller need not wait for its end, and note what stood in the way."""
        assert record.sandbox is not None
        is_refusal = not isinstance(error, SandboxStarting)
        free = self._refused(record, error) if isinstance(error, SandboxError) and is_refusal else record.sandbox
        await self._write_claimed(record, {"sandbox": sandbox_attribute(replace(free, claimed_until=0))})

    def _refused(self, record: ContainerRecord, error: SandboxError) -> SandboxRecord:
        assert record.sandbox is not None
        return replace(record.sandbox, refusal=error.message, refused_at=int(self._clock()))

    async def _write_claimed(self, record: ContainerRecord, changes: Mapping[str, Any]) -> ContainerRecord:
        """Write as the claimant; ``ConditionFailed`` if the claim was taken over."""
        return await self._store.change(record, set=changes, condition={"sandbox": sandbox_attribute(record.sandbox)})

    async def renew_claim(self, record: ContainerRecord) -> ContainerRecord:
        assert record.sandbox is not None
        renewed = replace(record.sandbox, claimed_until=self._lease_end())
        return await self._write_claimed(record, {"sandbox": sandbox_attribute(renewed)})

    async def _end(self, record: ContainerRecord, sandbox_id: str | None) -> None:
        """Stop the record's sandbox, if it is known, and forget it. The stop comes first: a new incarnation must not find it."""
        if sandbox_id is not None:
            try:
                await self._provisioner.stop(sandbox_id)
            except SandboxElsewhere:
                assert record.sandbox is not None
                stopping = replace(record.sandbox, state="stopping", sandbox_id=sandbox_id)
                if stopping != record.sandbox:
                    await self._write_claimed(record, {"sandbox": sandbox_attribute(stopping)})
                raise
        if self._egress is not None and record.network_policy["type"] != "disabled":
            await self._egress.pause(record.tenant_id, record.id)
        try:
            await self._store.change(record, set={"sandbox": None}, condition={"incarnation": record.incarnation})
        except ConditionFailed:
            return  # a newer incarnation has begun, or the container is erased
        await self._store.end_life(record)

    def _lease_end(self) -> int:
        return int(self._clock()) + limits.CONTAINER_START_LEASE_SECONDS

    async def _spec(self, record: ContainerRecord) -> SandboxSpec:
        egress, env = await self._way_out(record)
        return SandboxSpec(
            tenant_id=record.tenant_id,
            container_id=record.id,
            token=self._token(record),
            memory_gib=limits.MEMORY_LIMITS[record.memory_limit],
            env=env,
            egress=egress,
            placed=None if record.sandbox is None or record.sandbox.endpoint is None else self._handle(record),
        )

    async def _way_out(self, record: ContainerRecord) -> tuple[EgressSpec | None, Mapping[str, str]]:
        """The proxy as this sandbox may use it, and the placeholders of its secrets; nothing by default."""
        if self._egress is None or self._egress_proxy is None or record.network_policy["type"] == "disabled":
            return None, {}
        grant = await self._egress.renew(record.tenant_id, record.id, password=self._derived("egress", record.id, record.incarnation))
        if grant is None:
            return None, {}
        spec = EgressSpec(self._egress_proxy, grant.username, grant.password, self._egress.ca_pem())
        return spec, grant.placeholders

    def _client(self, handle: Handle) -> ExecClient:
        assert self._connect is not None, f"{handle.sandbox_id} cannot be reached from here"
        return self._connect(handle)

    def _handle(self, record: ContainerRecord) -> Handle:
        assert record.sandbox is not None
        assert record.sandbox.endpoint is not None
        assert record.sandbox.sandbox_id is not None
        return Handle(endpoint=record.sandbox.endpoint, token=self._token(record), sandbox_id=record.sandbox.sandbox_id)

    def _token(self, record: ContainerRecord) -> str:
        """Derived, so that the table holds nothing that opens a sandbox."""
        return self.token_of(record.id, record.incarnation)

    def token_of(self, container_id: str, incarnation: int) -> str:
        return self._derived("sandbox", container_id, incarnation)

    def _derived(self, purpose: str, container_id: str, incarnation: int) -> str:
        """A secret of one incarnation: the same however often its start is repeated, another one for the next."""
        message = f"{purpose}\0{container_id}\0{incarnation}".encode()
        return hmac.new(self._content_key, message, hashlib.sha256).hexdigest()

    # --- Artifacts ---------------------------------------------------------------------------------------------------------------

    async def sync_artifacts(self, live: LiveContainer) -> Artifacts:
        """Store what changed under ``/mnt/data``; to be called after each command. Twice at once stores the same twice, harmlessly.

        Raises :class:`SandboxGone` if the sandbox dies meanwhile; what was stored by then stays.
        """
        record = live.record
        rows = await self._store.files(record)
        change = diff(await live.client.list_files(), rows, record.incarnation)
        before = {row.path: row for row in rows}
        known = _known(rows)
        small = [file for file in change.changed if file.size <= limits.BATCH_FILE_BYTES_MAX]
        large = [[file] for file in change.changed if file.size > limits.BATCH_FILE_BYTES_MAX]
        stored = [
            *await _bounded(lambda batch: self._store_artifacts(live, batch, before, known), _batches(small), limits.BATCHES_MAX),
            *await _bounded(lambda alone: self._store_artifacts(live, alone, before, known), large),
        ]
        saved = [file for batch in stored for file, _ in batch if file is not None]
        notes = [note for batch in stored for _, note in batch if note is not None]
        now = int(self._clock())
        saved += [
            replace(row, path=absolute(file), created_at=now, source="assistant", stamp=stamp_of(file), origin=None)
            for row, file in change.renamed
        ]
        await self._store.put_files(saved)
        await self._store.delete_files(change.removed)
        gone = {row.path for row in change.removed}
        files = {path: row for path, row in before.items() if path not in gone} | {file.path: file for file in saved}
        return Artifacts(
            files=tuple(files[path] for path in sorted(files)),
            changed=tuple(saved),
            notes=await self._new_notes(record, (*change.notes, *notes)),
        )

    async def _store_artifacts(
        self, live: LiveContainer, batch: Sequence[SandboxFile], before: Mapping[str, ContainerFile], known: dict[str, str]
    ) -> list["_Stored"]:
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
        before: Mapping[str, ContainerFile],
        known: dict[str, str],
    ) -> "_Stored":
        """Store a changed file; without ``content`` it is read. ``known`` (SHA-256 to key) grows by what is stored: large trees hold
        many equal files."""
        record, path = live.record, absolute(file)
        earlier = before.get(path)
        chunks = live.client.read_file(file.path) if content is None else _one(content)
        try:
            blob = await self._put_content(record, chunks, known, limits.ARTIFACT_BYTES_MAX)
        except SandboxFileMissing:
            return None, None  # deleted since it was listed: the next listing tells
        except ApiError:
            return None, f"Note: files over {limits.ARTIFACT_BYTES_MAX} bytes are not saved: {path}."
        except SandboxGone:
            raise
        except SandboxError as error:
            return None, f"Note: {path} could not be saved: {error.message}"
        known.setdefault(blob.sha256, blob.key)
        is_same = earlier is not None and earlier.sha256 == blob.sha256
        return ContainerFile(
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

    # --- The sweep ---------------------------------------------------------------------------------------------------------------

    async def expire_due(self, now: float) -> int:
        """Stop idle sandboxes, erase containers past their retention, finish what others left undone; answers how many were
        settled. To be called about once a minute; harmless to run twice, or twice at once.

        Where sandboxes cannot be reached, it leaves those that run to :meth:`retire_idle`."""
        settled = 0
        for due in await self._store.due(now):
            try:
                settled += await self._settle(due, now)
            except SandboxError:
                await self._store.postpone(due, int(now) + limits.CONTAINER_RETRY_SECONDS)
            except ConditionFailed:
                continue  # somebody used it in this moment: it comes up again when it is due
        return settled

    async def retire_idle(self, now: float) -> int:
        """Store the files of idle sandboxes and note that they are to be stopped; answers how many were. For where sandboxes can be
        reached but not stopped; called as :meth:`expire_due` is, which stops them."""
        retired = 0
        for due in await self._store.due(now):
            record = await self._store.peek(due["tenant_id"], due["container_id"])
            if record is None or record.is_deleted or record.expires_at > now:
                continue
            if record.sandbox is not None and record.sandbox.state == "running":
                with suppress(ConditionFailed):
                    retired += await self._retire(record) is not None
        return retired

    async def _settle(self, due: Record, now: float) -> bool:
        record = await self._store.peek(due["tenant_id"], due["container_id"])
        if due["SK"] == keys.PURGE:
            return await self._settle_purge(due, record, now)
        if record is None or record.is_deleted:
            await self._stop_orphan(due)
            return True
        if record.incarnation != due["incarnation"] or record.sandbox is None:
            if due["sandbox_id"] is not None:
                await self._provisioner.stop(due["sandbox_id"])
            await self._store.drop(due)
            return True
        if record.expires_at > now:
            await self._store.postpone(due, record.expires_at)
            return False
        return await self._expire(record)

    async def _settle_purge(self, due: Record, record: ContainerRecord | None, now: float) -> bool:
        if record is not None and not record.is_deleted and self._store.purge_at(record) > now:
            await self._store.postpone(due, self._store.purge_at(record))
            return False
        if record is not None and not record.is_deleted:
            await self._store.mark_deleted(record)
        await self._erase(due["tenant_id"], due["container_id"])
        return True

    async def _stop_orphan(self, life: Record) -> None:
        """Stop a sandbox of a container that is deleted; its starter may have died before it said which one it is."""
        sandbox_id = life["sandbox_id"] or await self._find(life["tenant_id"], life["container_id"], life["incarnation"])
        if sandbox_id is not None:
            await self._provisioner.stop(sandbox_id)
        await self._store.drop(life)

    async def _find(self, tenant_id: str, container_id: str, incarnation: int) -> str | None:
        return await self._provisioner.find(SandboxSpec(tenant_id, container_id, self.token_of(container_id, incarnation)))

    async def _expire(self, record: ContainerRecord) -> bool:
        """Stop an idle sandbox, unless something still runs in it."""
        assert record.sandbox is not None
        if record.sandbox.state == "starting":
            # Nobody came back for it, and it was not written down which sandbox it is, if there is one.
            await self._end(record, await self._find(record.tenant_id, record.id, record.incarnation))
            return True
        if record.sandbox.state == "running":
            retired = None if self._connect is None else await self._retire(record)
            if retired is None:
                return False
            record = retired
        await self._end(record, _sandbox_id(record))
        await self._collect(record)
        return True

    async def _retire(self, record: ContainerRecord) -> ContainerRecord | None:
        """Store the files of an idle sandbox and have nobody be handed it any more; None if something still runs in it."""
        assert record.sandbox is not None
        if await self._is_busy(record):
            await self._store.change(
                record, set={"last_active_at": int(self._clock())}, condition={"incarnation": record.incarnation}
            )
            return None
        stopping = replace(record.sandbox, state="stopping")
        return await self._store.change(
            record,
            set={"sandbox": sandbox_attribute(stopping)},
            condition={"sandbox": sandbox_attribute(record.sandbox), "last_active_at": record.last_active_at},
        )

    async def _is_busy(self, record: ContainerRecord) -> bool:
        """Whether commands run in it; stores its files on the way, because background processes write without a command."""
        handle = self._handle(record)
        client = self._client(handle)
        try:
            if (await client.health()).running > 0:
                return True
            await self.sync_artifacts(LiveContainer(record, handle, client, is_revived=False))
        except SandboxError:
            return False
        finally:
            await client.aclose()
        return False

    async def _collect(self, record: ContainerRecord) -> None:
        """Delete objects that no row names any more. Only now, with the sandbox stopped: a command's end could name them again."""
        prefix = keys.container_objects(record.tenant_id, record.id)
        named = {row.key for row in await self._store.files(record)}
        horizon = self._clock() - limits.CONTAINER_OBJECT_SECONDS_MIN
        async for key, modified_at in self._blobs.list_prefix(prefix):
            if key not in named and modified_at < horizon:
                await self._blobs.delete(key)

    async def _erase(self, tenant_id: str, container_id: str) -> None:
        """Stop what runs and erase what is stored of a container that is marked as deleted."""
        for life in await self._store.lives(tenant_id, container_id):
            if life["sandbox_id"] is None:
                # Somebody is starting it just now, or died over it: the sweep looks when that must be over.
                await self._store.postpone(life, int(self._clock()) + limits.CONTAINER_START_LEASE_SECONDS)
            else:
                await self._provisioner.stop(life["sandbox_id"])
                await self._store.drop(life)
        if self._egress is not None:
            await self._egress.close(tenant_id, container_id)
        await self._blobs.delete_prefix(keys.container_objects(tenant_id, container_id))
        await self._store.erase(tenant_id, container_id)

    def lease_left(self, record: ContainerRecord) -> float:
        """Seconds until the claim on the record runs out."""
        assert record.sandbox is not None
        return record.sandbox.claimed_until - self._clock()


class _Lease:
    """Keeps a starter's claim alive while bytes flow."""

    def __init__(self, containers: Containers, record: ContainerRecord) -> None:
        self._containers = containers
        self._lock = asyncio.Lock()
        self.record = record

    async def watched(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            await self._renew_if_due()
            yield chunk

    async def _renew_if_due(self) -> None:
        async with self._lock:
            sandbox = self.record.sandbox
            if sandbox is None or sandbox.state != "starting":
                return
            if self._containers.lease_left(self.record) < limits.CONTAINER_START_LEASE_SECONDS / 2:
                self.record = await self._containers.renew_claim(self.record)


def _shown(policy: NetworkPolicy | None) -> dict[str, Any]:
    """A policy as the container shows it: no secrets."""
    if policy is None or policy.type == "disabled":
        return {"type": "disabled"}
    return {"type": policy.type, "allowed_domains": list(policy.allowed_domains)}


def _check_room(rows: Sequence[ContainerFile], paths: Iterable[str]) -> None:
    if len({row.path for row in rows} | set(paths)) > limits.ARTIFACTS_MAX:
        raise too_many_container_files(limits.ARTIFACTS_MAX)


def _has(row: ContainerFile | None, sha256: str) -> bool:
    """Whether this content was put there before, or is there now."""
    return row is not None and sha256 in (row.origin, row.sha256)


def _known(rows: Sequence[ContainerFile]) -> dict[str, str]:
    """Where content is stored already, by its SHA-256."""
    return {row.sha256: row.key for row in rows}


def _pause(error: SandboxStarting | SandboxCapacity) -> float:
    return error.retry_after_seconds if isinstance(error, SandboxStarting) else limits.SANDBOX_CAPACITY_RETRY_SECONDS


def _tell_started(record: ContainerRecord, began: float) -> None:
    """``began`` is a time of ``time.perf_counter``."""
    took_ms = round((time.perf_counter() - began) * 1000)
    said = {"tenant_id": record.tenant_id, "container_id": record.id, "incarnation": record.incarnation, "duration_ms": took_ms}
    tell("sandbox_started", said, {Metric.SANDBOX_START: took_ms})


def _sandbox_id(record: ContainerRecord) -> str | None:
    return None if record.sandbox is None else record.sandbox.sandbox_id


def _claim_of(record: ContainerRecord) -> str:
    assert record.sandbox is not None
    return record.sandbox.claim


_Stored = tuple[ContainerFile | None, str | None]
"""The row of a changed file whose bytes are stored; or a note why they are not; or neither, if it has vanished."""


def _batches(files: Sequence[SandboxFile]) -> list[Sequence[SandboxFile]]:
    """Small files that are read by one request each: together, but not so many that other requests have nothing to do."""
    size = max(1, min(limits.BATCH_FILES_MAX, ceil(len(files) / limits.BATCHES_MAX)))
    return [files[start : start + size] for start in range(0, len(files), size)]


async def _one(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _bounded(
    work: Callable[[_A], Awaitable[_T]], things: Iterable[_A], at_once: int = limits.CONTAINER_TRANSFERS_MAX
) -> list[_T]:
    """Results in order; the first failure cancels the rest and is raised as it is."""
    gate = asyncio.Semaphore(at_once)

    async def one(thing: _A) -> _T:
        async with gate:
            return await work(thing)

    tasks = [asyncio.ensure_future(one(thing)) for thing in things]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
