"""``ls``, ``show``, ``usage``, ``stop``, ``files``, ``containers cp`` and ``completion`` against answers that a test gives."""

import argparse
import contextlib
import importlib
import io
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moorage.cli import ls, show
from moorage.cli.main import ACTIONS, COMMANDS, main, module_of
from moorage.cli.output import duration, moment

from tests.unit.cli.deployment import Answer, refusal, serving

USAGE = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 3},
    "output_tokens": 5,
    "total_tokens": 12,
}


def row(response_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": response_id,
        "cost_usd": None,
        "status": "completed",
        "model": "m",
        "created_at": 1_000,
        "ended_at": 1_041,
        "background": True,
        "usage": USAGE,
        "error": None,
        "input_preview": "Count the files",
        "waiting_for": None,
    } | fields


RUNNING = row(
    "resp_2",
    status="in_progress",
    ended_at=None,
    usage=None,
    waiting_for={"kind": "tool", "since": 1_088_000, "detail": "shell_call"},
)
FAILED = row("resp_1", status="failed", error={"code": "server_error", "message": "It broke."})


def page(*entries: dict[str, Any], has_more: bool = False, last: str | None = None) -> Answer:
    return 200, {"data": list(entries), "has_more": has_more, "last_id": last or (entries[-1]["id"] if entries else None)}


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        *[(-1, "0s"), (1, "1s"), (-0.1, "0.00s"), (0.418, "0.42s"), (9.99, "9.99s")],
        *[(41.7, "41s"), (192, "3m12s"), (7500, "2h05m"), (273_600, "3d04h")],
    ],
)
def test_a_duration_is_as_long_as_one_cares_to_know(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_the_list_says_what_runs_wait_for_and_why_others_failed() -> None:
    assert [ls._cells(each, 1_100.0)[1:] for each in (RUNNING, FAILED, row("resp_0"))] == [
        ("in_progress", "m", moment(1_000), "1m40s", "", "", "tool 12s: shell_call"),
        ("failed", "m", moment(1_000), "41s", "12", "", "It broke."),
        ("completed", "m", moment(1_000), "41s", "12", "", "Count the files"),
    ]


def test_a_list_goes_on_over_pages_even_empty_ones_and_ends_where_it_is_told_to(capsys: pytest.CaptureFixture[str]) -> None:
    pages = [page(RUNNING, has_more=True), page(has_more=True, last="resp_9"), page(FAILED, row("resp_0"))]
    with serving({"GET /v1/responses": pages}) as deployment:
        command = ["ls", "--status", "failed", "--metadata", "team=x", "-n", "2", "--json"]
        assert main(command, deployment.environ) == 0
        asked = [address.partition("?")[2] for address, _ in deployment.requests]
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == ["resp_2", "resp_1"]
    assert asked == [
        "limit=2&status=failed&metadata%5Bteam%5D=x",
        "limit=2&status=failed&metadata%5Bteam%5D=x&after=resp_2",
        "limit=2&status=failed&metadata%5Bteam%5D=x&after=resp_9",
    ]


def test_a_loop_is_shown_step_by_step(capsys: pytest.CaptureFixture[str]) -> None:
    attempts = {"count": 3, "lost": 0, "pauses": 2, "why": "The upstream is overloaded."}
    model = {
        "id": "step_0",
        "step": 0,
        "type": "model",
        "status": "completed",
        "call_id": None,
        "started_at": 1_000_000,
        "first_output_at": 1_000_500,
        "ended_at": 1_002_000,
        "queue_ms": 250,
        "attempts": attempts,
        "usage": USAGE,
        "cost_usd": 0.0125,
        "waiting_for": None,
    }
    call = model | {
        "id": "step_0_call_1",
        "type": "shell_call",
        "call_id": "call_1",
        "status": "in_progress",
        "first_output_at": None,
        "ended_at": None,
        "usage": None,
        "cost_usd": None,
        "attempts": attempts | {"count": 1},
        "waiting_for": RUNNING["waiting_for"],
    }
    path = "GET /v1/responses/resp_2"
    with serving({path: (200, RUNNING), f"{path}/steps": page(model, call)}) as deployment:
        assert main(["show", "resp_2"], deployment.environ) == 0
        shown = capsys.readouterr().out.splitlines()
        assert main(["show", "resp_2", "--json"], deployment.environ) == 0
        assert json.loads(capsys.readouterr().out)["steps"] == [model, call]
    assert shown[0].startswith("resp_2  in_progress  m  ")
    times = ["0.25s", "0.50s", "2.00s"]
    assert shown[2].split() == ["0", "model", "completed", *times, "12", "0.012500", "3", "The", "upstream", "is", "overloaded."]
    cells = ("  call_1", "shell_call", "in_progress", "0.25s", "", "1m40s", "", "", "1", "tool 12s: shell_call")
    assert show._cells(call, 1_100.0) == cells


def test_usage_is_shown_as_it_is_added_up(capsys: pytest.CaptureFixture[str]) -> None:
    group = {"id": "shell_call", "responses": 2, "tool_calls": 5, "by_status": {"failed": 1}}
    with serving({"GET /v1/usage": (200, {"data": [group]})}) as deployment:
        assert main(["usage", "--by", "tool", "--from", "2026-11-01"], deployment.environ) == 0
        assert deployment.requests[0][0] == "GET /v1/usage?group_by=tool&from=2026-11-01"
    assert capsys.readouterr().out.splitlines()[1].split() == ["shell_call", "2", "5", "1"]


def test_what_is_stored_is_shown_beside_what_may_be(capsys: pytest.CaptureFixture[str]) -> None:
    storage = {"used_bytes": 60, "limit_bytes": 2_500_000_000, "file_bytes": 10, "container_bytes": 20, "vector_store_bytes": 30}
    with serving({"GET /v1/me": (200, {"storage": storage})}) as deployment:
        assert main(["storage"], deployment.environ) == 0
        assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
            ["WHAT", "BYTES", "GB"],
            ["files", "10", "0.000"],
            ["containers", "20", "0.000"],
            ["vector", "stores", "30", "0.000"],
            ["together", "60", "0.000"],
            ["at", "most", "2500000000", "2.500"],
        ]
        assert main(["storage", "--json"], deployment.environ) == 0
        assert json.loads(capsys.readouterr().out) == storage


