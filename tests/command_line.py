"""The ``moorage`` command in this process: to start another one takes half a second of a core. What a process of its own does with it
(standard input, pipes, the terminal, its exit) is tested in ``tests/unit/cli`` and ``tests/scenarios/test_up.py``."""

import contextlib
import io
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from subprocess import CompletedProcess

from moorage.cli.main import main

from tests.stack import Stack


def run(environ: Mapping[str, str], *arguments: str) -> CompletedProcess[str]:
    """One command that finds its deployment by ``environ`` alone. It has a thread of its own: a browser's loop may run in this one."""
    out, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), ThreadPoolExecutor(1) as thread:
        code = thread.submit(_exit_code, arguments, {"PATH": os.environ["PATH"], **environ}).result()
    said = [stream.detach().getvalue().decode() for stream in (out, errors)]
    return CompletedProcess(arguments, code, *said)


def moorage(stack: Stack, *arguments: str) -> CompletedProcess[str]:
    """One command that finds the stack by its state."""
    return run({"MOORAGE_STATE_DIR": str(stack.state_dir), "MOORAGE_PORT": stack.url.split(":")[2][:-3]}, *arguments)


def _exit_code(arguments: tuple[str, ...], environ: Mapping[str, str]) -> int:
    try:
        return main(arguments, environ)
    except SystemExit as ended:  # Wrong usage: argparse ends the process.
        return int(ended.code or 0)
