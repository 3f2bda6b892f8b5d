"""A container's stored files and skills on their way into its sandbox."""

from collections.abc import Sequence

from moorage.containers.claims import Claims, Lease
from moorage.containers.store import ContainerFileRecord, ContainerRecord, ContainerStore
from moorage.containers.transfers import bounded, fetch_by_bucket, goes_by_bucket
from moorage.containers.workspace import absolute, stamp_of
from moorage.errors import ConditionFailed, SandboxError, SandboxGone, SandboxUnreachable
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.provisioner import Provisioner
from moorage.skills.attached_store import ContainerSkills
from moorage.store.blobs import BlobNotFound, Blobs


class Staging:
    def __init__(self, store: ContainerStore, skills: ContainerSkills, blobs: Blobs, claims: Claims, provisioner: Provisioner) -> None:
        self._store = store
        self._skills = skills
        self._provisioner = provisioner
        self._blobs = blobs
        self._claims = claims

    async def write(
        self, record: ContainerRecord, client: ExecClient, rows: Sequence[ContainerFileRecord]
    ) -> tuple[ContainerRecord, tuple[str, ...]]:
        """Write rows' bytes into the sandbox and note on the rows what they look like there; answers the record with its renewed
        claim, and notes about what could not be written (those rows stay as they are)."""
        if not rows:
            return record, ()
        lease = Lease(self._claims, record)
        problems = await bounded(lambda row: self._write_in(client, row, lease), rows)
        listed = {absolute(file): stamp_of(file) for file in (await client.list_files()).files}
        written = [row for row, problem in zip(rows, problems, strict=True) if problem is None and row.path in listed]
        await bounded(lambda row: self._mark_staged(client, row, record.incarnation, listed[row.path]), written)
        return lease.record, tuple(problem for problem in problems if problem is not None)

    async def add_skills(self, record: ContainerRecord, client: ExecClient, *, all_of_them: bool) -> ContainerRecord:
        """Put the container's skills into the sandbox, or those that it does not have yet; answers the record with its renewed
        claim. Skills come before files: a command may rely on both, and nothing else of the container tells which it needs."""
        lease = Lease(self._claims, record)
        wanted = [skill for skill in await self._skills.of(record) if all_of_them or skill.staged_in != record.incarnation]
        for skill in wanted:
            archive = b"".join([piece async for piece in lease.watched(self._blobs.get_stream(skill.key))])
            if not await self._provisioner.add_skill(client.handle, skill.directory, archive):
                await client.put_skill(skill.directory, archive)
            await self._skills.mark_staged(record, skill)
        return lease.record

    async def _write_in(self, client: ExecClient, row: ContainerFileRecord, lease: Lease) -> str | None:
        """Write one file into the sandbox; a note if that is not possible."""
        try:
            is_there = goes_by_bucket(client, row.bytes) and await lease.during(fetch_by_bucket(self._blobs, client, row.path, row.key))
            if not is_there:
                await client.write_file(row.path, lease.watched(self._blobs.get_stream(row.key)))
        except (SandboxGone, SandboxUnreachable):
            raise
        except SandboxError as error:
            return f"Note: {row.path} could not be put into the container: {error.message}"
        except BlobNotFound:
            return f"Note: {row.path} could not be put into the container: its stored content is lost."
        return None

    async def _mark_staged(self, client: ExecClient, row: ContainerFileRecord, incarnation: int, stamp: str) -> None:
        try:
            await self._store.mark_staged(row, incarnation, stamp)
        except ConditionFailed as error:
            # Replaced meanwhile: the next ensure writes the new bytes. Deleted meanwhile: so it must not be there.
            if error.item is None:
                await client.delete_file(row.path)
