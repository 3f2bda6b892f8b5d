from typing import Any

import openai
import pytest
from moorage import limits

from tests.unit.resources.service import Service

IDLE = limits.CONTAINER_IDLE_MINUTES_DEFAULT * 60


async def stored(service: Service, name: str = "a.txt", content: bytes = b"hello") -> Any:
    return await service.sdk.files.create(file=(name, content), purpose="user_data")


async def test_a_container_is_shown_as_it_was_made(service: Service) -> None:
    made = await service.sdk.containers.create(
        name="work", expires_after={"anchor": "last_active_at", "minutes": 5}, memory_limit="4g", network_policy={"type": "disabled"}
    )
    now = int(service.clock())
    assert made.to_dict() == {
        "id": made.id,
        "object": "container",
        "created_at": now,
        "status": "running",
        "expires_after": {"anchor": "last_active_at", "minutes": 5},
        "expires_at": now + 300,
        "last_active_at": now,
        "memory_limit": "4g",
        "network_policy": {"type": "disabled"},
        "name": "work",
    }
    assert (await service.sdk.containers.retrieve(made.id)).to_dict() == made.to_dict()
    assert service.provisioner.starts == 0


async def test_the_defaults_are_those_of_the_api(service: Service) -> None:
    made = await service.sdk.containers.create(name="work")
    assert made.expires_after is not None
    assert (made.expires_after.minutes, made.memory_limit) == (20, "1g")


async def test_looking_at_a_container_keeps_it_alive_until_nobody_does(service: Service) -> None:
    made = await service.sdk.containers.create(name="work")
    service.clock.advance(IDLE - 1)
    seen = await service.sdk.containers.retrieve(made.id)
    assert (seen.status, seen.last_active_at) == ("running", int(service.clock()))
    service.clock.advance(IDLE)
    assert (await service.sdk.containers.retrieve(made.id)).status == "expired"
    assert [each.status for each in (await service.sdk.containers.list()).data] == ["expired"]


async def test_an_upload_brings_an_expired_container_back(service: Service) -> None:
    made = await service.sdk.containers.create(name="work")
    service.clock.advance(IDLE)
    await service.sdk.containers.files.create(made.id, file=("a", b"a"))
    assert (await service.sdk.containers.retrieve(made.id)).status == "running"


async def test_a_deleted_container_is_gone(service: Service) -> None:
    made = await service.sdk.containers.create(name="work")
    raw = await service.http.delete(f"/containers/{made.id}")
    assert raw.json() == {"id": made.id, "object": "container.deleted", "deleted": True}
    assert (await service.sdk.containers.list()).data == []
    for call in (service.sdk.containers.retrieve, service.sdk.containers.delete, service.sdk.containers.files.list):
        with pytest.raises(openai.NotFoundError):
            await call(made.id)


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_the_sdk_pages_through_containers_of_a_name(service: Service, order: Any) -> None:
    ids = []
    for number in range(7):
        service.clock.advance(1)
        ids.append((await service.sdk.containers.create(name="odd" if number % 2 else "even")).id)
    read = [each.id async for each in service.sdk.containers.list(limit=2, order=order, name="even")]
    assert read == (ids[::2] if order == "asc" else ids[::2][::-1])
    read = [each.id async for each in service.sdk.containers.list(limit=3, order=order)]
    assert read == (ids if order == "asc" else ids[::-1])


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({}, "name", "missing_required_parameter"),
        ({"name": ""}, "name", "string_below_min_length"),
        ({"name": 5}, "name", "invalid_type"),
        ({"name": "c", "memory_limit": "2g"}, "memory_limit", "invalid_value"),
        ({"name": "c", "expires_after": {"anchor": "last_active_at"}}, "expires_after.minutes", "missing_required_parameter"),
        ({"name": "c", "expires_after": {"anchor": "now", "minutes": 5}}, "expires_after.anchor", "invalid_value"),
        ({"name": "c", "expires_after": {"anchor": "last_active_at", "minutes": 0}}, "expires_after.minutes", None),
        ({"name": "c", "skills": [{"type": "skill_reference", "skill_id": "s"}]}, "skills[0].skill_id", None),
        ({"name": "c", "file_ids": ["file-none"]}, "file_ids[0]", "file_not_found"),
        ({"name": "c", "network_policy": {"type": "open"}}, "network_policy.type", "invalid_value"),
        (
            {"name": "c", "network_policy": {"type": "allowlist", "allowed_domains": ["a.example"]}},
            "network_policy",
            "network_unavailable",
        ),
        ({"name": "c", "colour": "red"}, "colour", "unknown_parameter"),
    ],
)
async def test_a_wrong_container_is_refused_by_name(service: Service, body: dict[str, Any], param: str, code: str | None) -> None:
    answer = await service.http.post("/containers", json=body)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"] == param
    if code is not None:
        assert answer.json()["error"]["code"] == code
    assert (await service.sdk.containers.list()).data == []


