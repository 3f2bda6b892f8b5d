"""``/v1/skills`` as the SDK drives it."""

import asyncio
import base64
from typing import Any

import openai
import pytest
from moorage import limits
from moorage.skills import bundle
from openai.types import Skill
from openai.types.skills import SkillVersion

from tests.unit.resources.service import Service
from tests.unit.skills.archives import MANIFEST, skill, zip_of

EDITED = MANIFEST.replace(b"Makes tables.", b"Makes better tables.")


def folder(manifest: bytes = MANIFEST, **files: bytes) -> list[tuple[str, bytes]]:
    return list((skill(**files) | {"tables/SKILL.md": manifest}).items())


async def push(service: Service, manifest: bytes = MANIFEST, **files: bytes) -> Skill:
    return await service.sdk.skills.create(files=folder(manifest, **files))


async def version(service: Service, skill_id: str, manifest: bytes, **options: Any) -> SkillVersion:
    return await service.sdk.skills.versions.create(skill_id, files=folder(manifest), **options)


def manifest(number: int) -> bytes:
    return MANIFEST.replace(b"Makes tables.", f"Makes tables, edition {number}.".encode())


def objects(service: Service) -> int:
    return len([key for key in service.store.objects() if key.startswith("T/ten_a/S/")])


async def test_a_folder_becomes_a_skill(service: Service) -> None:
    made = await push(service, scripts__run=b"#!/bin/sh\n")
    assert made.to_dict() == {
        "id": made.id,
        "object": "skill",
        "name": "make-tables",
        "description": "Makes tables.",
        "created_at": int(service.clock()),
        "default_version": "1",
        "latest_version": "1",
    }
    assert (await service.sdk.skills.retrieve(made.id)).to_dict() == made.to_dict()
    content = await service.sdk.skills.content.retrieve(made.id)
    disposition = content.response.headers["content-disposition"]
    assert disposition == "attachment; filename=\"make-tables.zip\"; filename*=UTF-8''make-tables.zip"
    assert [(entry.path, entry.is_executable) for entry in bundle.unpacked(content.read())] == [
        ("SKILL.md", False),
        ("scripts/run.txt", True),
    ]


async def test_a_zip_becomes_a_skill_and_the_same_files_are_stored_once(service: Service) -> None:
    made = await service.sdk.skills.create(files=("tables.zip", zip_of(skill(data=b"1"))))
    again = await push(service, data=b"1")
    assert (made.name, again.name) == ("make-tables", "make-tables")
    assert made.id != again.id
    assert objects(service) == 1
    assert (await service.sdk.skills.content.retrieve(made.id)).read() == (await service.sdk.skills.content.retrieve(again.id)).read()


async def test_versions_are_counted_and_one_is_the_default(service: Service) -> None:
    made = await push(service)
    second = await version(service, made.id, manifest(2))
    third = await version(service, made.id, manifest(3), default=True)
    assert second.to_dict() == {
        "id": second.id,
        "object": "skill.version",
        "skill_id": made.id,
        "version": "2",
        "name": "make-tables",
        "description": "Makes tables, edition 2.",
        "created_at": int(service.clock()),
    }
    assert (await service.sdk.skills.versions.retrieve("2", skill_id=made.id)).to_dict() == second.to_dict()
    now = await service.sdk.skills.retrieve(made.id)
    assert (now.default_version, now.latest_version, now.description) == ("3", "3", "Makes tables, edition 3.")
    back = await service.sdk.skills.update(made.id, default_version="2")
    assert (back.default_version, back.latest_version, back.description) == ("2", "3", "Makes tables, edition 2.")
    assert (await service.sdk.skills.update(made.id, default_version=1)).default_version == "1"  # type: ignore[arg-type]
    assert third.version == "3"


