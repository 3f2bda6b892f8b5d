"""Container records and the rows of their files.

A container is one record. Each sandbox that may still run is one ``LIFE#`` record (found through the index when it is due to stop).
Each file is one row with an id made from its path, so that two writers of the same path write the same row. Bytes lie in the bucket
under their hash: rows with the same content share one object.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any, Final, Literal, cast

from moorage import limits
from moorage.codec import Codec
from moorage.dataclass import dataclass
from moorage.errors import ConditionFailed, container_expired, container_file_not_found, container_not_found
from moorage.files.store import Clock
from moorage.ids import new_listed_id
from moorage.parallel import Breath
from moorage.store import keys, schema
from moorage.store.listing import Page, gone_record, listing_attributes, read_page, unknown_after
from moorage.store.live_sandboxes import NO_BOUNDS, LiveSandboxes, SandboxBounds
from moorage.store.sandbox_usage import SandboxUsage
from moorage.store.table import Record, Table, Write
from moorage.wire.answers import Container, ContainerFile, PolicyShown
from moorage.wire.queries import PageQuery
from moorage.wire.resources import MemoryLimit

KIND: Final = "containers"
WORKSPACE: Final = "/mnt/data/"
LINK: Final = "/workspace/"
"""The same folder, as OpenAI's Agents API has it."""
Source = Literal["user", "assistant"]
SandboxState = Literal["starting", "running", "stopping"]
End = Literal["idle", "lost", "failed", "limit"]
"""Why a sandbox ended: nobody used it, it was gone, it never came to run, or its owner lets none live longer."""

SANDBOX_TRANSITIONS: Final[Mapping[SandboxState | None, Mapping[SandboxState | None, str]]] = {
    None: {"starting": "a command needs it, and one process claims the start"},
    "starting": {
        "running": "it answers and has its files",
        "stopping": "it is given up by a process that cannot stop it",
        None: "it would not take its files, or its starter died and nobody came back",
    },
    "running": {
        "stopping": "nobody uses it, its time is over, or it is gone for a process that cannot stop it",
        None: "it does not answer any more or its time is over, and it was stopped",
    },
    "stopping": {None: "it is stopped"},
}
"""How the state of a container's sandbox may change, and when; None is no sandbox. Claims, refusals and addresses are noted within a
state. ``docs/containers.md`` is drawn from it."""


