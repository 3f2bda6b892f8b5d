"""Environments of the Agents API, which are containers: made, found and shown."""

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import ANY

import pytest
from moorage import limits
from moorage.containers.containers import Containers
from moorage.containers.store import ContainerRecord
from moorage.egress.service import EgressService
from moorage.environments.answers import environment_of, info_of, state_of
from moorage.environments.opening import open_environment
from moorage.environments.shapes import EnvironmentParam
from moorage.errors import ApiError, SandboxOrdered, SandboxSettingUp, SetupFailed
from moorage.settings import Settings
from moorage.wire.validation import Fields, JsonValidator
from openai import BadRequestError, NotFoundError

from tests.unit.resources.service import Service, build_service
from tests.unit.resources.support import Clock, FakeSandbox, Store
from tests.unit.skills.archives import asked_plugin, plugin, skill, zip_of

HOSTED: Any = {"type": "openai_hosted"}
PARSE: JsonValidator[Fields] = JsonValidator(EnvironmentParam)
SETTINGS = Settings("t", "b", allowed_egress_domains=("*.example.com",), egress_proxy="unix:/run/egress.sock")


@pytest.fixture
async def service(store: Store, clock: Clock) -> AsyncIterator[Service]:
    """With a way out to ``*.example.com``."""
    built = build_service(store, clock, egress=EgressService(store.table, None, SETTINGS, lambda: int(clock())))
    built.runtime.settings = SETTINGS
    yield built
    await built.http.aclose()
    await built.sdk.close()
    await built.stranger.close()


async def opened(service: Service, **spec: Any) -> ContainerRecord:
    record = await open_environment(service.runtime, "ten_a", PARSE({**HOSTED, **spec}), param="environment")
    assert record is not None
    return record


def inline(path: str, content: bytes = b"a,b\n") -> Any:
    return {"type": "inline", "path": path, "data": base64.b64encode(content).decode()}


async def test_no_environment_is_no_container(service: Service) -> None:
    assert await open_environment(service.runtime, "ten_a", PARSE({"type": "none"}), param="environment") is None
    assert await environment_of(service.runtime, None) == {"type": "none"}
    assert service.store.records() == []


async def test_an_environment_is_a_container_with_its_files_skills_and_network(service: Service) -> None:
    uploaded = await service.sdk.files.create(file=("sales.csv", b"1,2\n"), purpose="user_data")
    made = await service.sdk.skills.create(files=list(skill().items()))
    record = await opened(
        service,
        container_size="small",
        files=[
            {"type": "file_id", "file_id": uploaded.id, "path": "/workspace/in/2026/sales.csv"},
            inline("/workspace/in/../notes.txt", b"Be brief."),
        ],
        skills=[{"type": "skill_reference", "skill_id": made.id, "version": "latest"}],
        network={"access": "restricted", "allowed_domains": ["api.example.com"]},
    )
    container = await service.sdk.containers.retrieve(record.id)
    assert (container.memory_limit, container.to_dict()["network_policy"]) == (
        "1g",
        {"type": "allowlist", "allowed_domains": ["api.example.com"]},
    )
    files = {file.path: file.id async for file in service.sdk.containers.files.list(record.id)}
    assert sorted(files) == ["/mnt/data/in/2026/sales.csv", "/mnt/data/notes.txt"]
    assert await environment_of(service.runtime, record) == {
        "id": record.id,
        "type": "openai_hosted",
        "capability_directories": [],
        "container_size": "small",
        "desktop": {"enabled": False},
        "files": [
            {
                "type": "file_id",
                "id": files["/mnt/data/in/2026/sales.csv"],
                "file_id": uploaded.id,
                "path": "/workspace/in/2026/sales.csv",
                "size_bytes": 4,
            },
            {"type": "inline", "id": files["/mnt/data/notes.txt"], "path": "/workspace/notes.txt", "size_bytes": 9},
        ],
        "network": {"access": "restricted", "allowed_domains": ["api.example.com"]},
        "packages": {"npm": [], "python": [], "system": []},
        "plugins": [],
        "skills": [
            {
                "type": "skill_reference",
                "skill_id": made.id,
                "version": "1",
                "name": "make-tables",
                "description": "Makes tables.",
            }
        ],
    }
    async with await service.runtime.computers.containers.sandboxes.ensure("ten_a", record.id):
        (sandbox,) = service.provisioner.sandboxes.values()
        assert {path: content for path, (content, _, _) in sandbox.files.items()} == {
            "in/2026/sales.csv": b"1,2\n",
            "notes.txt": b"Be brief.",
        }


