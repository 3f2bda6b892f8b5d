"""Large files of a sandbox that reaches the bucket by itself: which go that way, and what is left when one does not."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from moorage import limits
from moorage.containers.store import ContainerRecord
from moorage.containers.transfers import goes_by_bucket, store_by_bucket
from moorage.errors import ApiError, SandboxGone
from moorage.sandbox.exec_client import ExecClient, SignedPlace

from tests.unit.store.memory import MemoryBlobs

CONTENT = b"x" * 300_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Machine:
    """A client whose sandbox puts what it is asked for into the bucket."""

    blobs: MemoryBlobs
    claims: int = len(CONTENT)
    is_torn: bool = False
    reaches_bucket: bool = True
    places: list[SignedPlace] = field(default_factory=list)

    async def store_file(self, path: str, place: SignedPlace) -> tuple[int, str]:
        self.places.append(place)
        await self.blobs.put_bytes(place.url.removeprefix("http://127.0.0.1/"), CONTENT)
        if self.is_torn:
            raise SandboxGone("torn")
        return self.claims, SHA256


@dataclass
class Record:
    tenant_id: str = "acme"
    id: str = "cntr_1"


def store(machine: Machine, known: dict[str, str]) -> Any:
    record, client = cast("ContainerRecord", Record()), cast("ExecClient", machine)
    return store_by_bucket(machine.blobs, record, client, "made.bin", known=known)


@pytest.fixture
def machine() -> Machine:
    return Machine(MemoryBlobs())


async def test_a_large_file_is_put_under_the_containers_own_prefix(machine: Machine) -> None:
    blob = await store(machine, {})
    assert (blob.bytes, blob.sha256, [*machine.blobs.objects]) == (len(CONTENT), SHA256, [blob.key])
    assert blob.key.startswith("T/acme/C/cntr_1/")
    assert machine.places[0].address == "127.0.0.1"
    assert blob.key not in repr(machine.places[0]), "a signed URL is a secret"


async def test_content_that_is_known_is_kept_once(machine: Machine) -> None:
    blob = await store(machine, {SHA256: "T/acme/C/cntr_1/known"})
    assert (blob.key, machine.blobs.objects) == ("T/acme/C/cntr_1/known", {})


async def test_a_file_that_grew_too_large_is_not_kept(machine: Machine) -> None:
    machine.claims = limits.ARTIFACT_BYTES_MAX + 1
    with pytest.raises(ApiError):
        await store(machine, {})
    assert machine.blobs.objects == {}


async def test_a_sandbox_that_dies_on_the_way_leaves_no_object(machine: Machine) -> None:
    machine.is_torn = True
    with pytest.raises(SandboxGone):
        await store(machine, {})
    assert machine.blobs.objects == {}


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
