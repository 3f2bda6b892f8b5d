import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from moorage import limits
from moorage.containers.containers import Containers
from moorage.egress.fetch import Fetcher
from moorage.errors import ApiError, SandboxError
from moorage.files.store import FileStore
from moorage.inputs import Inputs, forget_inputs, purge_inputs
from moorage.vector_stores.attachments import AttachmentReader, DocumentsUnread, FairTurns

from tests.drawing import VAST
from tests.unit.resources.support import Clock, FakeProvisioner, Store, chunked
from tests.unit.resources.vector_stores import reads
from tests.unit.resources.web import Web, serving
from tests.unit.store.memory import MemoryBlobs, MemoryTable

PNG = b"\x89PNG\r\n\x1a\n picture"
PDF = b"%PDF-1.7 paper"


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    async with serving(Web()) as served:
        yield served


@pytest.fixture
def files(store: Store, clock: Clock) -> FileStore:
    return FileStore(store.table, store.blobs, clock=clock)


@pytest.fixture
def inputs(store: Store, clock: Clock, files: FileStore, web: Web) -> Inputs:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    fetcher = Fetcher(allowed_networks=("127.0.0.0/8",), ports=(web.port,), addresses=resolve)
    return Inputs(store.table, store.blobs, files, fetcher, clock=clock, retention_seconds=1000)


def said(*parts: dict[str, Any], item_id: str = "msg_1") -> dict[str, Any]:
    return {"type": "message", "id": item_id, "role": "user", "content": list(parts)}


