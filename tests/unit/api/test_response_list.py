"""``GET /v1/responses``: what a page shows, what it costs, and what it leaves out."""

import secrets
from typing import Any, cast

import pytest
from moorage import limits
from moorage.model.remote_servers import RemoteServers
from moorage.store import keys
from moorage.store.event_log import EventBatch, LogWriterId
from moorage.store.responses import StoredResponse
from moorage.wire.events import OF_STATUS

from tests.unit.api.served import KEY_A, Served
from tests.unit.loop.lab import CONTAINER, Lab, first_state, say, shell

USAGE = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 12,
}


async def ended(lab: Lab, text: str = "go", status: str = "completed", output: Any = (), **changes: Any) -> StoredResponse:
    """A short response in the foreground, written as such are: by one request."""
    lab.now += 1
    echo = {"model": "m", "metadata": changes.pop("metadata", {}), "previous_response_id": None}
    model = changes.pop("model", "m")
    fields = {"is_background": False, "is_looping": False, "container_id": None, "key_id": KEY_A, **changes}
    stored = lab.stored(text, created_at=int(lab.now), echo=echo, **fields)
    response = {
        "id": stored.response_id,
        "status": status,
        "model": model,
        "output": list(output),
        "usage": USAGE,
        "error": {"code": "server_error", "message": "No."} if status == "failed" else None,
        "incomplete_details": None,
    }
    event = {"type": OF_STATUS["incomplete" if status == "cancelled" else status], "response": response, "sequence_number": 0}
    await lab.responses.create(stored, EventBatch(0, (event,), LogWriterId(0, 1)))
    return stored


async def walk(served: Served, **query: Any) -> list[str]:
    """The ids of all pages, as the SDKs go through them."""
    found: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = (await served.get("/responses", **query, **after)).json()
        found += [each["id"] for each in page["data"]]
        if not page["has_more"]:
            return found
        after = {"after": page["last_id"]}


async def test_what_is_made_within_a_second_is_listed_as_it_was_made() -> None:
    lab = Lab(*(say(str(number)) for number in range(6)))
    catalog = cast("Any", lab.runtime.models.catalog)
    catalog.remote_servers, catalog.default_skills = RemoteServers(), ()
    served, made = Served.of(lab), list[str]()
    lab.now += 0.5
    for number in range(6):
        made.append((await served.post("/responses", {"model": "m", "input": "go", "background": number == 3})).json()["id"])
        lab.now += 0.001
    assert (await walk(served, limit=2, order="asc"), await walk(served, limit=2)) == (made, made[::-1])


async def test_a_row_says_what_an_operator_looks_for_first() -> None:
    served = Served.of(Lab())
    call = {"type": "shell_call", "id": "sh_1"}
    answered = {"type": "message", "content": [{"type": "output_text", "text": "\n\nIt lies  in /tmp.\nLook there."}]}
    stored = await ended(served.lab, "  Find\nthe file ", output=[call, call, answered], metadata={"team": "x"})
    answer = await served.get("/responses")
    assert answer.json() == {
        "object": "list",
        "data": [
            {
                "id": stored.response_id,
                "object": "response.summary",
                "created_at": stored.created_at,
                "ended_at": stored.created_at,
                "status": "completed",
                "model": "m",
                "background": False,
                "metadata": {"team": "x"},
                "previous_response_id": None,
                "forked_from": None,
                "conversation": None,
                "container_id": None,
                "session_id": None,
                "key_id": KEY_A,
                "input_preview": "Find the file",
                "output_preview": "It lies in /tmp. Look there.",
                "tool_calls": {"shell_call": 2},
                "usage": USAGE,
                "cost_usd": None,
                "error": None,
                "incomplete_details": None,
                "waiting_for": None,
            }
        ],
        "first_id": stored.response_id,
        "last_id": stored.response_id,
        "has_more": False,
    }


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
async def test_pages_hold_every_response_once_in_either_direction(limit: int) -> None:
    served = Served.of(Lab())
    ids = [(await ended(served.lab)).response_id for _ in range(7)]
    assert await walk(served, limit=limit, order="asc") == ids
    assert await walk(served, limit=limit) == ids[::-1]


