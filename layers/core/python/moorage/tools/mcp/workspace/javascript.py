"""``js_repl``: JavaScript in a session of the container's Node, which keeps its bindings from call to call, and ``js_repl_reset``.

Running twice is harmless: a second run attaches to the code, which the exec server knows by the call's id.
"""

import re
from collections.abc import AsyncIterator
from typing import Any, Final

from moorage import limits
from moorage.sandbox.exec_client import PythonEnded, PythonEvent
from moorage.tools.execs import KILLED, REVIVED, FollowedExec, exec_id, follow
from moorage.tools.mcp.workspace.arguments import schema
from moorage.tools.mcp.workspace.results import WorkspaceResult, cut, failed, with_notes
from moorage.tools.run import Run

NAME: Final = "js_repl"

DESCRIPTION: Final = """\
Run JavaScript in a Node.js session of the container and read what it prints, and the value of a last expression. Bindings are kept \
from call to call, `await` works at the top level, and modules are loaded by `await import(...)` or `require`. It starts in /mnt/data. \
js_repl_reset begins a new session."""
SCHEMA: Final = schema(
    {
        "code": {"type": "string", "description": "JavaScript source, as it is: no quotes or fences around it."},
        "timeout_ms": {
            "type": "integer",
            "minimum": 1,
            "description": f"Code that takes longer is ended, its session with it; {limits.JAVASCRIPT_MS_DEFAULT} if left out. A first "
            "line `// codex-js-repl: timeout_ms=15000` says the same.",
        },
    },
    "code",
)
RESET_DESCRIPTION: Final = "End the session of js_repl: the next call begins a new one."
RESET_SCHEMA: Final = schema({})

_PRAGMA: Final = re.compile(r"\A\s*//\s*codex-js-repl:.*?\btimeout_ms=(\d{1,9})\b")
_ABSENT: Final = "JavaScript could not be started"
_NO_NODE: Final = "There is no Node.js in this container, so that js_repl cannot run. Use exec_command with what there is."
_TIME_OVER: Final = "The code took longer than {ms} ms. It was ended, and its session with it: all bindings are gone."
_NEW: Final = "The session is new: bindings of earlier calls are gone."


async def js_repl(run: Run, given: dict[str, Any]) -> WorkspaceResult:
    timeout_ms = min(given.get("timeout_ms") or _asked_in(given["code"]) or limits.JAVASCRIPT_MS_DEFAULT, limits.SESSION_WAIT_MS_MAX)
    is_news = await run.workplace.is_news() and not run.workplace.is_lost
    said, ended = await _ran(run, given["code"], timeout_ms)
    if ended.exit_code != 0 and _ABSENT in said.text["stderr"]:
        return failed(_NO_NODE)
    notes = [REVIVED] * is_news
    if ended.outcome != "exit":
        notes.append(_TIME_OVER.format(ms=timeout_ms) if ended.outcome == "timeout" else KILLED)
    elif ended.session_started and await _had_session(run):
        notes.append(_NEW)
    left = await run.workplace.leave(said.files)
    text = said.text["stdout"] + said.text["stderr"] + (ended.result or "")
    return WorkspaceResult(with_notes(cut(text, limits.SESSION_OUTPUT_TOKENS_DEFAULT), (*notes, *left.notes)))


def _asked_in(code: str) -> int:
    """The time-out that the first line of the code asks for; 0 if it asks for none."""
    pragma = _PRAGMA.match(code)
    return int(pragma[1]) if pragma else 0


async def js_repl_reset(run: Run, given: dict[str, Any]) -> WorkspaceResult:
    await _ran(run, "", limits.JAVASCRIPT_MS_DEFAULT, is_reset=True)
    return WorkspaceResult("js_repl kernel reset")


async def _ran(run: Run, code: str, timeout_ms: int, *, is_reset: bool = False) -> tuple[FollowedExec, PythonEnded]:
    """Raises :class:`~moorage.tools.execs.SandboxLost` and :class:`~moorage.errors.SandboxError`."""

    def begin(after: int) -> AsyncIterator[PythonEvent]:
        return run.workplace.client.javascript(
            exec_id(run.known.response_id, run.known.call_id, 0),
            code,
            timeout_ms=timeout_ms,
            max_output_length=limits.OUTPUT_CHARS_MAX,
            is_reset=is_reset,
            after=after,
            files_max=limits.COMMAND_FILES_LISTED_MAX,
        )

    exec_, ended = FollowedExec(0), None
    async for event in follow(exec_, begin, run.workplace):
        ended = event if isinstance(event, PythonEnded) else ended
    assert ended is not None
    return exec_, ended


async def _had_session(run: Run) -> bool:
    """Whether the model has used a session of this container before, so that it counts on its bindings."""
    call = run.known.item
    async for item in run.earlier():
        if item["type"] == call["type"] and item["name"] == NAME and item.get("container_id") == call["container_id"]:
            return True
    return False
