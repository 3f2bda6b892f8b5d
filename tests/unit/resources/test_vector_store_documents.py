"""What is read of a store's files: texts as they are, documents in a container of their own, and what cannot be read fails alone."""

from collections.abc import Callable

import pytest
from moorage import limits
from moorage.errors import StorageFull
from moorage.vector_stores.jobs import IndexState

from tests.unit.resources.service import Service
from tests.unit.resources.support import FakeSandbox
from tests.unit.resources.vector_stores import BRIDGES, before, found, play, reads, run, store_with, upload

# --- What cannot be read --------------------------------------------------------------------------------------------------------------

UNREADABLE: dict[str, tuple[str, bytes, str, str]] = {
    "an empty file": ("a.txt", b"", "invalid_file", "The file is empty."),
    "a file of spaces": ("a.txt", b" \n" * 1000, "invalid_file", "The file has no text."),
    "a picture": ("a.txt", b"\x89PNG\r\n\x1a\n", "unsupported_file", "'a.txt' is of a kind that has no text"),
    "an archive": ("a.zip", b"PK\x03\x04....", "unsupported_file", "'a.zip' is of a kind"),
    **{
        f"a picture of the kind {name.upper()}": (f"a.{name}", head + bytes(60), "unsupported_file", f"'a.{name}' is of a kind")
        for name, head in {
            "dds": b"DDS |\x00\x00\x00",
            "bmp": b"BM\x9a\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00",
            "psd": b"8BPS\x00\x01",
            "jp2": b"\x00\x00\x00\x0cjP  \r\n",
            "icns": b"icns\x00\x00",
            "avif": b"\x00\x00\x00\x20ftypavif",
        }.items()
    },
    "an old Word file": ("a.doc", b"\xd0\xcf\x11\xe0....", "unsupported_file", "'a.doc' is of a kind"),
}


@pytest.mark.parametrize("what", UNREADABLE)
async def test_what_cannot_be_read_fails_alone_and_says_why(service: Service, what: str) -> None:
    name, content, code, words = UNREADABLE[what]
    store, _ = await store_with(service, good_txt=BRIDGES)
    bad = await upload(service, name, content)
    await service.sdk.vector_stores.files.create(store.id, file_id=bad)
    await run(service)
    failed = await service.sdk.vector_stores.files.retrieve(bad, vector_store_id=store.id)
    assert failed.last_error is not None
    assert (failed.status, failed.last_error.code) == ("failed", code)
    assert failed.last_error.message.startswith(words)
    counts = (await service.sdk.vector_stores.retrieve(store.id)).file_counts
    assert (counts.completed, counts.failed, counts.in_progress, counts.total) == (1, 1, 0, 2)
    assert await found(service, store.id, "the bridge") == ["good.txt"]
    assert (await service.sdk.vector_stores.files.content(bad, vector_store_id=store.id)).data == []


