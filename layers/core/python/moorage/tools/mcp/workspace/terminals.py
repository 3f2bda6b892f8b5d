"""``exec_command`` and ``write_stdin``: commands that a model looks at again when it wants.

Running twice is harmless: each call is one look at a session, which the exec server does once under the call's id and answers the same
however often it is asked.
"""

from typing import Any, Final

from moorage import limits
from moorage.errors import SandboxError, SandboxGone
from moorage.sandbox.exec_client import SessionCommand, SessionOutput
from moorage.tools.calls import KnownCall
from moorage.tools.execs import KILLED, REVIVED, SandboxLost, exec_id
from moorage.tools.mcp.workspace.arguments import schema
from moorage.tools.mcp.workspace.results import WorkspaceResult, cut, failed, tokens, with_notes
from moorage.tools.run import Run

EXEC_DESCRIPTION: Final = """\
Run a command in a Linux container and read what it prints, or get a session_id while it still runs.
- It returns when the command has ended, or after yield_time_ms with what was printed so far; look again with write_stdin.
- It starts in /mnt/data. Files there are kept and can be downloaded by the user: put results there. No sudo, and no network unless \
the user was granted some.
- tty: true gives it a terminal (REPLs, editors, programs that ask); keys are sent with write_stdin. Without it stdin is empty.
- Sessions live on between calls and turns, as long as the container does; end those that you need no more. `apply_patch` is there as \
a command too."""

WRITE_DESCRIPTION: Final = """\
Type into a running session and read what it has printed since. Empty chars only look again. Control characters are keys: \\u0003 is \
Ctrl-C (it also interrupts a command without a terminal), \\u0004 Ctrl-D, \\r Enter, \\u001b Escape."""

_MILLISECONDS: Final = {"type": "integer", "minimum": 0}
_WAIT: Final = {
    **_MILLISECONDS,
    "description": f"How long to wait for output before yielding; {limits.SESSION_WAIT_MS_DEFAULT} if left out.",
}
_POLL: Final = {
    **_MILLISECONDS,
    "description": f"How long to wait for output before yielding; {limits.SESSION_POLL_MS_DEFAULT} if left out, "
    f"{limits.SESSION_WAIT_MS_MAX} at most. Wait long where nothing is typed.",
}
_TOKENS: Final = {
    "type": "integer",
    "minimum": 1,
    "description": f"Output beyond this is cut in the middle; {limits.SESSION_OUTPUT_TOKENS_DEFAULT} if left out.",
}

EXEC_SCHEMA: Final = schema(
    {
        "cmd": {"type": "string", "description": "Shell command to execute."},
        "workdir": {"type": "string", "description": "Directory to run it in; /mnt/data if left out."},
        "shell": {"type": "string", "description": "Shell to run it with; bash if left out."},
        "login": {
            "type": "boolean",
            "description": "Read the profiles of a login shell first; false if left out, the environment is complete without.",
        },
        "tty": {"type": "boolean", "description": "Give it a terminal; false if left out."},
        "yield_time_ms": _WAIT,
        "max_output_tokens": _TOKENS,
    },
    "cmd",
)
WRITE_SCHEMA: Final = schema(
    {
        "session_id": {"type": "integer", "description": "Identifier of the running session."},
        "chars": {"type": "string", "description": "What to type; may be empty."},
        "yield_time_ms": _POLL,
        "max_output_tokens": _TOKENS,
    },
    "session_id",
)

_TIME_OVER: Final = "[The command ran for four hours, the longest that a session may, and was ended.]"


async def exec_command(run: Run, given: dict[str, Any]) -> WorkspaceResult:
    command = SessionCommand(
        given["cmd"],
        cwd=given.get("workdir", ""),
        shell=given.get("shell", ""),
        is_login=given.get("login", False),
        has_terminal=given.get("tty", False),
    )
    return await _looked(run, given, command, given.get("yield_time_ms", limits.SESSION_WAIT_MS_DEFAULT))


async def write_stdin(run: Run, given: dict[str, Any]) -> WorkspaceResult:
    wait_ms = given.get("yield_time_ms", limits.SESSION_POLL_MS_DEFAULT)
    return await _looked(run, given, given["session_id"], wait_ms, given.get("chars", ""))


def look_id(known: KnownCall) -> str:
    return exec_id(known.response_id, known.call_id, 0)


async def _looked(run: Run, given: dict[str, Any], session: SessionCommand | int, wait_ms: int, chars: str = "") -> WorkspaceResult:
    is_news = await run.workplace.is_news() and not run.workplace.is_lost
    news = (REVIVED,) if is_news else ()
    wait_ms = max(limits.SESSION_WAIT_MS_MIN, min(wait_ms, limits.SESSION_WAIT_MS_MAX))
    try:
        look = await _look(run, session, wait_ms, chars)
    except SandboxError as error:
        return failed(with_notes(error.message, news))
    run.counts["output_chars"] = look.chars
    left = await run.workplace.leave()
    tokens_max = min(given.get("max_output_tokens", limits.SESSION_OUTPUT_TOKENS_DEFAULT), limits.SESSION_OUTPUT_TOKENS_MAX)
    return WorkspaceResult(with_notes(told(look, tokens_max), (*_remarks(look), *news, *left.notes)))


async def _look(run: Run, session: SessionCommand | int, wait_ms: int, chars: str) -> SessionOutput:
    """Raises :class:`SandboxLost` if the sandbox is gone, and :class:`SandboxError` for its refusals."""
    for _ in range(limits.CALL_ATTEMPTS_MAX):
        if run.workplace.is_lost:
            break
        try:
            return await run.workplace.client.look(look_id(run.known), session, wait_ms=wait_ms, chars=chars)
        except SandboxGone:
            if not await run.workplace.is_alive():
                break
    raise SandboxLost


def told(look: SessionOutput, tokens_max: int) -> str:
    """The form that models were trained on."""
    lines = [f"Wall time: {look.seconds:.4f} seconds"]
    if look.outcome is None:
        lines.append(f"Process running with session ID {look.session_id}")
    else:
        lines.append(f"Process exited with code {look.exit_code}")
    shown = cut(look.output, tokens_max)
    if shown != look.output or look.chars > len(look.output):
        lines.append(f"Original token count: {max(tokens(look.output), look.chars // 4)}")
    return "\n".join([*lines, "Output:", shown])


def _remarks(look: SessionOutput) -> tuple[str, ...]:
    said = {"timeout": (_TIME_OVER,), "killed": (KILLED,)}.get(look.outcome or "", ())
    if look.untyped_bytes:
        said = (*said, f"{look.untyped_bytes} bytes of chars were not taken by the program.")
    return said
