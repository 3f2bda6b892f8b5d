"""The Node session of the exec server."""

import shutil
from pathlib import Path

import pytest
from moorage.sandbox.exec_client import ExecClient, ExecOutput, ExecStarted, PythonEnded

from tests.unit.sandbox.conftest import until_up
from tests.unit.sandbox.support import exec_server, new_id

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="this machine has no Node")


async def run(client: ExecClient, code: str, *, timeout_ms: int = 60_000, is_reset: bool = False) -> tuple[str, PythonEnded]:
    events = [
        event async for event in client.javascript(new_id(), code, timeout_ms=timeout_ms, max_output_length=10_000, is_reset=is_reset)
    ]
    last = events[-1]
    assert isinstance(last, PythonEnded)
    return "".join(event.text for event in events if isinstance(event, ExecOutput)), last


async def value(client: ExecClient, code: str) -> str | None:
    printed, ended = await run(client, code)
    assert (printed, ended.outcome, ended.exit_code) == ("", "exit", 0)
    return ended.result


async def test_bindings_stay_and_await_works_at_the_top_level(client: ExecClient) -> None:
    assert await value(client, "const x = 6; let y = await Promise.resolve(7);") is None
    assert await value(client, "x * y") == "42"
    assert await value(client, "const { basename } = await import('node:path'); basename('/a/b.txt')") == "'b.txt'"
    assert await value(client, "({ a: [1, 2] })") == "{ a: [ 1, 2 ] }"


WRONG = {
    "throw new Error('no')": "Uncaught Error: no",
    "let = ;": "SyntaxError",
    "function (": "SyntaxError",
    "throw 5": "Uncaught 5",
    "await Promise.reject(new Error('later'))": "Uncaught Error: later",
}


async def test_what_is_printed_and_what_went_wrong_is_told(client: ExecClient) -> None:
    printed, ended = await run(client, "console.log('out'); console.error('err'); 1")
    assert (sorted(printed.split()), ended.result) == (["err", "out"], "1")
    for code, complaint in WRONG.items():
        printed, ended = await run(client, code, timeout_ms=20_000)
        assert complaint in printed
        assert (ended.outcome, ended.exit_code, ended.result) == ("exit", 1, None)
    assert await value(client, "'alive'") == "'alive'"


async def test_code_that_never_ends_is_ended_with_its_session(client: ExecClient) -> None:
    await run(client, "globalThis.kept = 1")
    _, ended = await run(client, "while (true) {}", timeout_ms=300)
    assert ended.outcome == "timeout"
    _, ended = await run(client, "typeof kept")
    assert (ended.result, ended.session_started) == ("'undefined'", True)


async def test_a_reset_begins_a_new_session_and_harms_nothing_where_there_is_none(client: ExecClient) -> None:
    await run(client, "globalThis.kept = 1")
    for _ in range(2):
        assert (await run(client, "", is_reset=True))[1].outcome in ("exit", "killed")
    _, ended = await run(client, "typeof kept")
    assert (ended.result, ended.session_started) == ("'undefined'", True)


async def test_python_and_javascript_do_not_wait_for_each_other(client: ExecClient) -> None:
    hangs = new_id()
    hanging = client.javascript(hangs, "await new Promise(() => {})", timeout_ms=60_000, max_output_length=10)
    assert await anext(hanging) == ExecStarted(0)
    async for event in client.python(new_id(), "1 + 1", timeout_ms=60_000, max_output_length=100):
        if isinstance(event, PythonEnded):
            assert event.result == "2"
    await hanging.aclose()
    assert await client.kill(hangs)


async def test_where_there_is_no_node_it_is_said(tmp_path: Path) -> None:
    with exec_server(tmp_path, path="/nonexistent") as process:
        async with ExecClient(process.handle) as client:
            await until_up(client)
            printed, ended = await run(client, "1")
    assert (printed, ended.exit_code) == ("JavaScript could not be started: No such file or directory.\n", 126)


async def test_it_works_inside_of_a_sandbox(either_sandbox: ExecClient) -> None:
    assert await value(either_sandbox, "process.cwd()") == "'/mnt/data'"
