"""Python in the container's session, told as ``code_interpreter_call``.

The session lives as long as its process: variables are there for the next call, in this response or a later one on the same
container. When it began anew, the model is told so in the logs of the first call that runs in the new one.
"""

import base64
from typing import Any, Final

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import SandboxError
from moorage.sandbox.exec_client import ExecClient, PythonEnded
from moorage.wire.types import Item

STOPPED: Final = (
    "The code ran for the longest time that it may. It was stopped, and its Python session with it: all variables are gone."
)
NEW_SESSION: Final = "The Python session was started anew: variables and imports of earlier calls are gone."
_EXIT_CODES_OF_THE_CODE: Final = (0, 1)
"""Done, or ended by an exception whose traceback has been printed; any other deserves a word."""


@dataclass(frozen=True, slots=True)
class SavedFigure:
    """A figure that the code drew, as the session saved it under /mnt/data."""

    path: str
    content: bytes | None
    """PNG; None if it is too large to be shown, or gone."""


async def figures(client: ExecClient, paths: tuple[str, ...]) -> list[SavedFigure]:
    """The figures with their content, as far as the bounds for one call go; those beyond are only named."""
    drawn: list[SavedFigure] = []
    room = limits.FIGURES_BYTES_MAX
    for number, path in enumerate(paths):
        content = await _content(client, path, room) if number < limits.FIGURES_MAX else None
        room -= len(content or b"")
        drawn.append(SavedFigure(path, content))
    return drawn


async def _content(client: ExecClient, path: str, bytes_max: int) -> bytes | None:
    content = b""
    try:
        async for chunk in client.read_file(path):
            content += chunk
            if len(content) > bytes_max:
                return None
    except SandboxError:
        return None
    return content


def finished(call: Item, output: dict[str, Any], ended: PythonEnded | None, drawn: list[SavedFigure], notes: tuple[str, ...]) -> Item:
    """The whole item. ``ended`` is None if the code could not be run, or was lost with its container.

    Code that raised has *completed*: its traceback stands in the logs, as at OpenAI. Figures are data URLs, which need no key to be
    opened and stay right when the file changes; their paths stand in the logs, so that the model can name (and so cite) the files.
    ``outputs`` are the model's to read; whether a client gets them is decided where items leave (``api/view.py``).
    """
    said = [output["stdout"], output["stderr"], (ended.result if ended else None) or ""]
    said += [_bracketed(note) for note in (*_remarks(output["outcome"], ended), *notes)]
    said += [f"[figure: {figure.path}]" for figure in drawn]
    logs = _joined(said)
    outputs: list[dict[str, Any]] = [{"type": "logs", "logs": logs}] if logs else []
    outputs += [{"type": "image", "url": _data_url(figure.content)} for figure in drawn if figure.content is not None]
    is_completed = ended is not None and ended.outcome == "exit"
    return call | {"status": "completed" if is_completed else "failed", "outputs": outputs}


def _remarks(outcome: dict[str, Any], ended: PythonEnded | None) -> list[str]:
    if ended is None:
        return []
    if ended.outcome == "timeout":
        return [STOPPED]
    if outcome["exit_code"] not in _EXIT_CODES_OF_THE_CODE:
        return [f"Python ended with exit code {outcome['exit_code']}."]
    return []


def _bracketed(note: str) -> str:
    return note if note.startswith("[") else f"[{note}]"


def _joined(parts: list[str]) -> str:
    """Each part on a line of its own."""
    text = ""
    for part in parts:
        if part:
            text += f"\n{part}" if text and not text.endswith("\n") else part
    return text


def _data_url(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"
