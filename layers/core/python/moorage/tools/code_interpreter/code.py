"""A call's code: it runs in the container's Python session, and its outputs stand in the call's own item."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import Any

from moorage import limits
from moorage.sandbox.exec_client import PythonEnded, PythonEvent
from moorage.tools.calls import CallEnd, CallEvent, CallFinished, KnownCall, Piece
from moorage.tools.code_interpreter import session
from moorage.tools.execs import KILLED, REVIVED, WORDS, FollowedExec, SandboxLost, exec_id, follow
from moorage.tools.run import Run
from moorage.wire.types import Item


async def run(run: Run) -> AsyncGenerator[Piece, None]:
    """Running twice is harmless: a second run attaches to the code, and reads its output again."""
    known, code, ended = run.known, FollowedExec(0), None
    run.counts["commands"] = 1
    if not _is_interpreting(known):
        yield CallEvent(known.event("code_interpreter_call.interpreting"))
    if await run.workplace.is_news() and not run.workplace.is_lost:
        code.text["stderr"] += f"[{REVIVED}]\n"
    try:
        async for event in follow(code, lambda after: _events(run, after), run.workplace):
            if isinstance(event, PythonEnded):
                ended = event
                code.text["stderr"] += KILLED if event.outcome == "killed" else ""
    except SandboxLost:
        code.text["stderr"] += code.lose()
    run.counts.update(ended=1, output_chars=code.chars)
    notes = (await run.workplace.leave(code.files)).notes
    if ended is not None and ended.session_started and await _had_session(run):
        notes = (session.NEW_SESSION, *notes)
    drawn = [] if ended is None else await session.figures(run.workplace.client, ended.images)
    yield CallEvent(known.event("code_interpreter_call.completed"))
    yield CallFinished(session.finished(known.item, code.output, ended, drawn, notes))


def _events(run: Run, after: int) -> AsyncIterator[PythonEvent]:
    """Start or follow the run in the container's Python session."""
    return run.workplace.client.python(
        exec_id(run.known.response_id, run.known.call_id, 0),
        run.known.item["code"],
        timeout_ms=run.settings.code_seconds_max * 1000,
        max_output_length=limits.OUTPUT_CHARS_DEFAULT,
        after=after,
        files_max=limits.COMMAND_FILES_LISTED_MAX,
    )


async def _had_session(run: Run) -> bool:
    """Whether the model has used a Python session of this container before this step, so that it counts on its variables."""
    call = run.known.item
    async for item in run.earlier():
        if item["type"] == call["type"] and item.get("container_id") == call["container_id"]:
            return True
    return False


def end(known: KnownCall, how: CallEnd, detail: str) -> Iterable[Piece]:
    if how in (CallEnd.REFUSED, CallEnd.DENIED):
        said = f"{WORDS[how]} {detail}".strip()
        yield CallFinished(known.item | {"status": "failed", "outputs": [{"type": "logs", "logs": said}]})
        return
    assert how in (CallEnd.LOST, CallEnd.GAVE_UP), f"code does not end by {how}: it has a time limit and its output is cut"
    code = FollowedExec(0)
    if how is CallEnd.LOST:
        code.text["stderr"] += code.lose()
    else:
        code.text["stderr"] = f"[{WORDS[how]} {detail}]"
        code.outcome = {"type": "exit", "exit_code": 1}
    if not _is_interpreting(known):
        yield CallEvent(known.event("code_interpreter_call.interpreting"))
    yield CallEvent(known.event("code_interpreter_call.completed"))
    yield CallFinished(session.finished(known.item, code.output, None, [], ()))


def _is_interpreting(known: KnownCall) -> bool:
    """The log says so already."""
    return (known.so_far or {}).get("status") == "interpreting"


def grow(item: Item, name: str, event: dict[str, Any]) -> None:
    """Put an event into the call."""
    match name:
        case "code_interpreter_call_code.delta":
            item["code"] = (item.get("code") or "") + event["delta"]
        case "code_interpreter_call.interpreting":
            item["status"] = "interpreting"
        case _:
            pass
