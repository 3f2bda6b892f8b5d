"""The output of a call, in the words of the models' training."""

from typing import Any, Final

from moorage.dataclass import dataclass

_BYTES_PER_TOKEN: Final = 4
"""What models and their tools count with where nobody has a tokenizer."""


@dataclass(frozen=True, slots=True)
class WorkspaceResult:
    output: str | None = None
    error: dict[str, Any] | None = None


def failed(sentence: str) -> WorkspaceResult:
    """The tool could not do it, and says why."""
    return WorkspaceResult(error={"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": sentence}]})


def tokens(text: str) -> int:
    return -(-len(text.encode(errors="surrogatepass")) // _BYTES_PER_TOKEN)


def cut(text: str, tokens_max: int) -> str:
    """Beginning and end, if the whole is too long, and how much is missing between."""
    count = tokens(text)
    if count <= tokens_max:
        return text
    data = text.encode(errors="surrogatepass")
    half = tokens_max * _BYTES_PER_TOKEN // 2
    head, tail = data[:half].decode(errors="ignore"), data[len(data) - half :].decode(errors="ignore")
    missing = count - tokens_max
    return f"Total output lines: {len(text.splitlines())}\n\n{head}…{missing} tokens truncated…{tail}"


def with_notes(text: str, notes: tuple[str, ...]) -> str:
    """Words of ours after a command's own."""
    said = [note if note.startswith("[") else f"[{note}]" for note in notes]
    return "\n".join([text.removesuffix("\n") if said else text, *said])