async def test_what_is_left_open_is_a_medium_container_without_a_network(service: Service) -> None:
    record = await opened(service)
    shown = await environment_of(service.runtime, record)
    assert shown == {
        "id": record.id,
        "type": "openai_hosted",
        "capability_directories": [],
        "container_size": "medium",
        "desktop": {"enabled": False},
        "files": [],
        "network": {"access": "disabled", "allowed_domains": []},
        "packages": {"npm": [], "python": [], "system": []},
        "plugins": [],
        "skills": [],
    }


async def test_an_inline_skill_is_one_of_the_container(service: Service) -> None:
    source = {"type": "base64", "media_type": "application/zip", "data": base64.b64encode(zip_of(skill())).decode()}
    asked = {"type": "inline", "name": "make-tables", "description": "Makes tables.", "source": source}
    shown: Any = await environment_of(service.runtime, await opened(service, skills=[asked]))
    assert shown["skills"] == [{"type": "inline", "name": "make-tables", "description": "Makes tables."}]


PLUGIN: dict[str, Any] = {"type": "inline", "name": "depot", "description": "Knows the depot."}


async def test_a_plugin_is_shown_and_its_skills_are_those_of_the_container(service: Service) -> None:
    record = await opened(service, plugins=[asked_plugin(plugin())])
    for shown in (await environment_of(service.runtime, record), await info_of(service.runtime, record)):
        assert (shown["plugins"], shown["skills"]) == ([PLUGIN], [])  # type: ignore[typeddict-item]
    (row,) = await service.runtime.computers.containers.skills.of(record)
    assert (row.name, row.description, row.plugin) == ("make-tables", "Makes tables.", "depot")
    copy, _ = await service.runtime.computers.containers.copy(record, at_ms=None)
    assert (copy.plugins, await service.runtime.computers.containers.skills.of(copy)) == (record.plugins, [replace(row, key=ANY)])


async def test_a_skill_of_a_plugin_that_is_given_by_itself_too_is_shown(service: Service) -> None:
    source = {"type": "base64", "media_type": "application/zip", "data": base64.b64encode(zip_of(skill())).decode()}
    asked = {"type": "inline", "name": "make-tables", "description": "Makes tables.", "source": source}
    shown: Any = await environment_of(service.runtime, await opened(service, skills=[asked], plugins=[asked_plugin(plugin())]))
    assert (shown["plugins"], [each["name"] for each in shown["skills"]]) == ([PLUGIN], ["make-tables"])


@pytest.mark.parametrize(
    ("asked", "place", "code", "said"),
    [
        (asked_plugin(plugin(mcpServers="./.mcp.json")), "source.data", "invalid_plugin", "Invalid plugin: 'mcpServers' in "),
        (
            asked_plugin(plugin() | {"hooks/hooks.json": b"{}"}),
            "source.data",
            "invalid_plugin",
            "Invalid plugin: 'hooks/hooks.json' ",
        ),
        (asked_plugin(plugin(), name="other"), "name", "invalid_value", "Invalid value for "),
        (asked_plugin(plugin(), description="Other."), "description", "invalid_value", "Invalid value for "),
        (
            asked_plugin({}, source={"type": "base64", "media_type": "application/zip", "data": "%"}),
            "source.data",
            "invalid_value",
            "Invalid value for 'environment.plugins[0].source.data': it is not base64 (",
        ),
    ],
)
async def test_a_plugin_that_cannot_be_given_is_refused_by_name(
    service: Service, asked: dict[str, Any], place: str, code: str, said: str
) -> None:
    with pytest.raises(ApiError) as caught:
        await opened(service, plugins=[asked])
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, f"environment.plugins[0].{place}", code)
    assert caught.value.message.startswith(said)


