"""``/v1/me`` and ``/v1/usage``."""

import datetime
from typing import Any

import pytest
from moorage import __version__, limits
from moorage.store.sandbox_usage import SandboxPrice
from moorage.store.stored_bytes import Holder

from tests.unit.api.served import KEY_A, Served
from tests.unit.api.test_response_list import ended
from tests.unit.loop.lab import Lab

DAY = 24 * 3600
TOKENS = {"input_tokens": 7, "cached_tokens": 3, "output_tokens": 5, "reasoning_tokens": 2}
NO_EMBEDDINGS = {"requests": 0, "tokens": 0, "unpriced_requests": 0}
SHELL = {"type": "shell_call"}
CODE = {"type": "code_interpreter_call"}


def named(now: float) -> str:
    return datetime.datetime.fromtimestamp(now, datetime.UTC).date().isoformat()


async def usage(served: Served, **query: Any) -> list[dict[str, Any]]:
    answer = await served.get("/usage", **query)
    assert answer.status_code == 200, answer.text
    data: list[dict[str, Any]] = answer.json()["data"]
    return data


async def test_a_key_can_ask_what_it_stands_for() -> None:
    served = Served.of(Lab())
    await served.lab.runtime.stores.files.stored.add(Holder.container("t", "cntr_1"), 7)
    assert (await served.get("/me")).json() == {
        "object": "me",
        "tenant": "t",
        "key": {"id": KEY_A, "name": "key-a by name", "created_at": 1_700_000_000, "scope": None, "expires_at": None},
        "limits": {
            "requests_per_minute": 0,
            "tokens_per_minute": 0,
            "running_responses": limits.RUNNING_RESPONSES_MAX,
            "stored_bytes": limits.STORED_BYTES_MAX,
            "retention_seconds": limits.RETENTION_SECONDS,
        },
        "network": {"allowed_domains": []},
        "storage": {
            "used_bytes": 7,
            "limit_bytes": limits.STORED_BYTES_MAX,
            "file_bytes": 0,
            "container_bytes": 7,
            "vector_store_bytes": 0,
        },
        "budgets": [],
        "prices": [{"model": "m", "price": None}],
        "version": __version__,
    }


async def test_each_day_is_told_by_its_models_keys_and_tools() -> None:
    served = Served.of(Lab())
    await ended(served.lab, model="a", output=[SHELL])
    await ended(served.lab, model="b")
    served.lab.now += DAY
    await ended(served.lab, model="a")
    for split_by in ("model", "key", "tool"):
        days = await usage(served, split_by=split_by)
        for day in days:
            that_day = {"from": day["id"], "to": day["id"]}
            assert [part["id"] for part in day["parts"]] == [each["id"] for each in await usage(served, group_by=split_by, **that_day)]
            assert [part["responses"] for part in day["parts"]] == [
                each["responses"] for each in await usage(served, group_by=split_by, **that_day)
            ]
    assert [[part["id"] for part in day["parts"]] for day in await usage(served, split_by="model")] == [["a", "b"], ["a"]]
    assert "parts" not in (await usage(served))[0]


async def test_usage_is_added_up_by_day() -> None:
    served = Served.of(Lab())
    await ended(served.lab, output=[SHELL, SHELL])
    await ended(served.lab, status="failed")
    first = named(served.lab.now)
    served.lab.now += DAY
    await ended(served.lab)
    assert await usage(served) == [
        {
            "id": first,
            "object": "usage.group",
            "group_by": "day",
            "responses": 2,
            "by_status": {"completed": 1, "failed": 1},
            "tool_calls": 2,
            **{name: 2 * count for name, count in TOKENS.items()},
            "cost_usd": 0.0,
            "unpriced_responses": 2,
            "embeddings": NO_EMBEDDINGS,
            "sandboxes": {"seconds": 0, "cost_usd": 0.0},
        },
        {
            "id": named(served.lab.now),
            "object": "usage.group",
            "group_by": "day",
            "responses": 1,
            "by_status": {"completed": 1},
            "tool_calls": 0,
            **TOKENS,
            "cost_usd": 0.0,
            "unpriced_responses": 1,
            "embeddings": NO_EMBEDDINGS,
            "sandboxes": {"seconds": 0, "cost_usd": 0.0},
        },
    ]


async def test_usage_is_added_up_by_model_by_key_and_by_tool() -> None:
    served = Served.of(Lab())
    await ended(served.lab, output=[SHELL, CODE, SHELL], model="a")
    served.lab.now += DAY
    await ended(served.lab, output=[SHELL], model="b")
    assert [(each["id"], each["responses"]) for each in await usage(served, group_by="model")] == [("a", 1), ("b", 1)]
    assert [(each["id"], each["responses"], each["tool_calls"]) for each in await usage(served, group_by="key")] == [(KEY_A, 2, 4)]
    by_tool = await usage(served, group_by="tool")
    assert [(each["id"], each["responses"], each["tool_calls"]) for each in by_tool] == [
        ("code_interpreter_call", 1, 1),
        ("shell_call", 2, 3),
    ]
    assert all("input_tokens" not in each for each in by_tool)


