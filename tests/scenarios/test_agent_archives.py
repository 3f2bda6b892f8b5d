"""An agent with its sessions goes into an archive and out of it again, in another tenant, where its sessions go on."""

import asyncio
import io
import json
import random
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from moorage.agents.archive_format import ArchiveWriter
from moorage.cli.main import main
from openai import NotFoundError, OpenAI
from openai._legacy_response import HttpxBinaryResponseContent

from tests.processes import until
from tests.scenarios.test_agent_sessions import HOSTED, NONE, WEIGH, call, ended
from tests.scenarios.test_agent_teams import STORY
from tests.scenarios.test_session_forks import forked, printed, told
from tests.scenarios.test_tenants import make_key
from tests.stack import Stack, say, script, shell
from tests.unit.skills.archives import asked_plugin, plugin

SAVE = (
    "mkdir -p /workspace/outputs /workspace/notes; echo report > /workspace/outputs/a.txt; echo plan > '/workspace/notes/the plan.txt'"
)


@pytest.fixture(scope="module")
def other(stack: Stack) -> OpenAI:
    """A client of another tenant."""
    return stack.client(make_key(stack, "importer"))


def exported(client: OpenAI, agent_id: str) -> bytes:
    return client.get(f"/agents/{agent_id}/export", cast_to=HttpxBinaryResponseContent).read()


def imported(client: OpenAI, archive: bytes, **options: Any) -> Any:
    file = client.files.create(file=("agent.tar", archive), purpose="user_data")
    try:
        return client.post("/agents/import", body={"file_id": file.id, **options}, cast_to=object)
    finally:
        client.files.delete(file.id)


def told_of(client: OpenAI, session_id: str) -> list[dict[str, Any]]:
    """The items of a session, without the ids that are new in an import."""
    items = client.beta.agents.sessions.items.list(session_id, order="asc", limit=100)
    return [{name: value for name, value in item.to_dict().items() if name != "id"} for item in items]


def test_a_session_goes_on_in_another_tenant_with_all_that_it_had(client: OpenAI, other: OpenAI) -> None:
    agents = client.beta.agents
    agent = agents.create(model="demo", name="clerk", instructions="Be brief.", metadata={"team": "a"})
    agents.update(agent.id, instructions="Be very brief.")
    sessions = agents.sessions
    hosted: Any = {**HOSTED, "env": {"TOKEN": "hidden-value"}, "setup_commands": [{"command": "echo set > /tmp/up"}]}
    hosted["plugins"] = [asked_plugin(plugin())]
    session = sessions.create(agent_id=agent.id, environment=hosted, input=script(shell(SAVE), say("Saved.")), metadata={"of": "b"})
    ended(client, session.id)
    told(client, session.id, shell("false; echo $TOKEN >/dev/null", "cat /workspace/notes/*"), say("Read."))
    before, turns = told_of(client, session.id), [turn.to_dict() for turn in sessions.turns.list(session.id)]
    usage = sessions.retrieve(session.id).usage
    artifact = next(iter(sessions.artifacts.list(session.id)))
    archive = exported(client, agent.id)
    assert b"hidden-value" not in archive
    assert b"/tmp/up" not in archive
    sessions.delete(session.id)
    agents.delete(agent.id)

    made = imported(other, archive)
    (found,) = made["sessions"]
    assert (made["object"], made["imported_from"], found["imported_from"]) == ("agent.import", agent.id, session.id)
    assert found["left_out"] == ["env", "setup_commands", "plugins"]
    its = other.beta.agents
    assert its.retrieve(made["agent"]["id"]).to_dict() == {**made["agent"], "instructions": "Be very brief."}
    first = its.retrieve(made["agent"]["id"], extra_query={"version": 1})
    assert (first.instructions, first.metadata) == ("Be brief.", {"team": "a"})
    copy = its.sessions.retrieve(found["id"])
    assert (copy.status, copy.metadata, copy.usage, copy.agent.id) == ("idle", {"of": "b"}, usage, made["agent"]["id"])
    assert told_of(other, copy.id) == before
    same = ("id", "status", "created_at", "completed_at", "usage", "cost_usd")
    of_copy = [turn.to_dict() for turn in its.sessions.turns.list(copy.id)]
    assert [[turn[name] for name in same] for turn in of_copy] == [[turn[name] for name in same] for turn in turns]
    (own,) = its.sessions.artifacts.list(copy.id)
    assert (own.path, own.turn_id, own.created_at) == (artifact.path, artifact.turn_id, artifact.created_at)
    assert its.sessions.artifacts.content(own.id, session_id=copy.id).read() == b"report\n"

    told(other, copy.id, shell("cat '/workspace/notes/the plan.txt'; echo ${TOKEN:-none}"), say("Here it is."))
    assert printed(other, copy.id)[-1].splitlines()[-2:] == ["plan", "none"]
    assert told_of(other, copy.id)[: len(before)] == before
    last: Any = next(iter(its.sessions.turns.list(copy.id)))
    prompt = other.get(f"/responses/{last.response_ids[0]}/steps/step_0/prompt", cast_to=object)
    assert all(words in json.dumps(prompt) for words in ("Saved.", "Read.", "Be very brief.")), "the model reads what was said before"
    with pytest.raises(NotFoundError):
        client.beta.agents.sessions.retrieve(copy.id)
    its.sessions.delete(copy.id)
    its.delete(made["agent"]["id"])