async def test_an_enabled_network_is_what_the_operator_lets_containers_reach(service: Service) -> None:
    record = await opened(service, network={"access": "enabled"})
    assert record.network_policy == {"type": "allowlist", "allowed_domains": ["*.example.com"]}
    shown: Any = await environment_of(service.runtime, record)
    assert shown["network"] == {"access": "enabled", "allowed_domains": ["*.example.com"]}
    service.runtime.settings = replace(SETTINGS, allowed_egress_domains=())
    with pytest.raises(ApiError) as caught:
        await opened(service, network={"access": "enabled"})
    assert (caught.value.param, caught.value.code) == ("environment.network.access", "network_unavailable")


async def test_a_container_that_is_there_is_taken_as_it_is(service: Service) -> None:
    container = await service.sdk.containers.create(name="mine")
    assert (await opened(service, environment_id=container.id)).id == container.id
    with pytest.raises(ApiError) as caught:
        await open_environment(service.runtime, "ten_b", PARSE({**HOSTED, "environment_id": container.id}), param="environment")
    assert (caught.value.status, caught.value.param) == (404, "environment.environment_id")


REFUSED: list[tuple[Any, str, str]] = [
    ({"type": "self_hosted", "workspace_directory": "/w"}, "type", "unsupported_value"),
    ({"type": "cloud"}, "type", "invalid_value"),
    ({"type": "none", "files": []}, "files", "unknown_parameter"),
    ({**HOSTED, "container_size": "huge"}, "container_size", "invalid_value"),
    ({**HOSTED, "environment_id": "cntr_1", "container_size": "small"}, "environment_id", "invalid_value"),
    ({**HOSTED, "plugins": [{"type": "inline"}]}, "plugins[0].name", "missing_required_parameter"),
    ({**HOSTED, "plugins": [asked_plugin(plugin())] * 2}, "plugins", "invalid_value"),
    (
        {**HOSTED, "plugins": [asked_plugin({}, name=f"p{n}") for n in range(limits.ENVIRONMENT_PLUGINS_MAX + 1)]},
        "plugins",
        "array_above_max_length",
    ),
    ({**HOSTED, "capability_directories": ["/workspace/x"]}, "capability_directories", "invalid_value"),
    ({**HOSTED, "desktop": {"enabled": True}}, "desktop.enabled", "unsupported_value"),
    ({**HOSTED, "network": {"access": "restricted"}}, "network.allowed_domains", "invalid_value"),
    ({**HOSTED, "network": {"access": "enabled", "allowed_domains": ["a.example.com"]}}, "network.allowed_domains", "invalid_value"),
    ({**HOSTED, "network": {"access": "restricted", "blocked_domains": ["a.example"]}}, "network.blocked_domains", "invalid_value"),
    ({**HOSTED, "packages": {"python": ["git+https://a.example/b"]}}, "packages.python[0]", "invalid_value"),
    ({**HOSTED, "packages": {"python": ["a; import os"]}}, "packages.python[0]", "invalid_value"),
    ({**HOSTED, "packages": {"npm": ["-g"]}}, "packages.npm[0]", "invalid_value"),
    ({**HOSTED, "packages": {"npm": ["a@npm:b"]}}, "packages.npm[0]", "invalid_value"),
    ({**HOSTED, "packages": {"system": ["curl"]}}, "packages.system", "invalid_value"),
    ({**HOSTED, "env": {"PATH": "/"}}, "env", "invalid_value"),
    ({**HOSTED, "env": {"MOORAGE_X": "/"}}, "env", "invalid_value"),
    ({**HOSTED, "env": {"a-b": "/"}}, "env", "invalid_value"),
    ({**HOSTED, "env": {"A": "a\0b"}}, "env.A", "invalid_value"),
    ({**HOSTED, "env": {f"A{n}": "" for n in range(limits.ENVIRONMENT_VARIABLES_MAX + 1)}}, "env", "object_above_max_properties"),
    ({**HOSTED, "env": {"A": "a" * (limits.SETUP_BYTES_MAX + 1)}}, "env", "invalid_value"),
    ({**HOSTED, "setup_commands": [{"command": "a", "cwd": "in"}]}, "setup_commands[0].cwd", "invalid_value"),
    ({**HOSTED, "setup_commands": [{"cwd": "/workspace"}]}, "setup_commands[0].command", "missing_required_parameter"),
    ({**HOSTED, "setup_commands": [{"command": "a"}] * (limits.SETUP_COMMANDS_MAX + 1)}, "setup_commands", "array_above_max_length"),
    ({**HOSTED, "files": [{"type": "inline", "data": "%", "path": "/workspace/a"}]}, "files[0].data", "invalid_value"),
    ({**HOSTED, "files": [inline("notes.txt")]}, "files[0].path", "invalid_value"),
    ({**HOSTED, "files": [inline("/mnt/data/notes.txt")]}, "files[0].path", "invalid_value"),
    ({**HOSTED, "files": [inline("/workspace/../etc/passwd")]}, "files[0].path", "invalid_value"),
    ({**HOSTED, "files": [inline("/workspace/")]}, "files[0].path", "invalid_value"),
    ({**HOSTED, "files": [inline("/workspace/outputs")]}, "files[0].path", "invalid_value"),
    ({**HOSTED, "files": [inline("/workspace/" + "a" * 256)]}, "files[0].path", "invalid_value"),
    ({**HOSTED, "files": [inline("/workspace/" + "a/" * 600 + "a")]}, "files[0].path", "string_above_max_length"),
    ({**HOSTED, "files": [inline("/workspace/a"), inline("/workspace/./a")]}, "files", "invalid_value"),
    ({**HOSTED, "files": [inline("/workspace/a"), inline("/workspace/a/b/c")]}, "files", "invalid_value"),
    ({**HOSTED, "files": [inline("/workspace/a")] * (limits.ENVIRONMENT_FILES_MAX + 1)}, "files", "array_above_max_length"),
]


