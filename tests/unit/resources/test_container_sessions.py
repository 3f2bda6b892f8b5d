"""Sessions of containers: terminals that people sit at, over sandboxes in memory."""

from typing import Any

import pytest
from moorage import limits
from moorage.errors import ApiError, SandboxCapacity
from moorage.ids import new_session_id

from tests.unit.resources.places import Places
from tests.unit.resources.service import Service
from tests.unit.resources.support import FakeSandbox, FakeTerminal

OPENED = {"columns": 100, "rows": 30}


async def new_container(service: Service) -> str:
    return (await service.sdk.containers.create(name="work")).id


async def opened(service: Service, container_id: str, **body: Any) -> dict[str, Any]:
    answer = await service.http.post(f"/containers/{container_id}/sessions", json=OPENED | body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def read(service: Service, session_id: str, after: int = 0) -> dict[str, Any]:
    answer = await service.http.get(f"/sessions/{session_id}/output?starting_after={after}&wait_ms=0")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def typed(service: Service, session_id: str, text: str, **more: str) -> Any:
    return await service.http.post(f"/sessions/{session_id}/input", json={"text": text} | more)


def sandbox_of(service: Service) -> FakeSandbox:
    (sandbox,) = [each for each in service.provisioner.sandboxes.values() if each.is_alive]
    return sandbox


async def test_a_session_is_opened_read_typed_into_resized_and_closed(service: Service) -> None:
    container_id = await new_container(service)
    session = await opened(service, container_id, command="top")
    assert session == {
        "id": session["id"],
        "object": "container.session",
        "container_id": container_id,
        "created_at": int(service.clock()),
        "command": "top",
        "columns": 100,
        "rows": 30,
        "status": "running",
        "outcome": None,
        "exit_code": None,
    }
    path = f"/containers/{container_id}/sessions"
    assert (await service.http.get(path)).json()["data"] == [session]
    assert (await service.http.get(f"{path}/{session['id']}")).json() == session
    assert (await typed(service, session["id"], "q")).json() == {"object": "container.session.input", "session_id": session["id"]}
    assert await read(service, session["id"]) == {
        "object": "container.session.output",
        "session_id": session["id"],
        "starting_after": 0,
        "output": "q",
        "next": 1,
        "status": "running",
        "outcome": None,
        "exit_code": None,
    }
    assert (await read(service, session["id"], after=1))["output"] == ""
    resized = await service.http.post(f"/sessions/{session['id']}/resize", json={"columns": 120, "rows": 40})
    assert resized.json() == session | {"columns": 120, "rows": 40}
    assert sandbox_of(service).terminals == {session["id"]: FakeTerminal("top", (40, 120), "q")}
    closed = await service.http.delete(f"/sessions/{session['id']}")
    assert closed.json() == {"id": session["id"], "object": "container.session.deleted", "deleted": True}
    assert sandbox_of(service).terminals[session["id"]].outcome == "killed"
    assert (await service.http.get(path)).json()["data"] == []
    assert (await service.http.get(f"/sessions/{session['id']}/output")).status_code == 404


async def test_the_end_is_told_with_its_exit_code_and_the_files_are_stored_by_then(service: Service) -> None:
    container_id = await new_container(service)
    session = await opened(service, container_id)
    sandbox_of(service).write("made.txt", b"by hand")
    await typed(service, session["id"], "exit")
    for _ in range(2):
        ended = await read(service, session["id"])
        assert (ended["status"], ended["outcome"], ended["exit_code"], ended["output"]) == ("ended", "exit", 3, "exit")
    tree = (await service.http.get(f"/containers/{container_id}/tree")).json()["data"]
    assert [entry["path"] for entry in tree] == ["/mnt/data/made.txt"]
    refused = await typed(service, session["id"], "ls")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "session_not_running")
    assert (await service.http.get(f"/containers/{container_id}/sessions")).json()["data"] == []


async def test_a_session_is_lost_with_its_sandbox_and_the_next_one_gets_another(service: Service) -> None:
    container_id = await new_container(service)
    session = await opened(service, container_id)
    sandbox_of(service).is_alive = False
    lost = await read(service, session["id"])
    assert (lost["status"], lost["outcome"], lost["exit_code"]) == ("ended", "lost", None)
    assert (await typed(service, session["id"], "ls")).status_code == 409
    again = await opened(service, container_id)
    assert (again["status"], service.provisioner.starts) == ("running", 2)


async def test_a_terminal_that_its_sandbox_does_not_know_is_lost(service: Service) -> None:
    session = await opened(service, await new_container(service))
    sandbox_of(service).terminals.clear()
    assert (await read(service, session["id"]))["outcome"] == "lost"


