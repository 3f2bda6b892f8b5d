"""``client.beta.agents.environments.templates``, and environments that are made from one."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from moorage import limits
from moorage.egress.service import EgressService
from moorage.environments.answers import environment_of
from moorage.errors import ApiError
from openai import NotFoundError

from tests.unit.resources.service import Service, build_service
from tests.unit.resources.support import Clock, Store
from tests.unit.resources.test_environments import PLUGIN, SETTINGS, SETUP, inline, opened
from tests.unit.skills.archives import asked_plugin, plugin

WHOLE: Any = {
    "name": "reports",
    "files": [inline("/workspace/notes.txt", b"Be brief."), {"type": "file_id", "file_id": "file-1", "path": "/workspace/in/a.csv"}],
    "skills": [{"type": "skill_reference", "skill_id": "sql", "version": "latest"}],
    "network": {"access": "restricted", "allowed_domains": ["*.example.com"]},
    "packages": {"python": []},
    **SETUP,
}


@pytest.fixture
async def service(store: Store, clock: Clock) -> AsyncIterator[Service]:
    """With a way out to ``*.example.com``."""
    built = build_service(store, clock, egress=EgressService(store.table, None, SETTINGS, lambda: int(clock())))
    built.runtime.settings = SETTINGS
    yield built
    await built.http.aclose()
    await built.sdk.close()
    await built.stranger.close()


async def test_the_sdk_drives_the_whole_life_of_a_template(service: Service) -> None:
    templates = service.sdk.beta.agents.environments.templates
    made = await templates.create(**WHOLE)
    now = int(service.clock())
    whole = {
        "id": made.id,
        "object": "agent.environment.template",
        "created_at": now,
        "updated_at": now,
        "name": "reports",
        "capability_directories": [],
        "desktop": {"enabled": False},
        "files": [
            {"type": "inline", "path": "/workspace/notes.txt", "size_bytes": 9},
            {"type": "file_id", "file_id": "file-1", "path": "/workspace/in/a.csv"},
        ],
        "network": {"access": "restricted", "allowed_domains": ["*.example.com"]},
        "packages": {"npm": [], "python": [], "system": []},
        "plugins": [],
        "skills": [{"type": "skill_reference", "skill_id": "sql", "version": "latest"}],
    }
    assert made.to_dict() == whole
    assert (await templates.retrieve(made.id)).to_dict() == whole
    service.clock.advance(60)
    changed = await templates.update(made.id, name=None, files=[], network=None)
    changes: dict[str, Any] = {
        "updated_at": now + 60,
        "name": None,
        "files": [],
        "network": {"access": "disabled", "allowed_domains": []},
    }
    assert changed.to_dict() == whole | changes
    assert [each.to_dict() async for each in templates.list()] == [whole | changes]
    for asked in (
        service.stranger.beta.agents.environments.templates.retrieve,
        service.stranger.beta.agents.environments.templates.delete,
    ):
        with pytest.raises(NotFoundError):
            await asked(made.id)
    gone = await templates.delete(made.id)
    assert gone.to_dict() == {"id": made.id, "object": "agent.environment.template.deleted", "deleted": True}
    assert [each async for each in templates.list()] == []
    with pytest.raises(NotFoundError):
        await templates.retrieve(made.id)


async def test_a_template_holds_its_content_sealed(service: Service) -> None:
    templates = service.sdk.beta.agents.environments.templates
    made = await templates.create(**WHOLE)
    long = await templates.create(files=[inline("/workspace/a", bytes(range(256)) * 1_000)])
    for told in (repr(service.store.records()), (await service.http.get(f"/agents/environments/templates/{made.id}")).text):
        assert not any(word in told for word in ("word-1", '/workspace/in"', base64.b64encode(b"Be brief.").decode()))
    (key,) = service.store.objects()
    assert b"AAECAwQF" not in await service.store.blobs.get_bytes(key)
    await templates.update(long.id, name="long")
    (other,) = service.store.objects()
    assert other != key
    (file,) = (await templates.retrieve(long.id)).files
    assert file.to_dict() == {"type": "inline", "path": "/workspace/a", "size_bytes": 256_000}
    await templates.update(long.id, files=[])
    assert service.store.objects() == []
    await templates.update(long.id, files=[inline("/workspace/a", bytes(range(256)) * 1_000)])
    await templates.delete(long.id)
    assert service.store.objects() == []


async def test_an_environment_has_the_fields_of_its_template_and_its_own_over_them(service: Service) -> None:
    template = await service.sdk.beta.agents.environments.templates.create(
        name="reports",
        files=[inline("/workspace/notes.txt")],
        network={"access": "restricted", "allowed_domains": ["*.example.com"]},
        **SETUP,
    )
    service.provisioner.programs = lambda sandbox, command: (0, command)
    for given, paths, domains in (
        ({}, ["/workspace/notes.txt"], ["*.example.com"]),
        ({"files": []}, [], ["*.example.com"]),
        ({"network": {"access": "restricted", "allowed_domains": ["api.example.com"]}}, ["/workspace/notes.txt"], ["api.example.com"]),
        ({"network": {"access": "disabled"}}, ["/workspace/notes.txt"], []),
    ):
        record = await opened(service, environment_template_id=template.id, container_size="small", **given)
        shown: Any = await environment_of(service.runtime, record)
        assert ([file["path"] for file in shown["files"]], shown["network"]["allowed_domains"]) == (paths, domains), given
        assert record.memory_limit == "1g"
        async with await service.runtime.computers.containers.sandboxes.ensure("ten_a", record.id) as live:
            assert service.provisioner.sandboxes[live.handle.sandbox_id].variables == {"TOKEN": "word-1"}


WIDER: list[tuple[Any, Any]] = [
    ({"access": "restricted", "allowed_domains": ["api.example.com"]}, {"access": "enabled"}),
    ({"access": "restricted", "allowed_domains": ["api.example.com"]}, {"access": "restricted", "allowed_domains": ["b.example.com"]}),
    ({"access": "disabled"}, {"access": "restricted", "allowed_domains": ["api.example.com"]}),
    (None, {"access": "enabled"}),
]


@pytest.mark.parametrize(("outer", "wanted"), WIDER)
async def test_a_network_is_no_wider_than_the_templates(service: Service, outer: Any, wanted: Any) -> None:
    template = await service.sdk.beta.agents.environments.templates.create(network=outer)
    with pytest.raises(ApiError) as caught:
        await opened(service, environment_template_id=template.id, network=wanted)
    assert (caught.value.param, caught.value.code) == ("environment.network", "invalid_value")


async def test_a_template_keeps_plugins_for_its_environments(service: Service) -> None:
    templates = service.sdk.beta.agents.environments.templates
    asked: Any = [asked_plugin(plugin())]
    made = await templates.create(plugins=asked)
    changed = await templates.update(made.id, name="depots")
    shown: Any = await environment_of(service.runtime, await opened(service, environment_template_id=made.id))
    assert (made.to_dict()["plugins"], changed.to_dict()["plugins"], shown["plugins"]) == ([PLUGIN], [PLUGIN], [PLUGIN])
    without: Any = await environment_of(service.runtime, await opened(service, environment_template_id=made.id, plugins=[]))
    assert without["plugins"] == []


async def test_an_unknown_template_is_told_and_no_environment_is_called_templates(service: Service) -> None:
    with pytest.raises(ApiError) as caught:
        await opened(service, environment_template_id="envtmpl_1")
    assert (caught.value.status, caught.value.param) == (404, "environment.environment_template_id")
    body = {"environment": {"type": "openai_hosted", "environment_template_id": "envtmpl_1"}}
    assert (await service.http.post("/agents/environments", json=body)).json()["error"]["code"] == "environment_template_not_found"
    assert (await service.http.get("/agents/environments/templates")).json()["data"] == []


REFUSED: list[tuple[Any, str | None, str]] = [
    ({"color": "red"}, "color", "unknown_parameter"),
    ({"type": "openai_hosted"}, "type", "unknown_parameter"),
    ({"container_size": "small"}, "container_size", "unknown_parameter"),
    ({"name": "n" * (limits.AGENT_NAME_CHARS_MAX + 1)}, "name", "string_above_max_length"),
    ({"plugins": [{}]}, "plugins[0].type", "missing_required_parameter"),
    ({"plugins": [asked_plugin(plugin(hooks="./hooks.json"))]}, "plugins[0].source.data", "invalid_plugin"),
    ({"files": [inline("/etc/a")]}, "files[0].path", "invalid_value"),
    ({"files": [inline("/workspace/a", bytes(limits.ENVIRONMENT_TEMPLATE_BYTES_MAX))]}, None, "invalid_request_error"),
]


@pytest.mark.parametrize(("body", "param", "code"), REFUSED)
async def test_what_is_not_honoured_is_refused_by_name(service: Service, body: Any, param: str | None, code: str) -> None:
    made = await service.sdk.beta.agents.environments.templates.create()
    for path in ("/agents/environments/templates", f"/agents/environments/templates/{made.id}"):
        error = (await service.http.post(path, json=body)).json()["error"]
        assert (error["param"], error["code"] or error["type"]) == (param, code), error
    assert (await service.sdk.beta.agents.environments.templates.retrieve(made.id)).to_dict() == made.to_dict()
