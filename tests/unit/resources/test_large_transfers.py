"""Large files of a sandbox that reaches the bucket by itself: which go that way, and what is left when one does not."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from moorage import limits
from moorage.containers.store import ContainerRecord
from moorage.containers.transfers import fetch_by_bucket, goes_by_bucket, store_by_bucket
from moorage.errors import SandboxError, SandboxFileMissing, SandboxGone, SandboxUnreachable
from moorage.sandbox.exec_client import ExecClient, SignedPlace
from moorage.store.blobs import Blob

from tests.unit.store.memory import MemoryBlobs

CONTENT = b"x" * 300_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
KEY = f"T/acme/C/cntr_1/{SHA256}"


@dataclass
class Machine:
    """A client whose sandbox puts what it is asked for into the bucket."""

    blobs: MemoryBlobs
    fails: Exception | None = None
    reaches_bucket: bool = True
    places: list[SignedPlace] = field(default_factory=list)

    async def file_digest(self, path: str, size: int) -> str:
        return hashlib.sha256(CONTENT[:size]).hexdigest()

    async def store_file(self, path: str, place: SignedPlace, *, size: int, sha256: str) -> None:
        self.places.append(place)
        if self.fails is not None:
            raise self.fails
        await self.blobs.put_bytes(place.url.removeprefix("http://127.0.0.1/").partition("?")[0], CONTENT[:size])


@dataclass
class Record:
    tenant_id: str = "acme"
    id: str = "cntr_1"


async def store(machine: Machine, known: dict[str, str], size: int = len(CONTENT)) -> Blob | None:
    record, client = cast("ContainerRecord", Record()), cast("ExecClient", machine)
    return await store_by_bucket(machine.blobs, record, client, "made.bin", size, known=known)


@pytest.fixture
def machine() -> Machine:
    return Machine(MemoryBlobs())


async def test_a_large_file_is_put_under_its_containers_prefix_and_its_hash(machine: Machine) -> None:
    assert await store(machine, {}) == Blob(KEY, len(CONTENT), SHA256)
    assert machine.blobs.objects == {KEY: CONTENT}


async def test_its_url_is_for_these_bytes_and_in_no_trace(machine: Machine) -> None:
    await store(machine, {})
    (place,) = machine.places
    assert place == SignedPlace(f"http://127.0.0.1/{KEY}?{len(CONTENT)}&{SHA256}", "127.0.0.1")
    assert KEY not in repr(place), "a signed URL is a secret"


async def test_a_file_that_grew_is_stored_as_it_was_listed(machine: Machine) -> None:
    blob = await store(machine, {}, size=280_000)
    assert blob is not None
    assert machine.blobs.objects == {blob.key: CONTENT[:280_000]}


async def test_content_that_is_known_is_not_sent(machine: Machine) -> None:
    assert await store(machine, {SHA256: "T/acme/C/cntr_1/known"}) == Blob("T/acme/C/cntr_1/known", len(CONTENT), SHA256)
    assert machine.places == []


async def test_where_the_bucket_refuses_the_file_goes_through_the_endpoint(machine: Machine) -> None:
    machine.fails = SandboxError("The storage of files failed: it cannot be reached.")
    assert await store(machine, {}) is None


@pytest.mark.parametrize("error", [SandboxGone("torn"), SandboxUnreachable(), SandboxFileMissing("made.bin")])
async def test_the_end_of_sandbox_or_file_is_told(machine: Machine, error: Exception) -> None:
    machine.fails = error
    with pytest.raises(type(error)):
        await store(machine, {})


class Fetching:
    def __init__(self, fails: Exception | None = None) -> None:
        self._fails = fails

    async def fetch_file(self, path: str, place: SignedPlace) -> str:
        if self._fails is not None:
            raise self._fails
        return SHA256


class Addressed(MemoryBlobs):
    def signed_get_url(self, key: str, *, seconds: int) -> str:
        return f"http://127.0.0.1/{key}"


@pytest.mark.parametrize(("fails", "is_there"), [(None, True), (SandboxError("it answered 403."), False)])
async def test_a_file_that_cannot_be_fetched_goes_through_the_endpoint(fails: Exception | None, is_there: bool) -> None:
    client: Any = Fetching(fails)
    assert await fetch_by_bucket(Addressed(), client, "large.bin", KEY) is is_there


@pytest.mark.parametrize(
    ("change", "size", "goes"),
    [
        (lambda machine: None, limits.BATCH_FILE_BYTES_MAX + 1, True),
        (lambda machine: None, limits.BATCH_FILE_BYTES_MAX, False),
        (lambda machine: setattr(machine, "reaches_bucket", False), limits.BATCH_FILE_BYTES_MAX + 1, False),
    ],
)
def test_only_large_files_of_such_sandboxes_go_by_the_bucket(
    machine: Machine, change: Callable[[Machine], None], size: int, goes: bool
) -> None:
    change(machine)
    assert goes_by_bucket(cast("ExecClient", machine), size) is goes
