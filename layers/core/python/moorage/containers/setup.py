"""The setup of a container's sandboxes: environment variables, packages, and commands that run before all others.

Each new sandbox gets them anew, after the container's files. A command that fails in the first one fails the container: it never comes
to run, and says why. If it fails in a later one (that begins with the saved files of the earlier ones), the model reads it.

They may hold secrets, and no route returns them. They lie in one record, sealed with a key derived from that of the sandboxes' tokens:
a process that may reach a sandbox can open it.
"""

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import field
from types import MappingProxyType
from typing import Any

import orjson

from moorage import limits, sealing
from moorage.containers import packages
from moorage.containers.claims import Claims, Lease
from moorage.containers.incarnations import derived
from moorage.containers.packages import Mirrors
from moorage.containers.store import ContainerRecord, ContainerStore
from moorage.dataclass import dataclass
from moorage.egress.service import credential_sha256
from moorage.egress.store import EgressStore
from moorage.errors import SetupFailed
from moorage.sandbox.exec_client import ExecClient, ExecEnded, ExecOutput
from moorage.store import keys
from moorage.store.table import Table


@dataclass(frozen=True, slots=True)
class SetupCommand:
    command: str = field(repr=False)
    cwd: str


@dataclass(frozen=True, slots=True)
class ContainerSetup:
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    commands: tuple[SetupCommand, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.variables and not self.commands


class Setups:
    def __init__(self, table: Table, store: ContainerStore, claims: Claims, sandbox_key: Callable[[], bytes], mirrors: Mirrors) -> None:
        self._table = table
        self._grants = EgressStore(table)
        self._mirrors = mirrors
        self._store = store
        self._claims = claims
        self._sandbox_key = sandbox_key

    async def give(self, record: ContainerRecord, setup: ContainerSetup) -> ContainerRecord:
        """To a container that has had no sandbox yet."""
        if setup.is_empty:
            return record
        text = orjson.dumps({"variables": dict(setup.variables), "commands": [[each.command, each.cwd] for each in setup.commands]})
        sealed = sealing.seal(text.decode(), self._key(), _bound_to(record))
        await self._table.put({"PK": keys.container(record.tenant_id, record.id), "SK": keys.SETUP, "sealed": sealed})
        return await self._store.change(record, set={"has_setup": True})

    async def copy(self, source: ContainerRecord, made: ContainerRecord) -> ContainerRecord:
        """Give a copy of a container the same. A finished run in the source has made the files that the copy has."""
        made = await self.give(made, await self.of(source))
        return await self._store.change(made, set={"is_set_up": True}) if source.is_set_up else made

    async def of(self, record: ContainerRecord) -> ContainerSetup:
        stored = await self._table.get(keys.container(record.tenant_id, record.id), keys.SETUP) if record.has_setup else None
        if stored is None:
            return ContainerSetup()
        opened: Any = orjson.loads(sealing.unseal(stored["sealed"], self._key(), _bound_to(record)))
        return ContainerSetup(opened["variables"], tuple(SetupCommand(command, cwd) for command, cwd in opened["commands"]))

    async def run(self, record: ContainerRecord, client: ExecClient) -> tuple[ContainerRecord, tuple[str, ...]]:
        """Set the variables, install the packages and run the commands, in a sandbox that has the container's files; answers the record
        with its renewed claim, and notes for the model. Raises :class:`SetupFailed`, and the record keeps it.

        The exec server knows each command by its place: a successor of a dead starter goes on from there.
        """
        setup = await self.of(record)
        if setup.is_empty and not record.packages:
            return record, ()
        await client.set_variables(setup.variables)
        lease = Lease(self._claims, record)
        problem = await lease.during(self._first_problem(record, client, setup))
        if problem is None:
            return lease.record, ()
        if record.is_set_up:
            return lease.record, (f"Note: the sandbox is new, and could not be set up as before. {problem}",)
        await self._store.change(lease.record, set={"setup_error": problem})
        raise SetupFailed(problem)

    async def _first_problem(self, record: ContainerRecord, client: ExecClient, setup: ContainerSetup) -> str | None:
        """The fault of the first command that failed; None if all have run."""
        until = time.monotonic() + limits.SETUP_SECONDS_MAX
        if record.packages and (problem := await self._problem_of_packages(record, client, setup, until)) is not None:
            return problem
        for index, each in enumerate(setup.commands):
            if (how := await _problem(client, f"setup-{index}", each, until, setup)) is not None:
                return f"Setup command {index + 1} of {len(setup.commands)} {how}"
        return None

    async def _problem_of_packages(
        self, record: ContainerRecord, client: ExecClient, setup: ContainerSetup, until: float
    ) -> str | None:
        """Install them. The mirrors are within reach of the installer's credential alone, and until the end of this."""
        password = derived(self._sandbox_key(), "packages", record.id, record.incarnation)
        installs = packages.installing(record.id, password)
        await self._grants.open_mirrors(record.tenant_id, record.id, credential_sha256(password))
        try:
            for ecosystem, names in sorted(record.packages.items()):
                if self._mirrors.of(ecosystem) is None:
                    return f"The deployment has no mirror for 'packages.{ecosystem}' any more."
                command = SetupCommand(self._mirrors.command(ecosystem, names), "/")
                if (how := await _problem(client, f"packages-{ecosystem}", command, until, setup, installs)) is not None:
                    return f"The installation of 'packages.{ecosystem}' {how}"
        finally:
            await self._grants.close_mirrors(record.tenant_id, record.id, credential_sha256(password))
        _, path = await _finished(client, "packages-path", SetupCommand(packages.READ_PATH, "/"), limits.SETUP_SECONDS_MAX * 1000)
        await client.set_variables(packages.variables(path, setup.variables))
        return None

    def _key(self) -> bytes:
        return hmac.new(self._sandbox_key(), b"setup", hashlib.sha256).digest()


async def _problem(
    client: ExecClient,
    exec_id: str,
    command: SetupCommand,
    until: float,
    setup: ContainerSetup,
    env: Mapping[str, str] = MappingProxyType({}),
) -> str | None:
    """The failure of a command that may run ``until`` then (monotonic); None if it has none. ``env`` are variables of its own."""
    left_ms = max(1, int((until - time.monotonic()) * 1000))
    ended, output = await _finished(client, exec_id, command, left_ms, env)
    if ended.outcome == "exit" and ended.exit_code == 0:
        return None
    how = f"failed with exit code {ended.exit_code}" if ended.outcome == "exit" else "took too long"
    if ended.outcome != "exit":
        how += f": packages and setup commands together have {limits.SETUP_SECONDS_MAX} seconds"
    return f"{how}.{_told(output, {**setup.variables, **env})}"


async def _finished(
    client: ExecClient, exec_id: str, command: SetupCommand, timeout_ms: int, env: Mapping[str, str] = MappingProxyType({})
) -> tuple[ExecEnded, str]:
    """The exit of a command, and its output."""
    said: list[str] = []
    events = client.exec(
        exec_id, command.command, timeout_ms=timeout_ms, max_output_length=limits.OUTPUT_CHARS_DEFAULT, env=env, cwd=command.cwd
    )
    async with aclosing(events):
        async for event in events:
            match event:
                case ExecOutput():
                    said.append(event.text)
                case ExecEnded():
                    return event, "".join(said)
                case _:
                    pass
    raise AssertionError(f"the events of {exec_id} end without its end")


def _told(output: str, variables: Mapping[str, str]) -> str:
    """The end of a command's output, without the values of variables."""
    for value in sorted(variables.values(), key=len, reverse=True):
        if value.strip():
            output = output.replace(value, "[...]")
    tail = output.strip()[-limits.SETUP_OUTPUT_CHARS_MAX :]
    return f" Its output ends with: {tail}" if tail else ""


def _bound_to(record: ContainerRecord) -> bytes:
    return f"{record.tenant_id}\n{record.id}".encode()
