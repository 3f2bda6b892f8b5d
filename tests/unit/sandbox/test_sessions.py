"""Sessions of the exec server from outside: commands that go on between looks at them, at a terminal or without one."""

import asyncio
import shutil
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from moorage.errors import SandboxError, SandboxGone
from moorage.sandbox.exec_client import ExecClient, SessionCommand, SessionOutput

from tests.unit.sandbox.support import ServerProcess, new_id

PATIENCE_SECONDS = 60.0


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"this machine has no {program}")


async def begin(client: ExecClient, command: str, *, wait_ms: int = 60_000, tty: bool = False, **more: str | bool) -> SessionOutput:
    """Start it under a fresh id; by default its end is waited for."""
    return await client.look(new_id(), SessionCommand(command, has_terminal=tty, **more), wait_ms=wait_ms)  # type: ignore[arg-type]


async def type_in(client: ExecClient, session: int, chars: str = "", *, wait_ms: int = 0) -> SessionOutput:
    return await client.look(new_id(), session, wait_ms=wait_ms, chars=chars)


async def shows(client: ExecClient, session: int, is_there: Callable[[str], bool], said: str = "") -> str:
    """Look again and again until what the session has said in all, ``said`` before, is as it should be."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_there(said):
        assert time.monotonic() < deadline, said
        look = await type_in(client, session, wait_ms=20)
        said += look.output
        assert look.outcome is None or is_there(said), said
    return said


async def to_its_end(client: ExecClient, session: int, chars: str = "") -> SessionOutput:
    return await type_in(client, session, chars, wait_ms=int(PATIENCE_SECONDS * 1000))


def plain(look: SessionOutput) -> SessionOutput:
    return replace(look, session_id=0, seconds=0.0)


async def test_a_command_that_ends_is_told_with_its_exit_code_and_what_it_printed(client: ExecClient) -> None:
    look = await begin(client, "echo out; echo err >&2; exit 3")
    assert plain(look) == SessionOutput(0, "out\nerr\n", 8, "exit", 3, 0.0, 0)
    assert look.session_id >= 1_000


async def test_a_command_that_runs_on_is_looked_at_again_and_nothing_is_told_twice(client: ExecClient, server: ServerProcess) -> None:
    begun = await begin(client, "echo one; until test -e go; do sleep 0.02; done; echo two; exit 5", wait_ms=0)
    assert begun.outcome is None
    assert await shows(client, begun.session_id, lambda said: "one" in said, begun.output) == "one\n"
    (server.workspace / "go").touch()
    look = await to_its_end(client, begun.session_id)
    assert (look.output, look.outcome, look.exit_code) == ("two\n", "exit", 5)


async def test_a_session_that_has_ended_or_never_was_says_so(client: ExecClient) -> None:
    ended = await begin(client, "exit 7")
    with pytest.raises(SandboxError, match=f"Session {ended.session_id} has ended with exit code 7"):
        await type_in(client, ended.session_id)
    with pytest.raises(SandboxError, match="There is no session 5"):
        await type_in(client, 5)


async def test_a_look_is_done_once_and_answers_the_same_however_often_it_is_asked(client: ExecClient, server: ServerProcess) -> None:
    look_id, command = new_id(), SessionCommand("echo run >> once; cat once")
    looks = await asyncio.gather(*(client.look(look_id, command, wait_ms=60_000) for _ in range(5)))
    assert looks == [looks[0]] * 5
    assert looks[0].output == "run\n"
    cat = await begin(client, "cat", tty=True, wait_ms=0)
    typed = new_id()
    for _ in range(3):
        look = await client.look(typed, cat.session_id, wait_ms=300, chars="ab\r")
    assert look.output.count("ab") <= 2, "what was typed is shown once, and once by cat"
    await to_its_end(client, cat.session_id, "\x04")
    with pytest.raises(SandboxError, match="another look"):
        await client.look(typed, cat.session_id, wait_ms=300, chars="other")


async def test_a_torn_connection_loses_nothing_of_a_look(client: ExecClient) -> None:
    look_id, command = new_id(), SessionCommand("echo before; sleep 0.3; echo after")
    async with ExecClient(client.handle) as other:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await other.look(look_id, command, wait_ms=60_000)
    look = await client.look(look_id, command, wait_ms=60_000)
    assert (look.output, look.exit_code) == ("before\nafter\n", 0)


async def test_a_command_stands_in_its_directory_with_its_shell(client: ExecClient, server: ServerProcess) -> None:
    (server.workspace / "inner").mkdir(exist_ok=True)
    assert (await begin(client, "pwd", cwd="inner")).output == f"{server.workspace}/inner\n"
    assert (await begin(client, "pwd", cwd="/usr")).output == "/usr\n"
    assert (await begin(client, "echo $0", shell="sh")).output.strip().endswith("sh")
    lost = await begin(client, "pwd", cwd="nowhere")
    assert (lost.exit_code, lost.output) == (
        126,
        f"The command could not be started in {server.workspace}/nowhere: No such file or directory.\n",
    )
    with pytest.raises(SandboxError, match="no shell 'fishy'"):
        await begin(client, "pwd", shell="fishy")


async def test_a_login_shell_reads_its_profile_and_keeps_the_programs_of_the_container(
    client: ExecClient, server: ServerProcess
) -> None:
    home = server.workspace.parent / "home"
    (home / ".profile").write_text("GREETING=hello\nPATH=/nowhere\n")
    plain_path = (await begin(client, "echo $PATH")).output.strip()
    look = await begin(client, 'echo "$GREETING $PATH"', is_login=True)
    assert look.output == f"hello {plain_path}:/nowhere\n"


async def test_a_command_without_a_terminal_reads_nothing_and_can_be_interrupted(client: ExecClient) -> None:
    assert (await begin(client, "cat; test -t 0 || test -t 1 || echo none")).output == "none\n"
    begun = await begin(client, "trap 'echo stopped; exit 4' INT; echo ready; while :; do sleep 0.05; done", wait_ms=0)
    await shows(client, begun.session_id, lambda said: "ready" in said, begun.output)
    with pytest.raises(SandboxError, match="no terminal, and its stdin is closed"):
        await type_in(client, begun.session_id, "hello")
    look = await to_its_end(client, begun.session_id, "\x03")
    assert (look.output, look.exit_code) == ("stopped\n", 4)


async def test_of_a_flood_the_beginning_and_the_end_are_kept_and_the_rest_is_counted(client: ExecClient) -> None:
    look = await begin(client, "echo begin; head -c 3000000 /dev/zero | tr '\\0' x; echo end")
    assert look.chars == len("begin\n") + 3_000_000 + len("end\n")
    assert look.output.startswith("begin\nxxx")
    assert look.output.endswith("xxxend\n")
    assert len(look.output) < 1_100_000
    assert f"[… {look.chars - 1024 * 1024} characters were not kept …]" in look.output


async def test_a_character_that_comes_in_two_pieces_is_one(client: ExecClient) -> None:
    look = await begin(client, r"printf '\xc3'; sleep 0.1; printf '\xa9\xff\n'")
    assert look.output == "é\ufffd\n"


async def test_a_session_can_be_killed_with_all_that_it_has_started(client: ExecClient) -> None:
    look_id = new_id()
    begun = await client.look(look_id, SessionCommand("sleep 600 & sleep 600"), wait_ms=0)
    assert await client.kill_session(look_id)
    look = await to_its_end(client, begun.session_id)
    assert (look.outcome, look.exit_code) == ("killed", 137)
    assert not await client.kill_session(look_id)
    assert not await client.kill_session("never")


async def test_a_service_that_outlives_its_command_lives_on_and_its_command_ends(client: ExecClient, server: ServerProcess) -> None:
    look = await begin(client, "(until test -e stop; do sleep 0.02; done; echo done > served) & echo started")
    assert (look.output, look.outcome) == ("started\n", "exit")
    (server.workspace / "stop").touch()
    ended = await begin(client, "until test -s served; do sleep 0.02; done; cat served")
    assert ended.output == "done\n"


async def test_no_more_sessions_than_the_bound_run_at_once(client: ExecClient) -> None:
    running = await client.health()
    assert running.running == 0
    ids = [new_id() for _ in range(32)]
    begun = [(look_id, await client.look(look_id, SessionCommand("exec sleep 600"), wait_ms=0)) for look_id in ids]
    with pytest.raises(SandboxError, match="32 sessions run in this container"):
        await begin(client, "true")
    for look_id, _ in begun:
        await client.kill_session(look_id)
    for _, look in begun:
        assert (await to_its_end(client, look.session_id)).outcome == "killed"
    assert (await begin(client, "echo free")).output == "free\n"


WRONG: dict[str, tuple[dict[str, object], str]] = {
    "a null byte": ({"command": "echo \0", "wait_ms": 0}, "null byte"),
    "a wait that is too long": ({"command": "true", "wait_ms": 300_001}, "out of range"),
    "no wait": ({"command": "true"}, "'wait_ms' must be of type int"),
    "too many characters": ({"session_id": 5, "wait_ms": 0, "chars": "x" * 100_001}, "out of range"),
    "a session by another name": ({"session_id": "5", "wait_ms": 0}, "no session 5"),
    "no command": ({"wait_ms": 0}, "'command' must be of type str"),
}


@pytest.mark.parametrize(("body", "message"), WRONG.values(), ids=WRONG)
async def test_what_is_no_look_is_refused(client: ExecClient, body: dict[str, object], message: str) -> None:
    answer = await client._request("PUT", f"/v1/looks/{new_id()}", json=body)
    assert answer.is_error
    assert message in answer.json()["error"]["message"]


# --- at a terminal ---


async def test_a_terminal_is_a_real_one(client: ExecClient) -> None:
    look = await begin(client, "test -t 0 && test -t 1 && test -t 2 && stty size; echo $TERM; echo to-tty > /dev/tty", tty=True)
    assert look.output == "40 120\r\nxterm-256color\r\nto-tty\r\n"


async def test_a_command_may_let_go_of_its_terminal_and_come_back_to_it(client: ExecClient) -> None:
    look = await begin(client, "exec </dev/null >/dev/null 2>&1; sleep 0.2; echo later > /dev/tty; exit 3", tty=True)
    assert (look.output, look.outcome, look.exit_code) == ("later\r\n", "exit", 3)


async def test_a_python_at_a_terminal_keeps_its_variables_and_ends_with_a_clear_word(client: ExecClient) -> None:
    begun = await begin(client, "python3 -q", tty=True, wait_ms=0)
    await shows(client, begun.session_id, lambda said: ">>>" in said, begun.output)
    look = await type_in(client, begun.session_id, "x = 6\r")
    assert "Error" not in await shows(client, begun.session_id, lambda said: ">>>" in said, look.output)
    look = await type_in(client, begun.session_id, "print('is', x * 7)\r")
    await shows(client, begun.session_id, lambda said: "is 42" in said, look.output)
    look = await to_its_end(client, begun.session_id, "raise SystemExit(9)\r")
    assert (look.outcome, look.exit_code) == ("exit", 9)


async def test_ctrl_c_reaches_the_program_in_front(client: ExecClient) -> None:
    begun = await begin(client, "echo ready; sleep 600; echo after", tty=True, wait_ms=0)
    await shows(client, begun.session_id, lambda said: "ready" in said, begun.output)
    look = await to_its_end(client, begun.session_id, "\x03")
    assert look.exit_code == 130
    assert "after" not in look.output


@needs("vim")
async def test_vim_writes_a_file(client: ExecClient, server: ServerProcess) -> None:
    begun = await begin(client, "vim -u NONE -n note.txt", tty=True, wait_ms=0)
    await shows(client, begun.session_id, lambda said: "~" in said, begun.output)
    look = await to_its_end(client, begun.session_id, "ihello from vim\x1b:wq\r")
    assert look.exit_code == 0
    assert (server.workspace / "note.txt").read_text() == "hello from vim\n"


@needs("top")
async def test_top_shows_processes_until_it_is_told_to_quit(client: ExecClient) -> None:
    begun = await begin(client, "top -d 0.2", tty=True, wait_ms=0)
    await shows(client, begun.session_id, lambda said: "PID" in said, begun.output)
    assert (await to_its_end(client, begun.session_id, "q")).exit_code == 0


@needs("git")
@needs("vim")
async def test_a_rebase_is_edited(client: ExecClient) -> None:
    made = await begin(
        client,
        "git init -q repo && cd repo && git config user.email a@example.com && git config user.name A && "
        "for n in base one two; do echo $n > $n && git add $n && git commit -q -m $n; done",
    )
    assert made.exit_code == 0, made.output
    rebase = "GIT_EDITOR='vim -u NONE -n' git rebase -i HEAD~2"
    begun = await begin(client, rebase, tty=True, wait_ms=0, cwd="repo")
    await shows(client, begun.session_id, lambda said: "pick" in said, begun.output)
    look = await to_its_end(client, begun.session_id, "ddp:wq\r")
    assert look.exit_code == 0, look.output
    assert (await begin(client, "git log --format=%s", cwd="repo")).output == "one\ntwo\nbase\n"


async def test_what_a_program_does_not_take_is_told_and_holds_nobody_up(client: ExecClient) -> None:
    begun = await begin(client, "stty raw -echo; echo ready; exec sleep 600", tty=True, wait_ms=0)
    await shows(client, begun.session_id, lambda said: "ready" in said, begun.output)
    look = await type_in(client, begun.session_id, "x" * 100_000, wait_ms=100)
    assert 0 < look.untyped_bytes < 100_000
    assert look.outcome is None


async def test_a_terminal_works_inside_of_a_sandbox(either_sandbox: ExecClient) -> None:
    look = await begin(either_sandbox, "test -t 0 && test -t 1 && stty size && tty && echo to-tty > /dev/tty", tty=True)
    assert look.output.splitlines()[0] == "40 120"
    assert look.output.splitlines()[1].startswith("/dev/pts/")
    assert look.output.endswith("to-tty\r\n")
    begun = await begin(either_sandbox, "cat", tty=True, wait_ms=0)
    await type_in(either_sandbox, begun.session_id, "typed\r")
    assert (await to_its_end(either_sandbox, begun.session_id, "\x04")).exit_code == 0


async def test_an_answer_that_is_not_kept_any_more_is_no_reason_to_do_it_again(client: ExecClient, server: ServerProcess) -> None:
    look_id, command = new_id(), SessionCommand("echo run >> forgotten")
    await client.look(look_id, command, wait_ms=60_000)
    running = await begin(client, "sleep 600", wait_ms=0)
    for _ in range(256):
        await type_in(client, running.session_id)
    with pytest.raises(SandboxGone, match="no longer kept"):
        await client.look(look_id, command, wait_ms=60_000)
    assert (server.workspace / "forgotten").read_text() == "run\n"
