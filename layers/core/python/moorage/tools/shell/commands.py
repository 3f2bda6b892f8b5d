"""A call's commands: they run side by side in the container, and their output is told as it appears."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from typing import Any, Final

from moorage import limits
from moorage.containers.store import ContainerFileRecord
from moorage.sandbox.exec_client import ExecEvent, ExecOutput
from moorage.tools import execs
from moorage.tools.calls import CallEnd, CallEvent, CallFinished, KnownCall, Piece
from moorage.tools.execs import KILLED, REVIVED, FollowedExec, SandboxLost, exec_id, follow, merged
from moorage.tools.run import Run
from moorage.tools.shell.shapes import ShellAction
from moorage.wire.types import Item

FILES: Final = "output_files"
WORDS: Final = execs.WORDS | {
    CallEnd.CANCELLED: "The response ended before this command did; its output was not kept.",
}


def action_of(call: Item) -> ShellAction:
    """Its action, with its types: the call has been parsed, or was made by the room."""
    action: ShellAction = call["action"]
    return action


def count(call: Item) -> int:
    return len(action_of(call)["commands"])


def announced(call: Item, output_item_id: str, output: list[dict[str, Any]]) -> Item:
    return {
        "id": output_item_id,
        "type": "shell_call_output",
        "call_id": call["call_id"],
        # The live API says "completed" from the start; clients know that it is done by output_item.done.
        "status": "completed",
        "max_output_length": action_of(call).get("max_output_length"),
        "output": output,
        **({"caller": call["caller"]} if "caller" in call else {}),
    }


async def run(run: Run) -> AsyncGenerator[Piece, None]:
    """Running twice is harmless: a second run attaches to the commands, and goes on after the log."""
    known, commands = run.known, _recalled(run.known)
    run.counts["commands"] = len(commands)
    if await run.workplace.is_news() and not run.workplace.is_lost:
        yield _note(known, commands[0], f"[{REVIVED}]\n")
    async for said in merged(*(_command(run, command) for command in commands)):
        yield said
    run.counts["ended"] = sum(command.outcome is not None for command in commands)
    run.counts["output_chars"] = sum(command.chars for command in commands)
    # Behind the end of one command another one may still change files.
    left = await run.workplace.leave(commands[0].files if len(commands) == 1 else None)
    yield CallFinished(_with_files(_finished(known, commands, left.notes), left.files))


async def _command(run: Run, command: FollowedExec) -> AsyncIterator[Piece]:
    if command.outcome is not None:
        return
    known = run.known
    try:
        async for event in follow(command, lambda after: _events(run, command.index, after), run.workplace):
            if isinstance(event, ExecOutput):
                yield _delta(known, command, event.stream, event.text, event.n)
                continue
            if event.outcome == "killed":
                yield _note(known, command, KILLED)
            yield _closed(known, command)
    except SandboxLost:
        for said in _lose(known, command):
            yield said


def _events(run: Run, index: int, after: int) -> AsyncIterator[ExecEvent]:
    """Start or follow one command of a call."""
    action = action_of(run.known.item)
    timeout_ms = action.get("timeout_ms") or limits.COMMAND_TIMEOUT_MS_DEFAULT
    length = action.get("max_output_length") or limits.OUTPUT_CHARS_DEFAULT
    return run.workplace.client.exec(
        exec_id(run.known.response_id, run.known.call_id, index),
        action["commands"][index],
        timeout_ms=min(timeout_ms, limits.COMMAND_TIMEOUT_MS_MAX),
        max_output_length=min(length, limits.OUTPUT_CHARS_MAX),
        after=after,
        files_max=limits.COMMAND_FILES_LISTED_MAX if count(run.known.item) == 1 else 0,
    )


def _lose(known: KnownCall, command: FollowedExec) -> Iterable[CallEvent]:
    """The command had begun, and nobody knows how it ended."""
    yield _note(known, command, command.lose())
    yield _closed(known, command)


def end(known: KnownCall, how: CallEnd, detail: str) -> Iterable[Piece]:
    match how:
        case CallEnd.REFUSED:
            yield CallFinished(announced(known.item, known.output_item_id, [refused(WORDS[how]) for _ in range(count(known.item))]))
            return
        case CallEnd.LOST | CallEnd.GAVE_UP | CallEnd.DENIED:
            commands = _recalled(known)
            for command in commands:
                if command.outcome is None and how is CallEnd.LOST:
                    yield from _lose(known, command)
                elif command.outcome is None:
                    yield _note(known, command, f"[{WORDS[how]} {detail}".strip() + "]")
                    command.outcome = refused("")["outcome"]
                    yield _closed(known, command)
            yield CallFinished(_finished(known, commands, ()))
        case _:
            raise AssertionError(f"a shell call does not end by {how}: its commands have time limits and their output is cut")


def refused(words: str) -> dict[str, Any]:
    """The output of a command that was not run."""
    return {"stdout": "", "stderr": words, "outcome": {"type": "exit", "exit_code": 1}}


def orphaned(call: Item) -> Item:
    return {
        "type": "shell_call_output",
        "call_id": call["call_id"],
        "status": "incomplete",
        "max_output_length": None,
        "output": [{"stdout": "", "stderr": WORDS[CallEnd.CANCELLED], "outcome": {"type": "timeout"}}],
    }


def _recalled(known: KnownCall) -> list[FollowedExec]:
    """The commands as far as the log has them."""
    commands = [FollowedExec(index, offset=known.offsets.get(index, -1)) for index in range(count(known.item))]
    for command, output in zip(commands, (known.so_far or {}).get("output") or [], strict=False):
        command.recall(output)
    return commands


def _finished(known: KnownCall, commands: list[FollowedExec], notes: tuple[str, ...]) -> Item:
    """The whole item. ``notes`` (files that could not be kept) go to the last command's stderr."""
    outputs = [command.output for command in commands]
    if notes and outputs:
        last = outputs[-1]
        said = "\n".join(note if note.startswith("[") else f"[{note}]" for note in notes)
        outputs = [*outputs[:-1], last | {"stderr": f"{last['stderr']}\n{said}" if last["stderr"] else said}]
    return announced(known.item, known.output_item_id, outputs)


