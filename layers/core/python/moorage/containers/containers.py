"""Containers as the API shows them: records, and the files that are stored with them.

:class:`Containers` puts the parts together. ``sandboxes`` (``containers/lifecycle.py``) gives a container a sandbox with its files.
``artifacts`` stores the files that commands leave there. ``sessions`` are terminals that people use. ``sweep`` ends idle ones.
``incarnations`` knows the token of each sandbox.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from moorage import limits
from moorage.containers.announcements import Announcements
from moorage.containers.artifacts import Artifacts
from moorage.containers.claims import Claims
from moorage.containers.history_store import ContainerPast, time_after
from moorage.containers.incarnations import Incarnations
from moorage.containers.lifecycle import ContainerSandboxes
from moorage.containers.packages import Mirrors, Packages
from moorage.containers.sandbox_wait import SandboxWait
from moorage.containers.screens import ContainerScreens
from moorage.containers.setup import ContainerSetup, Setups
from moorage.containers.staging import Staging
from moorage.containers.store import (
    WORKSPACE,
    ContainerFileRecord,
    ContainerRecord,
    ContainerStore,
)
from moorage.containers.sweep import AtWork, ContainerSweep, nobody
from moorage.containers.transfers import bounded, new_bytes, one_piece, store_content, stored_content
from moorage.dataclass import dataclass
from moorage.egress.policy import EgressPolicy
from moorage.egress.service import EgressService
from moorage.errors import (
    ApiError,
    ConditionFailed,
    SandboxError,
    SandboxGone,
    container_file_not_found,
    container_files_too_large,
    container_not_found,
    container_read_only,
    copied_too_often,
    file_not_found,
    network_unavailable,
    passing_over_what_is_gone,
    past_unknown,
    too_many_container_files,
)
from moorage.files.store import Clock, FileStore, StoredFile, file_name, free_name
from moorage.sandbox.by_tier import Reaches
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.provisioner import Handle, Provisioner
from moorage.skills.attach import GivenSkill, GivenSkills, given
from moorage.skills.attached_store import ContainerSkills
from moorage.skills.store import SkillStore
from moorage.store import object_keys
from moorage.store.blobs import Blob, BlobNotFound, Blobs
from moorage.store.listing import Page
from moorage.store.live_sandboxes import NO_BOUNDS, SandboxBounds
from moorage.store.sandbox_history import ContainerLives
from moorage.store.sandbox_usage import SandboxUsage
from moorage.store.stored_bytes import Holder
from moorage.store.table import Table
from moorage.terminals.sessions import TerminalSessions
from moorage.terminals.store import ContainerSessions
from moorage.webhooks.store import Webhooks
from moorage.wire.network_policy import NetworkPolicy
from moorage.wire.queries import PageQuery


@dataclass(frozen=True, slots=True)
class Incoming:
    """A file on its way into a container."""

    filename: str
    """Its name under ``/mnt/data``."""
    sha256: str
    """Of its content: what is there already need not be read."""
    size: int
    chunks: Callable[[], AsyncIterator[bytes]]


@dataclass(frozen=True, slots=True)
class StreamedContent:
    """Bytes that are read when they are stored."""

    size: int
    chunks: Callable[[], AsyncIterator[bytes]]


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A user's file with the whole of its path."""

    path: str
    """Absolute, below ``/mnt/data/``, without detours."""
    content: StoredFile | StreamedContent | bytes
    """A file of the Files API, of which a copy is put there, or the bytes themselves."""