async def test_versions_are_listed_by_pages_in_both_directions(service: Service) -> None:
    made = await push(service)
    for number in range(2, 6):
        await version(service, made.id, manifest(number))
    await service.sdk.skills.versions.delete("3", skill_id=made.id)
    for order, expected in (("desc", ["5", "4", "2", "1"]), ("asc", ["1", "2", "4", "5"])):
        pages = service.sdk.skills.versions.list(made.id, limit=2, order=order)  # type: ignore[arg-type]
        assert [each.version async for each in pages] == expected
    with pytest.raises(openai.BadRequestError, match="'skillver_1_7' is not in this list"):
        await service.sdk.skills.versions.list(made.id, after="skillver_1_7")


async def test_skills_are_listed_and_a_deleted_one_marks_its_place(service: Service) -> None:
    made = []
    for number in range(3):
        made.append((await push(service, manifest(number))).id)
        service.clock.advance(1)
    assert [each.id async for each in service.sdk.skills.list(limit=1)] == made[::-1]
    await service.sdk.skills.delete(made[1])
    assert [each.id for each in (await service.sdk.skills.list(after=made[1])).data] == [made[0]]
    assert [each.id for each in (await service.stranger.skills.list()).data] == []


async def test_content_is_that_of_the_version(service: Service) -> None:
    made = await push(service)
    await version(service, made.id, EDITED)
    old = await service.sdk.skills.content.retrieve(made.id)
    new = await service.sdk.skills.versions.content.retrieve("2", skill_id=made.id)
    assert next(bundle.unpacked(old.read())).content == MANIFEST
    assert next(bundle.unpacked(new.read())).content == EDITED


async def test_the_default_version_stays_and_the_last_one_takes_the_skill_along(service: Service) -> None:
    made = await push(service)
    await version(service, made.id, EDITED)
    with pytest.raises(openai.BadRequestError, match=r"Version '1' is the default version of this skill\. Make another one"):
        await service.sdk.skills.versions.delete("1", skill_id=made.id)
    gone = await service.sdk.skills.versions.delete("2", skill_id=made.id)
    assert (gone.object, gone.deleted, gone.version) == ("skill.version.deleted", True, "2")
    with pytest.raises(openai.NotFoundError, match=f"Skill with id '{made.id}' has no version '2'"):
        await service.sdk.skills.versions.retrieve("2", skill_id=made.id)
    assert (await version(service, made.id, EDITED)).version == "3"
    await service.sdk.skills.versions.delete("3", skill_id=made.id)
    await service.sdk.skills.versions.delete("1", skill_id=made.id)
    with pytest.raises(openai.NotFoundError):
        await service.sdk.skills.retrieve(made.id)


async def test_deleted_bundles_leave_the_bucket_unless_another_version_has_them(service: Service) -> None:
    first, second = await push(service), await push(service)
    await version(service, second.id, EDITED)
    assert (await service.sdk.skills.delete(first.id)).to_dict() == {"id": first.id, "object": "skill.deleted", "deleted": True}
    await sweep_in_an_hour(service)
    assert objects(service) == 2
    assert (await service.sdk.skills.content.retrieve(second.id)).read()
    await service.sdk.skills.delete(second.id)
    await sweep_in_an_hour(service)
    assert objects(service) == 0
    left = [item for item in service.store.records() if item["SK"]["S"] != "GONE"]
    assert left == []


async def test_a_bundle_that_is_named_again_in_time_stays(service: Service) -> None:
    first = await push(service)
    await service.sdk.skills.delete(first.id)
    second = await push(service)
    await sweep_in_an_hour(service)
    assert (await service.sdk.skills.content.retrieve(second.id)).read()


async def sweep_in_an_hour(service: Service) -> None:
    service.clock.advance(limits.SKILL_UNUSED_SECONDS + 1)
    await service.runtime.stores.skills.purge_due(service.clock())
    await service.runtime.stores.skills.purge_due(service.clock())