async def test_what_is_no_json_is_refused(service: Service) -> None:
    for body in (b"", b"[]", b"{", b'"x"'):
        answer = await service.http.post("/containers", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400


async def test_files_come_in_by_upload_and_by_id(service: Service) -> None:
    file = await stored(service, "by-id.txt", b"by id")
    made = await service.sdk.containers.create(name="work", file_ids=[file.id])
    service.clock.advance(1)
    uploaded = await service.sdk.containers.files.create(made.id, file=("uploaded.txt", b"uploaded"))
    assert uploaded.to_dict() == {
        "id": uploaded.id,
        "object": "container.file",
        "bytes": 8,
        "container_id": made.id,
        "created_at": int(service.clock()),
        "path": "/mnt/data/uploaded.txt",
        "source": "user",
    }
    other = await stored(service, "other.txt", b"other")
    service.clock.advance(1)
    raw = await service.http.post(f"/containers/{made.id}/files", json={"file_id": other.id})
    assert raw.json()["path"] == "/mnt/data/other.txt"
    listed = [each.path async for each in service.sdk.containers.files.list(made.id, limit=2, order="asc")]
    assert listed == ["/mnt/data/by-id.txt", "/mnt/data/uploaded.txt", "/mnt/data/other.txt"]
    assert (await service.sdk.containers.files.retrieve(uploaded.id, container_id=made.id)).to_dict() == uploaded.to_dict()
    content = await service.sdk.containers.files.content.retrieve(uploaded.id, container_id=made.id)
    assert content.read() == b"uploaded"


async def test_the_sdk_can_give_a_file_id_where_a_form_is_expected(service: Service) -> None:
    file, made = await stored(service), await service.sdk.containers.create(name="work")
    added = await service.sdk.containers.files.create(made.id, file_id=file.id)
    assert (added.path, added.bytes) == ("/mnt/data/a.txt", 5)


async def test_a_deleted_container_file_is_gone(service: Service) -> None:
    made = await service.sdk.containers.create(name="work")
    added = await service.sdk.containers.files.create(made.id, file=("a", b"a"))
    raw = await service.http.delete(f"/containers/{made.id}/files/{added.id}")
    assert raw.json() == {"id": added.id, "object": "container.file.deleted", "deleted": True}
    assert service.store.objects() == []
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/content")):
        answer = await service.http.request(method, f"/containers/{made.id}/files/{added.id}{path}")
        assert (answer.status_code, answer.json()["error"]["message"]) == (404, f"Container file with id '{added.id}' not found.")


async def test_deleting_files_while_paging_reaches_every_one(service: Service) -> None:
    made = await service.sdk.containers.create(name="work")
    for number in range(5):
        await service.sdk.containers.files.create(made.id, file=(f"{number}", b"a"))
    async for file in service.sdk.containers.files.list(made.id, limit=2):
        await service.sdk.containers.files.delete(file.id, container_id=made.id)
    assert (await service.sdk.containers.files.list(made.id)).data == []
    assert service.store.objects() == []


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ([("colour", (None, "red"))], "colour"),
        ([("file", (None, "x"))], "file"),
        ([("file", ("a", b"x")), ("file", ("b", b"x"))], "file"),
        ([("file_id", (None, "file-none"))], "file_id"),
    ],
)
async def test_a_wrong_container_file_is_refused_by_name(service: Service, form: list[Any], param: str) -> None:
    made = await service.sdk.containers.create(name="work")
    answer = await service.http.post(f"/containers/{made.id}/files", files=form)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"] == param


async def test_another_tenant_sees_nothing_of_a_container(service: Service) -> None:
    made = await service.sdk.containers.create(name="work")
    added = await service.sdk.containers.files.create(made.id, file=("a", b"a"))
    foreign = await service.stranger.files.create(file=("b", b"b"), purpose="user_data")
    stranger = service.stranger.containers
    assert (await stranger.list()).data == []
    for call in (
        stranger.retrieve(made.id),
        stranger.delete(made.id),
        stranger.files.list(made.id),
        stranger.files.create(made.id, file=("x", b"x")),
        stranger.files.retrieve(added.id, container_id=made.id),
        stranger.files.content.retrieve(added.id, container_id=made.id),
        stranger.files.delete(added.id, container_id=made.id),
        service.sdk.containers.create(name="x", file_ids=[foreign.id]),
        service.sdk.containers.files.create(made.id, file_id=foreign.id),
    ):
        with pytest.raises(openai.NotFoundError):
            await call
    assert [file.id for file in (await service.sdk.containers.files.list(made.id)).data] == [added.id]
