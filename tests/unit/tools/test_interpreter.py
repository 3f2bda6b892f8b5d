"""What becomes of a run of the code interpreter."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from moorage import limits
from moorage.errors import SandboxFileMissing
from moorage.sandbox.exec_client import PythonEnded
from moorage.tools.code_interpreter.session import NEW_SESSION, STOPPED, SavedFigure, figures, finished

CALL: dict[str, Any] = {"id": "ci_1", "type": "code_interpreter_call", "status": "in_progress", "code": "x", "outputs": []}


def ended(exit_code: int = 0, outcome: Any = "exit", result: str | None = None) -> PythonEnded:
    return PythonEnded(
        n=3,
        outcome=outcome,
        exit_code=exit_code,
        truncated_chars=0,
        spool_path=None,
        result=result,
        images=(),
        session_started=False,
    )


def printed(stdout: str = "", stderr: str = "", outcome: Any = None) -> dict[str, Any]:
    return {"stdout": stdout, "stderr": stderr, "outcome": outcome or {"type": "exit", "exit_code": 0}}


RUNS: dict[str, tuple[dict[str, Any], PythonEnded | None, tuple[str, ...], str, str]] = {
    "nothing": (printed(), ended(), (), "completed", ""),
    "a line": (printed("1\n"), ended(), (), "completed", "1\n"),
    "an unfinished line and a value": (printed("1"), ended(result="2"), (), "completed", "1\n2"),
    "an exception": (
        printed(stderr="Traceback\n", outcome={"type": "exit", "exit_code": 1}),
        ended(1),
        (),
        "completed",
        "Traceback\n",
    ),
    "an exit code": (
        printed(outcome={"type": "exit", "exit_code": 139}),
        ended(139),
        (),
        "completed",
        "[Python ended with exit code 139.]",
    ),
    "a time-out": (printed("1\n", outcome={"type": "timeout"}), ended(137, "timeout"), (), "failed", f"1\n[{STOPPED}]"),
    "a container that was lost": (printed(stderr="[lost]"), None, (), "failed", "[lost]"),
    "a new session": (printed("1\n"), ended(), (NEW_SESSION,), "completed", f"1\n[{NEW_SESSION}]"),
}


@pytest.mark.parametrize(("output", "end", "notes", "status", "logs"), RUNS.values(), ids=RUNS.keys())
def test_a_run_is_told_in_its_logs(
    output: dict[str, Any], end: PythonEnded | None, notes: tuple[str, ...], status: str, logs: str
) -> None:
    whole = finished(CALL, output, end, [], notes)
    assert whole == CALL | {"status": status, "outputs": [{"type": "logs", "logs": logs}] if logs else []}


def test_figures_are_named_in_the_logs_and_shown_as_far_as_they_can_be() -> None:
    drawn = [SavedFigure("/mnt/data/a.png", b"png"), SavedFigure("/mnt/data/b.png", None)]
    assert finished(CALL, printed("1\n"), ended(), drawn, ())["outputs"] == [
        {"type": "logs", "logs": "1\n[figure: /mnt/data/a.png]\n[figure: /mnt/data/b.png]"},
        {"type": "image", "url": f"data:image/png;base64,{base64.b64encode(b'png').decode()}"},
    ]


class Files:
    """A container's files, by path: their size."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes

    async def read_file(self, path: str) -> AsyncIterator[bytes]:
        if path not in self.sizes:
            raise SandboxFileMissing(path)
        yield b"x" * self.sizes[path]


async def test_figures_that_are_gone_or_too_large_or_too_many_are_only_named() -> None:
    many = {f"/mnt/data/{n}.png": 1 for n in range(limits.FIGURES_MAX)}
    sizes = {"/mnt/data/large.png": limits.FIGURES_BYTES_MAX + 1, **many}
    client: Any = Files(sizes)
    drawn = await figures(client, ("/mnt/data/gone.png", *sizes))
    assert [figure.content for figure in drawn] == [None, None, *[b"x"] * (limits.FIGURES_MAX - 2), None, None]


async def test_figures_share_one_bound() -> None:
    size = limits.FIGURES_BYTES_MAX // 2
    client: Any = Files({"a": size, "b": size + 1, "c": size})
    drawn = await figures(client, ("a", "b", "c"))
    assert [figure.content is not None for figure in drawn] == [True, False, True]