def data_url(content: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


async def resolved(inputs: Inputs, *items: dict[str, Any], has_container: bool = False) -> list[list[dict[str, Any]]]:
    found = await inputs.resolve("ten", items, has_container=has_container)
    return [item.get("content") or item["output"] for item in found]


async def refusal(inputs: Inputs, *parts: dict[str, Any]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await inputs.admit("ten", [said(*parts)])
    return caught.value


@pytest.mark.parametrize("kind", VAST)
async def test_a_vast_picture_is_passed_on_as_it_is(inputs: Inputs, files: FileStore, kind: str) -> None:
    """Of an image, of a screenshot, and of a file without and with a container: pixels are the model server's to count."""
    vast = await files.create("ten", filename=f"vast.{kind}", purpose="vision", chunks=chunked(VAST[kind]))
    url = data_url(VAST[kind], f"image/{kind}")
    message = said({"type": "input_image", "file_id": vast.id}, {"type": "input_file", "filename": f"v.{kind}", "file_data": url})
    screen = {"type": "computer_screenshot", "file_id": vast.id}
    output = {"type": "computer_call_output", "id": "cuo_1", "call_id": "c", "output": screen}
    shown = [{"type": "input_image", "image_url": url}, {"type": "input_file", "filename": f"v.{kind}", "file_data": url}]
    assert await resolved(inputs, message, output) == [shown, {"type": "computer_screenshot", "image_url": url}]
    note = {"type": "input_text", "text": f"[The file v.{kind} ({len(VAST[kind])} bytes) is at /mnt/data/v.{kind}]"}
    assert (await resolved(inputs, message, has_container=True)) == [[shown[0], note]]


async def test_items_without_files_pass_as_they_are(inputs: Inputs) -> None:
    items = [
        said({"type": "input_text", "text": "hi"}, {"type": "input_image", "image_url": "https://a.example/x.png"}),
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "id": "fco_1", "call_id": "c", "output": "text"},
    ]
    assert await inputs.resolve("ten", items, has_container=True) == items


async def test_a_file_and_an_image_by_id_become_data(inputs: Inputs, files: FileStore) -> None:
    paper = await files.create("ten", filename="paper.pdf", purpose="user_data", chunks=chunked(PDF))
    picture = await files.create("ten", filename="lies.txt", purpose="vision", chunks=chunked(PNG))
    message = said(
        {"type": "input_file", "file_id": paper.id, "detail": "high"},
        {"type": "input_image", "file_id": picture.id, "detail": "low"},
    )
    assert await resolved(inputs, message) == [
        [
            {
                "type": "input_file",
                "filename": "paper.pdf",
                "file_data": data_url(PDF, "application/pdf"),
                "detail": "high",
            },
            {"type": "input_image", "image_url": data_url(PNG, "image/png"), "detail": "low"},
        ]
    ]


async def test_files_in_a_tools_output_become_data_too(inputs: Inputs, files: FileStore) -> None:
    picture = await files.create("ten", filename="p.png", purpose="vision", chunks=chunked(PNG))
    output = {
        "type": "function_call_output",
        "id": "fco_1",
        "call_id": "c",
        "output": [{"type": "input_image", "file_id": picture.id}],
    }
    assert await resolved(inputs, output) == [[{"type": "input_image", "image_url": data_url(PNG, "image/png")}]]


@pytest.mark.parametrize(
    ("filename", "content", "kind"),
    [("paper.pdf", PDF, "application/pdf"), ("notes.txt", b"a", "text/plain"), ("fake.png", PDF, "application/pdf")],
)
async def test_a_file_that_is_no_image_is_refused_as_one(
    inputs: Inputs, files: FileStore, filename: str, content: bytes, kind: str
) -> None:
    file = await files.create("ten", filename=filename, purpose="user_data", chunks=chunked(content))
    with pytest.raises(ApiError) as refused:
        await resolved(inputs, said({"type": "input_image", "file_id": file.id}))
    assert (refused.value.status, refused.value.code, refused.value.param) == (400, "invalid_image_format", "input")
    assert refused.value.message == f"The file '{filename}' is no image ({kind}). Send it as an 'input_file'."


@pytest.mark.parametrize("data", [data_url(b"a,b", "text/csv"), base64.b64encode(b"a,b").decode()])
async def test_inline_data_comes_as_a_data_url_however_it_was_given(inputs: Inputs, data: str) -> None:
    part = {"type": "input_file", "filename": "a.csv", "file_data": data}
    assert await resolved(inputs, said(part)) == [[part | {"file_data": data_url(b"a,b", "text/csv")}]]


async def test_a_url_is_fetched_once_and_gives_the_same_bytes_ever_after(inputs: Inputs, web: Web) -> None:
    web.page("/a/data.csv", b"first")
    message = said({"type": "input_file", "file_url": f"http://files.example:{web.port}/a/data.csv"})
    await inputs.admit("ten", [message])
    web.page("/a/data.csv", b"second")
    expected = [{"type": "input_file", "filename": "data.csv", "file_data": data_url(b"first", "text/csv")}]
    assert await resolved(inputs, message) == [expected]
    assert await resolved(inputs, message) == [expected]
    assert len(web.asked) == 1


async def test_what_a_url_gave_is_forgotten_on_request_and_after_its_time(inputs: Inputs, web: Web, store: Store, clock: Clock) -> None:
    web.page("/x", b"x")
    first, second = [
        said({"type": "input_file", "file_url": f"http://files.example:{web.port}/x"}, item_id=name) for name in ("msg_1", "msg_2")
    ]
    await inputs.admit("ten", [first, second])
    await forget_inputs(store.table, store.blobs, "ten", [first])
    assert len(store.objects()) == 1
    assert await purge_inputs(store.table, store.blobs, clock()) == 0
    clock.advance(1000)
    assert await purge_inputs(store.table, store.blobs, clock()) == 1
    assert (store.objects(), store.records()) == ([], [])


async def test_what_cannot_be_had_is_refused_at_once_and_named_later(inputs: Inputs, files: FileStore, web: Web) -> None:
    file = await files.create("ten", filename="a.pdf", purpose="user_data", chunks=chunked(PDF))
    part = {"type": "input_file", "file_id": file.id}
    await inputs.admit("ten", [said(part)])
    await files.delete("ten", file.id)
    error = await refusal(inputs, part)
    assert (error.status, error.param) == (404, "input[0].content[0].file_id")
    assert await resolved(inputs, said(part)) == [
        [{"type": "input_text", "text": f"[file not available: No such File object: {file.id}]"}]
    ]


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ({"type": "input_file", "file_data": "&&&"}, "invalid_file_data"),
        ({"type": "input_file", "file_data": "data:text/plain,hello"}, "invalid_file_data"),
        ({"type": "input_file", "file_url": "http://files.example:1/x"}, "invalid_file_url"),
    ],
)
async def test_a_wrong_source_is_refused_with_a_code(inputs: Inputs, part: dict[str, Any], code: str) -> None:
    error = await refusal(inputs, part)
    assert (error.status, error.param, error.code) == (400, "input", code)


