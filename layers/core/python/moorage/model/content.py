"""Message parts, read for upstreams that have their own forms for them."""

import base64
import re
from typing import Any, Final

from moorage.dataclass import dataclass
from moorage.wire.types import Item

_DATA_URL: Final = re.compile(r"data:([\w.+/-]*)((?:;[\w=.+-]+)*?)(;base64)?,", re.ASCII)


@dataclass(frozen=True, slots=True)
class InlineData:
    """Inline bytes, as they stand in a data URL."""

    media_type: str
    base64: str


def data_of(url: str) -> InlineData | None:
    """The content of a base64 data URL; None for any other URL."""
    match = _DATA_URL.match(url)
    if match is None or not match[3]:
        return None
    return InlineData(match[1] or "application/octet-stream", url[match.end() :])


def parts_of(content: Any) -> list[dict[str, Any]]:
    """Content as a list of parts; a string is one text part."""
    if isinstance(content, str):
        return [{"type": "input_text", "text": content}] if content else []
    return list(content or [])


def text_of(part: dict[str, Any]) -> str | None:
    """The text of a text or refusal part; None for images and files."""
    match part.get("type"):
        case "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text":
            return str(part.get("text", ""))
        case "refusal":
            return str(part.get("refusal", ""))
    return None


def image_url_of(part: dict[str, Any]) -> str | None:
    """The URL or data URL of an image part."""
    if part.get("type") != "input_image":
        return None
    url = part.get("image_url")
    return url.get("url") if isinstance(url, dict) else url


def file_of(part: dict[str, Any]) -> tuple[str, str] | None:
    """Name and data URL (or plain URL) of a file part."""
    if part.get("type") != "input_file":
        return None
    source = part.get("file_data") or part.get("file_url")
    return (part.get("filename") or "file", source) if source else None


def plain_text(content: Any) -> str:
    """All text of some content, with a note in place of each other part."""
    return "\n".join(_shown(part) for part in parts_of(content))


def _shown(part: dict[str, Any]) -> str:
    text = text_of(part)
    if text is not None:
        return text
    kind = str(part.get("type", "part")).removeprefix("input_")
    return f"[{kind} {part['filename']}]" if part.get("filename") else f"[{kind}]"


def role_of(item: Item) -> str:
    return str(item.get("role", "user"))


def text_of_data(data: InlineData) -> str:
    """The text of an inline text file."""
    try:
        return base64.b64decode(data.base64).decode(errors="replace")
    except ValueError:
        return ""


def readable_text(data: InlineData) -> str | None:
    """The text of an inline file; None if it is not text."""
    try:
        text = base64.b64decode(data.base64).decode("utf-8-sig")
    except ValueError:
        return None
    return None if "\0" in text or data.media_type == "application/pdf" else text