@dataclass(frozen=True, slots=True)
class SandboxRecord:
    """The sandbox that a container has now."""

    state: SandboxState
    claim: str
    """Names the process that starts it; only that one may write on."""
    claimed_until: int = 0
    sandbox_id: str | None = None
    endpoint: str | None = None
    """While it starts: where it will listen, if it was started by a process that cannot reach it."""
    refusal: str = ""
    """Why it could not be started ..."""
    refused_at: int = 0
    """... and when (Unix seconds)."""


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    tenant_id: str
    id: str
    name: str
    created_at: int
    last_active_at: int
    idle_minutes: int
    memory_limit: str
    network_policy: Mapping[str, Any]
    """As the wire shows it: ``type`` and ``allowed_domains``, never secrets."""
    incarnation: int = 0
    """How many sandboxes it has had; 0 before the first."""
    sandbox: SandboxRecord | None = None
    files_added: int = 0
    """Counts files that came in through the API ..."""
    files_staged: int = 0
    """... and up to where they have been written into the sandbox."""
    removals: tuple[str, ...] = ()
    """Paths whose rows were deleted from where the running sandbox cannot be reached: it loses them before its next command."""
    told: int = 0
    """The incarnation that the model has been told of."""
    noted: str = ""
    """Hash of the notes about unsaved files that the model has been given."""
    has_skills: bool = False
    """Whether there are rows of skills beside those of files."""
    programs: str = ""
    """What a command finds there, in words for the model, as it was when the container was made: its prompts must not change."""
    is_deleted: bool = False
    """A 404 to everybody; its eraser is not through yet."""
    past_from_ms: int = 0
    """From when on it is known how its files were (milliseconds)."""
    ordered_at_ms: int = 0
    """When its latest sandbox was ordered. Beside it and not in it: processes of an older version compare that as they know it ..."""
    running_at_ms: int = 0
    """... when it was there ..."""
    ends_at: int = 0
    """... when its owner ends it whatever it does (Unix seconds, 0 for never) ..."""
    ending: End | Literal[""] = ""
    """... and why it is being stopped ..."""
    lacks_room: bool = False
    """... and whether its refusal was for want of room, which another sandbox of its tenant may give."""
    lenders: tuple[str, ...] = ()
    """Containers whose stored objects its rows may name: it began with their files."""
    processes_seen: int = 0
    """Counts the times that processes were left behind by a command, or may be ..."""
    quiet_mark: str = ""
    """... and ``incarnation:processes_seen`` of the latest command that left none, with its files stored."""
    is_auto: bool = False
    """Made by a response that asked for ``container_auto``."""
    is_internal: bool = False
    """Made for work that no client asked a container for: in no list, and a 404 to every client."""

    has_setup: bool = False
    """Whether its sandboxes begin with variables and commands (``containers/setup.py``) ..."""
    is_set_up: bool = False
    """... and these have run to their end in one of them ..."""
    setup_error: str = ""
    """... or failed in the first, so that there is no other."""
    environment: Literal["", "prewarmed", "session"] = ""
    """The environment of an agent: made by itself, or with its session; empty for another container."""
    packages: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What its sandboxes begin with beside (``containers/packages.py``)."""
    plugins: Sequence[Mapping[str, str]] = ()
    """``name`` and ``description`` of each plugin that it was given; their skills are rows."""
    is_ready_told: bool = False
    """Webhook endpoints know that the first sandbox of a prewarmed one has been there."""
    is_read_only: bool = False
    """Its files stay as they were when it was made: commands and clients can read them."""

    @property
    def expires_at(self) -> int:
        """Unix seconds of its expiry without further use."""
        return self.last_active_at + self.idle_minutes * 60

    def seconds_left(self, now: float) -> float:
        """Until the owner of its sandbox ends it; without end if it never does."""
        return self.ends_at - now if self.ends_at else float("inf")

    @property
    def quiet_now(self) -> str:
        """The ``quiet_mark`` of an idle sandbox: no process lives, and all files are stored.

        Counting and marking need no order: the marking process has read the count before its command began.
        """
        return f"{self.incarnation}:{self.processes_seen}"

    @property
    def is_quiet(self) -> bool:
        """Whether its sandbox may be ended without a last look."""
        return self.quiet_mark == self.quiet_now

    @property
    def sandbox_id(self) -> str | None:
        """Its sandbox; None if it has none, or its id is not known yet."""
        return None if self.sandbox is None else self.sandbox.sandbox_id


@dataclass(frozen=True, slots=True)
class ContainerFileRecord:
    tenant_id: str
    container_id: str
    path: str
    """Absolute, below ``/mnt/data/``."""
    bytes: int
    created_at: int
    source: Source
    sha256: str
    key: str
    """Where its bytes are in the bucket."""
    staged_in: int = 0
    """The incarnation whose sandbox has it; 0 if none has had it yet."""
    stamp: str | None = None
    """Time, size and inode of the file in that sandbox; a difference means that it was changed."""

    origin: str | None = None
    """SHA-256 of what the user put there, even if it has been changed since: giving the same again changes nothing."""
    written_at_ms: int = 0
    """When this content came here: by the clock, but always later than the rows that were there; 0 if an older version wrote it."""
    upload_id: str = ""
    """The file of the Files API of which the user put a copy there, even if it has been changed since."""

    @property
    def id(self) -> str:
        return container_file_id(self.container_id, self.path)

    @property
    def filename(self) -> str:
        return self.path.rsplit("/", 1)[-1]


def container_file_id(container_id: str, path: str) -> str:
    """The same path in the same container is the same file for every writer of its row."""
    return "cfile_" + hashlib.sha256(f"{container_id}\0{path}".encode()).hexdigest()[:32]


class ContainerStore:
    def __init__(
        self,
        table: Table,
        *,
        clock: Clock,
        retention_seconds: int,
        strict_expiry: bool = False,
        auto_idle_seconds: int = 0,
        bounds: SandboxBounds = NO_BOUNDS,
        usage: SandboxUsage | None = None,
    ) -> None:
        """``bounds`` are those of a tenant's sandboxes. ``usage`` counts their time."""
        self._table = table
        self.live = LiveSandboxes(table, bounds, usage, clock=clock)
        self._clock = clock
        self._retention_seconds = retention_seconds
        self._strict_expiry = strict_expiry
        self._auto_idle_seconds = auto_idle_seconds

    async def create(
        self,
        tenant_id: str,
        *,
        name: str,
        idle_minutes: int,
        memory_limit: str,
        network_policy: Mapping[str, Any],
        programs: str = "",
        lenders: tuple[str, ...] = (),
        is_internal: bool = False,
        is_auto: bool = False,
        environment: Literal["", "prewarmed", "session"] = "",
        packages: Mapping[str, Sequence[str]] | None = None,
        plugins: Sequence[Mapping[str, str]] = (),
        container_id: str | None = None,
        is_read_only: bool = False,
    ) -> ContainerRecord:
        """``lenders``: it is to begin with files of these. ``container_id`` is a new one if it is not given.

        Then its first sandbox is a later one to its model, and the model reads that no processes came along.
        """
        exactly = self._clock()
        now = int(exactly)
        record = ContainerRecord(
            tenant_id=tenant_id,
            id=container_id or new_listed_id("cntr", exactly),
            name=name,
            created_at=now,
            last_active_at=now,
            idle_minutes=idle_minutes,
            memory_limit=memory_limit,
            network_policy=network_policy,
            programs=programs,
            incarnation=1 if lenders else 0,
            lenders=lenders,
            is_internal=is_internal,
            environment=environment,
            is_auto=is_auto,
            packages=packages or {},
            plugins=plugins,
            has_setup=bool(packages),
            is_read_only=is_read_only,
        )
        await self._table.write_many(puts=[_container_record(record), self._purge_record(record)])
        return record

    async def get(self, tenant_id: str, container_id: str, *, param: str | None = None) -> ContainerRecord:
        """The container; unknown, foreign and deleted ones are all 404."""
        container = await self.peek(tenant_id, container_id)
        if container is None or container.is_deleted:
            raise container_not_found(container_id, param=param)
        return container

    async def peek(self, tenant_id: str, container_id: str) -> ContainerRecord | None:
        """The record, also of a container that is being erased."""
        record = await self._table.get(keys.container(tenant_id, container_id), keys.META)
        return None if record is None else CONTAINER.unpack(record)

    async def peek_many(self, tenant_id: str, container_ids: Iterable[str]) -> list[ContainerRecord]:
        """The same of many, in no particular order."""
        places = [(keys.container(tenant_id, container_id), keys.META) for container_id in container_ids]
        return [CONTAINER.unpack(record) for record in await self._table.get_many(places, consistent=True)]

    async def page(self, tenant_id: str, page: PageQuery, *, name: str | None = None) -> Page[ContainerRecord]:
        found = await read_page(
            self._table,
            tenant_id,
            KIND,
            page,
            pk_of=keys.container,
            keep=lambda record: not record["is_deleted"] and name in (None, record["name"]),
        )
        return found.read(CONTAINER.unpack)

    async def touch(self, container: ContainerRecord) -> ContainerRecord:
        """Note that it is in use; writes at most every ``CONTAINER_TOUCH_SECONDS``."""
        now = int(self._clock())
        if now - container.last_active_at < limits.CONTAINER_TOUCH_SECONDS:
            return container
        return await self.change(container, set={"last_active_at": now})

    async def use(self, container: ContainerRecord) -> ContainerRecord:
        """Note that it is to be used: an expired one comes back to life, or is refused if expiry is strict."""
        if self._strict_expiry and self.is_expired(container):
            raise container_expired(container.id)
        return await self.touch(container)

    def is_expired(self, container: ContainerRecord) -> bool:
        return container.expires_at <= self._clock()

    async def change(
        self,
        container: ContainerRecord,
        *,
        set: Mapping[str, Any] | None = None,
        add: Mapping[str, int] | None = None,
        condition: Mapping[str, Any] | None = None,
    ) -> ContainerRecord:
        """Change attributes of the record; raises ``ConditionFailed`` if it stands otherwise than ``condition`` says."""
        record = await self._table.update(
            keys.container(container.tenant_id, container.id), keys.META, set=set, add=add, condition=condition
        )
        return CONTAINER.unpack(record)

    async def turn(
        self,
        container: ContainerRecord,
        sandbox: SandboxRecord,
        *,
        also: Mapping[str, Any] | None = None,
        condition: Mapping[str, Any] | None = None,
    ) -> ContainerRecord:
        """Give the container's sandbox another state, or another note in the same, and ``also`` change other attributes;
        ``ConditionFailed`` unless the sandbox stands as ``container`` has it."""
        _check_turn(container, sandbox)
        return await self.change(
            container,
            set={"sandbox": _sandbox_attribute(sandbox), **(also or {})},
            condition={"sandbox": _sandbox_attribute(container.sandbox), **(condition or {})},
        )

    async def note_processes(self, container: ContainerRecord) -> None:
        """A process lives in the present sandbox, or will in a moment."""
        with suppress(ConditionFailed):
            await self.change(container, add={"processes_seen": 1}, condition={"incarnation": container.incarnation})

    async def note_quiet(self, container: ContainerRecord) -> None:
        """None does, as of a command that began when ``container`` was read, and its files are stored."""
        with suppress(ConditionFailed):
            await self.change(container, set={"quiet_mark": container.quiet_now}, condition={"incarnation": container.incarnation})

    async def forget_sandbox(self, container: ContainerRecord) -> None:
        """This incarnation is stopped, even if it was noted otherwise meanwhile; ``ConditionFailed`` if it is not the last."""
        _check_turn(container, None)
        await self.change(container, set={"sandbox": None}, condition={"incarnation": container.incarnation})

    async def begin_life(self, container: ContainerRecord) -> None:
        """Before the container's sandbox is started: count it among its tenant's, and have it looked after. Harmless to repeat.
        Raises as :meth:`LiveSandboxes.begin` does."""
        known = None if container.sandbox is None else container.sandbox.sandbox_id
        await self.live.begin(self._life_record(container, known))

    async def put_life(self, container: ContainerRecord, sandbox_id: str | None) -> None:
        """Make sure that the container's present sandbox is looked after, even if all processes that know of it die."""
        await self._table.put(self._life_record(container, sandbox_id))

    async def end_life(self, container: ContainerRecord, *, is_refused: bool = False) -> None:
        """The container's last sandbox is known to be stopped, or was never started."""
        await self.live.end(self._life_record(container, None), is_refused=is_refused)

    async def due(self, now: float) -> list[Record]:
        """Due ``LIFE#`` and ``PURGE`` records."""
        entries = await self._table.query(keys.ALIVE, up_to=keys.due(int(now), "~"), index=schema.INDEX)
        return await self._table.get_many((entry["PK"], entry["SK"]) for entry in entries)

    async def lives(self, tenant_id: str, container_id: str) -> list[Record]:
        """The ``LIFE#`` records of a container: sandboxes that run, or may run."""
        return await self._table.query(keys.container(tenant_id, container_id), prefix=keys.life.prefix)

    async def drop(self, due_record: Record) -> None:
        """Delete a due record, unless it has been changed meanwhile: a starter may just have learnt its sandbox."""
        seen = {name: value for name, value in due_record.items() if name in ("GSI1SK", "sandbox_id")}
        with suppress(ConditionFailed):
            await self.live.end(due_record, seen=seen)

    async def postpone(self, due_record: Record, until: int) -> None:
        """Look at a due record again at ``until`` (Unix seconds), unless it has been changed meanwhile."""
        with suppress(ConditionFailed):
            await self._table.update(
                due_record["PK"],
                due_record["SK"],
                set={"GSI1SK": keys.due(until, due_record["container_id"])},
                condition={"GSI1SK": due_record["GSI1SK"]},
            )

    async def claim(self, due_record: Record, now: float) -> bool:
        """Look after a due record alone; False while somebody else does. It ends with its time, and when the record is put off."""
        held = due_record.get("claim")
        if held is not None and held["due"] == due_record["GSI1SK"] and 0 < held["until"] - now <= limits.SWEEP_CLAIM_SECONDS:
            return False
        seen = {"GSI1SK": due_record["GSI1SK"]} | ({} if held is None else {"claim": held})
        claim = {"due": due_record["GSI1SK"], "until": int(now) + limits.SWEEP_CLAIM_SECONDS}
        absent = () if held is not None else ("claim",)
        try:
            await self._table.update(due_record["PK"], due_record["SK"], set={"claim": claim}, condition=seen, absent=absent)
        except ConditionFailed:
            return False
        return True

    def idle_at(self, container: ContainerRecord) -> int:
        """Unix seconds of the earliest stop of its sandbox, though the container does not expire before ``expires_at``."""
        early = container.last_active_at + self._auto_idle_seconds
        return min(early, container.expires_at) if container.is_auto and self._auto_idle_seconds else container.expires_at

    def before_end(self, container: ContainerRecord, at: int) -> int:
        """When its sandbox is to be looked at that would be looked at then: in time before its owner ends it."""
        return min(at, container.ends_at - limits.SANDBOX_STORED_SECONDS) if container.ends_at else at

    def purge_at(self, container: ContainerRecord) -> int:
        """Unix seconds of the end of all content of an unused container."""
        return container.expires_at + (0 if container.is_internal else self._retention_seconds)

    async def mark_deleted(self, container: ContainerRecord) -> None:
        """From here on it is a 404; the sweep finishes the rest of its deletion."""
        pk = keys.container(container.tenant_id, container.id)
        await self._table.put(self._purge_record(container) | {"GSI1SK": keys.due(0, container.id)})
        await self._table.update(pk, keys.META, set={"is_deleted": True})

    async def erase(self, tenant_id: str, container_id: str) -> None:
        """Remove the records of a container but for those of its sandboxes, of its loans, and the mark of its place in the list.

        ``PURGE`` stays for another round: a step that began before the deletion may still write.
        """
        pk = keys.container(tenant_id, container_id)
        records = {record["SK"]: record for record in await self._table.query(pk)}
        meta, purge = records.pop(keys.META, None), records.pop(keys.PURGE, None)
        deletes = [(pk, sk) for sk in records if not sk.startswith((keys.life.prefix, keys.lent.prefix, keys.GONE))]
        marks = [] if meta is None else [gone_record(pk, keys.GONE, meta["created_at"], container_id, self._clock())]
        await self._table.write_many(puts=marks, deletes=deletes)
        if meta is not None:
            # META goes after all else: an eraser that dies is found again by PURGE, and the container is deleted until then.
            if purge is not None:
                await self.postpone(purge, int(self._clock()) + limits.CONTAINER_ERASE_AGAIN_SECONDS)
            await self._table.delete(pk, keys.META)
        elif purge is not None:
            await self._table.delete(pk, keys.PURGE)

    async def files(self, container: ContainerRecord) -> list[ContainerFileRecord]:
        """All file rows, in no particular order."""
        pk = keys.container(container.tenant_id, container.id)
        files, breath = list[ContainerFileRecord](), Breath()
        for record in await self._table.query(pk, prefix=keys.container_file.prefix):
            files.append(CONTAINER_FILE.unpack(record))
            await breath.taken()
        return files

    async def file(self, container: ContainerRecord, file_id: str) -> ContainerFileRecord:
        pk = keys.container(container.tenant_id, container.id)
        record = await self._table.get(pk, keys.container_file(file_id))
        if record is None:
            raise container_file_not_found(file_id)
        return CONTAINER_FILE.unpack(record)

    async def file_page(self, container: ContainerRecord, page: PageQuery) -> Page[ContainerFileRecord]:
        """One page of the files by time of creation. All rows are read: a container has at most ``ARTIFACTS_MAX``."""
        places = {keys.listed(file.created_at, file.id): file for file in await self.files(container)}
        order = sorted(places, reverse=page.order == "desc")
        if page.after is not None:
            after = await self._file_place(container, page.after)
            order = [place for place in order if (place < after if page.order == "desc" else place > after)]
        return Page.of(order, page.limit).read(places.__getitem__)

    async def put_files(self, files: Iterable[ContainerFileRecord]) -> None:
        await self._table.write_many(puts=[_file_record(file) for file in files])

    async def replace_files(
        self, puts: Sequence[ContainerFileRecord], deletes: Sequence[ContainerFileRecord], before: Mapping[str, ContainerFileRecord]
    ) -> dict[str, ContainerFileRecord | None]:
        """Put and delete rows that a sandbox has changed, where nobody else has changed them. ``before`` has the rows as they were, by
        path: the sandbox had their files.

        The answer has the paths whose rows stay, with the row that stands there (None: there is none).
        """
        files = [*puts, *deletes]
        writes = [replace(Write.put(_file_record(file)), **_unchanged(before.get(file.path))) for file in puts]
        writes += [Write(pk_of_file(file), keys.container_file(file.id), is_end=True, **_unchanged(file)) for file in deletes]
        await self._table.write_many(puts=map(self._gone_record, deletes))
        failed = await self._table.write_each(writes)
        return {files[index].path: None if there is None else CONTAINER_FILE.unpack(there) for index, there in failed.items()}

    async def mark_staged(self, file: ContainerFileRecord, incarnation: int, stamp: str | None) -> ContainerFileRecord:
        """Note that a sandbox has this very content; ``ConditionFailed`` if the row was deleted or replaced meanwhile."""
        changed, same = {"staged_in": incarnation, "stamp": stamp}, {"sha256": file.sha256}
        await self._table.update(pk_of_file(file), keys.container_file(file.id), set=changed, condition=same)
        return replace(file, staged_in=incarnation, stamp=stamp)

    async def delete_files(self, files: Iterable[ContainerFileRecord]) -> None:
        """Delete rows; harmless to repeat. Their places in the list stay marked for a while."""
        doomed = list(files)
        await self._table.write_many(
            puts=map(self._gone_record, doomed), deletes=[(pk_of_file(file), keys.container_file(file.id)) for file in doomed]
        )

    async def delete_file(self, file: ContainerFileRecord) -> bool:
        """The same of one file; False if somebody else has deleted it."""
        is_mine = await self._table.delete(pk_of_file(file), keys.container_file(file.id)) is not None
        await self.delete_files([file])
        return is_mine

    def _gone_record(self, file: ContainerFileRecord) -> Record:
        """Marks its place in the list for a while."""
        return gone_record(pk_of_file(file), keys.gone(file.id), file.created_at, file.id, self._clock())

    async def _file_place(self, container: ContainerRecord, file_id: str) -> str:
        pk = keys.container(container.tenant_id, container.id)
        records = await self._table.get_many([(pk, keys.container_file(file_id)), (pk, keys.gone(file_id))])
        for record in records:
            return keys.listed(record["created_at"], file_id)
        raise unknown_after(file_id)

    def _life_record(self, container: ContainerRecord, sandbox_id: str | None) -> Record:
        return {
            "PK": keys.container(container.tenant_id, container.id),
            "SK": keys.life(container.incarnation),
            "GSI1PK": keys.ALIVE,
            "GSI1SK": keys.due(self.before_end(container, self.idle_at(container)), container.id),
            "tenant_id": container.tenant_id,
            "container_id": container.id,
            "incarnation": container.incarnation,
            "sandbox_id": sandbox_id,
            "cpu": limits.SANDBOX_CPU_UNITS[container.memory_limit],
        }

    def _purge_record(self, container: ContainerRecord) -> Record:
        return {
            "PK": keys.container(container.tenant_id, container.id),
            "SK": keys.PURGE,
            "GSI1PK": keys.ALIVE,
            "GSI1SK": keys.due(self.purge_at(container), container.id),
            "tenant_id": container.tenant_id,
            "container_id": container.id,
        }