def test_the_stream_of_an_imported_session_tells_its_turns_from_the_beginning(stack: Stack, client: OpenAI) -> None:
    agent = client.beta.agents.create(model="demo")
    session = client.beta.agents.sessions.create(agent_id=agent.id, environment=HOSTED, input=script(shell("echo one"), say("Done.")))
    ended(client, session.id)
    made = imported(client, exported(client, agent.id))

    def types(session_id: str) -> list[str]:
        found: list[str] = []
        with stack.http() as http, http.stream("GET", f"/agents/sessions/{session_id}/events", params={"after": "0"}) as answer:
            for line in answer.iter_lines():
                if line.startswith("event: ") and not line.endswith(".delta"):
                    found.append(line.removeprefix("event: agent.session."))
                    if found[-1] == "idle":
                        return found
        return found

    assert types(made["sessions"][0]["id"]) == types(session.id)


def test_a_call_that_waits_for_its_client_is_answered_after_the_import(client: OpenAI, other: OpenAI) -> None:
    agent = client.beta.agents.create(model="demo", tools=[WEIGH])
    session = client.beta.agents.sessions.create(
        agent_id=agent.id, environment=NONE, input=script(call("weigh", parcel="a"), say("Two."))
    )
    until(lambda: client.beta.agents.sessions.retrieve(session.id).status == "requires_action")
    made = imported(other, exported(client, agent.id))
    copy = other.beta.agents.sessions.retrieve(made["sessions"][0]["id"])
    (action,) = (one.to_dict() for one in copy.required_actions)
    assert (copy.status, action["name"]) == ("requires_action", "weigh")
    result: Any = {
        "type": "agent.session.input.tool_result",
        "turn_id": action["turn_id"],
        "call_id": action["call_id"],
        "success": True,
        "output": "2 kg",
    }
    other.beta.agents.sessions.events.create(copy.id, events=[result])
    ended(other, copy.id)
    assert [item["type"] for item in told_of(other, copy.id)] == ["message", "function_call", "function_call_output", "message"]


def test_a_fork_comes_along_with_what_it_begins_with(stack: Stack, client: OpenAI, other: OpenAI) -> None:
    agent = client.beta.agents.create(model="demo")
    session = client.beta.agents.sessions.create(agent_id=agent.id, environment=NONE, input="the first words")
    ended(client, session.id)
    fork = forked(stack, session.id)
    made = imported(other, exported(client, agent.id))
    copies = {each["imported_from"]: each["id"] for each in made["sessions"]}
    assert copies.keys() == {session.id, fork["id"]}
    told(other, copies[fork["id"]], say("On."))
    last: Any = next(iter(other.beta.agents.sessions.turns.list(copies[fork["id"]])))
    response: Any = other.responses.retrieve(last.response_ids[0])
    assert "the first words" in str(list(other.responses.input_items.list(response.previous_response_id, order="asc")))