async def test_reading_keeps_a_container_alive_and_listing_does_not(service: Service) -> None:
    container_id = await new_container(service)
    session = await opened(service, container_id)
    opened_at = int(service.clock())
    service.clock.advance(limits.CONTAINER_IDLE_MINUTES_DEFAULT * 60 - 1)
    await service.http.get(f"/containers/{container_id}/sessions")
    assert (await service.sdk.containers.list()).data[0].last_active_at == opened_at
    await read(service, session["id"])
    assert (await service.sdk.containers.list()).data[0].last_active_at == int(service.clock())


async def test_where_no_sandbox_can_be_had_none_is_opened_and_nothing_is_left(service: Service) -> None:
    container_id = await new_container(service)
    service.provisioner.problems = [SandboxCapacity("This machine has no room for another container.")]
    answer = await service.http.post(f"/containers/{container_id}/sessions", json={})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (503, "container_unavailable")
    assert error["message"] == "This machine has no room for another container."
    assert (await service.http.get(f"/containers/{container_id}/sessions")).json()["data"] == []


async def test_an_idle_sandbox_gives_way_to_a_terminal_and_its_container_keeps_its_files(service: Service) -> None:
    idle, wanted = await new_container(service), await new_container(service)
    session = await opened(service, idle)
    sandbox_of(service).write("kept.txt", b"by hand")
    await typed(service, session["id"], "exit")
    service.provisioner.room = 1
    service.clock.advance(limits.SANDBOX_IDLE_SECONDS_MIN + limits.CONTAINER_TOUCH_SECONDS)
    assert (await opened(service, wanted))["status"] == "running"
    assert [spec.container_id for spec in service.provisioner.specs] == [idle, wanted]
    assert len(service.provisioner.running()) == 1
    tree = (await service.http.get(f"/containers/{idle}/tree")).json()["data"]
    assert [entry["path"] for entry in tree] == ["/mnt/data/kept.txt"]


async def test_no_sandbox_in_use_gives_way_to_a_terminal(service: Service) -> None:
    used, wanted = await new_container(service), await new_container(service)
    session = await opened(service, used)
    service.provisioner.room = 1
    answer = await service.http.post(f"/containers/{wanted}/sessions", json=OPENED)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "container_unavailable")
    service.clock.advance(limits.SANDBOX_IDLE_SECONDS_MIN + limits.CONTAINER_TOUCH_SECONDS)
    sandbox_of(service).running = 1
    answer = await service.http.post(f"/containers/{wanted}/sessions", json=OPENED)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "container_unavailable")
    assert (await read(service, session["id"]))["status"] == "running"


async def test_a_program_that_takes_no_input_is_not_buried_in_it(service: Service) -> None:
    session = await opened(service, await new_container(service))
    answer = await typed(service, session["id"], "x" * 20_000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "session_input_full")


async def test_a_container_has_a_bounded_number_of_sessions(service: Service) -> None:
    container_id = await new_container(service)
    for _ in range(limits.SESSIONS_OPEN_MAX):
        session = await opened(service, container_id)
    answer = await service.http.post(f"/containers/{container_id}/sessions", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_sessions")
    await service.http.delete(f"/sessions/{session['id']}")
    await opened(service, container_id)


async def test_sessions_whose_end_nobody_has_read_make_room_for_others(service: Service) -> None:
    container_id = await new_container(service)
    sessions = [await opened(service, container_id, command="true") for _ in range(limits.SESSIONS_OPEN_MAX)]
    sandbox, goes_on, unknown = sandbox_of(service), sessions[3]["id"], sessions[5]["id"]
    del sandbox.terminals[unknown]
    for name, terminal in sandbox.terminals.items():
        if name != goes_on:
            terminal.end("exit", 0)
    sandbox.write("left.txt", b"by one of them")
    another = await opened(service, container_id)
    listed = (await service.http.get(f"/containers/{container_id}/sessions")).json()["data"]
    assert {each["id"] for each in listed} == {goes_on, another["id"]}
    ends = [(await read(service, each["id"]))["outcome"] for each in sessions[2:6]]
    assert ends == ["exit", None, "exit", "lost"]
    assert [entry["path"] for entry in (await service.http.get(f"/containers/{container_id}/tree")).json()["data"]] == [
        "/mnt/data/left.txt"
    ]


async def test_sessions_that_were_lost_with_their_sandbox_are_not_listed_and_make_room(service: Service) -> None:
    container_id = await new_container(service)
    sessions = [await opened(service, container_id) for _ in range(limits.SESSIONS_OPEN_MAX)]
    sandbox_of(service).is_alive = False
    assert (await read(service, sessions[0]["id"]))["outcome"] == "lost"
    assert (await service.http.get(f"/containers/{container_id}/sessions")).json()["data"] == []
    assert (await opened(service, container_id))["status"] == "running"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/containers/{container}/sessions", {"columns": 0}, "columns"),
        ("/containers/{container}/sessions", {"rows": 1_001}, "rows"),
        ("/containers/{container}/sessions", {"command": ""}, "command"),
        ("/containers/{container}/sessions", {"command": "a\0b"}, "command"),
        ("/containers/{container}/sessions", {"shell": "zsh"}, "shell"),
        ("/sessions/{session}/input", {"text": ""}, "text"),
        ("/sessions/{session}/input", {"text": "x" * 70_000}, "text"),
        ("/sessions/{session}/input", {"text": "x", "id": "i" * 65}, "id"),
        ("/sessions/{session}/resize", {"columns": 80}, "rows"),
        ("/sessions/{session}/output?starting_after=-1", None, "starting_after"),
        ("/sessions/{session}/output?wait_ms=20001", None, "wait_ms"),
        ("/sessions/{session}/output?after=1", None, "after"),
    ],
)
async def test_what_is_asked_wrongly_is_refused_by_name(service: Service, path: str, body: Any, param: str) -> None:
    container_id = await new_container(service)
    address = path.format(container=container_id, session=(await opened(service, container_id))["id"])
    answer = await (service.http.get(address) if body is None else service.http.post(address, json=body))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("session_id", ["csess_x", "x", "csess_" + "0" * 64])