@pytest.mark.parametrize(("spec", "param", "code"), REFUSED)
def test_what_is_not_honoured_is_refused_by_name(spec: Any, param: str, code: str) -> None:
    with pytest.raises(ApiError) as caught:
        PARSE(spec)
    assert (caught.value.param, caught.value.code) == (param, code), caught.value.message


UNMADE: list[tuple[Any, str, int]] = [
    ({"files": [{"type": "file_id", "file_id": "file-1", "path": "/workspace/a"}]}, "environment.files[0].file_id", 404),
    ({"skills": [{"type": "skill_reference", "skill_id": "skill_1"}]}, "environment.skills[0].skill_id", 404),
    (
        {"network": {"access": "restricted", "allowed_domains": ["evil.example"]}},
        "environment.network.allowed_domains[0]",
        400,
    ),
    ({"network": {"access": "restricted", "allowed_domains": ["http://a"]}}, "environment.network.allowed_domains[0]", 400),
]


@pytest.mark.parametrize(("spec", "param", "status"), UNMADE)
async def test_an_environment_that_cannot_be_made_leaves_no_container(service: Service, spec: Any, param: str, status: int) -> None:
    with pytest.raises(ApiError) as caught:
        await opened(service, **spec)
    assert (caught.value.param, caught.value.status) == (param, status), caught.value.message
    assert "network_policy" not in caught.value.message
    assert service.store.records() == []


async def test_its_state_follows_the_sandbox_of_the_container(service: Service) -> None:
    containers = service.runtime.computers.containers
    seen: list[str] = []

    async def look() -> None:
        record = await containers.get("ten_a", made.id)
        seen.append(state_of(service.runtime.settings, service.runtime.clock, record)["status"])

    made = await opened(service)
    await look()
    service.provisioner.is_slow = True
    await containers.sandboxes.place("ten_a", made.id)
    await look()
    service.provisioner.is_slow = False
    async with await containers.waiting.sandbox("ten_a", made.id):
        await look()
    service.clock.advance(made.idle_minutes * 60 + 61)
    await containers.sweep.expire_due(service.clock())
    await look()
    assert seen == ["pending", "pending", "ready", "suspended"]
    service.runtime.settings = replace(SETTINGS, strict_expiry=True)
    await look()
    assert seen[-1] == "expired"


# --- Routes -------------------------------------------------------------------------------------------------------------