async def test_of_more_files_than_a_request_has_room_for_the_last_ones_are_shown(inputs: Inputs, files: FileStore) -> None:
    half = bytes(limits.INPUT_FILE_BYTES_MAX // 2)
    first, second, third = [
        await files.create("ten", filename=f"{name}.bin", purpose="user_data", chunks=chunked(half + more))
        for name, more in {"first": b"", "second": b"1", "third": b""}.items()
    ]
    parts = [{"type": "input_file", "file_id": each.id} for each in (first, second, third)]
    shown = await resolved(inputs, said(parts[0]), said(parts[1], item_id="msg_2"), said(parts[2], item_id="msg_3"))
    data = {"type": "input_file", "file_data": data_url(half, "application/octet-stream")}
    too_many = {"type": "input_text", "text": f"[file second.bin: {len(half) + 1} bytes are too many to show]"}
    assert shown == [[data | {"filename": "first.bin"}], [too_many], [data | {"filename": "third.bin"}]]


async def test_another_tenants_file_is_a_404(inputs: Inputs, files: FileStore) -> None:
    file = await files.create("other", filename="a.pdf", purpose="user_data", chunks=chunked(PDF))
    assert (await refusal(inputs, {"type": "input_file", "file_id": file.id})).status == 404


async def test_with_a_container_the_model_is_told_where_a_file_lies(inputs: Inputs) -> None:
    big = b"x" * (limits.INPUT_INLINE_BYTES_MAX + 1)
    message = said(
        {"type": "input_file", "filename": "a.pdf", "file_data": data_url(PDF, "application/pdf")},
        {"type": "input_file", "filename": "a.pdf", "file_data": data_url(b"%PDF-2", "application/pdf")},
        {"type": "input_file", "filename": "a.zip", "file_data": data_url(b"PK", "application/zip")},
        {"type": "input_file", "filename": "big.txt", "file_data": data_url(big, "text/plain")},
    )
    (parts,) = await resolved(inputs, message, has_container=True)
    assert [part.get("text", part.get("filename")) for part in parts] == [
        "[The file a.pdf (14 bytes) is at /mnt/data/a.pdf]",
        "a.pdf",
        "[The file a.pdf (6 bytes) is at /mnt/data/a-2.pdf]",
        "a.pdf",
        "[The file a.zip (2 bytes) is at /mnt/data/a.zip]",
        f"[The file big.txt ({len(big)} bytes) is at /mnt/data/big.txt]",
    ]
    assert [each.filename for each in await inputs.to_stage("ten", [message])] == ["a.pdf", "a-2.pdf", "a.zip", "big.txt"]


async def test_with_a_container_a_file_for_which_a_request_has_no_room_is_named(inputs: Inputs, files: FileStore) -> None:
    large, small = [
        await files.create("ten", filename=name, purpose="user_data", chunks=chunked(bytes(size)))
        for name, size in {"large.png": limits.INPUT_FILE_BYTES_MAX, "small.pdf": 5}.items()
    ]
    image, document = {"type": "input_image", "file_id": large.id}, {"type": "input_file", "file_id": small.id}
    first, _ = await resolved(inputs, said(document), said(image, item_id="msg_2"), has_container=True)
    assert first == [{"type": "input_text", "text": "[The file small.pdf (5 bytes) is at /mnt/data/small.pdf]"}]


async def test_a_document_is_read_once_and_its_text_goes_with_its_item(
    inputs: Inputs, files: FileStore, store: Store, clock: Clock
) -> None:
    provisioner = FakeProvisioner()
    provisioner.programs = reads("A report about glaciers.")
    containers = containers_of(provisioner, files, store, clock)
    message = said({"type": "input_file", "filename": "b/a\n.pdf", "file_data": data_url(PDF, "application/pdf")})
    text = {"type": "input_text", "text": "[File a.pdf]\nA report about glaciers.\n[End of a.pdf]"}
    for _ in range(2):
        async with AttachmentReader(containers, FairTurns(), "ten", takes=frozenset(), chars_max=99) as attachments:
            (shown,) = await inputs.resolve("ten", [message], has_container=False, attachments=attachments)
            assert shown["content"] == [text]
    assert (provisioner.starts, provisioner.running()) == (1, [])
    assert len(store.objects()) == 1
    await forget_inputs(store.table, store.blobs, "ten", [message])
    assert store.objects() == []


class CountedBlobs(MemoryBlobs):
    gets = 0

    def get_stream(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        self.gets += 1
        return super().get_stream(key, start=start, end=end)


async def test_a_text_is_asked_for_once_though_it_is_looked_at_before_it_is_shown(clock: Clock) -> None:
    blobs = CountedBlobs()
    store = Store(MemoryTable(), blobs)
    files = FileStore(store.table, store.blobs, clock=clock)
    notes = await files.create("ten", filename="notes.txt", purpose="user_data", chunks=chunked(b"Ice."))
    inputs = Inputs(store.table, store.blobs, files, Fetcher(), clock=clock, retention_seconds=1000)
    reader = AttachmentReader(containers_of(FakeProvisioner(), files, store, clock, is_reachable=False), FairTurns(), "ten")
    (shown,) = await inputs.resolve("ten", [said({"type": "input_file", "file_id": notes.id})], has_container=False, attachments=reader)
    assert (shown["content"][0]["file_data"], blobs.gets) == (data_url(b"Ice.", "text/plain"), 1)


async def test_documents_are_named_where_no_sandbox_can_be_reached(
    inputs: Inputs, files: FileStore, store: Store, clock: Clock
) -> None:
    paper = await files.create("ten", filename="b.pdf", purpose="user_data", chunks=chunked(PDF))
    by_data = {"type": "input_file", "filename": "a.pdf", "file_data": data_url(PDF, "application/pdf")}
    messages = [said(by_data, by_data), said({"type": "input_file", "file_id": paper.id}, item_id="msg_2")]
    reader = AttachmentReader(containers_of(FakeProvisioner(), files, store, clock, is_reachable=False), FairTurns(), "ten")
    with pytest.raises(DocumentsUnread) as caught:
        await inputs.resolve("ten", messages, has_container=False, attachments=reader)
    named = [(each.item_id, each.filename, each.kind, each.source_key) for each in caught.value.documents]
    assert named == [("msg_2", "b.pdf", "pdf", paper.key), ("msg_1", "a.pdf", "pdf", "")]
    assert store.objects() == [paper.key]


async def test_a_document_that_no_sandbox_can_be_had_for_is_no_fault_of_the_request(
    inputs: Inputs, files: FileStore, store: Store, clock: Clock
) -> None:
    provisioner = FakeProvisioner()
    provisioner.problems = [SandboxError("It is broken.")]
    message = said({"type": "input_file", "filename": "a.pdf", "file_data": data_url(PDF, "application/pdf")})
    with pytest.raises(ApiError) as caught:
        async with AttachmentReader(
            containers_of(provisioner, files, store, clock), FairTurns(), "ten", takes=frozenset(), chars_max=9
        ) as read:
            await inputs.resolve("ten", [message], has_container=False, attachments=read)
    assert (caught.value.status, caught.value.message) == (503, "The files of the input could not be read: It is broken. Please retry.")


async def test_slow_documents_of_one_tenant_delay_no_other(files: FileStore, store: Store, clock: Clock) -> None:
    turns, entered, left = FairTurns(), list[str](), asyncio.Event()

    async def read(tenant_id: str) -> None:
        async with turns.of(tenant_id):
            entered.append(tenant_id)
            await left.wait()

    async with asyncio.TaskGroup() as tasks:
        for tenant_id in [*["hostile"] * 9, "other"]:
            tasks.create_task(read(tenant_id))
        while "other" not in entered:
            await asyncio.sleep(0)
        assert entered == [*["hostile"] * limits.ATTACHMENTS_READ_AT_ONCE, "other"]
        left.set()
    assert (len(entered), turns) == (10, FairTurns())


def containers_of(
    provisioner: FakeProvisioner, files: FileStore, store: Store, clock: Clock, *, is_reachable: bool = True
) -> Containers:
    connect = provisioner.connect if is_reachable else None
    return Containers(store.table, store.blobs, provisioner, files, clock=clock, sandbox_key=lambda: b"k" * 32, connect=connect)


async def test_files_of_the_input_are_put_into_the_container_once(
    inputs: Inputs, files: FileStore, store: Store, clock: Clock, web: Web
) -> None:
    provisioner = FakeProvisioner()
    containers = containers_of(provisioner, files, store, clock)
    web.page("/c.txt", b"c")
    file = await files.create("ten", filename="a.txt", purpose="user_data", chunks=chunked(b"a"))
    message = said(
        {"type": "input_file", "file_id": file.id},
        {"type": "input_file", "filename": "b.txt", "file_data": data_url(b"b", "text/plain")},
        {"type": "input_file", "file_url": f"http://files.example:{web.port}/c.txt"},
        {"type": "input_image", "file_id": file.id},
    )
    record = await containers.reserve("ten", name="c")
    record = await containers.put_inputs(record, await inputs.to_stage("ten", [message]))
    live = await containers.sandboxes.ensure("ten", record.id)
    sandbox = provisioner.sandboxes[live.handle.sandbox_id]
    assert {path: data for path, (data, _, _) in sandbox.files.items()} == {"a.txt": b"a", "b.txt": b"b", "c.txt": b"c"}
    sandbox.write("a.txt", b"changed by the model")
    await containers.artifacts.sync(live)
    await containers.put_inputs(live.record, await inputs.to_stage("ten", [message]))
    live = await containers.sandboxes.ensure("ten", record.id)
    assert sandbox.files["a.txt"][0] == b"changed by the model"
    replaced = said({"type": "input_file", "filename": "a.txt", "file_data": data_url(b"new", "text/plain")})
    await containers.put_inputs(live.record, await inputs.to_stage("ten", [replaced]))
    await containers.sandboxes.ensure("ten", record.id)
    assert sandbox.files["a.txt"][0] == b"new"
    history = [message, replaced | {"id": "msg_2"}]
    await containers.put_inputs(live.record, await inputs.to_stage("ten", history))
    await containers.sandboxes.ensure("ten", record.id)
    assert sandbox.files["a.txt"][0] == b"new"