async def test_embeddings_are_counted_by_the_hour_beside_responses() -> None:
    served = Served.of(Lab())
    await ended(served.lab, model="a")
    count = served.lab.runtime.stores.embedding_usage.count
    await count("t", "small", KEY_A, 100, 5_000_000)
    await count("t", "small", KEY_A, 20, None)
    await count("u", "small", KEY_A, 7, None)
    first = named(served.lab.now)
    served.lab.now += DAY
    await count("t", "small", "", 3, 0)

    async def counted(**query: Any) -> list[tuple[str, int, dict[str, int], float]]:
        return [(each["id"], each["responses"], each["embeddings"], each["cost_usd"]) for each in await usage(served, **query)]

    both, rest = {"requests": 2, "tokens": 120, "unpriced_requests": 1}, {"requests": 1, "tokens": 3, "unpriced_requests": 0}
    assert await counted() == [(first, 1, both, 0.005), (named(served.lab.now), 0, rest, 0.0)]
    whole = {"requests": 3, "tokens": 123, "unpriced_requests": 1}
    assert await counted(group_by="model") == [("a", 1, NO_EMBEDDINGS, 0.0), ("small", 0, whole, 0.005)]
    assert await counted(group_by="key") == [("", 0, rest, 0.0), (KEY_A, 1, both, 0.005)]
    assert await usage(served, group_by="tool") == []
    assert await counted(to=first) == [(first, 1, both, 0.005)]
    assert [name for name, *_ in await counted(**{"from": named(served.lab.now)})] == [named(served.lab.now)]
    (quiet,) = await usage(served, group_by="model", **{"from": named(served.lab.now)})
    assert (quiet["input_tokens"], quiet["by_status"], quiet["unpriced_responses"]) == (0, {}, 0)


async def test_sandboxes_without_a_response_are_counted_by_the_hour() -> None:
    served = Served.of(Lab())
    served.lab.runtime.stores.sandbox_usage.price = SandboxPrice(3.6, 1.8, "a list")
    await ended(served.lab, model="a")
    count = served.lab.runtime.stores.sandbox_usage.count
    await count("t", "1g", 1200)
    await count("t", "4g", 10)
    await count("u", "1g", 7)
    first = named(served.lab.now)
    served.lab.now += DAY
    await count("t", "1g", 5)

    async def counted(**query: Any) -> list[tuple[str, int, dict[str, float], float]]:
        return [(each["id"], each["responses"], each["sandboxes"], each["cost_usd"]) for each in await usage(served, **query)]

    one, two = {"seconds": 1210, "cost_usd": 1.23}, {"seconds": 5, "cost_usd": 0.005}
    assert await counted() == [(first, 1, one, 1.23), (named(served.lab.now), 0, two, 0.005)]
    none, all_of_it = {"seconds": 0, "cost_usd": 0.0}, {"seconds": 1215, "cost_usd": 1.235}
    assert await counted(group_by="model") == [("", 0, all_of_it, 1.235), ("a", 1, none, 0.0)]
    assert await counted(group_by="key") == [("", 0, all_of_it, 1.235), (KEY_A, 1, none, 0.0)]
    assert await usage(served, group_by="tool") == []
    assert await counted(to=first) == [(first, 1, one, 1.23)]


async def test_what_was_deleted_stays_counted_and_what_is_another_tenants_never_is() -> None:
    served = Served.of(Lab())
    stored = await ended(served.lab)
    await ended(served.lab)
    before = await usage(served)
    await served.lab.responses.delete("t", stored.response_id)
    (after,) = await usage(served)
    assert after == before[0] | {"by_status": {"completed": 1, "deleted": 1}}
    assert (await served.get("/usage", by="key-b")).json()["data"] == []


async def test_a_part_of_the_time_is_added_up_by_days_or_by_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "USAGE_READ_ENTRIES", 2)
    served = Served.of(Lab())
    moments = []
    for _ in range(4):
        for _ in range(5):
            moments.append((await ended(served.lab)).created_at)
        served.lab.now += DAY
    day = named(moments[7])
    assert [(each["id"], each["responses"]) for each in await usage(served, **{"from": day, "to": day})] == [(day, 5)]
    exactly = await usage(served, **{"from": moments[6], "to": moments[11]})
    assert sum(each["responses"] for each in exactly) == 6


async def test_more_than_can_be_added_up_is_refused_and_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "USAGE_READ_ENTRIES", 2)
    monkeypatch.setattr(limits, "USAGE_DAY_READS_MAX", 2)
    served = Served.of(Lab())
    for _ in range(5):
        await ended(served.lab)
    answer = await served.get("/usage")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "from")


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"group_by": "colour"}, "group_by"),
        ({"split_by": "colour"}, "split_by"),
        ({"group_by": "model", "split_by": "key"}, "split_by"),
        ({"from": "yesterday"}, "from"),
        ({"from": "2026-02-30"}, "from"),
        ({"from": "2027-01-02", "to": "2027-01-01"}, "from"),
        ({"from": "2020-01-01"}, "from"),
        ({"limit": "5"}, "limit"),
    ],
)
async def test_what_usage_does_not_know_is_refused_by_name(query: dict[str, str], param: str) -> None:
    answer = await Served.of(Lab()).get("/usage", **query)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
