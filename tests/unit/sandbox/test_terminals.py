"""Terminals of the exec server from outside: opened, read from an offset on, typed into, resized and closed."""

import asyncio
import time
from collections.abc import Callable

import pytest
from moorage.errors import SandboxError, SandboxGone
from moorage.sandbox.exec_client import ExecClient
from moorage.terminals.sessions import SandboxTerminal, TerminalOutput

from tests.unit.sandbox.support import ServerProcess, new_id

PATIENCE_SECONDS = 60.0


async def opened(client: ExecClient, command: str = "", *, rows: int = 24, columns: int = 80) -> SandboxTerminal:
    terminal = SandboxTerminal(client, new_id())
    await terminal.open(command, rows=rows, columns=columns)
    return terminal


async def shows(terminal: SandboxTerminal, is_there: Callable[[str], bool], after: int = 0) -> str:
    """Read on until it is there."""
    said, deadline = "", time.monotonic() + PATIENCE_SECONDS
    while not is_there(said):
        assert time.monotonic() < deadline, said
        shown = await terminal.read(after, wait_ms=5_000)
        said, after = said + shown.output, shown.next
        assert shown.outcome is None or is_there(said), said
    return said


async def ends(terminal: SandboxTerminal) -> TerminalOutput:
    deadline, after, said = time.monotonic() + PATIENCE_SECONDS, 0, ""
    while time.monotonic() < deadline:
        shown = await terminal.read(after, wait_ms=5_000)
        said, after = said + shown.output, shown.next
        if shown.outcome is not None:
            return TerminalOutput(0, said, after, shown.outcome, shown.exit_code)
    raise AssertionError(said)


async def test_a_shell_at_a_terminal_answers_and_tells_how_it_ended(client: ExecClient, server: ServerProcess) -> None:
    terminal = await opened(client)
    prompt = await shows(terminal, lambda said: said.endswith(("$ ", "# ")))
    assert str(server.workspace) in prompt
    await terminal.type("tty && pwd\r", "")
    said = await shows(terminal, lambda said: str(server.workspace) in said and "/dev/pts/" in said)
    assert "\r\n" in said
    await terminal.type("exit 7\r", "")
    ended = await ends(terminal)
    assert (ended.outcome, ended.exit_code) == ("exit", 7)
    assert ended.output.startswith(said)
    assert await terminal.type("ls\r", "") == "ended"


async def test_ctrl_c_interrupts_the_program_and_not_the_shell(client: ExecClient) -> None:
    terminal = await opened(client)
    await shows(terminal, lambda said: said.endswith(("$ ", "# ")))
    # Said by the program itself: until it has the terminal, what is typed interrupts the shell, which goes on to start it.
    await terminal.type("sh -c 'echo be\"\"gun; exec sleep 1000' || echo code=$?\r", "")
    begun = await shows(terminal, lambda said: "begun" in said)
    await terminal.type("\x03", "")
    await shows(terminal, lambda said: said.partition("begun")[2].endswith(("$ ", "# ")))
    await terminal.type("echo al''ive\r", "")
    said = await shows(terminal, lambda said: "alive" in said)
    assert said.startswith(begun)
    assert await terminal.close()


async def test_a_terminal_has_the_size_that_it_was_given_and_its_programs_hear_of_another(client: ExecClient) -> None:
    terminal = await opened(client, "trap 'stty size' WINCH; stty size; while :; do sleep 0.05; done", rows=31, columns=99)
    await shows(terminal, lambda said: "31 99" in said)
    await terminal.resize(rows=50, columns=132)
    await shows(terminal, lambda said: "50 132" in said)
    assert await terminal.close()
    ended = await ends(terminal)
    assert ended.outcome == "killed"


async def test_opening_twice_opens_once_and_every_reader_has_all_of_it(client: ExecClient, server: ServerProcess) -> None:
    terminal = SandboxTerminal(client, new_id())
    for _ in range(3):
        await terminal.open("echo run >> opened; cat opened; exit 0", rows=24, columns=80)
    readers = await asyncio.gather(*(ends(terminal) for _ in range(3)))
    assert readers == [TerminalOutput(0, "run\r\n", 5, "exit", 0)] * 3
    assert await terminal.read(2, wait_ms=0) == TerminalOutput(2, "n\r\n", 5, "exit", 0)
    assert await terminal.read(999, wait_ms=0) == TerminalOutput(5, "", 5, "exit", 0)


async def test_a_piece_of_input_with_an_id_is_typed_once(client: ExecClient) -> None:
    terminal = await opened(client, "cat")
    for _ in range(3):
        assert await terminal.type("once\r", "piece-1") == "taken"
    await terminal.type("twice\r", "piece-2")
    said = await shows(terminal, lambda said: said.count("twice") == 2)
    assert said.count("once") == 2  # the echo, and cat's
    await terminal.close()


async def test_what_a_program_does_not_read_waits_up_to_a_bound(client: ExecClient) -> None:
    terminal = await opened(client, "stty raw -echo; echo ready; sleep 1000")
    await shows(terminal, lambda said: "ready" in said)
    pieces = [await terminal.type("x" * 60_000, "") for _ in range(8)]
    assert pieces[0] == "taken"
    assert pieces[-1] == "full"
    assert await terminal.close()


async def test_of_much_output_the_end_is_kept_and_the_gap_is_told(client: ExecClient) -> None:
    terminal = await opened(client, "seq 1 400000; echo the-end")
    ended = await ends(terminal)
    assert ended.output.endswith("the-end\r\n")
    whole = sum(len(str(number)) + 2 for number in range(1, 400_001)) + len("the-end\r\n")
    assert ended.next == whole
    first = await terminal.read(0, wait_ms=0)
    assert 0 <= first.begin - (whole - 1024 * 1024) <= 128 * 1024, "whole pieces fall out"
    assert (len(first.output), first.outcome) == (256 * 1024, None)


async def test_a_reader_waits_no_longer_than_it_said(client: ExecClient) -> None:
    terminal = await opened(client, "sleep 1000")
    assert await terminal.read(0, wait_ms=50) == TerminalOutput(0, "", 0, None, None)
    await terminal.close()


async def test_a_terminal_that_somebody_reads_holds_up_the_end_of_its_sandbox(client: ExecClient) -> None:
    before = (await client.health()).running
    terminal = await opened(client, "sleep 1000")
    await terminal.read(0, wait_ms=0)
    assert (await client.health()).running == before + 1
    await terminal.close()
    await ends(terminal)
    assert (await client.health()).running == before


async def test_unknown_terminals_sizes_and_commands_are_refused(client: ExecClient) -> None:
    unknown = SandboxTerminal(client, new_id())
    for asked in (unknown.read(0, wait_ms=0), unknown.type("x", ""), unknown.resize(rows=1, columns=1)):
        with pytest.raises(SandboxGone):
            await asked
    assert not await unknown.close()
    for rows, columns in ((0, 80), (24, 1_001)):
        with pytest.raises(SandboxError, match="rows and columns"):
            await unknown.open("", rows=rows, columns=columns)
    with pytest.raises(SandboxError, match="null byte"):
        await unknown.open("a\0b", rows=24, columns=80)


async def test_a_command_that_cannot_be_started_leaves_no_terminal(client: ExecClient) -> None:
    terminal = await opened(client, "no-such-program")
    ended = await ends(terminal)
    assert (ended.outcome, ended.exit_code) == ("exit", 127)