def test_subagents_come_along_with_their_turns_and_items(client: OpenAI, other: OpenAI) -> None:
    team: Any = {"enabled": True, "max_concurrent_subagents": 2}
    agent = client.beta.agents.create(model="demo", multi_agent=team)
    session = client.beta.agents.sessions.create(agent_id=agent.id, environment=HOSTED, input=STORY)
    ended(client, session.id)
    made = imported(other, exported(client, agent.id))
    copy_id, copied_id = made["sessions"][0]["id"], made["agent"]["id"]

    def of_team(client: OpenAI, session_id: str, root_id: str) -> str:
        subagents = client.beta.agents.sessions.subagents
        found: list[Any] = told_of(client, session_id)
        for each in subagents.list(session_id, order="asc"):
            items = subagents.items.list(each.id, session_id=session_id, order="asc")
            found += [each.name, each.status, *({**item.to_dict(), "id": ""} for item in items)]
        return json.dumps(found).replace(root_id, "root")

    assert of_team(other, copy_id, copied_id) == of_team(client, session.id, agent.id)
    with other.beta.agents.sessions.stream(copy_id, input=STORY) as stream:
        assert stream.get_final_result().output_text == "All: [exit code 0]\na\nb"


def test_the_command_line_takes_an_agent_from_one_tenant_to_another(
    stack: Stack, client: OpenAI, other: OpenAI, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = client.beta.agents.create(model="demo")
    session = client.beta.agents.sessions.create(agent_id=agent.id, environment=HOSTED, input=script(say("Hello.")))
    ended(client, session.id)
    mine, theirs = ({"MOORAGE_URL": str(one.base_url), "MOORAGE_API_KEY": one.api_key} for one in (client, other))
    assert main(["agents", "export", agent.id, str(tmp_path)], mine) == 0
    assert main(["agents", "import", str(tmp_path / f"{agent.id}.tar"), "--no-network", "--json"], theirs) == 0
    made = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (made["imported_from"], made["sessions"][0]["imported_from"]) == (agent.id, session.id)
    assert told_of(other, made["sessions"][0]["id"]) == told_of(client, session.id)


def test_a_session_whose_turn_runs_is_not_exported(stack: Stack, client: OpenAI) -> None:
    agent = client.beta.agents.create(model="demo")
    slow = script(shell("until [ -e /mnt/data/go ]; do sleep 0.1; done"), say("Done."))
    session = client.beta.agents.sessions.create(agent_id=agent.id, environment=HOSTED, input=slow)
    with stack.http() as http:
        refused = http.get(f"/agents/{agent.id}/export")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "session_busy")
        assert session.id in refused.json()["error"]["message"]
    client.beta.agents.sessions.delete(session.id, extra_query={"force": "true"})


# --- Archives that are refused --------------------------------------------------------------------------------------------


