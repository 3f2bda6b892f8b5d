"""Tools that read and change files of the container."""

import math
import shlex
from typing import Any, Final

import orjson

from moorage import limits
from moorage.tools.execs import FollowedExec, exec_id, follow
from moorage.tools.function_items import compact_json
from moorage.tools.mcp.workspace.arguments import schema
from moorage.tools.mcp.workspace.results import WorkspaceResult, failed, with_notes
from moorage.tools.run import Run

_FROM_ONE: Final = {"type": "integer", "minimum": 1}

_TIMEOUT_MS: Final = 30_000
"""What reads files ends within a second; a pattern may be one that never does."""
_CHARS_MAX: Final = 1_000_000
"""A piece of a picture has 600,000 characters, and what is read as text bounds itself."""

TOO_SLOW: Final = f"It took longer than {_TIMEOUT_MS // 1000} seconds and was ended."

READ_DESCRIPTION: Final = """\
Read a text file with line numbers (`L12: ...`). `slice` reads lines from offset on; `indentation` reads the logical block around \
anchor_line, outward over the lines that are indented less, without its line range being known."""
READ_SCHEMA: Final = schema(
    {
        "file_path": {"type": "string", "description": "Absolute path of the file."},
        "offset": {**_FROM_ONE, "description": "Line to begin with, counted from 1."},
        "limit": {**_FROM_ONE, "description": "Lines to return at most; 2000 if left out."},
        "mode": {"type": "string", "enum": ["slice", "indentation"], "description": "slice if left out."},
        "indentation": schema(
            {
                "anchor_line": {**_FROM_ONE, "description": "Line that the block is around; offset if left out."},
                "max_levels": {"type": "integer", "minimum": 0, "description": "Levels of parents to include; 0 or left out for all."},
                "include_siblings": {"type": "boolean", "description": "Other blocks of the outermost level too; false if left out."},
                "include_header": {"type": "boolean", "description": "Comments and attributes above it too; true if left out."},
                "max_lines": {**_FROM_ONE, "description": "Lines to return at most; limit if left out."},
            }
        ),
    },
    "file_path",
)

LIST_DESCRIPTION: Final = """\
List a directory, sorted, its levels indented: folders end with /, links with @, what is neither with ?."""
LIST_SCHEMA: Final = schema(
    {
        "dir_path": {"type": "string", "description": "Absolute path of the directory."},
        "offset": {**_FROM_ONE, "description": "Entry to begin with, counted from 1."},
        "limit": {**_FROM_ONE, "maximum": 2_000, "description": "Entries to return at most; 25 if left out."},
        "depth": {**_FROM_ONE, "maximum": 100, "description": "Levels of directories; 2 if left out."},
    },
    "dir_path",
)

GREP_DESCRIPTION: Final = "Find the files whose content matches a regular expression; their paths, the newest first."
GREP_SCHEMA: Final = schema(
    {
        "pattern": {"type": "string", "description": "Regular expression."},
        "include": {"type": "string", "description": "Glob of the files to look at, such as *.rs or *.{ts,tsx}."},
        "path": {"type": "string", "description": "Where to look; /mnt/data if left out."},
        "limit": {**_FROM_ONE, "maximum": 2_000, "description": "Paths to return at most; 100 if left out."},
    },
    "pattern",
)

PATCH_DESCRIPTION: Final = """\
Change files by a patch; all of its changes are made or none. Paths are relative to /mnt/data.

*** Begin Patch
*** Add File: notes.txt
+every line of a new file begins with +
*** Update File: src/app.py
*** Move to: src/main.py
@@ def greet():
 three lines of context before
-removed
+added
 three lines of context after
*** Delete File: old.txt
*** End Patch

`*** Move to` and the text after @@ are optional: such a line (a class, a function) tells apart places that look alike. There are no \
line numbers."""
PATCH_SCHEMA: Final = schema({"input": {"type": "string", "description": "The entire patch."}}, "input")

VIEW_DESCRIPTION: Final = "Look at an image file (PNG, JPEG, GIF, WebP) of the container."
VIEW_SCHEMA: Final = schema({"path": {"type": "string", "description": "Path of the image; absolute, or in /mnt/data."}}, "path")


async def read_file(run: Run, given: dict[str, Any]) -> WorkspaceResult:
    return await _asked(run, "read_file", given)


async def list_dir(run: Run, given: dict[str, Any]) -> WorkspaceResult:
    return await _asked(run, "list_dir", given)


async def grep_files(run: Run, given: dict[str, Any]) -> WorkspaceResult:
    return await _asked(run, "grep_files", given)


async def _asked(run: Run, name: str, given: dict[str, Any]) -> WorkspaceResult:
    exit_code, answer, complaint = await ran(run, asking(name, given))
    return WorkspaceResult(answer) if exit_code == 0 else failed(_sentence(complaint, exit_code))


async def apply_patch(run: Run, given: dict[str, Any]) -> WorkspaceResult:
    exit_code, report, complaint = await ran(run, stdin("apply_patch", given["input"]))
    left = await run.workplace.leave()
    if exit_code != 0:
        return failed(with_notes(f"The patch was not applied. {_sentence(complaint, exit_code)}", left.notes))
    return WorkspaceResult(with_notes(f"Exit code: 0\nOutput:\n{report}", left.notes))


async def view_image(run: Run, given: dict[str, Any]) -> WorkspaceResult:
    """The picture as a part of the result, for models that see."""
    pieces: list[str] = []
    found: dict[str, Any] = {}
    start = 0
    while not found or start < found["size"]:
        command = asking("view_image", {"path": given["path"], "start": start})
        exit_code, answer, complaint = await ran(run, command, len(pieces))
        if exit_code != 0:
            return failed(_sentence(complaint, exit_code))
        found = orjson.loads(answer)
        if found["size"] > limits.VIEWED_IMAGE_BYTES_MAX:
            most = limits.VIEWED_IMAGE_BYTES_MAX
            return failed(f"{given['path']} has {found['size']} bytes, and {most} can be shown: make it smaller.")
        if not found["data"]:
            return failed(f"{given['path']} changed while it was read.")
        pieces.append(found["data"])
        start += math.floor(len(found["data"]) * 3 / 4) - found["data"].count("=", -2)
    return WorkspaceResult(compact_json([{"type": "image", "mimeType": found["mime"], "data": "".join(pieces)}]))


def _sentence(complaint: str, exit_code: int) -> str:
    return complaint.strip() or f"It ended with exit code {exit_code}."


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