def test_all_that_runs_in_the_background_is_stopped_and_the_rest_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    answers: dict[str, Answer | list[Answer]] = {
        "GET /v1/responses": page(row("resp_3"), row("resp_4"), row("resp_5", background=False)),
        "POST /v1/responses/resp_3/cancel": (200, row("resp_3", status="cancelled")),
        "POST /v1/responses/resp_4/cancel": refusal(404, "Response with id 'resp_4' not found."),
    }
    with serving(answers) as deployment:
        assert main(["stop", "--key", "key_1"], deployment.environ) == 1
        assert deployment.requests[0][0] == "GET /v1/responses?limit=100&status=queued%2Cin_progress&key=key_1"
    told = capsys.readouterr()
    assert told.out.splitlines() == ["resp_3  cancelled", "resp_4  Response with id 'resp_4' not found."]
    assert told.err == "Not cancelled, because a client waits for them: resp_5. They end when it leaves.\n"


def test_nothing_to_stop_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"GET /v1/responses": page()}) as deployment:
        assert main(["stop", "--all"], deployment.environ) == 0
    assert capsys.readouterr().out == "Nothing runs.\n"


@pytest.mark.parametrize("command", [["stop"], ["stop", "resp_1", "--all"], ["ls", "--metadata", "team"], ["completion", "tcsh"]])
def test_wrong_usage_is_refused(command: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command, {})
    assert ended.value.code == 2


@pytest.mark.parametrize("command", [["cp", "a", "b"], ["cp", "cntr_1:a", "cntr_2:"], ["cp", "a", "cntr_1:/etc/passwd"]])
def test_a_copy_between_two_places_that_are_none_is_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"MOORAGE_URL": "http://127.0.0.1:9/v1", "MOORAGE_API_KEY": "k"}
    assert main(["containers", *command], environ) == 1
    assert capsys.readouterr().err.startswith("moorage: ")


def test_a_download_that_fails_leaves_what_was_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers: dict[str, Answer | list[Answer]] = {
        "GET /v1/files/file-1": (200, {"filename": "../a.txt", "bytes": 3}),
        "GET /v1/files/file-1/content": refusal(500, "Later."),
    }
    (tmp_path / "a.txt").write_text("old")
    with serving(answers) as deployment:
        assert main(["files", "get", "file-1", str(tmp_path)], deployment.environ) == 1
    assert capsys.readouterr().err == "moorage: Later.\n"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.txt", "old")]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_knows_every_command_and_its_shell_can_read_it(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell], {}) == 0
    script = capsys.readouterr().out
    plain = script.replace('"', " ").replace("'", " ")
    assert all(f" {name}" in plain for name in COMMANDS)
    assert all(" ".join(actions) in plain for actions in ACTIONS.values())
    if shutil.which(shell) is not None:
        done = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_shell_completes_commands_and_then_what_comes_behind_them() -> None:
    script = "eval \"$(cat)\"; for words in 'contai' 'containers s' 'ls '; do COMP_WORDS=(moorage $words); "
    script += "case \"$words\" in *' ') COMP_WORDS+=('');; esac; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); _moorage; "
    script += 'echo "$words: ${COMPREPLY[*]}"; done'
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["completion", "bash"], {}) == 0
    given = said.getvalue()
    done = subprocess.run(["bash", "-c", script], input=given, text=True, capture_output=True, timeout=60, check=True, cwd="/")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["contai: containers", "containers s: shell"]
    assert "tmp" in lines[2]


