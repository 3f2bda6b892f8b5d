"""The life of a container: a record, its stored files, and now and then a sandbox.

A container is made by a write and has no sandbox until somebody wants to run a command in it. It loses its sandbox by idleness, by
accident or on purpose, and gets another one, with its files, under the same id. Each sandbox is one *incarnation*, counted on the
record; it runs through

    (none) -> starting -> running -> stopping -> (none)

or leaves that way early (``containers/store.py: SANDBOX_TRANSITIONS`` has every arrow), and every arrow is a conditional write, so
that of many processes that want the same thing one does it:

* ``starting`` carries a claim with an end (``containers/claims.py``). The claimant starts the sandbox and writes the files into it
  (``containers/staging.py``), renewing its claim; the others are told to come back. A claim that has run out is taken over, with the
  same incarnation.
* ``running`` is believed only as long as the exec server answers.
* ``stopping`` comes before the stop, so that a sandbox that is being stopped is never handed out; any process that meets it may finish
  it.

On AWS no process can do it all: ECS is asked from outside the sandboxes' network, sandboxes are reached from inside (an endpoint that
would join the two costs $7.30 a month). So a ``starting`` sandbox may be *placed*: the claimant outside has noted its future address,
and the one inside goes on from there. A ``stopping`` one is noted inside and stopped outside. A process that meets another's step
raises :class:`SandboxElsewhere`, and the loop continues by way of the other. :meth:`Sandboxes.place` is the outside's part of
:meth:`Sandboxes.ensure`, ``Sweep.retire_idle`` the inside's of ``Sweep.expire_due``.

Every sandbox also has a ``LIFE#`` record, from before its start until its stop is known. The sweep (``containers/sweep.py``) finds by
it the sandboxes that dead processes have left running.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

from moorage import limits
from moorage.containers.announcements import Announcements
from moorage.containers.claims import Claims, new_claim
from moorage.containers.incarnations import Incarnations
from moorage.containers.setup import Setups
from moorage.containers.staging import Staging
from moorage.containers.store import CONTAINER, ContainerRecord, ContainerStore, End, SandboxRecord
from moorage.dataclass import dataclass
from moorage.errors import (
    ConditionFailed,
    SandboxCapacity,
    SandboxElsewhere,
    SandboxError,
    SandboxGone,
    SandboxHostAway,
    SandboxOrdered,
    SandboxSettingUp,
    SandboxStarting,
    SandboxUnreachable,
    SetupFailed,
    TenantCapacity,
)
from moorage.sandbox.by_tier import Reaches
from moorage.sandbox.desk_client import DeskClient
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.provisioner import Handle, Provisioner, SandboxSpec
from moorage.store.sandbox_history import ContainerLives
from moorage.store.table import TABLE_ERRORS, Record
from moorage.telemetry import Metric, tell


@dataclass(frozen=True, slots=True)
class LiveContainer:
    """A container with a sandbox that answers. Use as ``async with`` or close it."""

    record: ContainerRecord
    handle: Handle
    client: ExecClient
    notes: tuple[str, ...] = ()
    """Words for the model about stored files that could not be written into the sandbox."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.client.aclose()

    async def aclose(self) -> None:
        await self.client.aclose()


