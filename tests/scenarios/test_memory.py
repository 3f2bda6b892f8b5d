"""What a stack takes of a machine's memory."""

from pathlib import Path

from tests.bench.bench_exec import proportional_mib
from tests.processes import descendants
from tests.stack import SHELL, Stack, say, script, shell

_RUNS = 3
_MIB_MAX = 180
"""Of all processes together, each page counted once (PSS). 158 were measured; workers that share nothing would take 200."""


def test_a_stack_that_has_run_commands_is_four_small_processes(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "state").start()
    try:
        assert stack.process is not None
        for _ in range(_RUNS):
            stack.client().responses.create(model="demo", input=script(shell("echo hello"), say("end")), tools=[SHELL])  # type: ignore[list-item]
        pid = stack.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        sizes = {each: proportional_mib(each) for each in (pid, *map(int, children))}
        assert len(sizes) == 4, descendants(pid)
        assert sum(sizes.values()) <= _MIB_MAX, sizes
    finally:
        stack.stop()