async def test_a_text_past_its_bound_fails_before_it_is_read_to_its_end(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DOCUMENT_TOKENS_MAX", 1000)
    store, ids = await store_with(service, spaces_txt=b" " * 5000, fits_txt=b"word " * 500)
    failed = await service.sdk.vector_stores.files.retrieve(ids["spaces_txt"], vector_store_id=store.id)
    assert failed.last_error is not None
    assert "more than 1000 tokens" in failed.last_error.message
    assert (await service.sdk.vector_stores.files.retrieve(ids["fits_txt"], vector_store_id=store.id)).status == "completed"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
async def test_text_that_says_its_encoding_is_read_without_a_sandbox(service: Service, encoding: str) -> None:
    store, ids = await store_with(service, a_txt="Grüße aus Łódź, 東京".encode(encoding))
    (part,) = (await service.sdk.vector_stores.files.content(ids["a_txt"], vector_store_id=store.id)).data
    assert (part.text, service.provisioner.starts) == ("Grüße aus Łódź, 東京", 0)


async def test_documents_are_read_in_one_container_that_goes_when_they_are_read(service: Service) -> None:
    service.provisioner.programs = reads("A report about glaciers.")
    ids = [await upload(service, f"{n}.pdf", b"%PDF-1.7 x") for n in range(3)] + [await upload(service, "a.txt", BRIDGES)]
    store = await service.sdk.vector_stores.create(file_ids=ids)
    assert await run(service) == ["index", "parse", "index", "index"]
    assert (await service.sdk.vector_stores.retrieve(store.id)).file_counts.completed == 4
    assert (service.provisioner.starts, (await service.sdk.containers.list()).data) == (1, [])
    (sandbox,) = service.provisioner.sandboxes.values()
    assert sandbox.files == {}
    assert (await found(service, store.id, "glaciers"))[0].endswith(".pdf")


async def test_a_container_that_is_idle_gives_way_to_the_one_in_which_documents_are_read(service: Service) -> None:
    """As it does to a command: a tenant with as many sandboxes as it may have waits for none of them to expire."""
    idle = await service.sdk.containers.create(name="idle")
    await service.runtime.computers.containers.sandboxes.ensure("ten_a", idle.id)
    service.clock.advance(limits.SANDBOX_IDLE_SECONDS_MIN + limits.CONTAINER_TOUCH_SECONDS)
    service.provisioner.programs, service.provisioner.room = reads("A report about glaciers."), 1
    store = await service.sdk.vector_stores.create(file_ids=[await upload(service, "a.pdf", b"%PDF-1.7 x")])
    assert await run(service) == ["index", "parse", "index", "index"]
    assert (await service.sdk.vector_stores.retrieve(store.id)).file_counts.completed == 1
    assert [container.id for container in (await service.sdk.containers.list()).data] == [idle.id]


PROGRAMS: dict[str, tuple[Callable[[FakeSandbox, str], tuple[int, str]], str]] = {
    "it says what is wrong": (reads("", 10, "The PDF is encrypted with a password.\n"), "The PDF is encrypted with a password."),
    "it has too much text": (reads("", 11), "The file has more than 5000000 tokens"),
    "it is killed": (reads("", 137), "The file brings down the program that reads it"),
    "it never ends": (reads("", -1), "Reading the file takes longer than 120 seconds."),
    "it says things that no terminal should see": (reads("", 10, "\x1b[2J bad\x00"), "[2J bad"),
}


@pytest.mark.parametrize("what", PROGRAMS)
async def test_a_document_that_cannot_be_read_fails_alone(service: Service, what: str) -> None:
    program, words = PROGRAMS[what]
    service.provisioner.programs = program
    store, ids = await store_with(service, bad_pdf=b"%PDF-1.7", good_txt=BRIDGES)
    failed = await service.sdk.vector_stores.files.retrieve(ids["bad_pdf"], vector_store_id=store.id)
    assert failed.last_error is not None
    assert (failed.status, failed.last_error.code) == ("failed", "invalid_file")
    assert failed.last_error.message.startswith(words)
    assert store.file_counts.completed == 1


async def test_a_sandbox_that_dies_is_replaced_and_a_document_that_kills_it_fails(service: Service) -> None:
    def kills(sandbox: FakeSandbox, command: str) -> tuple[int, str]:
        sandbox.is_alive = False
        return 0, ""

    service.provisioner.programs = kills
    store, ids = await store_with(service, bad_pdf=b"%PDF-1.7")
    failed = await service.sdk.vector_stores.files.retrieve(ids["bad_pdf"], vector_store_id=store.id)
    assert failed.last_error is not None
    assert (failed.last_error.code, service.provisioner.starts >= limits.INDEXING_ATTEMPTS_MAX) == ("server_error", True)


async def test_a_full_disk_makes_no_document_unreadable_and_costs_no_container(service: Service) -> None:
    service.provisioner.programs = reads("A report about glaciers.")
    store = await service.sdk.vector_stores.create(file_ids=[await upload(service, "a.pdf", b"%PDF-1.7 x")])
    (state,) = map(IndexState.from_json, service.runtime.stores.executions.started.values())

    async def is_full(*_: object) -> None:
        raise StorageFull

    before(service.runtime.vector_stores.indexing.reading, "place", is_full)
    with pytest.raises(StorageFull):
        await play(service, state)
    state = await play(service, state)
    before(service.store.blobs, "put_stream", is_full)
    with pytest.raises(StorageFull):
        await play(service, state)
    while state.next != "done":
        state = await play(service, state)
    assert (await service.sdk.vector_stores.retrieve(store.id)).file_counts.completed == 1
    assert service.provisioner.starts == 1


async def hidden_container(service: Service, state: IndexState) -> str:
    """The one in which the documents of an execution's store are about to be read."""
    job = await service.runtime.vector_stores.jobs.of(state)
    assert job.container_id is not None
    return str(job.container_id)


async def test_the_container_in_which_documents_are_read_is_nobodys_to_see_or_to_use(service: Service) -> None:
    service.provisioner.programs = reads("text")
    store = await service.sdk.vector_stores.create(file_ids=[await upload(service, "a.pdf", b"%PDF-1.7")])
    (state,) = map(IndexState.from_json, service.runtime.stores.executions.started.values())
    state = await play(service, state)
    assert (state.next, service.provisioner.starts) == ("parse", 1)
    container_id = await hidden_container(service, state)
    assert [each.name for each in (await service.sdk.containers.list()).data] == []
    assert [each.name for each in (await service.sdk.containers.list(name=f"documents of {store.id}")).data] == []
    path = f"/containers/{container_id}"
    tried = [
        ("GET", path),
        ("DELETE", path),
        ("GET", f"{path}/files"),
        ("POST", f"{path}/files"),
        ("GET", f"{path}/files/cfile_1/content"),
        ("GET", f"{path}/tree"),
    ]
    answers = [await service.http.request(method, way, json={"file_id": "x"}) for method, way in tried]
    assert [(each.status_code, each.json()["error"]["message"]) for each in answers] == [
        (404, f"Container with id '{container_id}' not found.")
    ] * len(tried)
    while state.next != "done":
        state = await play(service, state)
    assert (await service.sdk.vector_stores.retrieve(store.id)).file_counts.completed == 1


async def test_a_container_that_expires_before_its_documents_are_read_is_replaced(service: Service) -> None:
    service.provisioner.programs = reads("text")
    store = await service.sdk.vector_stores.create(file_ids=[await upload(service, "a.pdf", b"%PDF-1.7")])
    (state,) = map(IndexState.from_json, service.runtime.stores.executions.started.values())
    state = await play(service, state)
    service.clock.advance(limits.CONTAINER_IDLE_MINUTES_DEFAULT * 60 + 1)
    assert await service.runtime.computers.containers.sweep.expire_due(service.clock()) > 0
    while state.next != "done":
        state = await play(service, state)
    assert (await service.sdk.vector_stores.retrieve(store.id)).file_counts.completed == 1


async def test_a_store_deleted_during_indexing_takes_its_container_along(service: Service) -> None:
    store = await service.sdk.vector_stores.create(file_ids=[await upload(service, "a.pdf", b"%PDF-1.7")])
    (state,) = map(IndexState.from_json, service.runtime.stores.executions.started.values())
    container_id = await hidden_container(service, await play(service, state))
    await service.sdk.vector_stores.delete(store.id)
    assert await service.runtime.computers.containers.peek("ten_a", container_id) is None
    assert all(not sandbox.is_alive for sandbox in service.provisioner.sandboxes.values())


async def test_a_container_that_a_dead_process_has_left_goes_when_it_expires(service: Service) -> None:
    """One that its tenant has made is kept for a month; nobody would come back for this one."""
    store = await service.runtime.vector_stores.stores.get("ten_a", (await service.sdk.vector_stores.create()).id)
    container_id = await service.runtime.vector_stores.indexing.reading.reserve(store)
    service.clock.advance(limits.RETENTION_SECONDS // 2)
    await service.runtime.computers.containers.sweep.expire_due(service.clock())
    assert await service.runtime.computers.containers.peek("ten_a", container_id) is None