async def test_an_environment_is_made_before_there_is_a_session_and_its_sandbox_starts(service: Service) -> None:
    environments = service.sdk.beta.agents.environments
    wanted: Any = {**HOSTED, "files": [inline("/workspace/notes.txt", b"Be brief.")]}
    made = await environments.create(environment=wanted)
    (file,) = made.files
    whole = {
        "id": made.id,
        "object": "agent.environment",
        "type": "openai_hosted",
        "status": "pending",
        "error": None,
        "files": [{"type": "inline", "id": file.id, "path": "/workspace/notes.txt", "size_bytes": 9}],
        "plugins": [],
        "skills": [],
    }
    assert made.to_dict() == whole
    await asyncio.gather(*service.runtime.process.tasks)
    assert (await environments.retrieve(made.id)).to_dict() == whole | {"status": "ready"}
    assert [each.to_dict() async for each in environments.list(type="openai_hosted")] == [whole | {"status": "ready"}]
    (sandbox,) = service.provisioner.sandboxes.values()
    assert sandbox.writes == ["notes.txt"]
    assert (await service.sdk.containers.retrieve(made.id)).memory_limit == "4g"
    theirs = service.stranger.beta.agents.environments
    assert [each async for each in theirs.list()] == []
    for asked in (theirs.retrieve, theirs.files.list, partial(theirs.files.create, **inline("/workspace/a"))):
        with pytest.raises(NotFoundError):
            await asked(made.id)


async def test_where_sandboxes_cannot_be_reached_one_is_ordered_before_the_answer(service: Service) -> None:
    """The process may stand still behind its answer. Who can reach the sandbox sets it up."""
    runtime, store = service.runtime, service.store
    parts = (store.table, store.blobs, service.provisioner, runtime.stores.files)
    runtime.computers = replace(
        runtime.computers, containers=Containers(*parts, clock=service.clock, sandbox_key=lambda: b"k" * 32, connect=None)
    )
    made = await service.sdk.beta.agents.environments.create(environment=HOSTED)
    assert (made.status, service.provisioner.running()) == ("pending", ["sb-1"])
    assert (await service.sdk.beta.agents.environments.retrieve(made.id)).status == "pending"


async def test_files_are_put_into_an_environment_and_listed_page_by_page(service: Service) -> None:
    environments = service.sdk.beta.agents.environments
    made = await environments.create(environment=HOSTED)
    uploaded = await service.sdk.files.create(file=("sales.csv", b"1,2\n"), purpose="user_data")
    put = await environments.files.create(made.id, type="file_id", file_id=uploaded.id, path="/workspace/in/sales.csv")
    assert put.to_dict() == {
        "object": "agent.environment.file",
        "environment_id": made.id,
        "path": "/workspace/in/sales.csv",
        "size_bytes": 4,
    }
    for path in ("b", "a", "in-between", "in/B", "in/?+/", "Z"):
        await environments.files.create(made.id, type="inline", data="", path=f"/workspace/{path.rstrip('/')}")
    listed = [file.path async for file in environments.files.list(made.id, limit=2, order="asc")]
    ours = ["Z", "a", "b", "in/?+", "in/B", "in/sales.csv", "in-between"]
    assert listed == [f"/workspace/{path}" for path in ours]
    assert [file.path async for file in environments.files.list(made.id, limit=3)] == listed[::-1]
    first = await environments.files.list(made.id, path="/workspace/in/", limit=2)
    assert first.to_dict() == {
        "object": "page",
        "data": [
            {**put.to_dict(), "path": "/workspace/in/sales.csv"},
            {**put.to_dict(), "path": "/workspace/in/B", "size_bytes": 0},
        ],
        "next": first.next,
        "has_more": True,
    }
    last = await environments.files.list(made.id, path="/workspace/in", limit=2, page=first.next or "")
    assert ([file.path for file in last.data], last.next, last.has_more) == (["/workspace/in/?+"], None, False)


async def test_a_file_is_no_folder_and_a_folder_is_no_file(service: Service) -> None:
    files = service.sdk.beta.agents.environments.files
    record = await opened(service, files=[inline("/workspace/a"), inline("/workspace/in/b")])
    for path, said in (("/workspace/a/b", "'/workspace/a' is a file"), ("/workspace/in", "'/workspace/in' is a folder")):
        with pytest.raises(BadRequestError, match=said):
            await files.create(record.id, **inline(path))
    again = await files.create(record.id, **inline("/workspace/a", b"longer"))
    assert again.size_bytes == 6
    assert [file.path async for file in files.list(record.id)] == ["/workspace/in/b", "/workspace/a"]


