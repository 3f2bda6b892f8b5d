"""The code interpreter: Python in the container's session, told as ``code_interpreter_call``."""

from collections.abc import AsyncIterator
from typing import Any

from moorage import limits
from moorage.model.base import Item
from moorage.sandbox.exec_client import ExecClient, PythonEvent


def events(client: ExecClient, identity: str, code: str, after: int) -> AsyncIterator[PythonEvent]:
    """Start or follow one run in the container's Python session."""
    return client.python(
        identity,
        code,
        timeout_ms=limits.COMMAND_TIMEOUT_MS_DEFAULT,
        max_output_length=limits.OUTPUT_CHARS_DEFAULT,
        after=after,
    )


def finished(call: Item, output: dict[str, Any], extra: dict[str, Any], request: dict[str, Any]) -> Item:
    """The whole item. Its ``outputs`` are the model's to read; clients get them where they asked for
    ``code_interpreter_call.outputs`` (``api/responses.py`` removes them otherwise)."""
    logs = "\n".join(part for part in (output["stdout"], output["stderr"], extra.get("result") or "") if part)
    outputs: list[dict[str, Any]] = [{"type": "logs", "logs": logs}] if logs else []
    outputs += [{"type": "image", "url": f"sandbox:{path}"} for path in extra.get("images", [])]
    status = "completed" if output["outcome"] == {"type": "exit", "exit_code": 0} else "failed"
    return call | {"status": status, "outputs": outputs}
