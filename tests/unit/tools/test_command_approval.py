"""Which commands need a person's word: every doubt asks."""

import json
from typing import Any

import pytest
from moorage.tools.mcp.workspace import gate
from moorage.tools.shell.approval import is_needed, matches

LOOKING: dict[str, Any] = {"never": {"commands": ["ls*", "cat *", "git status", "grep *"]}}
ALL_BUT: dict[str, Any] = {"always": {"commands": ["git push*", "rm -rf *"]}, "never": {"commands": ["*"]}}


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("ls", "ls", True),
        ("ls", "ls -l", False),
        ("ls*", "ls -l", True),
        ("*", "", True),
        ("*", "anything\nat all", True),
        ("git * --dry-run", "git push --dry-run", True),
        ("git * --dry-run", "git --dry-run", False),
        ("a*b*c", "aXbYc", True),
        ("a*b*c", "acb", False),
        ("a*a", "a", False),
        ("**x", "x", True),
        ("[a-z]", "a", False),
        ("a?", "ab", False),
    ],
)
def test_a_star_stands_for_anything_and_nothing_else_is_special(pattern: str, text: str, fits: bool) -> None:
    assert matches(pattern, text) is fits


def test_behind_very_many_words_that_may_stand_before_a_command_anything_may_stand() -> None:
    assert [is_needed(ALL_BUT, ["env " * words + "ls"]) for words in (10, 31, 33, 25_000)] == [False, False, True, True]
    assert is_needed(ALL_BUT, ["env " * 10 + "git push"])
    assert not is_needed({"never": {"commands": ["*"]}}, ["env " * 25_000 + "ls"])


NO_SHELLS = [["bash"], {"bash": 1}, 7, True]


@pytest.mark.parametrize("shell", NO_SHELLS)
@pytest.mark.parametrize("name", ["exec_command", "write_stdin", "js_repl"])
def test_a_call_with_arguments_of_other_kinds_needs_approval(name: str, shell: Any) -> None:
    tools = [{"type": "shell", "environment": {"type": "container_auto"}, "require_approval": LOOKING}]
    call = {"name": name, "arguments": json.dumps({"cmd": "ls", "chars": shell, "code": shell, "shell": shell})}
    assert gate.holds(call, tools)


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert not matches("*a" * 200 + "b", "a" * 100_000)


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "ls -la /mnt/data",
        "cat a.txt | grep x",
        "ls; cat 'a;b.txt' && git status\nls",
        'grep "a b" file || ls',
        "cat *.txt",
    ],
)
def test_plain_commands_of_the_list_run_alone_and_together(command: str) -> None:
    assert not is_needed(LOOKING, [command])


@pytest.mark.parametrize(
    "command",
    {
        "another command": "python x.py",
        "one behind": "ls; rm -rf /",
        "one behind a line": "ls\nrm x",
        "one behind a pipe": "cat a | sh",
        "one behind an and": "ls && rm x",
        "one in the background": "ls & rm x",
        "substitution": "ls $(rm x)",
        "old substitution": "ls `rm x`",
        "substitution in quotes": 'ls "$(rm x)"',
        "old substitution in quotes": 'ls "`rm x`"',
        "process substitution": "cat <(rm x)",
        "redirection": "cat a > /etc/passwd",
        "here document": "cat <<E\nx\nE",
        "variable": "ls $X",
        "group": "(ls)",
        "block": "{ ls; }",
        "assignment": "PATH=/tmp ls",
        "escape": "l\\s",
        "escaped separator": "ls \\; rm",
        "escape in quotes": 'cat "a\\"; rm x; "',
        "open quote": "cat 'a",
        "comment": "ls # ; rm",
        "braces": "ls {a,b}",
        "nul": "ls\0",
        "bell": "ls\a",
        "carriage return": "ls\rrm x",
        "longer name": "git statusx",
    }.values(),
)
def test_what_is_not_plainly_in_the_list_needs_a_word(command: str) -> None:
    assert is_needed(LOOKING, [command])


