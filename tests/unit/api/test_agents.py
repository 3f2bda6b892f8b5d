"""``/v1/agents`` as the SDK drives it, and what it refuses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from moorage import limits
from moorage.store import keys
from moorage.store.table import Record
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from tests.unit.api.served import Served
from tests.unit.loop.lab import Lab

MODEL = "lab"
FUNCTION: Any = {
    "type": "function",
    "name": "weigh",
    "description": "The weight of a parcel.",
    "parameters": {"type": "object", "properties": {"parcel": {"type": "string"}}, "required": ["parcel"]},
}
SERVER: Any = {
    "type": "mcp",
    "server_label": "papers",
    "transport": {"type": "http", "server_url": "https://papers.example/mcp", "headers": {"x-team": "a"}},
    "allowed_tools": ["find"],
}


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Served, AsyncOpenAI]]:
    served = Served.of(Lab())
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(served.app))
    async with AsyncOpenAI(api_key="key-a", base_url="http://api/v1", http_client=http, max_retries=0) as sdk:
        yield served, sdk


async def test_the_sdk_drives_the_whole_life_of_an_agent() -> None:
    async with serving() as (served, sdk):
        made = await sdk.beta.agents.create(
            model=MODEL,
            name="clerk",
            instructions="Be brief.",
            tools=[FUNCTION, SERVER, {"type": "web_search", "mode": "disabled", "location": {"city": "Oslo"}}],
            reasoning={"effort": "low"},
            text={"format": {"type": "json_schema", "schema": {"type": "object"}}},
            multi_agent={"enabled": False, "max_concurrent_subagents": 3},
            compaction={},
            metadata={"team": "a"},
        )
        whole = {
            "id": made.id,
            "object": "agent",
            "created_at": int(served.lab.now),
            "updated_at": int(served.lab.now),
            "version": 1,
            "name": "clerk",
            "model": MODEL,
            "instructions": "Be brief.",
            "tools": [
                {"defer_loading": False, "async": False, **FUNCTION},
                {
                    "connection_origin": "service",
                    "credential_id": None,
                    "request_metadata": {},
                    "required": False,
                    "require_approval": "never",
                    **SERVER,
                },
                {
                    "allowed_domains": None,
                    "context_size": "medium",
                    "mode": "disabled",
                    "type": "web_search",
                    "location": {"city": "Oslo", "country": None, "region": None, "timezone": None},
                },
            ],
            "reasoning": {"effort": "low", "summary": None},
            "text": {"format": {"type": "json_schema", "schema": {"type": "object"}}, "verbosity": "medium"},
            "service_tier": "auto",
            "multi_agent": {"enabled": False, "max_concurrent_subagents": None},
            "compaction": {"async": False},
            "experimental": {"time_awareness": False},
            "metadata": {"team": "a"},
        }
        assert made.to_dict() == whole
        assert (await sdk.beta.agents.retrieve(made.id)).to_dict() == whole
        served.lab.now += 60
        changed = await sdk.beta.agents.update(made.id, instructions=None, tools=[], metadata={}, model=MODEL)
        changes: dict[str, Any] = {"version": 2, "updated_at": int(served.lab.now), "instructions": None, "tools": [], "metadata": {}}
        assert changed.to_dict() == whole | changes
        assert (await served.get(f"/agents/{made.id}", version=1)).json() == whole
        assert [agent.to_dict() async for agent in sdk.beta.agents.list()] == [whole | changes]
        gone = await sdk.beta.agents.delete(made.id)
        assert gone.to_dict() == {"id": made.id, "object": "agent.deleted", "deleted": True}
        with pytest.raises(NotFoundError):
            await sdk.beta.agents.retrieve(made.id)


async def test_what_changes_nothing_is_no_version_and_what_is_left_open_has_its_default() -> None:
    async with serving() as (_, sdk):
        made = await sdk.beta.agents.create(model=MODEL)
        assert (await sdk.beta.agents.update(made.id, model=MODEL)).to_dict() == made.to_dict()
        assert made.to_dict() == {
            "id": made.id,
            "object": "agent",
            "created_at": made.created_at,
            "updated_at": made.created_at,
            "version": 1,
            "name": None,
            "model": MODEL,
            "instructions": None,
            "tools": [],
            "reasoning": {"effort": None, "summary": None},
            "text": {"format": {"type": "text"}, "verbosity": "medium"},
            "service_tier": "auto",
            "multi_agent": {"enabled": False, "max_concurrent_subagents": None},
            "compaction": {"async": False},
            "experimental": {"time_awareness": False},
            "metadata": {},
        }


async def test_an_agent_may_be_allowed_to_start_others_and_then_not_any_more() -> None:
    async with serving() as (_, sdk):
        made = await sdk.beta.agents.create(model=MODEL, multi_agent={"enabled": True})
        assert made.multi_agent.to_dict() == {"enabled": True, "max_concurrent_subagents": limits.AGENT_SUBAGENTS}
        fewer = await sdk.beta.agents.update(made.id, multi_agent={"enabled": True, "max_concurrent_subagents": 2})
        assert (fewer.multi_agent.to_dict(), fewer.to_dict()["version"]) == ({"enabled": True, "max_concurrent_subagents": 2}, 2)
        nothings: tuple[Any, ...] = ({"enabled": False}, None)
        for nothing in nothings:
            less = await sdk.beta.agents.update(made.id, multi_agent=nothing)
            assert less.multi_agent.to_dict() == {"enabled": False, "max_concurrent_subagents": None}
        assert less.to_dict()["version"] == 3


async def test_agents_are_listed_page_by_page_also_behind_one_that_was_deleted() -> None:
    async with serving() as (served, sdk):
        made = []
        for name in "abc":
            made.append((await sdk.beta.agents.create(model=MODEL, name=name)).id)
            served.lab.now += 1
        first = await sdk.beta.agents.list(limit=2)
        assert ([agent.name for agent in first.data], first.has_more) == (["c", "b"], True)
        await sdk.beta.agents.delete(made[1])
        behind = await sdk.beta.agents.list(after=made[1])
        assert ([agent.name for agent in behind.data], behind.has_more) == (["a"], False)
        assert [agent.name async for agent in sdk.beta.agents.list(order="asc")] == ["a", "c"]


async def test_long_settings_come_back_whole_and_leave_nothing_behind() -> None:
    async with serving() as (served, sdk):
        words = " ".join(f"{number:x}{number * 7919:x}" for number in range(60_000))
        made = await sdk.beta.agents.create(model=MODEL, instructions=words)
        assert (await sdk.beta.agents.retrieve(made.id)).instructions == words
        assert [agent.instructions async for agent in sdk.beta.agents.list()] == [words]
        await sdk.beta.agents.delete(made.id)
        assert served.lab.blobs.objects == {}


async def test_a_change_during_a_deletion_leaves_no_version_behind() -> None:
    """The change has read the agent before its versions go, and writes before its record goes."""
    async with serving() as (served, sdk):
        table, made = served.lab.table, await sdk.beta.agents.create(model=MODEL)
        versions_are_gone, is_changed = asyncio.Event(), asyncio.Event()
        deletions: list[asyncio.Task[Any]] = []

        async def interleave(record: Record) -> None:
            if record["SK"] == keys.GONE:
                versions_are_gone.set()
                await is_changed.wait()
            elif record["SK"] == keys.version(2):
                deletions.append(asyncio.create_task(sdk.beta.agents.delete(made.id)))
                await versions_are_gone.wait()

        table.before_write = interleave
        await sdk.beta.agents.update(made.id, instructions=" ".join(map(str, range(60_000))))
        is_changed.set()
        await asyncio.gather(*deletions)
        left = [sk for pk, sk in table.records if pk == keys.agent("t", made.id)]
        assert (left, served.lab.blobs.objects) == ([keys.GONE], {})


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "model", "missing_required_parameter"),
    ({"color": "red"}, "color", "unknown_parameter"),
    ({"name": "n" * (limits.AGENT_NAME_CHARS_MAX + 1)}, "name", "string_above_max_length"),
    (
        {"multi_agent": {"enabled": True, "max_concurrent_subagents": 17}},
        "multi_agent.max_concurrent_subagents",
        "integer_above_max_value",
    ),
    ({"compaction": {"async": True}}, "compaction.async", "unsupported_value"),
    ({"experimental": {"time_awareness": True}}, "experimental.time_awareness", "unsupported_value"),
    ({"tools": [{"type": "computer_use"}]}, "tools[0].type", "unsupported_value"),
    ({"tools": [{"type": "programmatic_tool_calling"}]}, "tools[0].type", "unsupported_value"),
    ({"tools": [{"type": "shell"}]}, "tools[0].type", "invalid_value"),
    ({"tools": [FUNCTION | {"async": True}]}, "tools[0].async", "unsupported_value"),
    ({"tools": [FUNCTION | {"parameters": {"type": 1}}]}, "tools[0].parameters", "invalid_function_parameters"),
    ({"tools": [FUNCTION, FUNCTION]}, "tools[1].name", "invalid_value"),
    ({"tools": [SERVER | {"connection_origin": "environment"}]}, "tools[0].connection_origin", "unsupported_value"),
    ({"tools": [SERVER | {"required": True}]}, "tools[0].required", "unsupported_value"),
    ({"tools": [SERVER | {"request_metadata": {}}]}, "tools[0].request_metadata", "unsupported_parameter"),
    (
        {"tools": [SERVER | {"transport": {"type": "stdio", "command": "a", "cwd": "/"}}]},
        "tools[0].transport.type",
        "unsupported_value",
    ),
    (
        {"tools": [SERVER | {"transport": {"type": "http", "server_url": "ftp://a"}}]},
        "tools[0].transport.server_url",
        "invalid_value",
    ),
    (
        {"tools": [SERVER | {"transport": {"type": "http", "server_url": "https://a.example", "authorization": "x"}}]},
        "tools[0].transport.authorization",
        "unsupported_parameter",
    ),
    (
        {"tools": [SERVER | {"transport": {"type": "http", "server_url": "https://a.example", "headers": {"X-Api-Key": "x"}}}]},
        "tools[0].transport.headers",
        "invalid_value",
    ),
    (
        {"tools": [SERVER | {"transport": {"type": "http", "server_url": "https://a.example", "headers": {"X-Password": "x"}}}]},
        "tools[0].transport.headers",
        "invalid_value",
    ),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type", "unsupported_value"),
    ({"text": {"format": {"type": "json_schema", "schema": {"type": 1}}}}, "text.format.schema", "invalid_json_schema"),
]


@pytest.mark.parametrize(("body", "param", "code"), REFUSED)
async def test_what_is_not_honoured_is_refused_by_name(body: dict[str, Any], param: str, code: str) -> None:
    async with serving() as (served, sdk):
        answer = await served.post("/agents", {"model": MODEL, **body} if body else body)
        assert (answer.json()["error"]["param"], answer.json()["error"]["code"]) == (param, code), answer.text
        if body:
            made = await sdk.beta.agents.create(model=MODEL)
            again = await served.post(f"/agents/{made.id}", body)
            assert again.json()["error"] == answer.json()["error"]
            assert (await sdk.beta.agents.retrieve(made.id)).to_dict() == made.to_dict()


async def test_an_agent_keeps_its_model_and_has_only_the_versions_that_were_made() -> None:
    async with serving() as (served, sdk):
        made = await sdk.beta.agents.create(model=MODEL)
        with pytest.raises(BadRequestError, match="an agent needs one"):
            await sdk.beta.agents.update(made.id, extra_body={"model": None})
        for version, code in (("2", "invalid_value"), ("0", "integer_below_min_value"), ("x", "invalid_type")):
            answer = await served.get(f"/agents/{made.id}", version=version)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


async def test_what_stands_beside_agents_is_no_agent() -> None:
    async with serving() as (served, _):
        answers = [await served.get(f"/agents/{name}") for name in ("sessions/x/none", "agent_1", "sessionsx")]
        codes = ["unknown_url", "agent_not_found", "agent_not_found"]
        assert [answer.json()["error"]["code"] for answer in answers] == codes


async def test_two_changes_at_once_come_one_after_the_other() -> None:
    async with serving() as (served, sdk):
        made = await sdk.beta.agents.create(model=MODEL)
        agents = served.lab.runtime.stores.agents
        raced: list[Any] = []

        async def named(settings: Any) -> Any:
            if not raced:
                raced.append(await sdk.beta.agents.update(made.id, metadata={"b": "c"}))
            return {**settings, "name": "a"}

        changed = await agents.update("t", made.id, named)
        assert (made.version, raced[0].version, changed.version) == (1, 2, 3)  # type: ignore[attr-defined]
        assert changed.settings == {"model": MODEL, "name": "a", "metadata": {"b": "c"}}


async def test_a_page_of_long_agents_is_shorter() -> None:
    async with serving() as (served, sdk):
        for name in "abc":
            served.lab.now += 1
            await sdk.beta.agents.create(model=MODEL, name=name, instructions=name * (limits.PAGE_BYTES_MAX * 2 // 5))
        page = await sdk.beta.agents.list()
        assert ([agent.name for agent in page.data], page.has_more) == (["c", "b"], True)
        assert [agent.name async for agent in sdk.beta.agents.list()] == ["c", "b", "a"]