async def test_what_runs_stands_among_what_has_ended_and_says_what_it_waits_for() -> None:
    served = Served.of(Lab(shell("make"), say("done")))
    before = await ended(served.lab)
    served.lab.now += 1
    running = await served.lab.background()
    after = await ended(served.lab)
    state = await served.lab.step(first_state(running))
    for order, ids in (("asc", [before, running, after]), ("desc", [after, running, before])):
        assert await walk(served, limit=2, order=order) == [each.response_id for each in ids]
    (row,) = (await served.get("/responses", status="in_progress")).json()["data"]
    assert (row["id"], row["status"], row["usage"], row["ended_at"]) == (running.response_id, "in_progress", None, None)
    assert row["waiting_for"] == {
        "kind": "container",
        "since": int(served.lab.now * 1000),
        "detail": "A container, for shell_call.",
    }
    await served.lab.run(running, state)
    assert (await served.get("/responses", status="in_progress")).json()["data"] == []
    assert await walk(served, order="asc") == [each.response_id for each in (before, running, after)]


async def test_a_response_that_has_ended_and_is_still_on_the_loops_list_is_shown_once() -> None:
    served = Served.of(Lab(say("done")))
    stored = await served.lab.background()
    meta = dict(served.lab.table.records[keys.response("t", stored.response_id), keys.META])
    await served.lab.run(stored)
    served.lab.table.records[keys.response("t", stored.response_id), keys.META] = meta
    for limit in (1, 5):
        for order in ("asc", "desc"):
            assert await walk(served, limit=limit, order=order) == [stored.response_id]


async def test_one_in_the_foreground_is_listed_from_its_first_heartbeat_on_and_once() -> None:
    served = Served.of(Lab())
    stored = served.lab.stored(is_background=False, is_looping=False)
    await served.lab.responses.create(stored)
    assert (await served.get("/responses")).json()["data"] == []
    await served.lab.responses.heartbeat(stored)
    (row,) = (await served.get("/responses", status="in_progress")).json()["data"]
    assert (row["id"], row["waiting_for"]["kind"]) == (stored.response_id, "model")
    response = {"id": stored.response_id, "status": "completed", "model": "m", "output": [], "usage": USAGE}
    final = {"type": "response.completed", "response": response, "sequence_number": 0}
    await served.lab.responses.log_of(stored).append(EventBatch(0, (final,), LogWriterId(0, 1)))
    for order in ("asc", "desc"):
        for limit in (1, 2, 5):
            assert await walk(served, limit=limit, order=order) == [stored.response_id]
    assert await walk(served, status="completed", order="asc") == [stored.response_id]
    assert await walk(served, status="in_progress") == []


async def test_a_heartbeat_that_comes_late_does_not_take_a_response_from_the_loop() -> None:
    lab = Lab()
    stored = lab.stored(is_background=False, is_looping=False)
    await lab.responses.create(stored)
    await lab.responses.hand_over(stored)
    await lab.responses.heartbeat(stored)
    assert await lab.responses.inflight() == [("t", stored.response_id)]


FILTERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "status": ({"status": "failed"}, {"status": "failed"}),
    "conversation": ({"conversation_id": "conv_1"}, {"conversation": "conv_1"}),
    "container": ({"container_id": CONTAINER}, {"container": CONTAINER}),
    "some container": ({"container_id": CONTAINER}, {"has_container": "true"}),
    "metadata": ({"metadata": {"team": "x", "run": "7"}}, {"metadata[team]": "x", "metadata[run]": "7"}),
}