async def test_uploads_and_deletions_at_once_lose_nothing(service: Service) -> None:
    made = await push(service)
    await asyncio.gather(*(version(service, made.id, EDITED) for _ in range(4)))
    others = await asyncio.gather(*(push(service, EDITED) for _ in range(3)))
    await asyncio.gather(*(service.sdk.skills.delete(other.id) for other in others), push(service, EDITED))
    await sweep_in_an_hour(service)
    assert [each.version async for each in service.sdk.skills.versions.list(made.id, order="asc")] == ["1", "2", "3", "4", "5"]
    assert (await service.sdk.skills.versions.content.retrieve("5", skill_id=made.id)).read()
    assert objects(service) == 2


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([("tables/README.md", b"x")], "Invalid skill: The bundle has no SKILL.md."),
        ([("tables/SKILL.md", MANIFEST), ("tables/../x", b"x")], "Invalid skill: The name 'tables/../x' is not allowed"),
        (("skill.zip", b"no zip"), "Invalid skill: The zip file cannot be read"),
    ],
)
async def test_what_is_no_skill_is_refused_and_leaves_nothing(service: Service, files: Any, message: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await service.sdk.skills.create(files=files)
    assert isinstance(refused.value.body, dict)
    assert (refused.value.param, refused.value.code) == ("files", "invalid_skill")
    assert refused.value.body["message"].startswith(message)
    assert (service.store.records(), service.store.objects()) == ([], [])


async def test_forms_of_another_kind_are_refused_by_name(service: Service) -> None:
    async def refusal(path: str = "/skills", **request: Any) -> tuple[int, Any]:
        answer = await service.http.post(path, **request)
        return answer.status_code, answer.json()["error"]["message"]

    made = await push(service)
    one = {"files": ("tables.zip", zip_of(skill()))}
    assert await refusal(json={"files": "x"}) == (400, "The request must be multipart/form-data with a boundary.")
    assert await refusal(files={"other": ("a", b"")}) == (400, "Unknown parameter: 'other'.")
    assert await refusal(files=one, data={"default": "true"}) == (400, "Unknown parameter: 'default'.")
    assert await refusal(f"/skills/{made.id}/versions", files=one, data={"default": "maybe"}) == (
        400,
        "Invalid type for 'default': expected a boolean, but got a string instead.",
    )
    assert await refusal(files={"files": (None, b"")}) == (
        400,
        "Invalid type for 'files': expected a file with a name, but got a field without one instead.",
    )
    assert await refusal(f"/skills/{made.id}", json={"default_version": "7"}) == (
        404,
        f"Skill with id '{made.id}' has no version '7'.",
    )
    assert await refusal(f"/skills/{made.id}", json={"default_version": True}) == (
        400,
        "Invalid type for 'default_version': expected a string, but got a boolean instead.",
    )
    assert await refusal(f"/skills/{made.id}", json={}) == (400, "Missing required parameter: 'default_version'.")


async def test_another_tenant_finds_none_of_it(service: Service) -> None:
    made = await push(service)
    stranger = service.stranger.skills
    tries: list[Any] = [
        stranger.retrieve(made.id),
        stranger.update(made.id, default_version="1"),
        stranger.delete(made.id),
        stranger.content.retrieve(made.id),
        stranger.versions.create(made.id, files=folder()),
        stranger.versions.list(made.id),
        stranger.versions.retrieve("1", skill_id=made.id),
        stranger.versions.delete("1", skill_id=made.id),
        stranger.versions.content.retrieve("1", skill_id=made.id),
    ]
    for attempt in tries:
        with pytest.raises(openai.NotFoundError, match=f"Skill with id '{made.id}' not found."):
            await attempt


async def test_a_container_is_made_with_skills_and_keeps_them(service: Service) -> None:
    made = await push(service, data=b"1")
    await version(service, made.id, manifest(2))
    inline = zip_of({"x/SKILL.md": manifest(9)})
    container = await service.sdk.containers.create(
        name="c",
        skills=[
            {"type": "skill_reference", "skill_id": made.id},
            {"type": "skill_reference", "skill_id": made.id, "version": "latest"},
            {
                "type": "inline",
                "name": "make-tables",
                "description": "Makes tables, edition 9.",
                "source": {"type": "base64", "media_type": "application/zip", "data": base64.b64encode(inline).decode()},
            },
        ],
    )
    assert await mounted(service, container.id) == ["Makes tables, edition 2.", "Makes tables, edition 9.", "Makes tables."]
    told = (await service.http.get(f"/containers/{container.id}/skills")).json()["data"]
    assert sorted((each["name"], each["description"], each["skill_id"], each["version"]) for each in told if each["skill_id"]) == [
        ("make-tables", "Makes tables, edition 2.", made.id, "2"),
        ("make-tables", "Makes tables.", made.id, "1"),
    ]
    (own,) = [each for each in told if each["skill_id"] is None]
    folder = own["path"].rpartition("/")[2]
    assert own == {
        "id": folder,
        "object": "container.skill",
        "name": "make-tables",
        "description": "Makes tables, edition 9.",
        "path": f"/home/oai/skills/{folder}",
        "skill_id": None,
        "version": None,
    }
    await service.sdk.skills.delete(made.id)
    await sweep_in_an_hour(service)
    service.provisioner.sandboxes["sb-1"].is_alive = False
    assert await mounted(service, container.id) == ["Makes tables, edition 2.", "Makes tables, edition 9.", "Makes tables."]
    assert service.provisioner.starts == 2
    await service.sdk.containers.delete(container.id)
    assert [key for key in service.store.objects() if "/C/" in key] == []


async def mounted(service: Service, container_id: str) -> list[str]:
    """The descriptions of the skills in the container's sandbox, sorted."""
    async with await service.runtime.computers.containers.sandboxes.ensure("ten_a", container_id) as live:
        sandbox = service.provisioner.sandboxes[live.handle.sandbox_id]
    return sorted(bundle.of_zip(archive).description for archive in sandbox.skills.values())


REFERENCE = {"type": "skill_reference", "skill_id": "skill_0"}
INLINE = {"type": "inline", "name": "make-tables", "description": "Makes tables."}


def source(data: str, media_type: str = "application/zip") -> dict[str, str]:
    return {"type": "base64", "media_type": media_type, "data": data}


@pytest.mark.parametrize(
    ("skills", "status", "param", "message"),
    [
        ([REFERENCE], 404, "skills[0].skill_id", "Skill with id 'skill_0' not found."),
        ([{"type": "other"}], 400, "skills[0].type", "Invalid value: 'other'. Supported values are: 'inline' and 'skill_reference'."),
        (
            [INLINE | {"source": source("%")}],
            400,
            "skills[0].source.data",
            "Invalid value for 'skills[0].source.data': it is not base64",
        ),
        (
            [INLINE | {"source": source("é")}],
            400,
            "skills[0].source.data",
            "Invalid value for 'skills[0].source.data': it is not base64",
        ),
        ([INLINE | {"source": source("QQ==")}], 400, "skills[0].source.data", "Invalid skill: The zip file cannot be read"),
        (
            [INLINE | {"name": "other", "source": source(base64.b64encode(MANIFEST).decode(), "text/markdown")}],
            400,
            "skills[0].name",
            "Invalid value for 'skills[0].name': it must be the name in the front matter of SKILL.md.",
        ),
        ([{**REFERENCE, "skill_id": "moorage-nothing"}], 404, "skills[0].skill_id", "Skill with id 'moorage-nothing' not found."),
    ],
)
async def test_skills_that_cannot_be_had_are_refused_where_they_stand(
    service: Service, skills: Any, status: int, param: str, message: str
) -> None:
    answer = await service.http.post("/containers", json={"name": "c", "skills": skills})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param)
    assert error["message"].startswith(message)
    assert service.store.records() == []


async def test_a_text_alone_is_a_skill(service: Service) -> None:
    skill_of_text = INLINE | {"source": source(base64.b64encode(MANIFEST).decode(), "text/markdown")}
    answer = await service.http.post("/containers", json={"name": "c", "skills": [skill_of_text, skill_of_text]})
    assert await mounted(service, answer.json()["id"]) == ["Makes tables."]
