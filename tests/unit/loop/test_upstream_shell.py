"""``shell = "upstream"``: the hosted shell of a model runs in its upstream's own container, and one tenant's is not another's."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import httpx
import pytest
from moorage.api import responses
from moorage.api.app import create_app
from moorage.containers import routes as containers
from moorage.containers.containers import Containers
from moorage.errors import file_not_found
from moorage.files.store import StoredFile
from moorage.loop.model_step import model_step
from moorage.model.catalog import ModelCatalog
from moorage.state import LoopState
from moorage.store.api_keys import ApiKey

from tests.openai_shell import KEY, OpenAIShell
from tests.stack import assert_well_formed, raw_events
from tests.unit.loop.lab import Lab
from tests.unit.resources.support import FakeProvisioner

MODELS = """
[[models]]
name = "native"
provider = "openai_responses"
base_url = "http://openai/v1"
key = "env:OPERATOR_KEY"
shell = "upstream"

[[models]]
name = "here"
provider = "openai_responses"
base_url = "http://openai/v1"
key = "env:OPERATOR_KEY"
native_tools = ["shell"]

[[models]]
name = "chat"
provider = "chat_completions"
base_url = "http://chat/v1"
shell = "upstream"

[[models]]
name = "claude"
provider = "anthropic_messages"
shell = "upstream"