@pytest.mark.parametrize("name", FILTERS)
async def test_a_filter_leaves_out_the_rest_on_every_page(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIST_FIRST_ENTRIES", 3)
    monkeypatch.setattr(limits, "LIST_READ_ENTRIES", 3)
    served = Served.of(Lab())
    changes, query = FILTERS[name]
    wanted = []
    for number in range(9):
        stored = await ended(served.lab, **(changes if number % 3 == 0 else {}))
        wanted += [stored.response_id] if number % 3 == 0 else []
    assert await walk(served, limit=2, order="asc", **query) == wanted
    assert await walk(served, limit=2, **query) == wanted[::-1]
    assert await walk(served, model="another", **query) == []


async def test_times_and_keys_are_filters_too() -> None:
    served = Served.of(Lab())
    made = [await ended(served.lab) for _ in range(5)]
    query = {"created_after": made[1].created_at, "created_before": made[3].created_at}
    for order in ("asc", "desc"):
        assert sorted(await walk(served, limit=2, order=order, **query)) == sorted(each.response_id for each in made[1:4])
    assert len(await walk(served, key=KEY_A)) == 5
    assert await walk(served, key="key_of_somebody") == []


async def test_a_search_that_finds_nothing_for_long_says_where_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIST_FIRST_ENTRIES", 2)
    monkeypatch.setattr(limits, "LIST_READ_ENTRIES", 2)
    monkeypatch.setattr(limits, "LIST_ENTRIES_MAX", 4)
    served = Served.of(Lab())
    rare = await ended(served.lab, status="failed")
    for _ in range(9):
        await ended(served.lab)
    page = (await served.get("/responses", status="failed")).json()
    assert (page["data"], page["has_more"], page["last_id"] is not None) == ([], True, True)
    assert await walk(served, status="failed") == [rare.response_id]


@pytest.mark.parametrize(
    "query",
    [
        {"status": "finished"},
        {"created_after": "yesterday"},
        {"has_container": "maybe"},
        {"limit": "0"},
        {"limit": "101"},
        {"order": "up"},
        {"after": "resp_unknown"},
        {"colour": "red"},
        {"include[]": "reasoning.encrypted_content"},
        {f"metadata[k{i}]": "v" for i in range(17)},
    ],
    ids=lambda query: next(iter(query)) + "=" + next(iter(query.values()))[:8],
)
async def test_what_a_list_does_not_know_is_refused_by_name(query: dict[str, str]) -> None:
    answer = await Served.of(Lab()).get("/responses", **query)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(next(iter(query)).partition("[")[0])


async def test_another_tenant_sees_nothing_and_cannot_go_on_behind_a_foreign_id() -> None:
    served = Served.of(Lab(shell("make")))
    stored = await ended(served.lab)
    await served.lab.background()
    assert (await served.get("/responses", by="key-b")).json()["data"] == []
    assert (await served.get("/responses", by="key-b", after=stored.response_id)).status_code == 400


@pytest.mark.parametrize("count", [30, 300])
async def test_a_page_costs_the_same_however_many_responses_there_are(count: int) -> None:
    served = Served.of(Lab())
    for _ in range(count):
        await ended(served.lab)
    served.lab.table.reads = 0
    assert len((await served.get("/responses", limit=20)).json()["data"]) == 20
    assert served.lab.table.reads == 3, "the list, what runs, and the responses shown"
    served.lab.table.reads = 0
    assert (await served.get("/responses", status="failed")).json()["data"] == []
    assert served.lab.table.reads == 2, "the index alone"


async def test_one_that_is_not_stored_is_never_listed() -> None:
    served = Served.of(Lab(shell("make")))
    await served.lab.background(is_stored=False)
    assert (await served.get("/responses")).json()["data"] == []
    assert (await served.get("/responses", status="queued,in_progress")).json()["data"] == []


async def test_one_that_was_deleted_is_gone_from_the_list_and_still_marks_a_place() -> None:
    served = Served.of(Lab())
    ids = [(await ended(served.lab)).response_id for _ in range(4)]
    await served.lab.responses.delete("t", ids[2])
    assert await walk(served, order="asc") == [ids[0], ids[1], ids[3]]
    assert [each["id"] for each in (await served.get("/responses", order="asc", after=ids[2])).json()["data"]] == [ids[3]]
    (left,) = [record for (pk, _), record in served.lab.table.records.items() if pk == keys.response("t", ids[2])]
    assert (left["SK"], "body" in left) == (keys.GONE, False)


async def test_a_key_of_the_index_holds_nothing_that_was_said() -> None:
    lab = Lab()
    secret = secrets.token_hex(8)
    await ended(lab, f"my {secret}", metadata={"note": secret})
    entries = [record["GSI1SK"] for record in lab.table.records.values() if "GSI1SK" in record]
    assert [(secret in entry, len(entry.encode()) <= 1024) for entry in entries] == [(False, True)]


async def test_what_was_meant_as_a_websocket_is_told_that_it_cannot_pass() -> None:
    served = Served.of(Lab())
    for header in ({"upgrade": "websocket"}, {"sec-websocket-key": "x"}, {"openai-beta": "responses_websockets=2026-02-06"}):
        answer = await served.ask("GET", "/responses", headers=header)
        assert (answer.status_code, answer.json()["error"]["code"]) == (426, "upgrade_required")


async def test_a_page_ends_when_it_has_read_many_bytes_and_the_next_one_goes_on() -> None:
    lab = Lab()
    text = "a" * (limits.PAGE_BYTES_MAX // 4)
    made = [(await ended(lab, text)).response_id for _ in range(limits.RECORDS_UNPACKED_AT_ONCE * 3)]
    served = Served.of(lab)
    page = (await served.get("/responses", limit=100)).json()
    assert limits.RECORDS_UNPACKED_AT_ONCE <= len(page["data"]) < len(made)
    assert (page["has_more"], page["last_id"]) == (True, page["data"][-1]["id"])
    assert await walk(served, limit=100) == made[::-1]