async def test_an_unknown_session_is_not_found(service: Service, session_id: str) -> None:
    container_id = await new_container(service)
    assert (await service.http.get(f"/sessions/{session_id}/output")).status_code == 404
    assert (await service.http.get(f"/containers/{container_id}/sessions/{session_id}")).status_code == 404
    assert (await typed(service, session_id, "x")).status_code == 404
    other = (await opened(service, await new_container(service)))["id"]
    assert (await service.http.get(f"/containers/{container_id}/sessions/{other}")).status_code == 404


async def test_sessions_go_with_their_container(service: Service) -> None:
    container_id = await new_container(service)
    session = await opened(service, container_id)
    await service.sdk.containers.delete(container_id)
    assert (await service.http.get(f"/sessions/{session['id']}/output")).status_code == 404


# --- Where sandboxes are started in one place and reached in another ---------------------------------------------------------


async def test_a_session_that_was_ordered_outside_begins_with_the_first_look_inside(places: Places) -> None:
    record = await places.new()
    session = await places.outside.sessions.open(record, "", rows=24, columns=80)
    assert (session.status, places.ecs.starts) == ("starting", 1)
    found = await places.inside.sessions.read("ten", session.id, 0, wait_ms=0)
    assert found.session.status == "running"
    assert list(places.ecs.sandboxes["sb-1"].terminals) == [session.id]
    await places.inside.sessions.type("ten", session.id, "ls", "1")
    assert (await places.inside.sessions.read("ten", session.id, 0, wait_ms=0)).output == "ls"
    assert (await places.outside.sessions.get("ten", session.id)).status == "running"
    await places.inside.sessions.close("ten", session.id)
    assert places.ecs.sandboxes["sb-1"].terminals[session.id].outcome == "killed"


async def test_a_sandbox_that_died_before_its_session_is_ordered_again(places: Places) -> None:
    record = await places.new()
    session = await places.outside.sessions.open(record, "", rows=24, columns=80)
    await (await places.live(record)).aclose()
    places.ecs.sandboxes["sb-1"].is_alive = False
    assert (await places.inside.sessions.read("ten", session.id, 0, wait_ms=0)).session.status == "starting"
    assert (await places.outside.sessions.get("ten", session.id)).status == "starting"
    assert (await places.inside.sessions.read("ten", session.id, 0, wait_ms=0)).session.status == "running"
    assert places.ecs.starts == 2


async def test_who_asks_outside_while_it_starts_orders_nothing_twice(places: Places) -> None:
    record = await places.new()
    session = await places.outside.sessions.open(record, "", rows=24, columns=80)
    places.deaf.add("fake:sb-1")
    for _ in range(3):
        assert (await places.outside.sessions.get("ten", session.id)).status == "starting"
        assert (await places.inside.sessions.read("ten", session.id, 0, wait_ms=0)).session.status == "starting"
    with pytest.raises(ApiError) as refused:
        await places.inside.sessions.type("ten", session.id, "ls", "")
    assert (refused.value.status, refused.value.code) == (409, "session_not_running")
    assert len(places.ecs.asked) == 1


async def test_closing_what_never_began_only_forgets_it(places: Places) -> None:
    record = await places.new()
    session = await places.outside.sessions.open(record, "", rows=24, columns=80)
    await places.inside.sessions.close("ten", session.id)
    assert await places.outside.sessions.list(record) == []
    assert places.ecs.sandboxes["sb-1"].terminals == {}


def test_an_id_leads_to_its_container() -> None:
    assert new_session_id("cntr_" + "ab" * 24).startswith("csess_" + "ab" * 24)
