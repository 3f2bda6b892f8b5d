"""Programs that a call runs in the container to their end. Their output is its result."""

import shlex
from typing import Any, Final

from moorage.tools.execs import FollowedExec, exec_id, follow
from moorage.tools.function_items import compact_json
from moorage.tools.run import Run

_TIMEOUT_MS: Final = 30_000
"""What reads files ends within a second; a pattern may be one that never does."""
_CHARS_MAX: Final = 1_000_000
"""A piece of a picture has 600,000 characters, and what is read as text bounds itself."""

TOO_SLOW: Final = f"It took longer than {_TIMEOUT_MS // 1000} seconds and was ended."


async def ran(run: Run, command: str, index: int = 0) -> tuple[int, str, str]:
    """Its exit code, and what it said on both streams. Raises :class:`~moorage.tools.execs.SandboxLost`, and
    :class:`~moorage.errors.SandboxError` for what the container refuses. ``index`` tells those of one call apart."""

    def begin(after: int) -> Any:
        return run.workplace.client.exec(
            exec_id(run.known.response_id, run.known.call_id, index),
            command,
            timeout_ms=_TIMEOUT_MS,
            max_output_length=_CHARS_MAX,
            after=after,
        )

    exec_ = FollowedExec(index)
    async for _ in follow(exec_, begin, run.workplace):
        pass
    assert exec_.outcome is not None
    if exec_.outcome["type"] == "timeout":
        return 124, exec_.text["stdout"], TOO_SLOW
    return exec_.outcome["exit_code"], exec_.text["stdout"], exec_.text["stderr"]


def asking(name: str, given: dict[str, Any]) -> str:
    """The command that answers a tool's question about files."""
    return f"moorage-workspace {name} {shlex.quote(compact_json(given))}"


def stdin(command: str, text: str) -> str:
    """The command with a text at its stdin."""
    end = "EOF"
    while end in text.split("\n"):
        end += "_"
    return f"{command} <<'{end}'\n{text}\n{end}"