class Containers:
    def __init__(
        self,
        table: Table,
        blobs: Blobs,
        provisioner: Provisioner,
        files: FileStore,
        *,
        clock: Clock,
        sandbox_key: Callable[[], bytes],
        retention_seconds: int = limits.RETENTION_SECONDS,
        strict_expiry: bool = False,
        auto_idle_seconds: int = 0,
        egress: EgressService | None = None,
        egress_proxy: str | None = None,
        connect: Callable[[Handle], ExecClient] | None = ExecClient,
        reaches: Reaches | None = None,
        programs: str = "",
        has_browsers: bool = False,
        at_work: AtWork = nobody,
        bounds: SandboxBounds = NO_BOUNDS,
        usage: SandboxUsage | None = None,
        can_start: bool = True,
        webhooks: Webhooks | None = None,
        mirrors: Mirrors = Mirrors(),  # noqa: B008
    ) -> None:
        """``bounds`` are those of a tenant's sandboxes, checked at their start (``can_start``). ``usage`` counts their time, if that
        has a price.

        ``sandbox_key`` is asked for when a token is derived. ``connect`` None: sandboxes cannot be reached from here, only started
        and stopped; ``reaches``: which of them can be, without it all. ``at_work``: those of a tenant that do not give way to others.
        ``auto_idle_seconds``: after so long the sandbox of a container that a response made stops, if no process is left in it; 0:
        with its container."""
        expiry = {"retention_seconds": retention_seconds, "auto_idle_seconds": auto_idle_seconds}
        store = ContainerStore(table, clock=clock, strict_expiry=strict_expiry, bounds=bounds, usage=usage, **expiry)
        claims = Claims(store, clock)
        self._store = store
        self._blobs = blobs
        self._files = files
        self._stored = files.stored
        self._clock = clock
        self._egress = egress
        self._programs = programs
        self.incarnations = Incarnations(sandbox_key, egress=egress, egress_proxy=egress_proxy)
        self.skills = GivenSkills(store, ContainerSkills(table), SkillStore(table, blobs, clock=clock), blobs)
        staging = Staging(store, ContainerSkills(table), blobs, claims, provisioner)
        self.setups = Setups(table, store, claims, sandbox_key, mirrors)
        self.lives = ContainerLives(table)
        announcements = Announcements(store, webhooks, clock, strict_expiry=strict_expiry)
        self.sandboxes = ContainerSandboxes(
            store,
            provisioner,
            claims,
            staging,
            self.incarnations,
            self.lives,
            connect,
            reaches=reaches,
            setups=self.setups,
            announcements=announcements,
            gives_way=lambda tenant_id: self.waiting.stops_noted(tenant_id),
            can_start=can_start,
        )
        self.past = ContainerPast(table, store)
        self.artifacts = Artifacts(store, self.past, blobs, files.stored, clock)
        swept = (store, self.past, blobs, provisioner, self.sandboxes, self.artifacts, files.stored)
        self.sweep = ContainerSweep(*swept, announcements=announcements, clock=clock, egress=egress, at_work=at_work)
        self.waiting = SandboxWait(self.sandboxes, self.sweep, at_work)
        self.screens = ContainerScreens(store, self.sandboxes, self.waiting, has_browsers=has_browsers)
        self.sessions = TerminalSessions(ContainerSessions(table, clock), store, self.sandboxes, self.waiting, self.artifacts)

    async def pay(self, tenant_id: str, container_id: str, response_id: str, seconds: int) -> None:
        """A response that ends pays for so many seconds of the container's sandbox. Harmless to repeat."""
        await self._store.live.pay(tenant_id, container_id, response_id, seconds)

    # --- Records -------------------------------------------------------------------------------------------------------------

    async def reserve(
        self,
        tenant_id: str,
        *,
        name: str,
        files: Sequence[StoredFile] = (),
        idle_minutes: int = limits.CONTAINER_IDLE_MINUTES_DEFAULT,
        memory_limit: str = "1g",
        network_policy: NetworkPolicy | None = None,
        skills: Sequence[GivenSkill] = (),
        setup: ContainerSetup | None = None,
        packages: Packages | None = None,
        plugins: Sequence[Mapping[str, str]] = (),
        param: str = "",
        programs: str | None = None,
        lenders: tuple[str, ...] = (),
        is_internal: bool = False,
        is_auto: bool = False,
        environment: Literal["", "prewarmed", "session"] = "",
        container_id: str | None = None,
        is_read_only: bool = False,
    ) -> ContainerRecord:
        """A new container without a sandbox, holding copies of these files. ``param`` is the place of these options in the
        request, such as ``tools[0].environment.``; errors name it. ``programs``, ``lenders``, ``container_id`` and
        ``is_read_only`` are of a copy (:meth:`copy`). One that ``is_internal`` is for its maker alone, and counts among the tenant's
        sandboxes; :meth:`release` ends it."""
        policy = await self._admitted(tenant_id, network_policy, f"{param}network_policy")
        record = await self._store.create(
            tenant_id,
            name=name,
            idle_minutes=idle_minutes,
            memory_limit=memory_limit,
            network_policy=_shown(network_policy),
            programs=self._programs if programs is None else programs,
            lenders=lenders,
            is_internal=is_internal,
            is_auto=is_auto,
            environment=environment,
            packages=packages,
            plugins=plugins,
            container_id=container_id,
            is_read_only=is_read_only,
        )
        if self._egress is not None and (policy is not None or packages):
            secrets = () if network_policy is None else network_policy.domain_secrets
            await self._egress.open(tenant_id, record.id, policy or EgressPolicy(), secrets, installs=bool(packages))
        try:
            record = await self._copy_in(record, files) if files else record
            record = await self.skills.add(record, skills)
            return record if setup is None else await self.setups.give(record, setup)
        except ApiError:
            await self._delete(record)  # nobody has heard of it
            raise

    async def copy(
        self,
        source: ContainerRecord,
        *,
        at_ms: int | None,
        memory_limit: str | None = None,
        network_policy: NetworkPolicy | None = None,
        container_id: str | None = None,
        is_read_only: bool = False,
    ) -> tuple[ContainerRecord, int]:
        """A new container as another one is, with its skills, and with the files that it had at ``at_ms`` (None for none of them): the
        rows are copied, and name the same objects. Answers how many files that are. Secrets and processes do not come along. Who notes
        its id before it is made gives ``container_id``. The files of one that ``is_read_only`` stay as they are.

        Raises ``past_unknown`` if it is not known (any more) how the files were, and 404 for a container that is being deleted.
        """
        lenders = () if at_ms is None else (source.id, *source.lenders)
        if len(lenders) > limits.CONTAINER_LENDERS_MAX:
            raise copied_too_often(limits.CONTAINER_LENDERS_MAX)
        _check_past(source, at_ms)
        made = await self.reserve(
            source.tenant_id,
            name=source.name,
            idle_minutes=source.idle_minutes,
            memory_limit=memory_limit or source.memory_limit,
            network_policy=network_policy or policy_of(source),
            skills=[given(row) for row in await self.skills.of(source)],
            param="container.",
            programs=source.programs,
            lenders=lenders,
            environment="session" if source.environment else "",
            packages=source.packages,
            plugins=source.plugins,
            container_id=container_id,
            is_read_only=is_read_only,
        )
        if source.has_setup:
            made = await self.setups.copy(source, made)
        if at_ms is None:
            return made, 0
        try:
            return made, await self._copy_rows(source, made, at_ms)
        except BaseException:
            await asyncio.shield(self.delete(made.tenant_id, made.id))
            raise

    async def _copy_rows(self, source: ContainerRecord, made: ContainerRecord, at_ms: int) -> int:
        """The loan first, then the rows, and then a look whether the source was still whole.

        An erasing or pruning process marks the source before it looks for other users of its objects. So one of the two sees the other.
        """
        for lender in made.lenders:
            await self.past.lend(made.tenant_id, lender, made.id)
        now_ms = int(self._clock() * 1000)
        rows = [
            replace(row, container_id=made.id, staged_in=0, stamp=None, written_at_ms=now_ms)
            for row in await self.past.files_at(source, at_ms)
        ]
        await self._store.put_files(rows)
        _check_past(await self._store.get(source.tenant_id, source.id), at_ms)
        return len(rows)

    async def files_at(self, record: ContainerRecord, at_ms: int) -> list[ContainerFileRecord]:
        """Its files as they were at a time. Raises ``past_unknown``."""
        _check_past(record, at_ms)
        return await self.past.files_at(record, at_ms)

    async def file_at(self, record: ContainerRecord, file_id: str, at_ms: int) -> ContainerFileRecord:
        """One of them. Raises 404 if there was none, and ``past_unknown``."""
        for row in await self.files_at(record, at_ms):
            if row.id == file_id:
                return row
        raise container_file_not_found(file_id)

    async def has_policy(self, record: ContainerRecord, asked: NetworkPolicy) -> bool:
        """Whether a container has exactly the requested policy with these secrets; if so, they have the values of ``asked`` from now
        on.

        A policy is fixed for a container's life. Another one takes another container, because programs of the old policy may still run.
        """
        if asked.type == "disabled" or record.network_policy["type"] == "disabled":
            return bool(asked.type == record.network_policy["type"])
        if set(record.network_policy["allowed_domains"]) != set(asked.allowed_domains):
            return False
        if record.network_policy.get("require_approval", {}) != asked.approvals:
            return False
        await self._admitted(record.tenant_id, asked, "network_policy")
        return self._egress is None or await self._egress.replace_secrets(record.tenant_id, record.id, asked.domain_secrets)

    async def _admitted(self, tenant_id: str, asked: NetworkPolicy | None, param: str) -> EgressPolicy | None:
        """The policy inside the operator's ceiling; None for no network at all."""
        if asked is None or asked.type == "disabled":
            return None
        if self._egress is None:
            raise network_unavailable(param)
        return await self._egress.admit(tenant_id, asked, param=param)

    async def get(self, tenant_id: str, container_id: str, *, param: str | None = None) -> ContainerRecord:
        """The record as it stands; 404 for unknown, foreign and deleted ones, and for those that no client has made."""
        record = await self._store.get(tenant_id, container_id, param=param)
        if record.is_internal:
            raise container_not_found(container_id, param=param)
        return record

    async def peek(self, tenant_id: str, container_id: str) -> ContainerRecord | None:
        """The record, also of a container that is being erased."""
        return await self._store.peek(tenant_id, container_id)

    async def page(self, tenant_id: str, page: PageQuery, *, name: str | None = None) -> Page[ContainerRecord]:
        return await self._store.page(tenant_id, page, name=name)

    async def touch(self, tenant_id: str, container_id: str) -> ContainerRecord:
        """Get it and note that it is in use. An expired one stays expired: only using it again revives it."""
        record = await self.get(tenant_id, container_id)
        return record if self._store.is_expired(record) else await self._store.touch(record)

    async def use(self, tenant_id: str, container_id: str, *, param: str | None = None) -> ContainerRecord:
        """Get it in order to use it: an expired one comes back to life, or is refused if expiry is strict."""
        return await self._store.use(await self.get(tenant_id, container_id, param=param))

    async def delete(self, tenant_id: str, container_id: str) -> None:
        """Stop its sandbox and erase its files; a deletion that breaks off is finished by the sweep."""
        await self._delete(await self.get(tenant_id, container_id))

    async def release(self, tenant_id: str, container_id: str) -> None:
        """Delete an internal one, unless that was done before."""
        with passing_over_what_is_gone():
            await self._delete(await self._store.get(tenant_id, container_id))

    async def _delete(self, record: ContainerRecord) -> None:
        await self._store.mark_deleted(record)
        try:
            await self.sweep.erase(record.tenant_id, record.id)
        except SandboxError:
            return  # it is out of reach already; the sweep stops its sandbox when it can

    # --- Files ---------------------------------------------------------------------------------------------------------------

    async def file_page(self, record: ContainerRecord, page: PageQuery) -> Page[ContainerFileRecord]:
        return await self._store.file_page(record, page)

    async def files_of(self, tenant_id: str, container_id: str) -> list[ContainerFileRecord]:
        """All stored files; none of a container that is gone."""
        record = await self._store.peek(tenant_id, container_id)
        return [] if record is None else await self._store.files(record)

    async def file(self, record: ContainerRecord, file_id: str) -> ContainerFileRecord:
        return await self._store.file(record, file_id)

    async def content(self, file: ContainerFileRecord, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The file's stored bytes from ``start`` up to and with ``end``; 404 if it was deleted or replaced in between."""
        try:
            async for chunk in self._blobs.get_stream(file.key, start=start, end=end):
                yield chunk
        except BlobNotFound as error:
            raise container_file_not_found(file.id) from error

    async def head_of(self, file: ContainerFileRecord, count: int) -> bytes:
        """Its first bytes; none if it was deleted or replaced in this moment."""
        if file.bytes == 0:
            return b""
        with suppress(ApiError):
            return b"".join([chunk async for chunk in self.content(file, start=0, end=min(count, file.bytes) - 1)])
        return b""

    async def add_file(self, record: ContainerRecord, *, filename: str, chunks: AsyncIterator[bytes]) -> ContainerFileRecord:
        """Put a user's file at ``/mnt/data/<filename>`` and replace an earlier one; a running sandbox has it by the next command, or
        while one runs (``ContainerSandboxes.bring_files``)."""
        rows = await self._store.files(record)
        path = WORKSPACE + file_name(filename)
        _check_room(record, rows, [path])
        file = await self._take_in(record, path, chunks, stored_content(rows))
        await self._add_rows(record, [file], rows)
        return file

    async def named(self, tenant_id: str, file_ids: Mapping[str, str]) -> list[StoredFile]:
        """Files of the Files API, by ids with the place of each in the request. Raises 404 that names the place of one that is not."""
        return [await self._files.get(tenant_id, file_id, param=place) for file_id, place in file_ids.items()]

    async def add_files(self, record: ContainerRecord, files: Sequence[StoredFile]) -> ContainerRecord:
        """Put copies of files of the Files API at ``/mnt/data/<filename>``; those that are there already stay as they are."""
        return await self._copy_in(record, files) if files else record

    async def add_file_of(self, record: ContainerRecord, file_id: str) -> ContainerFileRecord:
        """Put a copy of a file of the Files API at ``/mnt/data/<filename>`` and replace an earlier one."""
        file = await self._files.get(record.tenant_id, file_id, param="file_id")
        path = WORKSPACE + file.filename
        rows = await self._store.files(record)
        _check_room(record, rows, [path])
        await self._check_fits(record, {file.sha256: file.bytes}, rows)
        row = await self._copy(record, path, file)
        await self._add_rows(record, [row], rows)
        return row

    async def place(self, record: ContainerRecord, files: Sequence[PlacedFile]) -> list[ContainerFileRecord]:
        """Put user's files at their paths and replace earlier ones. No path may be another one's folder."""
        rows = await self._store.files(record)
        _check_room(record, rows, [file.path for file in files])
        known = stored_content(rows)
        sizes = [_new_size(file.content, known) for file in files]
        await self._stored.check(record.tenant_id, sum(sizes))
        added = await bounded(lambda file: self._placed(record, file, known), files)
        if added:
            await self._add_rows(record, added, rows)
        return added

    async def _placed(self, record: ContainerRecord, file: PlacedFile, known: Mapping[str, str]) -> ContainerFileRecord:
        if isinstance(file.content, bytes):
            return await self._take_in(record, file.path, one_piece(file.content), known)
        if isinstance(file.content, StreamedContent):
            return await self._take_in(record, file.path, file.content.chunks(), known)
        return await self._copy(record, file.path, file.content)

    async def delete_file(self, record: ContainerRecord, file_id: str) -> None:
        """Delete a file, in the running sandbox too: at once, or by the next command if the sandbox cannot be reached.

        It is gone from the container's past as well; a container that was copied before keeps its own.
        """
        if record.is_read_only:
            raise container_read_only(record.id)
        file = await self._store.file(record, file_id)
        if record.sandbox is not None and record.sandbox.state == "running":
            await self._remove(record, file.path)
        if not await self._store.delete_file(file):
            return  # Somebody else does the rest.
        await self.past.forget(file)
        is_own = file.key.startswith(object_keys.container_objects(record.tenant_id, record.id))
        if is_own and file.key not in await self.past.named(record) and not await self.past.borrowers(record.tenant_id, record.id):
            await self._blobs.delete(file.key)
            # Not counted anew: a command may have taken room for what is not there yet.
            await self._stored.correct(Holder.container(record.tenant_id, record.id), -file.bytes)

    async def _remove(self, record: ContainerRecord, path: str) -> None:
        if not self.sandboxes.reaches(record):
            await self._note_removal(record, path)
            return
        async with self.sandboxes.reach(record) as live:
            with suppress(SandboxGone):
                await live.client.delete_file(path)

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
        _check_room(record, rows, [path for path, _ in new])
        await self._check_fits(record, {each.sha256: each.size for _, each in new}, rows)
        known = stored_content(rows)
        added = await bounded(lambda place: self._take_in(record, place[0], place[1].chunks(), known), new)
        return await self._add_rows(record, added, rows) if added else record

    async def _check_fits(self, record: ContainerRecord, sizes: Mapping[str, int], there: Sequence[ContainerFileRecord]) -> None:
        """Look before anything is stored whether there is room for content, by its hash, that no row has yet."""
        known = stored_content(there)
        await self._stored.check(record.tenant_id, sum(size for sha256, size in sizes.items() if sha256 not in known))

    async def _take_in(
        self, record: ContainerRecord, path: str, chunks: AsyncIterator[bytes], known: Mapping[str, str]
    ) -> ContainerFileRecord:
        room = await self._stored.room(record.tenant_id)
        try:
            blob = await store_content(self._blobs, record, chunks, known=known, bytes_max=min(limits.FILE_BYTES_MAX, room))
        except ApiError:
            if room < limits.FILE_BYTES_MAX:
                await self._stored.check(record.tenant_id, room + 1)
            raise
        return self._row(record, path, blob)

    async def _copy_in(self, record: ContainerRecord, files: Sequence[StoredFile]) -> ContainerRecord:
        rows = await self._store.files(record)
        before = {row.path: row for row in rows}
        new = {path: file for path, file in places(files).items() if not _has(before.get(path), file.sha256)}
        _check_room(record, rows, new)
        await self._check_fits(record, {file.sha256: file.bytes for file in new.values()}, rows)
        copies = await bounded(lambda place: self._copy(record, *place), new.items())
        return await self._add_rows(record, copies, rows) if copies else record

    async def _copy(self, record: ContainerRecord, path: str, file: StoredFile) -> ContainerFileRecord:
        key = object_keys.container_objects(record.tenant_id, record.id, file.sha256)
        try:
            await self._blobs.copy(file.key, key)
        except BlobNotFound as error:
            raise file_not_found(file.id) from error
        return self._row(record, path, Blob(key, file.bytes, file.sha256), file.id)

    def _row(self, record: ContainerRecord, path: str, blob: Blob, upload_id: str = "") -> ContainerFileRecord:
        return ContainerFileRecord(
            tenant_id=record.tenant_id,
            container_id=record.id,
            path=path,
            bytes=blob.bytes,
            created_at=int(self._clock()),
            source="user",
            sha256=blob.sha256,
            key=blob.key,
            origin=blob.sha256,
            upload_id=upload_id,
        )

    async def _add_rows(
        self, record: ContainerRecord, added: Sequence[ContainerFileRecord], there: Sequence[ContainerFileRecord]
    ) -> ContainerRecord:
        """Their bytes are counted first.

        Then come the records of the replaced rows (``there``), the rows, and the count that makes the next command fetch them.
        """
        holder, size = Holder.container(record.tenant_id, record.id), new_bytes(added, there)
        try:
            await self._stored.add(holder, size)
        except ApiError:
            # The content is there until the sweep collects it. A look at the bucket would count what others are about to count too.
            await self._stored.correct(holder, size)
            raise
        at_ms, paths = time_after(there, int(self._clock() * 1000)), {row.path for row in added}
        rows = [replace(row, written_at_ms=at_ms) for row in added]
        if replaced := [row for row in there if row.path in paths]:
            await self.past.note(record, replaced, at_ms)
        await self._store.put_files(rows)
        return await self._store.change(record, set={"last_active_at": int(self._clock())}, add={"files_added": len(rows)})


def _shown(policy: NetworkPolicy | None) -> dict[str, Any]:
    """A policy as the container shows it: no secrets."""
    if policy is None or policy.type == "disabled":
        return {"type": "disabled"}
    shown = {"type": policy.type, "allowed_domains": list(policy.allowed_domains)}
    return shown | ({"require_approval": policy.approvals} if policy.approvals else {})


def policy_of(record: ContainerRecord) -> NetworkPolicy | None:
    """The policy of a container, without its secrets."""
    shown = record.network_policy
    if shown["type"] == "disabled":
        return None
    asked = shown.get("require_approval", {})
    return NetworkPolicy("allowlist", tuple(shown["allowed_domains"]), asks_hosts=tuple(asked.get("hosts", ())))


def _check_past(record: ContainerRecord, at_ms: int | None) -> None:
    if at_ms is not None and at_ms < record.past_from_ms:
        raise past_unknown(record.id)


def _check_room(record: ContainerRecord, rows: Sequence[ContainerFileRecord], added: Iterable[str]) -> None:
    paths = set(added)
    if paths and record.is_read_only:
        raise container_read_only(record.id)
    if len({row.path for row in rows} | paths) > limits.ARTIFACTS_MAX:
        raise too_many_container_files(limits.ARTIFACTS_MAX)
    if sum(row.bytes for row in rows) >= limits.ARTIFACTS_BYTES_MAX:
        raise container_files_too_large(limits.ARTIFACTS_BYTES_MAX)


def places(files: Sequence[StoredFile]) -> dict[str, StoredFile]:
    """Files of the Files API by their place in a container: two of one name do not take each other's place."""
    placed: dict[str, StoredFile] = {}
    for file in files:
        placed[WORKSPACE + free_name(file.filename, [path.removeprefix(WORKSPACE) for path in placed])] = file
    return placed


def _new_size(content: StoredFile | StreamedContent | bytes, known: Mapping[str, str]) -> int:
    if isinstance(content, StoredFile):
        return 0 if content.sha256 in known else content.bytes
    return len(content) if isinstance(content, bytes) else content.size


def _has(row: ContainerFileRecord | None, sha256: str) -> bool:
    """Whether this content was put there before, or is there now."""
    return row is not None and sha256 in (row.origin, row.sha256)