def _with_files(output: Item, files: Sequence[ContainerFileRecord]) -> Item:
    """Calls that run side by side share a container: each names the changes that it was the first to find."""
    named = [{"file_id": file.id, "path": file.path, "bytes": file.bytes} for file in files[: limits.OUTPUT_FILES_MAX]]
    return {**output, FILES: named} if named else output


# --- events ---


def _note(known: KnownCall, command: FollowedExec, text: str) -> CallEvent:
    """A word of ours in the command's stderr."""
    command.text["stderr"] += text
    return _delta(known, command, "stderr", text, None)


def _delta(known: KnownCall, command: FollowedExec, stream: str, text: str, n: int | None) -> CallEvent:
    event = known.event("shell_call_output_content.delta", command_index=command.index, delta={stream: text})
    return CallEvent(event, None if n is None else (command.index, n))


def _closed(known: KnownCall, command: FollowedExec) -> CallEvent:
    return CallEvent(known.event("shell_call_output_content.done", command_index=command.index, output=[command.output]))


def grow(item: Item, name: str, event: dict[str, Any]) -> None:
    """Put an event into the call or its output."""
    index = event["command_index"]
    match name:
        case "shell_call_command.added":
            item["action"]["commands"] = [*item["action"]["commands"], event["command"]]
        case "shell_call_command.delta":
            item["action"]["commands"][index] += event["delta"]
        case "shell_call_output_content.delta":
            command = _output(item, index)
            command.update({stream: command[stream] + text for stream, text in event["delta"].items() if text})
        case "shell_call_output_content.done":
            _output(item, index)
            item["output"][index] = event["output"][0]


def _output(item: Item, index: int) -> Item:
    """The output of one command, made if it is new."""
    outputs: list[Item] = item["output"]
    while len(outputs) <= index:
        outputs.append({"stdout": "", "stderr": "", "outcome": None})
    return outputs[index]