def pk_of_file(file: ContainerFileRecord) -> str:
    return keys.container(file.tenant_id, file.container_id)


def as_object(container: ContainerRecord, *, now: float) -> Container:
    """The wire's Container object; ``expires_at`` is an addition of ours."""
    return {
        "id": container.id,
        "object": "container",
        "created_at": container.created_at,
        "status": "expired" if container.expires_at <= now else "running",
        "expires_after": {"anchor": "last_active_at", "minutes": container.idle_minutes},
        "expires_at": container.expires_at,
        "last_active_at": container.last_active_at,
        "memory_limit": cast("MemoryLimit", container.memory_limit),
        "network_policy": cast("PolicyShown", dict(container.network_policy)),
        "name": container.name,
    }


def file_as_object(file: ContainerFileRecord) -> ContainerFile:
    """The wire's container file object."""
    return {
        "id": file.id,
        "object": "container.file",
        "bytes": file.bytes,
        "container_id": file.container_id,
        "created_at": file.created_at,
        "path": file.path,
        "source": file.source,
    }


def _check_turn(container: ContainerRecord, sandbox: SandboxRecord | None) -> None:
    before = None if container.sandbox is None else container.sandbox.state
    after = None if sandbox is None else sandbox.state
    assert after == before or after in SANDBOX_TRANSITIONS[before], f"the sandbox of {container.id} cannot go from {before} to {after}"


