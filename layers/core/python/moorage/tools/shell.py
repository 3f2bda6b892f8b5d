"""The hosted shell: what a ``shell_call`` asks of the exec server, and what becomes of its answer."""

from collections.abc import AsyncIterator
from typing import Any, Final

from moorage import limits
from moorage.model.base import Item
from moorage.sandbox.exec_client import Ended, ExecClient, ExecEvent, PythonEnded

REVIVED: Final = (
    "The container has been started again since it was last used: the files in /mnt/data are as they were saved, processes that ran "
    "before are gone."
)


def exec_id(response_id: str, call_id: str, index: int) -> str:
    """The exec server knows a command under this id, once and for all. A model may repeat its call ids; a response does not."""
    return f"{response_id.removeprefix('resp_')[:16]}-{call_id}-{index}"


def events(client: ExecClient, identity: str, action: dict[str, Any], index: int, after: int) -> AsyncIterator[ExecEvent]:
    """Start or follow one command of a call."""
    timeout_ms = action.get("timeout_ms") or limits.COMMAND_TIMEOUT_MS_DEFAULT
    length = action.get("max_output_length") or limits.OUTPUT_CHARS_DEFAULT
    return client.exec(
        identity,
        action["commands"][index],
        timeout_ms=min(timeout_ms, limits.COMMAND_TIMEOUT_MS_MAX),
        max_output_length=min(length, limits.OUTPUT_CHARS_MAX),
        after=after,
    )


def outcome_of(event: Ended | PythonEnded) -> dict[str, Any]:
    """The ``outcome`` of the wire."""
    if event.outcome == "timeout":
        return {"type": "timeout"}
    return {"type": "exit", "exit_code": event.exit_code}


def finished(call: Item, output_item_id: str, outputs: list[dict[str, Any]], notes: tuple[str, ...]) -> Item:
    """The whole ``shell_call_output``. ``notes`` (files that could not be kept) go to the last command's stderr."""
    if notes and outputs:
        last = outputs[-1]
        said = "\n".join(note if note.startswith("[") else f"[{note}]" for note in notes)
        outputs = [*outputs[:-1], last | {"stderr": f"{last['stderr']}\n{said}" if last["stderr"] else said}]
    return {
        "id": output_item_id,
        "type": "shell_call_output",
        "call_id": call["call_id"],
        "status": "completed",
        "max_output_length": call["action"].get("max_output_length"),
        "output": outputs,
    }