@pytest.mark.parametrize(
    "command",
    [
        "git push",
        "git push origin main",
        "cd repo && git push",
        "cd repo;git push",
        "(git push)",
        "bash -c 'git push'",
        'sh -c "cd x; git push"',
        "echo $(git push)",
        "echo `git push`",
        "FORCE=1 git push",
        "A=1 B=2 sudo git push",
        "if true; then git push; fi",
        "while true\ndo git push\ndone",
        "! git push",
        "true&git push",
        "true|xargs rm -rf /",
        "time exec git push",
    ],
)
def test_a_named_command_is_found_wherever_it_stands(command: str) -> None:
    assert is_needed(ALL_BUT, [command])


@pytest.mark.parametrize("command", ["git pull", "ls $(pwd) > out", "rm x", "git stash"])
def test_everything_else_runs_where_all_else_is_free(command: str) -> None:
    assert not is_needed(ALL_BUT, [command])


def test_a_command_in_no_filter_or_in_both_needs_a_word() -> None:
    assert is_needed({}, ["ls"])
    assert is_needed({"always": {"commands": ["git push*"]}}, ["ls"])
    assert is_needed({"always": {"commands": ["ls"]}, "never": {"commands": ["ls"]}}, ["ls"])


PULLS = {"never": {"commands": ["git pull*"]}}
ALL_BUT_PUSH = {"always": {"commands": ["git push*"]}, "never": {"commands": ["*"]}}


@pytest.mark.parametrize(
    ("name", "arguments", "held_by_pulls", "held_by_all_but_push"),
    [
        ("exec_command", {"cmd": "git pull"}, False, False),
        ("exec_command", {"cmd": "git pull", "shell": None, "login": False, "tty": True, "workdir": "/tmp"}, False, False),
        ("exec_command", {"cmd": "git pull", "shell": "/bin/sh"}, False, False),
        ("exec_command", {"cmd": "git pull", "shell": "python3"}, True, False),
        ("exec_command", {"cmd": "git pull", "login": True}, True, False),
        ("exec_command", {"cmd": "ls; git push"}, True, True),
        ("exec_command", {"cmd": "sh -c 'git push'"}, True, True),
        ("write_stdin", {"session_id": 1}, False, False),
        ("write_stdin", {"session_id": 1, "chars": ""}, False, False),
        ("write_stdin", {"session_id": 1, "chars": "\x03"}, False, False),
        ("write_stdin", {"session_id": 1, "chars": "git pull\r"}, True, False),
        ("write_stdin", {"session_id": 1, "chars": "\x03git push\r"}, True, True),
        ("write_stdin", {"session_id": 1, "chars": "cd x\rgit push\r"}, True, True),
        ("js_repl", {"code": "require('child_process').execSync('git push')"}, True, True),
        ("js_repl", {"code": "1 + 1"}, True, False),
        ("js_repl_reset", {}, False, False),
        ("read_file", {"file_path": "git push"}, False, False),
        ("apply_patch", {"input": "git push"}, False, False),
    ],
)
def test_the_workspace_beside_a_shell_asks_as_that_one_does(
    name: str, arguments: dict[str, Any], held_by_pulls: bool, held_by_all_but_push: bool
) -> None:
    call = {"type": "mcp_call", "server_label": "ws", "name": name, "arguments": json.dumps(arguments)}

    def holds(asked: Any, environment: str = "container_auto") -> bool:
        return gate.holds(call, [{"type": "shell", "environment": {"type": environment}, "require_approval": asked}])

    assert (holds(PULLS), holds(ALL_BUT_PUSH)) == (held_by_pulls, held_by_all_but_push)
    assert (holds("never"), holds("always", "local"), gate.holds(call, [])) == (False, False, False)
    assert holds("always") is (held_by_pulls or name == "exec_command")


def test_arguments_that_are_none_run_nothing_and_ask_nobody() -> None:
    call = {"type": "mcp_call", "server_label": "ws", "name": "exec_command", "arguments": "git push"}
    assert gate.holds(call, [{"type": "shell", "environment": {"type": "container_auto"}, "require_approval": "always"}]) is False


def test_one_word_holds_for_all_and_one_command_for_its_call() -> None:
    assert (is_needed("always", ["ls"]), is_needed("never", ["rm -rf /"])) == (True, False)
    assert is_needed(LOOKING, ["ls", "rm x"])