def leaves(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """All commands that do something, with their actions."""
    if parser.get_default("run") is not None:
        yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                yield from leaves(below, f"{name} {word}")


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for name in COMMANDS:
        parser = argparse.ArgumentParser()
        importlib.import_module(module_of(name)).add_to(parser)
        yield name, parser


WITHOUT_JSON = {
    "up": "serves until it is stopped",
    "demo": "serves, and shows a run",
    "completion": "prints a script for a shell",
    "containers shell": "is a terminal",
}


def test_every_command_speaks_json_to_programs() -> None:
    named = {name: parser for top, parser in parsers() for name, parser in leaves(parser, top)}
    without = {name for name, parser in named.items() if not any("--json" in action.option_strings for action in parser._actions)}
    assert without == WITHOUT_JSON.keys()


def test_what_completion_knows_is_what_there_is() -> None:
    actions: dict[str, tuple[str, ...]] = {}
    for name, parser in parsers():
        for action in parser._actions:
            if action.choices is not None and not action.option_strings:
                actions[name] = tuple(action.choices)
    assert actions == ACTIONS


def test_what_was_done_is_an_object_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "SKILL.md").write_text("---\nname: tables\ndescription: Makes tables.\n---\n")
    folder = str(tmp_path / "tables")
    gone = {"id": "x", "deleted": True}
    answers: dict[str, Answer | list[Answer]] = {
        "DELETE /v1/skills/skill_1": (200, gone),
        "DELETE /v1/webhook_endpoints/wh_1": (200, gone),
        "POST /v1/webhook_endpoints/wh_1/test": (200, {"status_code": 204}),
    }
    commands = [
        ["skills", "validate", folder],
        ["skills", "delete", "skill_1"],
        ["webhooks", "delete", "wh_1"],
        ["webhooks", "test", "wh_1"],
        ["console", "--no-browser"],
    ]
    with serving(answers) as deployment:
        assert [main([*command, "--json"], deployment.environ) for command in commands] == [0] * len(commands)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert said[0] == {"name": "tables", "description": "Makes tables.", "files": 1, "packed_bytes": said[0]["packed_bytes"]}
    assert said[1:4] == [gone, gone, {"status_code": 204}]
    assert said[4]["url"].endswith("/console")


def test_a_shell_without_a_terminal_says_what_to_do_and_opens_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with serving({}) as deployment:
        assert main(["containers", "shell", "cntr_1"], deployment.environ) == 1
        assert deployment.requests == []
    assert capsys.readouterr().err == (
        "moorage: A shell needs a terminal, and stdin or stdout is none. Without one: moorage containers exec cntr_1 'COMMAND'\n"
    )


FORK = {"id": "resp_2", "status": "queued"}


@pytest.mark.parametrize(
    ("container", "told"),
    [
        (None, ""),
        (
            {"mode": "copy", "container_id": "cntr_2", "files": 3, "notice": "No processes."},
            "container cntr_2 (copy, 3 files). No processes.\n",
        ),
        ({"mode": "share", "container_id": "cntr_1", "files": None, "notice": None}, "container cntr_1 (share).\n"),
    ],
    ids=["no container", "a copy", "shared"],
)
def test_a_fork_says_where_it_begins_and_what_comes_along(
    container: dict[str, Any] | None, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    origin = {"response_id": "resp_1", "at": 7, "container": container}
    with serving({"POST /v1/responses/resp_1/fork": (200, FORK | {"forked_from": origin})}) as deployment:
        assert main(["fork", "resp_1", "--at", "9", "--input", "Go.", "--container", "copy"], deployment.environ) == 0
        assert capsys.readouterr().out == f"resp_2  queued  from event 7 of resp_1\n{told}"
        assert main(["fork", "resp_1", "--json"], deployment.environ) == 0
        assert json.loads(capsys.readouterr().out) == FORK | {"forked_from": origin}
        bodies = [body for _, body in deployment.requests]
    assert bodies == [{"background": True, "at": 9, "input": "Go.", "container": "copy"}, {"background": True}]


def test_a_fork_that_is_refused_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"POST /v1/responses/resp_1/fork": refusal(400, "It has events 0 to 7 so far.")}) as deployment:
        assert main(["fork", "resp_1", "--at", "9"], deployment.environ) == 1
    assert "events 0 to 7" in capsys.readouterr().err


def test_what_was_copied_is_told_to_programs_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside = {"id": "cfile_1", "type": "file", "path": "/mnt/data/a.txt", "bytes": 3}
    answers: dict[str, Answer | list[Answer]] = {
        "GET /v1/files/file-1": (200, {"id": "file-1", "filename": "b.txt", "bytes": 3}),
        "GET /v1/files/file-1/content": (200, "abc"),
        "GET /v1/containers/cntr_1/tree": (200, {"data": [inside]}),
        "GET /v1/containers/cntr_1/files/cfile_1/content": (200, "abc"),
    }
    with serving(answers) as deployment:
        assert main(["files", "get", "file-1", str(tmp_path), "--json"], deployment.environ) == 0
        assert main(["containers", "cp", "cntr_1:a.txt", str(tmp_path), "--json"], deployment.environ) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert told == [
        {"id": "file-1", "path": str(tmp_path / "b.txt"), "bytes": 3},
        {"id": "cfile_1", "path": str(tmp_path / "a.txt"), "bytes": 3},
    ]
    assert (tmp_path / "a.txt").read_text() == (tmp_path / "b.txt").read_text() == "abc"