BODIES: list[tuple[dict[str, Any], str, str]] = [
    ({}, "environment", "missing_required_parameter"),
    ({"environment": {"type": "none"}}, "environment.type", "invalid_value"),
    ({"environment": {"type": "self_hosted"}}, "environment.type", "unsupported_value"),
    ({"environment": {**HOSTED, "environment_id": "cntr_1"}}, "environment.environment_id", "unknown_parameter"),
    ({"environment": HOSTED, "vault_ids": ["vault_1"]}, "vault_ids[0]", "vault_not_found"),
    ({"environment": HOSTED, "vault_ids": ["v"] * 11}, "vault_ids", "array_above_max_length"),
    ({"environment": HOSTED, "color": "red"}, "color", "unknown_parameter"),
]


@pytest.mark.parametrize(("body", "param", "code"), BODIES)
async def test_a_body_that_is_not_honoured_is_refused_by_name(service: Service, body: Any, param: str, code: str) -> None:
    error = (await service.http.post("/agents/environments", json=body)).json()["error"]
    assert (error["param"], error["code"]) == (param, code), error
    assert service.store.records() == []


QUERIES = [
    ({"path": "/etc"}, "path", "invalid_value"),
    ({"path": "/workspace/../etc"}, "path", "invalid_value"),
    ({"page": "%"}, "page", "invalid_value"),
    ({"after": "x"}, "after", "unsupported_parameter"),
    ({"limit": "101"}, "limit", "integer_above_max_value"),
    ({"color": "red"}, "color", "unknown_parameter"),
]


@pytest.mark.parametrize(("query", "param", "code"), QUERIES)
async def test_a_query_that_is_not_honoured_is_refused_by_name(service: Service, query: Any, param: str, code: str) -> None:
    record = await opened(service)
    error = (await service.http.get(f"/agents/environments/{record.id}/files", params=query)).json()["error"]
    assert (error["param"], error["code"]) == (param, code), error


async def test_a_page_of_environments_with_many_files_is_shorter(service: Service) -> None:
    files = [inline(f"/workspace/{number}", b"") for number in range(limits.ENVIRONMENT_FILES_MAX)]
    count = limits.ENVIRONMENT_PAGE_FILES_MAX // limits.ENVIRONMENT_FILES_MAX + 1
    made = []
    for _ in range(count):
        service.clock.advance(1)
        made.append((await opened(service, files=files)).id)
    page = await service.sdk.beta.agents.environments.list()
    assert ([each.id for each in page.data], page.has_more) == (made[:0:-1], True)
    assert [each.id async for each in service.sdk.beta.agents.environments.list()] == made[::-1]


# --- Variables and setup commands ---------------------------------------------------------------------------------------


