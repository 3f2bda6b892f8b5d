import asyncio
from typing import Any

import httpx
import openai
import pytest
from moorage import limits
from moorage.store.blobs import Blobs

from tests.unit.resources.service import Service, build_service
from tests.unit.resources.support import Clock, Store


def upload(service: Service, name: str = "a.txt", content: bytes = b"hello", **options: Any) -> Any:
    return service.sdk.files.create(file=(name, content), purpose=options.pop("purpose", "user_data"), **options)


async def test_a_file_goes_in_and_comes_out(service: Service) -> None:
    file = await upload(service, "report ü.csv", b"a,b\n1,2\n")
    assert file.to_dict() == {
        "id": file.id,
        "object": "file",
        "bytes": 8,
        "created_at": int(service.clock()),
        "filename": "report ü.csv",
        "purpose": "user_data",
        "status": "processed",
        "status_details": None,
        "expires_at": None,
    }
    assert file.id.startswith("file-")
    assert (await service.sdk.files.retrieve(file.id)).to_dict() == file.to_dict()
    content = await service.sdk.files.content(file.id)
    assert content.read() == b"a,b\n1,2\n"
    assert content.response.headers["content-type"] == "application/octet-stream"
    assert content.response.headers["x-content-type-options"] == "nosniff"
    assert content.response.headers["content-length"] == "8"
    assert (
        content.response.headers["content-disposition"] == "attachment; filename=\"report _.csv\"; filename*=UTF-8''report%20%C3%BC.csv"
    )


@pytest.mark.parametrize("purpose", ["assistants", "batch", "fine-tune", "vision", "user_data", "evals"])
async def test_every_purpose_is_taken(service: Service, purpose: Any) -> None:
    file = await upload(service, purpose=purpose)
    assert file.purpose == purpose
    assert file.expires_at == (int(service.clock()) + 30 * 24 * 3600 if purpose == "batch" else None)


async def test_a_file_expires_when_it_was_told_to(service: Service) -> None:
    file = await upload(service, expires_after={"anchor": "created_at", "seconds": 3600})
    kept = await upload(service)
    assert file.expires_at == int(service.clock()) + 3600
    service.clock.advance(3600)
    with pytest.raises(openai.NotFoundError):
        await service.sdk.files.retrieve(file.id)
    assert [each.id for each in (await service.sdk.files.list()).data] == [kept.id]
    assert service.store.objects() == [f"T/ten_a/F/{kept.id}"]


async def test_the_sweep_erases_what_has_expired(service: Service) -> None:
    await upload(service, expires_after={"anchor": "created_at", "seconds": 3600})
    assert await service.runtime.stores.files.purge_due(service.clock()) == 0
    service.clock.advance(3600)
    assert await service.runtime.stores.files.purge_due(service.clock()) == 1
    assert await service.runtime.stores.files.purge_due(service.clock()) == 0
    assert service.store.objects() == []


async def test_a_deleted_file_is_gone_with_its_bytes(service: Service) -> None:
    file = await upload(service)
    assert (await service.sdk.files.delete(file.id)).to_dict() == {"id": file.id, "object": "file", "deleted": True}
    assert service.store.objects() == []
    for call in (service.sdk.files.retrieve, service.sdk.files.delete, service.sdk.files.content):
        with pytest.raises(openai.NotFoundError) as caught:
            await call(file.id)
        assert caught.value.body == {
            "message": f"No such File object: {file.id}",
            "type": "invalid_request_error",
            "param": None,
            "code": "file_not_found",
        }


async def several(service: Service, count: int) -> list[str]:
    ids = []
    for number in range(count):
        service.clock.advance(1)
        ids.append((await upload(service, f"{number}", purpose="batch" if number % 3 == 0 else "user_data")).id)
    return ids


async def test_a_list_is_newest_first_and_complete(service: Service) -> None:
    ids = await several(service, 5)
    page = await service.sdk.files.list()
    assert [file.id for file in page.data] == ids[::-1]
    assert page.has_more is False
    raw = (await service.http.get("/files?limit=2&order=asc")).json()
    assert {key: raw[key] for key in ("object", "first_id", "last_id", "has_more")} == {
        "object": "list",
        "first_id": ids[0],
        "last_id": ids[1],
        "has_more": True,
    }


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("purpose", [None, "batch"])
async def test_the_sdk_pages_through_the_whole_list(service: Service, order: Any, purpose: str | None) -> None:
    ids = await several(service, 7)
    wanted = [file_id for number, file_id in enumerate(ids) if purpose is None or number % 3 == 0]
    options: dict[str, Any] = {} if purpose is None else {"purpose": purpose}
    read = [file.id async for file in service.sdk.files.list(limit=2, order=order, **options)]
    assert read == (wanted if order == "asc" else wanted[::-1])