def _entries(archive: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return [(info, tar.extractfile(info).read()) for info in tar]  # type: ignore[union-attr]


def _packed(entries: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return file.getvalue()


def _renamed(archive: bytes) -> bytes:
    entries = _entries(archive)
    entries[1][0].name = "../../etc/passwd"
    return _packed(entries)


def _linked(archive: bytes) -> bytes:
    link = tarfile.TarInfo("versions/0001.json")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    entries = _entries(archive)
    return _packed([entries[0], (link, b""), *entries[2:]])


BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut": (lambda archive: archive[: len(archive) // 2], "it ends before its last entry"),
    "cut by its end": (lambda archive: archive[:-1024], "it ends before its last entry"),
    "changed": (lambda archive: archive.replace(b"Be brief.", b"Be crude."), "it was changed since it was written"),
    "no archive": (lambda _: b"PK\x03\x04" + bytes(2000), "it is no archive that 'export' has made"),
    "empty": (lambda _: bytes(10_240), "it ends before its last entry"),
    "of another version": (lambda archive: archive.replace(b'"version":1', b'"version":9'), "it is of version 9"),
    "with a path that leads out": (_renamed, "entry 2 is not the one that is due there"),
    "with a link": (_linked, "it has an entry that is no file"),
    "with something behind it": (lambda archive: archive + b"more", "something stands behind its last entry"),
}


@pytest.mark.parametrize(("change", "problem"), BROKEN.values(), ids=BROKEN)
def test_a_broken_archive_is_refused_whole(
    stack: Stack, other: OpenAI, archive: bytes, change: Callable[[bytes], bytes], problem: str
) -> None:
    refused(stack, other, change(archive), problem)


@pytest.fixture(scope="module")
def archive(client: OpenAI) -> bytes:
    """Of an agent with two sessions, the second of which has a file."""
    agent = client.beta.agents.create(model="demo", instructions="Be brief.")
    environments: list[Any] = [NONE, {**HOSTED, "files": [{"type": "inline", "path": "/workspace/a.txt", "data": "YQ=="}]}]
    for environment in environments:
        session = client.beta.agents.sessions.create(agent_id=agent.id, environment=environment, input=script(say("Hello.")))
        ended(client, session.id)
    return exported(client, agent.id)


def refused(stack: Stack, client: OpenAI, archive: bytes, problem: str) -> None:
    file = client.files.create(file=("a.tar", archive), purpose="user_data")
    before = there(stack, client)
    with stack.http(client.api_key) as http:
        answer = http.post("/agents/import", json={"file_id": file.id})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_archive", "file_id"), error
    assert problem in error["message"]
    assert there(stack, client) == before, "nothing of it is left"


def there(stack: Stack, client: OpenAI) -> list[list[str]]:
    """The newest of all kinds of things that an import makes."""
    with stack.http(client.api_key) as http:
        paths = ("/agents", "/agents/sessions", "/agents/environments", "/containers", "/files", "/responses")
        return [[one["id"] for one in http.get(path).json()["data"]] for path in paths]


def rewritten(archive: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    """Another archive that is whole, in which one entry says something else."""
    writer = ArchiveWriter()

    async def written() -> bytes:
        made = b""
        for info, content in _entries(archive)[:-1]:
            async for piece in writer.text(info.name, change(content) if info.name == name else content):
                made += piece
        return made + writer.end()

    return asyncio.run(written())


SECOND = "sessions/0002/session.json"
ANSWER = "sessions/0001/turns/000001/0001.jsonl"


def _with_notes(recent: list[Any]) -> Callable[[bytes], bytes]:
    """A compaction behind the answer, whose notes carry these items."""
    notes = {"text": "The parcel is blue.", "recent": recent, "user_tokens": 0, "is_cut": False}
    item = {"id": f"cmp_{'a' * 48}", "type": "compaction", "encrypted_content": f"compaction.2:{json.dumps(notes)}", "opened": True}
    line = json.dumps({"of": "output", "item": item}).encode()
    return lambda content: content + b"\n" + line


_HANDLE: dict[str, Any] = {
    "type": "function_call_output",
    "call_id": "c",
    "output": [{"type": "input_text", "text": "a"}],
    "kept": {"output.image_url": "../other/resp_1/x"},
}
IMPOSSIBLE: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "a file outside of the workspace": (
        SECOND,
        lambda text: text.replace(b"/workspace/a.txt", b"/workspace/../etc/a"),
        "must be the path of a file below '/workspace/'",
    ),
    "a file of another length": (SECOND, lambda text: text.replace(b'"bytes":1}', b'"bytes":2}'), "has 1 bytes, and 2 are due"),
    "a network beyond the operator's list": (
        SECOND,
        lambda text: text.replace(b'"environment":{', b'"environment":{"network":{"access":"restricted","allowed_domains":["x.y"]},'),
        "an environment of it cannot be here",
    ),
    "a field that is not known": (SECOND, lambda text: text.replace(b"{", b'{"surprise":1,', 1), "surprise"),
    "an item that is none": (ANSWER, lambda text: text.replace(b'"type":"message"', b'"type":"massage"'), "massage"),
    "a response under another id": (ANSWER, lambda text: text.replace(b'"id":"resp_', b'"id":"resp_f', 1)[:-1], "says what cannot be"),
    "notes with a handle of the service": (ANSWER, _with_notes([_HANDLE]), "kept"),
    "notes with what is no item": (ANSWER, _with_notes([{"type": "massage"}]), "massage"),
    "settings that no agent has": ("versions/0001.json", lambda text: text.replace(b'"model":"demo"', b'"model":7'), "settings.model"),
    "an entry that is no JSON": (SECOND, lambda text: text[:-1], "'sessions/0002/session.json' says what cannot be. It is no JSON: "),
    "a line that is no JSON": (ANSWER, lambda text: text + b"\nhello", f"'{ANSWER}' says what cannot be. Line 4: It is no JSON: "),
    "a line that is no object": (ANSWER, lambda text: text + b"\n7", f"'{ANSWER}' says what cannot be. Line 4: It is no JSON object."),
    "more sessions than there are": ("agent.json", lambda text: text.replace(b'"sessions":2', b'"sessions":3'), "is missing"),
}


def test_notes_that_were_sealed_are_sealed_anew_and_read_by_the_model(client: OpenAI, other: OpenAI, archive: bytes) -> None:
    thought = {"id": f"rs_{'b' * 48}", "type": "reasoning", "summary": [], "encrypted_content": "a thought", "opened": True}
    noted = _with_notes([thought, {"role": "user", "content": "Is it heavy?"}])
    made = imported(other, rewritten(archive, ANSWER, noted))
    copy_id = made["sessions"][0]["id"]
    (turn,) = (one.to_dict() for one in other.beta.agents.sessions.turns.list(copy_id))
    held: Any = other.responses.retrieve(turn["response_ids"][0]).output[-1]  # type: ignore[index]
    assert (held.type, held.encrypted_content.startswith("mrg1.")) == ("compaction", True)
    told(other, copy_id, say("Yes."))
    last: Any = next(iter(other.beta.agents.sessions.turns.list(copy_id)))
    prompt = json.dumps(other.get(f"/responses/{last.response_ids[0]}/steps/step_0/prompt", cast_to=object))
    assert ("The parcel is blue." in prompt, "Is it heavy?" in prompt) == (True, True)
    again = exported(other, made["agent"]["id"])
    assert (b"The parcel is blue." in again, b"a thought" in again, b"mrg1." in again) == (True, True, False)


def test_an_imported_session_is_forked_at_an_imported_turn(stack: Stack, other: OpenAI, archive: bytes) -> None:
    copy_id = imported(other, archive)["sessions"][1]["id"]
    with stack.http(other.api_key) as http:
        fork = http.post(f"/agents/sessions/{copy_id}/fork", json={}).json()
    assert fork["forked_from"]["files"] == 1
    told(other, fork["id"], shell("cat /workspace/a.txt"), say("Mine."))
    assert printed(other, fork["id"])[-1].startswith("a")


def test_a_long_file_is_uploaded_in_parts_by_the_command_line(
    client: OpenAI, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = random.Random(7).randbytes(9 * 1024 * 1024)
    (tmp_path / "long.bin").write_bytes(content)
    mine = {"MOORAGE_URL": str(client.base_url), "MOORAGE_API_KEY": client.api_key}
    assert main(["files", "put", str(tmp_path / "long.bin")], mine) == 0
    file = client.files.retrieve(capsys.readouterr().out.strip())
    assert (file.filename, file.purpose, file.bytes) == ("long.bin", "user_data", len(content))
    assert client.files.content(file.id).read() == content
    client.files.delete(file.id)


@pytest.mark.parametrize(("name", "change", "problem"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_archive_that_says_what_cannot_be_is_refused_whole(
    stack: Stack, other: OpenAI, archive: bytes, name: str, change: Callable[[bytes], bytes], problem: str
) -> None:
    changed = rewritten(archive, name, change)
    assert changed != archive
    refused(stack, other, changed, problem)