class Machine:
    """What the commands of a setup come to: ``false`` fails, and tells what it knows."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, str]] = []
        """Where, and what."""
        self.broken: set[str] = set()

    def __call__(self, sandbox: FakeSandbox, command: str) -> tuple[int, str]:
        self.ran.append((sandbox.sandbox_id, command))
        if command in self.broken:
            return 3, f"{command} knows {sandbox.variables['TOKEN']}\n"
        return 0, "fine\n"


SETUP: Any = {"env": {"TOKEN": "word-1"}, "setup_commands": [{"command": "one"}, {"command": "two", "cwd": "/workspace/in"}]}


@pytest.fixture
def machine(service: Service) -> Machine:
    service.provisioner.programs = machine = Machine()
    return machine


async def test_each_new_sandbox_is_set_up_after_it_has_its_files(service: Service, machine: Machine) -> None:
    record = await opened(service, files=[inline("/workspace/notes.txt")], **SETUP)
    containers = service.runtime.computers.containers
    for _ in range(2):
        async with await containers.sandboxes.ensure("ten_a", record.id) as live:
            assert live.notes == ()
        assert await containers.sandboxes.ensure("ten_a", record.id)
        service.clock.advance(record.idle_minutes * 60 + 61)
        await containers.sweep.expire_due(service.clock())
    assert machine.ran == [("sb-1", "one"), ("sb-1", "two"), ("sb-2", "one"), ("sb-2", "two")]
    for sandbox in service.provisioner.sandboxes.values():
        assert (sandbox.variables, list(sandbox.files)) == ({"TOKEN": "word-1"}, ["notes.txt"])


async def test_what_a_setup_holds_is_sealed_and_never_returned(service: Service, machine: Machine) -> None:
    record = await opened(service, **SETUP)
    async with await service.runtime.computers.containers.sandboxes.ensure("ten_a", record.id):
        shown = [await environment_of(service.runtime, record), record, service.store.records()]
        info = (await service.http.get(f"/agents/environments/{record.id}")).text
    for told in (*map(repr, shown), info):
        assert not any(word in told for word in ("word-1", "'one'", "'two'", "/workspace/in"))
    await service.runtime.computers.containers.delete("ten_a", record.id)
    assert sorted(item["SK"]["S"] for item in service.store.records()) == ["GONE", "PURGE"]


async def test_a_setup_command_that_fails_fails_the_environment(service: Service, machine: Machine) -> None:
    machine.broken.add("two")
    environments = service.sdk.beta.agents.environments
    wanted: Any = {**HOSTED, **SETUP}
    made = await environments.create(environment=wanted)
    await asyncio.gather(*service.runtime.process.tasks)
    failed = await environments.retrieve(made.id)
    said = "Setup command 2 of 2 failed with exit code 3. Its output ends with: two knows [...]"
    assert failed.to_dict() == {
        **made.to_dict(),
        "status": "failed",
        "error": {"code": "setup_failed", "message": said, "type": "invalid_request_error"},
    }
    containers = service.runtime.computers.containers
    with pytest.raises(SetupFailed, match="exit code 3"):
        await containers.waiting.sandbox("ten_a", made.id)
    await containers.sandboxes.place("ten_a", made.id)
    assert (machine.ran, service.provisioner.running()) == ([("sb-1", "one"), ("sb-1", "two")], [])


async def test_a_later_sandbox_that_cannot_be_set_up_runs_and_the_model_is_told(service: Service, machine: Machine) -> None:
    record = await opened(service, **SETUP)
    containers = service.runtime.computers.containers
    await (await containers.sandboxes.ensure("ten_a", record.id)).aclose()
    machine.broken.add("one")
    service.clock.advance(record.idle_minutes * 60 + 61)
    await containers.sweep.expire_due(service.clock())
    async with await containers.sandboxes.ensure("ten_a", record.id) as live:
        (note,) = live.notes
    assert note.startswith("Note: the sandbox is new, and could not be set up as before. Setup command 1 of 2 failed with exit code 3.")
    assert state_of(service.runtime.settings, service.runtime.clock, await containers.get("ten_a", record.id))["status"] == "ready"


async def test_a_setup_that_takes_too_long_fails(service: Service) -> None:
    service.provisioner.programs = lambda sandbox, command: (-1, "")
    record = await opened(service, setup_commands=[{"command": "sleep"}])
    with pytest.raises(
        SetupFailed, match=r"^Setup command 1 of 1 took too long: packages and setup commands together have 180 seconds\.$"
    ):
        await service.runtime.computers.containers.sandboxes.ensure("ten_a", record.id)


async def test_a_copy_of_an_environment_is_set_up_as_well(service: Service, machine: Machine) -> None:
    containers = service.runtime.computers.containers
    record = await opened(service, **SETUP)
    await (await containers.sandboxes.ensure("ten_a", record.id)).aclose()
    copied, _ = await containers.copy(await containers.get("ten_a", record.id), at_ms=None)
    await (await containers.sandboxes.ensure("ten_a", copied.id)).aclose()
    assert machine.ran == [("sb-1", "one"), ("sb-1", "two"), ("sb-2", "one"), ("sb-2", "two")]


async def test_who_waits_for_a_setup_is_patient(service: Service, machine: Machine) -> None:
    record = await opened(service, **SETUP)
    service.provisioner.problems = [SandboxOrdered("sb-1")]
    sandboxes = service.runtime.computers.containers.sandboxes
    with pytest.raises(SandboxOrdered):
        await sandboxes.ensure("ten_a", record.id)
    with pytest.raises(SandboxSettingUp):
        await sandboxes.ensure("ten_a", record.id)