async def test_deleting_while_paging_reaches_every_file(service: Service) -> None:
    await several(service, 7)
    async for file in service.sdk.files.list(limit=2):
        await service.sdk.files.delete(file.id)
    assert (await service.sdk.files.list()).data == []
    assert service.store.objects() == []


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=10001", "limit"),
        ("order=up", "order"),
        ("after=file-none", "after"),
        ("purpose=none", "purpose"),
        ("include[]=message.output_text.logprobs", "include"),
        ("colour=red", "colour"),
    ],
)
async def test_a_wrong_list_query_is_refused(service: Service, query: str, param: str) -> None:
    answer = await service.http.get(f"/files?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


File = tuple[str, Any]


@pytest.mark.parametrize(
    ("form", "param"),
    {
        "no file": ([("purpose", (None, "user_data"))], "file"),
        "no purpose": ([("file", ("a", b"x"))], "purpose"),
        "a wrong purpose": ([("purpose", (None, "fun")), ("file", ("a", b"x"))], "purpose"),
        "a wrong purpose after the file": ([("file", ("a", b"x")), ("purpose", (None, "fun"))], "purpose"),
        "two files": ([("purpose", (None, "user_data")), ("file", ("a", b"x")), ("file", ("b", b"x"))], "file"),
        "a file without a name": ([("purpose", (None, "user_data")), ("file", (None, "x"))], "file"),
        "an unknown field": ([("purpose", (None, "user_data")), ("file", ("a", b"x")), ("colour", (None, "red"))], "colour"),
        "a short life": (
            [("expires_after[anchor]", (None, "created_at")), ("expires_after[seconds]", (None, "3599")), ("file", ("a", b"x"))],
            "expires_after[seconds]",
        ),
        "a long life": ([("expires_after[seconds]", (None, "2592001")), ("file", ("a", b"x"))], "expires_after[seconds]"),
        "a life in words": ([("expires_after[seconds]", (None, "long")), ("file", ("a", b"x"))], "expires_after[seconds]"),
        "another anchor": ([("expires_after[anchor]", (None, "now")), ("file", ("a", b"x"))], "expires_after[anchor]"),
        "half a life": (
            [("purpose", (None, "user_data")), ("expires_after[anchor]", (None, "created_at")), ("file", ("a", b"x"))],
            "expires_after[seconds]",
        ),
    }.values(),
    ids=str,
)
async def test_a_wrong_form_is_refused_and_leaves_nothing(service: Service, form: list[File], param: str) -> None:
    answer = await service.http.post("/files", files=form)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert (service.store.objects(), service.store.records()) == ([], [])


@pytest.mark.parametrize(
    ("content_type", "body"),
    {
        "JSON": ("application/json", b"{}"),
        "no boundary": ("multipart/form-data", b"--x\r\n"),
        "not a form": ("multipart/form-data; boundary=x", b"hello"),
        "an end in the middle": (
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nhel',
        ),
        "an empty body": ("multipart/form-data; boundary=x", b""),
    }.values(),
)
async def test_what_is_no_form_is_refused_and_leaves_nothing(service: Service, content_type: str, body: bytes) -> None:
    answer = await service.http.post("/files", content=body, headers={"content-type": content_type})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert (service.store.objects(), service.store.records()) == ([], [])


async def test_a_body_past_the_limit_is_refused_by_its_length_alone(service: Service) -> None:
    headers = {"content-type": "multipart/form-data; boundary=x", "content-length": str(limits.FILE_BYTES_MAX + 2**20)}
    answer = await service.http.post("/files", content=b"", headers=headers)
    assert answer.status_code == 413


@pytest.mark.parametrize("purpose_first", [True, False])
async def test_the_order_of_the_parts_does_not_matter(service: Service, purpose_first: bool) -> None:
    form: list[File] = [("purpose", (None, "user_data")), ("file", ("a", b"x" * 300_000))]
    answer = await service.http.post("/files", files=form if purpose_first else form[::-1])
    assert answer.json()["bytes"] == 300_000


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("../../etc/passwd", "passwd"), ("C:\\temp\\a.txt", "a.txt"), ("..", "file"), ('a"b', 'a"b'), ("ä" * 200, "ä" * 127)],
)
async def test_a_name_can_only_be_a_name(service: Service, sent: str, kept: str) -> None:
    assert (await upload(service, sent)).filename == kept