[[models]]
name = "nova"
provider = "bedrock_converse"
region = "us-east-1"
shell = "upstream"
"""
AUTO = {"type": "shell", "environment": {"type": "container_auto", "memory_limit": "4g", "network_policy": {"type": "disabled"}}}
Json = dict[str, Any]


class Keys:
    async def find(self, secret: str) -> ApiKey | None:
        tenants = {"key-a": "ten_a", "key-b": "ten_b"}
        return ApiKey(secret, tenants[secret], "", 0) if secret in tenants else None


class House:
    """The API in this process before an upstream that hosts shells itself, and two tenants."""

    def __init__(self, operator_key: str = KEY) -> None:
        self.openai = OpenAIShell()
        self.lab = Lab()
        runtime = self.lab.runtime
        catalog = ModelCatalog.load(MODELS, {"OPERATOR_KEY": operator_key})
        runtime.models = replace(runtime.models, http=httpx.ASGITransport(self.openai.app), catalog=catalog)
        provisioner = FakeProvisioner()
        runtime.computers = replace(
            runtime.computers,
            containers=Containers(
                runtime.stores.table,
                runtime.stores.blobs,
                provisioner,
                runtime.stores.files,
                clock=runtime.clock,
                sandbox_key=lambda: b"k" * 32,
                connect=provisioner.connect,
            ),
        )
        runtime.identity = replace(runtime.identity, api_keys=cast("Any", Keys()))
        transport = httpx.ASGITransport(create_app(runtime, (responses.router, containers.router)))
        self.a, self.b = (
            httpx.AsyncClient(transport=transport, base_url="http://api/v1", headers={"authorization": f"Bearer {key}"})
            for key in ("key-a", "key-b")
        )

    async def create(self, text: str, *, client: httpx.AsyncClient | None = None, **body: Any) -> httpx.Response:
        asked = {"model": "native", "input": text, "tools": [AUTO], **body}
        return await (client or self.a).post("/responses", json=asked)

    async def made(self, text: str, **body: Any) -> Json:
        answer = await self.create(text, **body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def container(self) -> str:
        """One that a response of tenant a has made."""
        response = await self.made("RUN ls")
        return str(response["output"][0]["environment"]["container_id"])


@pytest.fixture
async def house() -> AsyncIterator[House]:
    built = House()
    yield built
    await built.a.aclose()
    await built.b.aclose()


def error_of(answer: httpx.Response) -> tuple[int, str | None, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


# --- what goes there and what comes back ----------------------------------------------------------------------------------------


async def test_the_tool_goes_there_as_it_came_and_the_items_come_back_as_they_were_made(house: House) -> None:
    response = await house.made("RUN echo hi\ndone", max_tool_calls=3)
    (asked,) = house.openai.requests
    assert (asked["tools"], asked["max_tool_calls"]) == ([AUTO], 3)
    call, output, message = response["output"]
    assert {name: value for name, value in call.items() if name != "id"} == {
        "type": "shell_call",
        "status": "completed",
        "call_id": "call_0",
        "action": {"commands": ["echo hi"], "timeout_ms": None, "max_output_length": None},
        "environment": {"type": "container_reference", "container_id": "cntr_upstream0"},
    }
    assert {name: value for name, value in output.items() if name != "id"} == {
        "type": "shell_call_output",
        "status": "completed",
        "call_id": "call_0",
        "output": [{"stdout": "echo hi!", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        "max_output_length": None,
    }
    assert (message["content"][0]["text"], response["status"]) == ("done", "completed")
    assert all(item["id"].startswith(prefix) for item, prefix in zip(response["output"], ("sh_", "sho_", "msg_"), strict=True))
    assert response["tools"][0]["environment"]["type"] == "container_auto"
    assert house.lab.sandboxes.executed == [], "nothing runs here"


async def test_its_events_are_passed_on_as_they_come_about_our_items(house: House) -> None:
    body = {"model": "native", "input": "RUN pwd\ndone", "tools": [AUTO], "stream": True}
    async with house.a.stream("POST", "/responses", json=body) as answer:
        events = raw_events(iter((await answer.aread()).decode().splitlines()))
    assert_well_formed(events)
    assert [event["type"].removeprefix("response.") for event in events if "shell" in event["type"]] == [
        "shell_call_command.added",
        "shell_call_command.delta",
        "shell_call_command.done",
        "shell_call_output_content.delta",
        "shell_call_output_content.done",
    ]
    told = next(event for event in events if event["type"] == "response.shell_call_output_content.delta")
    assert told["delta"] == {"stdout": "pwd!"}
    assert told["item_id"] == events[-1]["response"]["output"][1]["id"]
    assert "theirs" not in json.dumps(events)


async def test_the_next_response_of_the_chain_uses_the_same_container(house: House) -> None:
    first = await house.made("RUN one")
    second = await house.made("RUN two", previous_response_id=first["id"])
    assert [item["environment"]["container_id"] for item in second["output"] if item["type"] == "shell_call"] == ["cntr_upstream0"]
    assert len(house.openai.containers) == 1


async def test_a_background_response_runs_there_too(house: House) -> None:
    queued = await house.made("RUN one\ndone", background=True)
    stored = (await house.lab.responses.snapshot("ten_a", queued["id"])).stored
    state = await model_step(house.lab.runtime, LoopState(stored.response_id, "ten_a", None))
    assert str(state.next) == "done"
    final = (await house.a.get(f"/responses/{queued['id']}")).json()
    assert [item["type"] for item in final["output"]] == ["shell_call", "shell_call_output", "message"]


async def test_a_container_is_named_again_by_its_reference(house: House) -> None:
    container_id = await house.container()
    again = {"type": "shell", "environment": {"type": "container_reference", "container_id": container_id}}
    response = await house.made("RUN more", tools=[again])
    assert house.openai.requests[-1]["tools"] == [again]
    assert response["output"][0]["environment"] == again["environment"]
    house.openai.expired.add(container_id)
    answer = await house.create("RUN more", tools=[again])
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "Container is expired.")


@pytest.mark.parametrize(
    "event",
    ["response.output_item.done", "response.shell_call_output_content.delta"],
    ids=["before the output", "in the output"],
)
async def test_a_command_that_may_have_run_there_is_not_run_again(house: House, event: str) -> None:
    house.openai.breaks_after = event
    answer = await house.create("RUN rm -r /")
    assert answer.status_code in (200, 500, 502), answer.text
    assert "is not run again" in answer.text
    assert len(house.openai.requests) == 1


async def test_a_stream_that_breaks_off_after_the_output_goes_on_from_it(house: House) -> None:
    house.openai.breaks_after = "response.output_text.delta"
    answer = await house.create("RUN once\ndone")
    assert len(house.openai.requests) > 1
    assert [item["type"] for item in house.openai.requests[1]["input"]] == ["message", "shell_call", "shell_call_output"]
    assert answer.json()["error"]["code"] == "server_error"


# --- containers --------------------------------------------------------------------------------------------------------------------


async def test_the_routes_of_a_container_are_passed_on(house: House) -> None:
    container_id = await house.container()
    path = f"/containers/{container_id}"
    shown = (await house.a.get(path)).json()
    assert (shown["id"], shown["object"]) == (container_id, "container")
    sent = await house.a.post(f"{path}/files", files={"file": ("a.csv", b"a,b")})
    assert sent.json()["path"] == "/mnt/data/a.csv"
    listed = (await house.a.get(f"{path}/files")).json()["data"]
    assert [file["path"] for file in listed] == ["/mnt/data/ran.txt", "/mnt/data/a.csv"]
    assert (await house.a.get(f"{path}/files/cfile_a.csv")).json()["bytes"] == 3
    deleted = (await house.a.delete(f"{path}/files/cfile_a.csv")).json()
    assert (deleted["object"], deleted["deleted"]) == ("container.file.deleted", True)
    assert (await house.a.delete(path)).json()["deleted"] is True
    gone = await house.a.get(path)
    assert (gone.status_code, gone.json()["error"]["message"]) == (404, f"Container with id '{container_id}' not found.")


async def test_a_download_is_no_page_of_this_origin(house: House) -> None:
    container_id = await house.container()
    answer = await house.a.get(f"/containers/{container_id}/files/cfile_ran.txt/content")
    assert (answer.content, answer.headers["content-type"]) == (b"ls", "application/octet-stream")
    assert answer.headers["content-disposition"] == "attachment"
    assert "set-cookie" not in answer.headers
    assert answer.headers["x-request-id"] != "req_theirs"


async def test_a_file_of_this_deployment_is_uploaded_there(house: House) -> None:
    container_id = await house.container()
    house.lab.runtime.stores = replace(house.lab.runtime.stores, files=cast("Any", OneFile()))
    answer = await house.a.post(f"/containers/{container_id}/files", json={"file_id": "file_b"})
    assert answer.json()["bytes"] == 5
    assert house.openai.containers[container_id]["/mnt/data/b.txt"] == b"hello"
    unknown = await house.a.post(f"/containers/{container_id}/files", json={"file_id": "file_c"})
    assert unknown.status_code == 404


class OneFile:
    async def get(self, tenant_id: str, file_id: str, *, param: str | None = None) -> StoredFile:
        if (tenant_id, file_id) != ("ten_a", "file_b"):
            raise file_not_found(file_id, param=param)
        return StoredFile(tenant_id, file_id, "b.txt", 5, "user_data", 0, "key")

    async def content(self, file: StoredFile) -> AsyncIterator[bytes]:
        yield b"hello"


async def test_another_tenant_does_not_find_it_by_any_way(house: House) -> None:
    container_id = await house.container()
    path = f"/containers/{container_id}"
    tried = [
        await house.b.get(path),
        await house.b.get(f"{path}/files"),
        await house.b.get(f"{path}/files/cfile_ran.txt"),
        await house.b.get(f"{path}/files/cfile_ran.txt/content"),
        await house.b.post(f"{path}/files", files={"file": ("a", b"a")}),
        await house.b.delete(f"{path}/files/cfile_ran.txt"),
        await house.b.delete(path),
    ]
    assert {answer.status_code for answer in tried} == {404}
    assert house.openai.containers[container_id] == {"/mnt/data/ran.txt": b"ls"}
    named = {"type": "shell", "environment": {"type": "container_reference", "container_id": container_id}}
    assert error_of(await house.create("RUN x", client=house.b, tools=[named])) == (
        404,
        "container_not_found",
        "tools[0].environment.container_id",
    )


async def test_a_call_that_names_anothers_container_opens_nothing(house: House) -> None:
    container_id = await house.container()
    environment = {"type": "container_reference", "container_id": container_id}
    history: list[Json] = [
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}, "environment": environment},
        {"type": "shell_call_output", "call_id": "c", "output": []},
        {"role": "user", "content": "RUN cat /mnt/data/ran.txt"},
    ]
    answer = await house.b.post("/responses", json={"model": "native", "input": history, "tools": [AUTO]})
    assert answer.json()["output"][0]["environment"]["container_id"] != container_id
    assert house.openai.requests[-1]["input"][0]["environment"] == {"type": "local"}


async def test_a_container_id_cannot_lead_elsewhere(house: House) -> None:
    container_id = await house.container()
    for file_id in ("%2e%2e", "x%3Fy=1", "x%2F..%2F..%2F..%2Ffiles"):
        answer = await house.a.get(f"/containers/{container_id}/files/{file_id}")
        assert answer.status_code == 404, file_id


async def test_a_refused_key_is_the_operators_matter_and_is_not_shown() -> None:
    house = House()
    container_id = await house.container()
    house.lab.runtime.models = replace(house.lab.runtime.models, catalog=ModelCatalog.load(MODELS, {"OPERATOR_KEY": "sk-wrong"}))
    answer = await house.a.get(f"/containers/{container_id}")
    assert answer.status_code >= 500
    assert "credentials" in answer.json()["error"]["message"]
    assert "sk-wrong" not in answer.text


# --- refusals ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "provider"), [("chat", "chat_completions"), ("claude", "anthropic_messages"), ("nova", "bedrock_converse")]
)
async def test_a_provider_without_containers_says_so_by_name(house: House, model: str, provider: str) -> None:
    answer = await house.create("RUN ls", model=model)
    assert error_of(answer) == (400, "shell_passthrough_unsupported_provider", "tools[0]")
    assert f"'{provider}'" in answer.json()["error"]["message"]


REFUSED: dict[str, tuple[Json, str]] = {
    "files of this deployment": ({"file_ids": ["file_1"]}, "tools[0].environment.file_ids"),
    "a map of the files": ({"file_map": True}, "tools[0].environment.file_map"),
    "its AGENTS.md": ({"agents_md": "/mnt/data"}, "tools[0].environment.agents_md"),
    "secrets": (
        {
            "network_policy": {
                "type": "allowlist",
                "allowed_domains": ["a.example"],
                "domain_secrets": [{"domain": "a.example", "name": "K", "value": "v"}],
            }
        },
        "tools[0].environment.network_policy.domain_secrets",
    ),
    "skills of this deployment": (
        {"skills": [{"type": "skill_reference", "skill_id": "skill_1"}]},
        "tools[0].environment.skills[0]",
    ),
}


@pytest.mark.parametrize(("environment", "param"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_lives_here_is_refused_by_name(house: House, environment: Json, param: str) -> None:
    tool = {"type": "shell", "environment": {"type": "container_auto", **environment}}
    assert error_of(await house.create("RUN ls", tools=[tool])) == (400, "unsupported_parameter", param)
    assert house.openai.requests == []


async def test_python_beside_it_is_refused(house: House) -> None:
    answer = await house.create("RUN ls", tools=[AUTO, {"type": "code_interpreter", "container": {"type": "auto"}}])
    assert error_of(answer) == (400, "unsupported_value", "tools[1].type")


async def test_a_container_of_this_deployment_is_not_there(house: House) -> None:
    made = (await house.a.post("/containers", json={"name": "mine"})).json()
    tool = {"type": "shell", "environment": {"type": "container_reference", "container_id": made["id"]}}
    assert error_of(await house.create("RUN ls", tools=[tool])) == (404, "container_not_found", "tools[0].environment.container_id")


async def test_a_shell_of_the_clients_is_the_clients(house: House) -> None:
    await house.made("hello", tools=[{"type": "shell", "environment": {"type": "local"}}])
    assert house.openai.requests[-1]["tools"] == [{"type": "shell", "environment": {"type": "local"}}]


async def test_a_model_that_runs_here_reads_of_calls_there_and_names_no_container(house: House) -> None:
    first = await house.made("RUN one")
    local = {"type": "shell", "environment": {"type": "local"}}
    await house.made("go on", model="here", previous_response_id=first["id"], tools=[local])
    assert house.openai.requests[-1]["input"][1]["environment"] == {"type": "local"}