_SANDBOX: Final = Codec(SandboxRecord, sparse=("refusal", "refused_at"))
CONTAINER: Final = Codec(
    ContainerRecord,
    nested={"sandbox": _SANDBOX},
    sparse=(
        *("ordered_at_ms", "running_at_ms", "ending", "lacks_room", "processes_seen", "quiet_mark", "is_auto", "ends_at"),
        *("has_setup", "is_set_up", "setup_error", "environment", "is_ready_told", "packages", "plugins", "is_read_only"),
    ),
)
CONTAINER_FILE: Final = Codec(ContainerFileRecord, sparse=("upload_id",))


def _unchanged(file: ContainerFileRecord | None) -> dict[str, Any]:
    """The conditions of a write to a row: it is as it was, which its place in the sandbox tells, or is still not there."""
    return {"is_there": False} if file is None else {"condition": {"staged_in": file.staged_in, "stamp": file.stamp}}


def _sandbox_attribute(sandbox: SandboxRecord | None) -> Record | None:
    return None if sandbox is None else _SANDBOX.pack(sandbox)


def _container_record(container: ContainerRecord) -> Record:
    listed = {} if container.is_internal else listing_attributes(container.tenant_id, KIND, container.created_at, container.id)
    return {
        "PK": keys.container(container.tenant_id, container.id),
        "SK": keys.META,
        **listed,
        **CONTAINER.pack(container),
    }


def _file_record(file: ContainerFileRecord) -> Record:
    return {"PK": pk_of_file(file), "SK": keys.container_file(file.id), **CONTAINER_FILE.pack(file)}