class ContainerSandboxes:
    def __init__(
        self,
        store: ContainerStore,
        provisioner: Provisioner,
        claims: Claims,
        staging: Staging,
        incarnations: Incarnations,
        lives: ContainerLives,
        connect: Callable[[Handle], ExecClient] | None,
        *,
        reaches: Reaches | None = None,
        setups: Setups,
        announcements: Announcements,
        gives_way: Callable[[str], Awaitable[bool]],
        can_start: bool = True,
    ) -> None:
        """``connect`` None: sandboxes cannot be reached from here, only started and stopped. ``reaches``: which of them can be;
        without it all. ``can_start`` False: they are started elsewhere, and counted there. ``gives_way`` is asked for room for
        another one of a tenant's if sandboxes cannot be reached (``Waiting.stops_noted``)."""
        self._store = store
        self._provisioner = provisioner
        self._claims = claims
        self._staging = staging
        self._incarnations = incarnations
        self._lives = lives
        self._connect = connect
        self._reaches = reaches
        self._setups = setups
        self._announcements = announcements
        self._gives_way = gives_way
        self.can_start = can_start

    async def ensure(self, tenant_id: str, container_id: str, *, seen: Record | None = None) -> LiveContainer:
        """The container with a running sandbox that has all its files. ``seen`` is its record, if the caller has just read it.

        Starts or revives the sandbox. Raises :class:`SandboxStarting` while it is not there (call again; :class:`SandboxElsewhere` if
        :meth:`place` has to be called first, in another place), :class:`SandboxCapacity` when none can be had, and
        ``container_expired`` in strict mode. Safe to call from anywhere at any time, and twice at once.
        """
        known = None if seen is None else CONTAINER.unpack(seen)
        if known is None or known.is_deleted:
            known = await self._store.get(tenant_id, container_id)
        record = await self._store.use(known)
        if record.setup_error:
            raise SetupFailed(record.setup_error)
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            try:
                return await self._advance(record)
            except ConditionFailed:
                record = await self._store.get(tenant_id, container_id)
            except SandboxElsewhere:
                self._claims.say_refusal(await self._store.get(tenant_id, container_id))
                raise
        raise SandboxStarting(limits.CONTAINER_POLL_SECONDS)

    @asynccontextmanager
    async def desk(self, live: LiveContainer, *, starts: bool = True) -> AsyncIterator[DeskClient]:
        """The browser beside a container's commands. Raises :class:`DeskUnavailable` if there can be none, or without ``starts`` if
        there is none."""
        handle = await self._provisioner.desk(live.handle, starts=starts)
        if handle == live.handle or self._connect is None:
            yield DeskClient(live.client)
            return
        async with self._connect(handle) as client:
            yield DeskClient(client)

    async def bring_files(self, live: LiveContainer) -> bool:
        """Give the sandbox, while a command runs in it, what clients added since, and take what they deleted. False if it can have no
        more: it is another's turn by now, or it does not take a file. The next command hears of that. Harmless to run twice at once."""
        record = await self._store.get(live.record.tenant_id, live.record.id)
        if record.incarnation != live.record.incarnation or record.sandbox is None or record.sandbox.state != "running":
            return False
        if record.files_added > record.files_staged:
            if await self._bring(record, live.client):
                return False
            with suppress(ConditionFailed):  # More has come: the next look has it.
                await self._note_brought(record)
        return True

    async def running(self, tenant_id: str, container_id: str) -> LiveContainer | None:
        """The sandbox that the container has now; None if it has none that answers. Starts nothing."""
        record = await self._store.peek(tenant_id, container_id)
        if record is None or not self.reaches(record) or record.sandbox is None or record.sandbox.state != "running":
            return None
        return await self._attach(record)

    async def place(self, tenant_id: str, container_id: str) -> None:
        """Have a sandbox started for the container, because it will soon be wanted: while the model thinks, or after a tool step has
        come back without. Looks into none that runs: from outside their network a healthy one looks dead.

        If sandboxes cannot be reached, it stays until one is placed, at most ``SANDBOX_WAIT_SECONDS``, unless somebody else will
        hear of it (:meth:`announce`). The obstacle is noted, for the tool step to say. Safe to call at any time, and twice at once.
        """
        record = await self._store.get(tenant_id, container_id)
        if record.setup_error:
            return
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            try:
                await self._place(record)
            except ConditionFailed:
                record = await self._store.get(tenant_id, container_id)
            except SandboxError:
                return  # it is noted
            else:
                return

    async def announce(
        self, tenant_id: str, container_id: str, sandbox_id: str, endpoint: str | None, is_of: Callable[[str], bool]
    ) -> bool:
        """Note that a sandbox that was ordered runs at ``endpoint``, or (None) that it has ended before anybody took it up; False if
        nobody waits for it. ``is_of`` tells by its token whether it is the incarnation's. Harmless to run twice."""
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            record = await self._store.peek(tenant_id, container_id)
            if record is None or record.is_deleted or record.sandbox is None or record.sandbox.state != "starting":
                return False
            has_ended = endpoint is None and record.sandbox.sandbox_id == sandbox_id
            if record.sandbox.endpoint is not None and not has_ended:
                return False
            if not is_of(self._incarnations.token_of(record.id, record.incarnation)):
                return False
            # The claim ends with it: the next one to come goes on, with the sandbox or with another order.
            noted = replace(record.sandbox, claimed_until=0)
            if endpoint is not None:
                noted = replace(noted, sandbox_id=sandbox_id, endpoint=endpoint)
            elif record.sandbox.endpoint is not None:
                # Whoever waits for it to listen must not write its address back.
                noted = replace(noted, claim=new_claim(), endpoint=None)
            with suppress(ConditionFailed):
                await self._claims.write(record, noted)
                await self._store.put_life(record, sandbox_id)
                return True
        return False

    def reaches(self, record: ContainerRecord) -> bool:
        """Whether the record's sandbox, or the one that it will get, can be reached from here, and not only started and stopped."""
        return self._can_reach(record.memory_limit, record.sandbox_id)

    def reaches_new(self, memory_limit: str) -> bool:
        """The same of a container that is not there yet."""
        return self._can_reach(memory_limit, None)

    def _can_reach(self, memory_limit: str, sandbox_id: str | None) -> bool:
        return self._connect is not None and (self._reaches is None or self._reaches(memory_limit, sandbox_id))

    def reach(self, record: ContainerRecord, *, looks_only: bool = False) -> LiveContainer:
        """The running sandbox of the record, without a check that it answers. A mere look wakes no sleeping one."""
        handle = self._incarnations.handle(record)
        client = self._client(handle)
        if looks_only:
            client.looks_only()
        return LiveContainer(record, handle, client)

    async def find(self, tenant_id: str, container_id: str, incarnation: int) -> str | None:
        """The sandbox that this incarnation's starter has begun, though it did not write it down; None if there is none."""
        token = self._incarnations.token_of(container_id, incarnation)
        return await self._provisioner.find(SandboxSpec(tenant_id, container_id, token))

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
        try:
            if await self._answers(live.client):
                return False
        except SandboxUnreachable:
            return False
        record = await self._store.get(live.record.tenant_id, live.record.id)
        if record.incarnation == live.record.incarnation and record.sandbox is not None:
            with suppress(SandboxElsewhere, SandboxHostAway):
                await self.end(record, record.sandbox_id, "lost")
        return True

    async def end(self, record: ContainerRecord, sandbox_id: str | None, end: End) -> None:
        """Stop the record's sandbox, if it is known, note why, and forget it. The stop comes first: a new incarnation must not find
        it."""
        if sandbox_id is not None:
            try:
                await self._provisioner.stop(sandbox_id)
            except SandboxElsewhere:
                assert record.sandbox is not None
                stopping = replace(record.sandbox, state="stopping", sandbox_id=sandbox_id)
                if stopping != record.sandbox:
                    await self._claims.write(record, stopping, ending=record.ending or end)
                raise
        await self._incarnations.close_way_out(record)
        await self._lives.note_end(record, end, self._claims.now_ms())
        await self._announcements.of_end(record, end)
        try:
            await self._store.forget_sandbox(record)
        except ConditionFailed:
            return  # a newer incarnation has begun, or the container is erased
        await self._store.end_life(record)

    async def _place(self, record: ContainerRecord) -> None:
        match record.sandbox:
            case SandboxRecord(state="running"):
                return
            case SandboxRecord(state="starting") if self._claims.seconds_left(record) > 0:
                return
            case SandboxRecord(state="stopping"):
                await self._end_or_note(record)
                await self._place(await self._store.get(record.tenant_id, record.id))
            case SandboxRecord(state="starting"):
                await self._place_claimed(await self._claims.take(record, record.incarnation))
            case None:
                await self._place_claimed(await self._claims.take(record, record.incarnation + 1))

    async def _place_claimed(self, record: ContainerRecord) -> None:
        if self.reaches(record):
            await (await self._start(record)).aclose()
            return
        began = time.perf_counter()
        handle = await self._begin(record, seconds=limits.SANDBOX_WAIT_SECONDS)
        placed = SandboxRecord("starting", _claim_of(record), sandbox_id=handle.sandbox_id, endpoint=handle.endpoint)
        await self._claims.write(record, placed)
        _tell_started(record, began)

    async def _end_or_note(self, record: ContainerRecord) -> None:
        """``SandboxStarting``: the provisioner is throttled. That is waited for as in :meth:`_begin`."""
        deadline = _now() + limits.SANDBOX_WAIT_SECONDS
        while True:
            try:
                return await self.end(record, record.sandbox_id, "lost")
            except SandboxStarting as error:
                if _now() + error.retry_after_seconds >= deadline:
                    raise
                await asyncio.sleep(error.retry_after_seconds)
            except SandboxError as error:
                await self._claims.note_refusal(record, error)
                raise

    async def _advance(self, record: ContainerRecord) -> LiveContainer:
        """One step towards a running sandbox; ``ConditionFailed`` if somebody else took it."""
        if not self.reaches(record):
            raise SandboxElsewhere
        match record.sandbox:
            case None:
                return await self._start(await self._claims.take(record, record.incarnation + 1))
            case SandboxRecord(state="starting"):
                if self._claims.seconds_left(record) > 0:
                    raise (SandboxSettingUp if record.has_setup else SandboxStarting)(limits.CONTAINER_POLL_SECONDS)
                return await self._start(await self._claims.take(record, record.incarnation))
            case SandboxRecord(state="running"):
                live = await self._attach(record)
                if live is not None and not await self._is_outlived(live):
                    return live
                await self.end(record, record.sandbox_id, "lost" if live is None else "limit")
            case SandboxRecord(state="stopping"):
                await self.end(record, record.sandbox_id, "lost")
        return await self._advance(await self._store.get(record.tenant_id, record.id))

    async def _begin(self, record: ContainerRecord, *, seconds: float = 0) -> Handle:
        """The present or future address of the claimed incarnation; waits so long for one that is on its way, or for room.

        When it raises, the claim has been given up. Repeating it finds the same sandbox.
        """
        deadline = _now() + seconds
        try:
            spec = await self._incarnations.spec(record)
            while True:
                try:
                    handle = await self._started(record, spec)
                    break
                except SandboxOrdered:
                    raise
                except (SandboxStarting, SandboxCapacity) as error:
                    pause = _pause(error)
                    if isinstance(error, SandboxCapacity) and not self.reaches(record) and await self._has_room_now(record, error):
                        pause = 0
                    if _now() + pause >= deadline:
                        raise
                await asyncio.sleep(pause)
        except SandboxOrdered:
            raise  # the claim stays, so that nobody orders again before it could be there
        except (SandboxError, asyncio.CancelledError) as error:
            with suppress(ConditionFailed):
                await self._claims.release(record, error)
            raise
        return handle

    async def _started(self, record: ContainerRecord, spec: SandboxSpec) -> Handle:
        """When it is cancelled, a start that soon ends is noted first: without its id, a sandbox of a deleted container would keep its
        place until the start's lease is over."""
        starting = asyncio.ensure_future(self._start_and_note(record, spec))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait({starting}, timeout=limits.CANCELLED_START_SECONDS)
            raise
        finally:
            starting.cancel()

    async def _start_and_note(self, record: ContainerRecord, spec: SandboxSpec) -> Handle:
        if self.can_start:
            await self._store.begin_life(record)
        try:
            handle = await self._provisioner.start(spec)
        except SandboxOrdered as ordered:
            await self._store.put_life(record, ordered.sandbox_id)
            raise
        except SandboxCapacity:
            # None was started: it must not count among its tenant's until somebody looks why it idles.
            if self.can_start:
                with suppress(ConditionFailed):
                    await self._store.end_life(record, is_refused=True)
            raise
        await self._store.put_life(replace(record, ends_at=handle.ends_at), handle.sandbox_id)
        return handle

    async def _has_room_now(self, record: ContainerRecord, error: SandboxCapacity) -> bool:
        """Whether another sandbox of the tenant has just been stopped, so that its place is free at once.

        Raises the error if one is idle that has to be noted inside first: the tool step does it.
        """
        try:
            has_given = await self._gives_way(record.tenant_id)
        except SandboxElsewhere:
            raise error from None
        return has_given and isinstance(error, TenantCapacity)  # What AWS lacks it has once the task is cleared away.

    async def _start(self, record: ContainerRecord) -> LiveContainer:
        """Start the claimed incarnation, or find its placed sandbox, and give it its files."""
        began, was_placed = time.perf_counter(), record.sandbox is not None and record.sandbox.endpoint is not None
        handle = await self._begin(record)
        client = self._client(handle)
        try:
            # It may be one that a starter of an earlier incarnation left behind, with another token: that one must go.
            await client.health()
            counted = record.files_added  # Of files that come in from now on a renewed claim knows, and the list of rows may not.
            if record.has_skills:
                record = await self._staging.add_skills(record, client, all_of_them=True)
            record, notes = await self._staging.write(record, client, await self._store.files(record))
            record, said = await self._setups.run(record, client)
            notes += said
            running = SandboxRecord("running", _claim_of(record), sandbox_id=handle.sandbox_id, endpoint=handle.endpoint)
            written = {"files_staged": counted, "removals": [], "running_at_ms": self._claims.now_ms()}
            written |= {"is_set_up": True} if record.has_setup else {}
            written |= {"ends_at": handle.ends_at} if handle.ends_at else {}
            record = await self._claims.write(record, running, **written)
            record = await self._announcements.of_start(record)
        except SandboxUnreachable as error:
            await client.aclose()
            with suppress(ConditionFailed):
                await self._claims.release(record, error)
            raise
        except SetupFailed as error:
            await client.aclose()
            await self.end(replace(record, setup_error=str(error)), handle.sandbox_id, "failed")
            raise
        except SandboxError:
            await client.aclose()
            await self.end(record, handle.sandbox_id, "failed")
            raise SandboxStarting(limits.CONTAINER_POLL_SECONDS) from None
        except (asyncio.CancelledError, *TABLE_ERRORS) as error:
            await client.aclose()
            with suppress(ConditionFailed, *TABLE_ERRORS):
                await self._claims.release(record, error)
            raise
        except BaseException:
            await client.aclose()
            raise
        if not was_placed:
            _tell_started(record, began)
        live = LiveContainer(record, handle, client, notes)
        try:
            with suppress(ConditionFailed, SandboxError):  # What came in meanwhile the command can have while it runs.
                live = await self._caught_up(live)
        except BaseException:
            await live.aclose()
            raise
        return live

    async def _attach(self, record: ContainerRecord) -> LiveContainer | None:
        """The running sandbox, with the files that came in meanwhile; None if it does not answer."""
        live = self.reach(record)
        try:
            if not (live.client.has_just_answered or await self._answers(live.client)):
                await live.aclose()
                return None
            return await self._caught_up(live)
        except SandboxGone:
            async with live:
                if await self._answers(live.client):  # Only a connection was torn: it has its files next time.
                    raise SandboxStarting(limits.CONTAINER_POLL_SECONDS) from None
            return None
        except BaseException:
            await live.aclose()
            raise

    async def _caught_up(self, live: LiveContainer) -> LiveContainer:
        """The sandbox with the files that came in since its record counted them, and notes about those that it did not take."""
        record = live.record
        if record.files_added <= record.files_staged:
            return live
        notes = await self._bring(record, live.client)
        record = await self._note_brought(record)
        return replace(live, record=record, notes=(*live.notes, *notes))

    async def _bring(self, record: ContainerRecord, client: ExecClient) -> tuple[str, ...]:
        if record.has_skills:
            await self._staging.add_skills(record, client, all_of_them=False)
        for path in record.removals:
            await client.delete_file(path)
        rows = [row for row in await self._store.files(record) if row.staged_in != record.incarnation]
        _, notes = await self._staging.write(record, client, rows)
        return notes

    async def _note_brought(self, record: ContainerRecord) -> ContainerRecord:
        return await self._store.change(
            record,
            set={"files_staged": record.files_added, "removals": []},
            condition={"incarnation": record.incarnation, "files_added": record.files_added},
        )

    async def _is_outlived(self, live: LiveContainer) -> bool:
        """Whether it is better replaced now, before its owner ends it: nothing runs in it, or it has two minutes left.

        Its files are stored by then (``Sweep``). Closes it.
        """
        left = live.record.seconds_left(self._claims.now_ms() / 1000)
        if left > limits.SANDBOX_REPLACED_SECONDS:
            return False
        if left > limits.SANDBOX_LAST_SECONDS and (not live.record.is_quiet or (await live.client.health()).running > 0):
            return False
        await live.aclose()
        return True

    async def _answers(self, client: ExecClient) -> bool:
        try:
            await client.health()
        except SandboxUnreachable:
            raise
        except SandboxError:
            return False
        return True

    def _client(self, handle: Handle) -> ExecClient:
        assert self._connect is not None, f"{handle.sandbox_id} cannot be reached from here"
        return self._connect(handle)


def _now() -> float:
    """By the clock that pauses are counted on."""
    return asyncio.get_running_loop().time()


def _pause(error: SandboxStarting | SandboxCapacity) -> float:
    return error.retry_after_seconds if isinstance(error, SandboxStarting) else limits.SANDBOX_CAPACITY_RETRY_SECONDS


def _tell_started(record: ContainerRecord, began: float) -> None:
    """``began`` is a time of ``time.perf_counter``."""
    took_ms = round((time.perf_counter() - began) * 1000)
    said = {"tenant_id": record.tenant_id, "container_id": record.id, "incarnation": record.incarnation, "duration_ms": took_ms}
    tell("sandbox_started", said, {Metric.SANDBOX_START: took_ms})


def _claim_of(record: ContainerRecord) -> str:
    assert record.sandbox is not None
    return record.sandbox.claim
