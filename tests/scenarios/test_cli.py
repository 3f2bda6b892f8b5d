"""The command line against a real stack: what an operator types, and what it answers."""

import json
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openai
import pytest
from moorage.command_hints import typed_here
from moorage.store.api_keys import hash_of, key_id_of
from openai import OpenAI

from tests.command_line import moorage
from tests.scenarios.test_shell import TOOLS
from tests.stack import Stack, say, script, shell


def lines(stack: Stack, arguments: Sequence[str]) -> list[str]:
    done = moorage(stack, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def made_key(stack: Stack, tenant: str, *options: str) -> tuple[str, str]:
    """A key and its id. The key stands alone on standard output, as scripts take it."""
    done = moorage(stack, "keys", "create", "--tenant", tenant, *options)
    assert done.stderr.endswith(f" for the tenant '{tenant}'. Keep the key now: only its hash is stored.\n")
    (secret,) = done.stdout.splitlines()
    return secret, done.stderr.split()[0]


def test_a_key_is_made_used_listed_and_revoked(stack: Stack) -> None:
    secret, key_id = made_key(stack, "acme", "--name", "laptop")
    assert stack.client(secret).responses.create(model="demo", input=script(say("hello"))).output_text == "hello"
    listed = [re.split(r"  +", line) for line in lines(stack, ["keys", "list"])]
    assert listed[0] == ["KEY", "TENANT", "TIER", "MAY", "CREATED", "UNTIL", "NAME"]
    assert [(row[0], row[1], row[-1]) for row in listed if row[0] == key_id] == [(key_id, "acme", "laptop")]
    assert not any(secret in line for line in lines(stack, ["keys", "list"]))
    assert lines(stack, ["keys", "revoke", key_id]) == [f"{key_id} is revoked."]
    assert key_id not in "\n".join(lines(stack, ["keys", "list"]))


def test_what_operators_do_is_told_to_programs_too(stack: Stack, tmp_path: Path) -> None:
    (made,) = lines(stack, ["keys", "create", "--tenant", "acme", "--name", "robot", "--json"])
    key = json.loads(made)
    assert (key["tenant_id"], key["name"], key_id_of(hash_of(key["key"]))) == ("acme", "robot", key["key_id"])
    (revoked,) = lines(stack, ["keys", "revoke", key["key_id"], "--json"])
    assert json.loads(revoked) == {"key_id": key["key_id"], "revoked": True}
    (copied,) = lines(stack, ["backup", str(tmp_path / "backup"), "--json"])
    assert json.loads(copied).keys() == {"path", "objects"}


def test_a_key_may_end_by_itself_and_only_look(stack: Stack) -> None:
    done = moorage(stack, "keys", "create", "--tenant", "acme", "--name", "board", "--expires", "12h", "--read-only")
    (secret,) = done.stdout.splitlines()
    told = (
        r"key_\w+ for the tenant 'acme'\. It may only look and ends at [-0-9]+ [:0-9]+\. Keep the key now: only its hash is stored\.\n"
    )
    assert re.fullmatch(told, done.stderr)
    assert stack.client(secret).models.list().data
    with pytest.raises(openai.PermissionDeniedError):
        stack.client(secret).responses.create(model="demo", input=script(say("hello")))
    (row,) = [line for line in lines(stack, ["keys", "list"]) if line.endswith("board")]
    assert re.split(r"  +", row)[1:3] == ["acme", "read"]
    done = moorage(stack, "keys", "create", "--tenant", "acme", "--expires", "soon")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'soon' is no time from 1m to 3650d; for example 12h or 30d" in done.stderr


def test_a_revoked_key_opens_nothing(stack: Stack) -> None:
    secret, key_id = made_key(stack, "gone")
    lines(stack, ["keys", "revoke", key_id])
    with pytest.raises(openai.AuthenticationError):
        stack.client(secret).models.list()


def test_the_models_are_listed(stack: Stack) -> None:
    assert [line.split() for line in lines(stack, ["models"])] == [
        ["MODEL", "OWNER"],
        ["demo", "moorage"],
        ["static-256", "moorage-embeddings"],
    ]


def test_a_response_is_watched_from_its_start_and_from_any_event(stack: Stack, client: OpenAI) -> None:
    response = client.responses.create(
        model="demo",
        input=script(shell("echo out; echo err >&2; exit 3"), say("It failed.")),
        tools=TOOLS,
        background=True,
    )
    shown = lines(stack, ["tail", response.id])
    clock = r"(  \d+\.\d s)?"  # where it was seen to happen
    told = (
        rf"\[0\] {response.id} created, model demo, container cntr_\w+",
        r"\$ echo out; echo err >&2; exit 3",
        "out",
        "err",
        r"\[exit 3\]",
        "It failed.",
    )
    assert [line for line in told if not any(re.fullmatch(line + clock, each) for each in shown)] == [], shown
    assert re.fullmatch(r"\[\d+\] completed, \d+ tokens in, \d+ out, \d+ s in all" + clock, shown[-1])
    raw = lines(stack, ["tail", response.id, "--json"])
    assert lines(stack, ["tail", response.id, "--json", "--from", "5"]) == raw[5:]


def test_containers_and_their_decisions_are_listed(stack: Stack, client: OpenAI) -> None:
    container = client.containers.create(name="for the list")
    row = next(line for line in lines(stack, ["containers"]) if container.id in line)
    assert row.endswith("for the list")
    assert lines(stack, ["containers", "egress", container.id]) == ["none"]


def test_the_doctor_finds_a_running_stack_well(stack: Stack) -> None:
    done = moorage(stack, "doctor")
    said = done.stdout
    assert done.returncode == 0, said + done.stderr
    assert "ok    a sandbox started, ran a command and answered" in said
    assert "ok    a sandbox without a policy cannot get out" in said


def test_the_doctor_leaves_nothing(stack: Stack, client: OpenAI) -> None:
    before = [one.id for one in client.containers.list()]
    assert moorage(stack, "doctor").returncode == 0
    assert [one.id for one in client.containers.list()] == before


def test_the_steps_of_a_response_are_in_the_log_beside_its_request(stack: Stack, client: OpenAI) -> None:
    response = client.responses.create(model="demo", input=script(shell("true"), say("done")), tools=TOOLS)
    deadline = time.monotonic() + 60
    while "execution_ended" not in "\n".join(shown := lines(stack, ["logs", response.id])):
        assert time.monotonic() < deadline, shown
    assert {line.split("  ")[1] for line in shown} == {"request", "model_step", "tool_step", "execution_ended"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tail", "resp_" + "0" * 48], "moorage: Response with id 'resp_" + "0" * 48 + "' not found."),
        (["keys", "create", "--tenant", "No Spaces"], "moorage: A tenant is named with a-z, 0-9 and '-'"),
        (["keys", "revoke", "key_none"], "moorage: There is no key 'key_none'."),
        (["containers", "egress", "cntr_" + "0" * 48], "moorage: Container with id"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(stack: Stack, arguments: list[str], said: str) -> None:
    done = moorage(stack, *arguments)
    assert (done.returncode, done.stdout, done.stderr.startswith(said)) == (1, "", True), done.stderr


def test_a_skill_is_validated_pushed_listed_pulled_and_deleted(stack: Stack, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text("# How")
    assert moorage(stack, "skills", "validate", str(folder)).stderr == (
        f"moorage: {folder} is no skill: SKILL.md must begin with front matter: "
        "a line '---', 'name: ...', 'description: ...', and a line '---'.\n"
    )
    (folder / "SKILL.md").write_text("---\nname: cli-tables\ndescription: Makes tables.\n---\n# How\n")
    (folder / "scripts" / "run").write_text("#!/bin/sh\n")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("secret")
    assert lines(stack, ["skills", "validate", str(folder)])[0].startswith("cli-tables: 2 files, ")
    (made,) = lines(stack, ["skills", "push", str(folder)])
    skill_id = made.split()[0]
    assert made == f"{skill_id} is the skill 'cli-tables', version 1."
    (folder / "SKILL.md").write_text("---\nname: cli-tables\ndescription: Makes better tables.\n---\n")
    (told,) = lines(stack, ["skills", "push", str(folder), "--json"])
    assert [json.loads(told)[name] for name in ("version", "default_version", "skill_id")] == ["2", "1", skill_id]
    pushed = lines(stack, ["skills", "push", str(folder), "--default"])
    assert pushed == [f"{skill_id} has version 3 of 'cli-tables'; the default is 3."]
    listed = [re.split(r"  +", line) for line in lines(stack, ["skills"])]
    assert listed[0] == ["SKILL", "DEFAULT", "LATEST", "CREATED", "NAME", "DESCRIPTION"]
    mine = [(row[1], row[2], *row[4:]) for row in listed if row[0] == skill_id]
    assert mine == [("3", "3", "cli-tables", "Makes better tables.")]
    shown = lines(stack, ["skills", "show", "cli-tables"])
    assert shown[:3] == [f"{skill_id}  cli-tables", "Makes better tables.", ""]
    assert [line.split()[0] for line in shown[4:]] == ["3", "2", "1"]
    assert lines(stack, ["skills", "pull", "cli-tables", "--version", "1", "--into", str(tmp_path / "out")]) == [
        f"{tmp_path}/out/cli-tables: 2 files"
    ]
    assert "Makes tables." in (tmp_path / "out" / "cli-tables" / "SKILL.md").read_text()
    assert os.access(tmp_path / "out" / "cli-tables" / "scripts" / "run", os.X_OK)
    assert not (tmp_path / "out" / "cli-tables" / ".git").exists()
    again = moorage(stack, "skills", "pull", "cli-tables", "--into", str(tmp_path / "out"))
    assert again.stderr == f"moorage: {tmp_path}/out/cli-tables exists already; --into takes another place.\n"
    assert lines(stack, ["skills", "delete", "cli-tables", "--version", "2"]) == [f"Version 2 of {skill_id} is deleted."]
    assert lines(stack, ["skills", "delete", skill_id]) == [f"{skill_id} is deleted."]
    assert moorage(stack, "skills", "show", "cli-tables").stderr == typed_here(
        "moorage: There is no skill 'cli-tables'; 'moorage skills' lists them.\n"
    )
    (folder / "link").symlink_to("/etc/passwd")
    assert "'link' is a symbolic link" in moorage(stack, "skills", "push", str(folder)).stderr


def test_what_ran_is_listed_shown_added_up_and_what_runs_is_stopped(stack: Stack, client: OpenAI) -> None:
    ran = client.responses.create(model="demo", input=script(shell("echo out"), say("done")), tools=TOOLS, metadata={"by": "cli"})
    (row,) = [json.loads(line) for line in lines(stack, ["ls", "--metadata", "by=cli", "--json"])]
    assert (row["id"], row["status"], row["tool_calls"], row["waiting_for"]) == (ran.id, "completed", {"shell_call": 1}, None)
    steps = [re.split(r"  +", line.strip())[1:3] for line in lines(stack, ["show", ran.id])[2:5]]
    assert steps == [["model", "completed"], ["shell_call", "completed"], ["model", "completed"]]
    assert any(line.startswith("shell_call") for line in lines(stack, ["usage", "--by", "tool"]))
    running = client.responses.create(model="demo", input=script(shell("sleep 300"), say("x")), tools=TOOLS, background=True)
    assert lines(stack, ["stop", running.id]) == [f"{running.id}  cancelled"]
    assert not [line for line in lines(stack, ["ls", "--running"]) if running.id in line]


def test_a_response_is_paused_in_the_middle_and_goes_on(stack: Stack, client: OpenAI) -> None:
    container = client.containers.create(name="from the command line")
    tools: Any = [{"type": "shell", "environment": {"type": "container_reference", "container_id": container.id}}]
    until_told = shell("until [ -e /tmp/told ]; do sleep 0.1; done; echo one >> /mnt/data/ran")
    steps = (until_told, shell("echo two >> /mnt/data/ran; cat /mnt/data/ran"), say("done"))
    running = client.responses.create(model="demo", input=script(*steps), tools=tools, background=True)
    assert lines(stack, ["pause", running.id])[0].startswith(f"{running.id}  ")
    lines(stack, ["containers", "exec", container.id, "touch /tmp/told"])
    deadline = time.monotonic() + 60
    while not (shown := [line for line in lines(stack, ["ls", "--running"]) if running.id in line and "It is paused" in line]):
        assert time.monotonic() < deadline, "it never stood still"
        time.sleep(0.2)
    assert "pause" in shown[0]
    lines(stack, ["resume", running.id])
    while (ended := client.responses.retrieve(running.id)).status == "in_progress":
        assert time.monotonic() < deadline + 60, "it did not go on"
        time.sleep(0.1)
    printed = [output.stdout for item in ended.output if item.type == "shell_call_output" for output in item.output]
    assert (ended.status, printed) == ("completed", ["", "one\ntwo\n"])


def test_files_go_into_a_container_and_out_of_it_and_a_command_runs_between(stack: Stack, client: OpenAI, tmp_path: Path) -> None:
    container = client.containers.create(name="from the command line")
    (tmp_path / "in.txt").write_text("three\nlines\nhere\n")
    assert lines(stack, ["containers", "cp", str(tmp_path / "in.txt"), f"{container.id}:"]) == ["/mnt/data/in.txt  17 bytes"]
    done = moorage(stack, "containers", "exec", container.id, "wc -l < /mnt/data/in.txt | tee /mnt/data/out.txt; echo no >&2; exit 3")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (3, "3", "no\n")
    assert [line.split()[-1] for line in lines(stack, ["containers", "tree", container.id])] == [
        "PATH",
        "/mnt/data/in.txt",
        "/mnt/data/out.txt",
    ]
    lines(stack, ["containers", "cp", f"{container.id}:out.txt", str(tmp_path)])
    assert (tmp_path / "out.txt").read_text().strip() == "3"
    (file_id,) = lines(stack, ["files", "put", str(tmp_path / "in.txt")])
    lines(stack, ["files", "get", file_id, str(tmp_path / "again.txt")])
    assert (tmp_path / "again.txt").read_text() == "three\nlines\nhere\n"


def test_an_operator_stops_all_that_runs_of_a_tenant(stack: Stack) -> None:
    secret, _ = made_key(stack, "runaway")
    runaway = stack.client(secret)
    running = runaway.responses.create(model="demo", input=script(shell("sleep 300"), say("x")), tools=TOOLS, background=True)
    assert lines(stack, ["stop", "--tenant", "runaway"]) == [f"{running.id}  cancelling"]
    deadline = time.monotonic() + 60
    while (status := runaway.responses.retrieve(running.id).status) != "cancelled":
        assert time.monotonic() < deadline, status
        time.sleep(0.1)


def test_the_console_is_opened_without_pasting_a_key(stack: Stack) -> None:
    (address,) = lines(stack, ["console", "--no-browser"])
    page, _, code = address.partition("#k=")
    assert page == stack.url.removesuffix("v1") + "console/"
    with stack.http(code) as http:
        key = http.post("/console/session").json()["key"]
        assert http.post("/console/session").status_code == 401
    with stack.http(key) as http:
        assert http.get("/me").json()["tenant"] == "default"
    listed = [re.split(r"  +", line) for line in lines(stack, ["keys", "list"])]
    assert [(row[1], row[-1]) for row in listed if row[0] == key_id_of(hash_of(key))] == [("default", "console")]


def test_a_key_to_look_with_is_refused_what_changes_something(stack: Stack) -> None:
    (address,) = lines(stack, ["console", "--no-browser", "--read-only"])
    with stack.http(address.partition("#k=")[2]) as http:
        key = http.post("/console/session").json()["key"]
    with stack.http(key) as http:
        assert http.get("/responses").status_code == 200
        assert http.post("/responses", json={"model": "demo", "input": "x"}).json()["error"]["code"] == "read_only_key"


MISTAKES = {
    "a file that is not there": (["files", "put", "/nowhere/a.csv"], 1, "moorage: /nowhere/a.csv cannot be read or written: No such"),
    "a folder as a file": (["files", "put", "/"], 1, "moorage: / cannot be read or written: Is a directory."),
    "fewer than none": (["ls", "--limit", "-3"], 2, "'-3' is no whole number from 1 on"),
    "none": (["ls", "--limit", "0"], 2, "'0' is no whole number from 1 on"),
    "the last lines of none": (["logs", "--lines", "0"], 2, "'0' is no whole number from 1 on"),
    "the log of nothing": (["logs", "resp_nowhere"], 1, "moorage: No line of the log names 'resp_nowhere'."),
}


@pytest.mark.parametrize(("command", "code", "sentence"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_gets_a_sentence_and_no_trace(command: list[str], code: int, sentence: str, stack: Stack) -> None:
    done = moorage(stack, *command)
    assert (done.returncode, done.stdout) == (code, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