@pytest.mark.parametrize(
    ("range_", "status", "expected"),
    [
        ("bytes=2-4", 206, b"234"),
        ("bytes=5-", 206, b"56789"),
        ("bytes=8-99", 206, b"89"),
        ("bytes=0-0", 206, b"0"),
        ("bytes=-3", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
    ],
)
async def test_a_download_can_go_on_where_it_broke_off(service: Service, range_: str, status: int, expected: bytes) -> None:
    file = await upload(service, content=b"0123456789")
    answer = await service.http.get(f"/files/{file.id}/content", headers={"range": range_})
    assert (answer.status_code, answer.content) == (status, expected)


async def test_a_range_outside_the_file_is_refused(service: Service) -> None:
    file = await upload(service, content=b"0123456789")
    answer = await service.http.get(f"/files/{file.id}/content", headers={"range": "bytes=10-"})
    assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */10")


async def test_an_empty_file_is_a_file(service: Service) -> None:
    file = await upload(service, content=b"")
    assert (file.bytes, (await service.sdk.files.content(file.id)).read()) == (0, b"")


async def test_a_download_can_be_left_to_the_bucket(aws_store: Store, clock: Clock) -> None:
    service = build_service(aws_store, clock, presigned_downloads=True)
    file = await upload(service, "a.txt", b"hello")
    answer = await service.http.get(f"/files/{file.id}/content")
    assert answer.status_code == 302
    async with httpx.AsyncClient() as client:
        direct = await client.get(answer.headers["location"])
    assert (direct.status_code, direct.content) == (200, b"hello"), direct.text[:200]
    assert direct.headers["content-disposition"] == "attachment; filename=\"a.txt\"; filename*=UTF-8''a.txt"


async def test_small_parts_come_without_the_bucket_and_large_ones_from_it(
    aws_store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DOWNLOAD_PART_BYTES_MAX", 4)
    service = build_service(aws_store, clock, presigned_downloads=True)
    file = await upload(service, "a.txt", b"hello")
    path = f"/files/{file.id}/content"
    answers = {span: await service.http.get(path, headers={"range": f"bytes={span}"}) for span in ("0-3", "4-99", "0-4", "0-")}
    assert {span: answer.status_code for span, answer in answers.items()} == {"0-3": 206, "4-99": 206, "0-4": 302, "0-": 302}
    assert (answers["0-3"].content, answers["0-3"].headers["content-range"]) == (b"hell", "bytes 0-3/5")
    assert answers["4-99"].content == b"o"


async def test_another_tenant_sees_nothing(service: Service) -> None:
    file = await upload(service)
    assert (await service.stranger.files.list()).data == []
    for call in (service.stranger.files.retrieve, service.stranger.files.delete, service.stranger.files.content):
        with pytest.raises(openai.NotFoundError):
            await call(file.id)
    with pytest.raises(openai.BadRequestError):
        await service.stranger.files.list(after=file.id)
    assert (await service.sdk.files.retrieve(file.id)).id == file.id


async def test_a_file_whose_bytes_are_lost_is_a_404(service: Service) -> None:
    file = await upload(service)
    blobs: Blobs = service.store.blobs
    await blobs.delete(f"T/ten_a/F/{file.id}")
    with pytest.raises(openai.NotFoundError):
        await service.sdk.files.content(file.id)


async def part(service: Service, upload_id: str, data: bytes) -> str:
    return (await service.sdk.uploads.parts.create(upload_id, data=data)).id


def begin(service: Service, size: int, **options: Any) -> Any:
    return service.sdk.uploads.create(
        bytes=size, filename="big.bin", mime_type="application/octet-stream", purpose="user_data", **options
    )


async def test_an_upload_is_put_together_in_the_order_of_its_part_ids(service: Service) -> None:
    started = await begin(service, 10, expires_after={"anchor": "created_at", "seconds": 7200})
    assert started.to_dict() == {
        "id": started.id,
        "object": "upload",
        "bytes": 10,
        "created_at": int(service.clock()),
        "filename": "big.bin",
        "purpose": "user_data",
        "status": "pending",
        "expires_at": int(service.clock()) + 3600,
        "file": None,
    }
    late, early, unused = [await part(service, started.id, data) for data in (b"world", b"hello", b"unused")]
    done = await service.sdk.uploads.complete(started.id, part_ids=[early, late], md5="FC5E038D38A57032085441E7FE7010B0")
    assert unused
    assert done.status == "completed"
    assert done.file is not None
    assert (done.file.filename, done.file.bytes, done.file.expires_at) == ("big.bin", 10, int(service.clock()) + 7200)
    assert (await service.sdk.files.content(done.file.id)).read() == b"helloworld"
    assert service.store.objects() == [f"T/ten_a/F/{done.file.id}"]


async def test_completing_twice_or_at_once_makes_one_file(service: Service) -> None:
    started = await begin(service, 5)
    part_id = await part(service, started.id, b"hello")
    once = await service.sdk.uploads.complete(started.id, part_ids=[part_id])
    twice = await service.sdk.uploads.complete(started.id, part_ids=[part_id])
    assert once.to_dict() == twice.to_dict()
    assert len((await service.sdk.files.list()).data) == 1


@pytest.mark.parametrize(
    ("md5", "size", "parts", "param"),
    {
        "another checksum": ("0" * 32, 5, ["mine"], "md5"),
        "too few bytes": (None, 6, ["mine"], "part_ids"),
        "too many bytes": (None, 5, ["mine", "mine"], "part_ids"),
        "an unknown part": (None, 5, ["part_none"], "part_ids[0]"),
        "no parts": (None, 5, [], "part_ids"),
    }.values(),
)
async def test_a_completion_that_does_not_fit_is_refused(
    service: Service, md5: str | None, size: int, parts: list[str], param: str
) -> None:
    started = await begin(service, size)
    mine = await part(service, started.id, b"hello")
    body: dict[str, Any] = {"part_ids": [mine if name == "mine" else name for name in parts]}
    answer = await service.http.post(f"/uploads/{started.id}/complete", json=body | ({"md5": md5} if md5 else {}))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert (await service.sdk.files.list()).data == []
    assert not any(key.startswith("T/ten_a/F/") for key in service.store.objects())


async def test_a_cancelled_upload_takes_no_more_parts(service: Service) -> None:
    started = await begin(service, 5)
    await part(service, started.id, b"hello")
    assert (await service.sdk.uploads.cancel(started.id)).status == "cancelled"
    assert (await service.sdk.uploads.cancel(started.id)).status == "cancelled"
    assert service.store.objects() == []
    with pytest.raises(openai.BadRequestError, match="cancelled"):
        await part(service, started.id, b"hello")


async def test_an_upload_expires_after_an_hour(service: Service) -> None:
    started = await begin(service, 5)
    part_id = await part(service, started.id, b"hello")
    service.clock.advance(3600)
    with pytest.raises(openai.BadRequestError, match="expired"):
        await service.sdk.uploads.complete(started.id, part_ids=[part_id])
    assert await service.uploads.purge_due(service.clock()) == 1
    assert await service.uploads.purge_due(service.clock()) == 0
    assert service.store.objects() == []


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"bytes": 0}, "bytes"),
        ({"bytes": limits.FILE_BYTES_MAX + 1}, "bytes"),
        ({"purpose": "fun"}, "purpose"),
        ({"filename": ""}, "filename"),
        ({"mime_type": 5}, "mime_type"),
        ({"colour": "red"}, "colour"),
        ({"expires_after": {"anchor": "created_at", "seconds": 1}}, "expires_after.seconds"),
    ],
)
async def test_a_wrong_upload_is_refused(service: Service, change: dict[str, Any], param: str) -> None:
    body = {"bytes": 5, "filename": "a", "mime_type": "text/plain", "purpose": "user_data"} | change
    answer = await service.http.post("/uploads", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_another_tenants_upload_is_a_404(service: Service) -> None:
    started = await begin(service, 5)
    part_id = await part(service, started.id, b"hello")
    for call in (
        service.stranger.uploads.parts.create(started.id, data=b"x"),
        service.stranger.uploads.complete(started.id, part_ids=[part_id]),
        service.stranger.uploads.cancel(started.id),
    ):
        with pytest.raises(openai.NotFoundError):
            await call


async def test_parts_at_once_are_all_there(service: Service) -> None:
    started = await begin(service, 50)
    ids = await asyncio.gather(*(part(service, started.id, bytes([48 + n]) * 5) for n in range(10)))
    done = await service.sdk.uploads.complete(started.id, part_ids=list(ids))
    assert done.file is not None
    expected = b"".join(bytes([48 + n]) * 5 for n in range(10))
    assert (await service.sdk.files.content(done.file.id)).read() == expected
