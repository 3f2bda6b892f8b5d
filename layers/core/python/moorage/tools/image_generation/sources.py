"""The images that an edit begins with: those that calls have made, and those that the user has sent."""

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from moorage import ids, limits
from moorage.egress.fetch import FetchError
from moorage.errors import ApiError
from moorage.tools.image_generation.engines import DrawingFailed
from moorage.tools.image_generation.pictures import Picture, picture_of
from moorage.tools.run import Run, Service
from moorage.wire.types import Item, Tool

_CALL: Final = "image_generation_call"
_SENT: Final = "image_"


async def images_of(run: Run, tool: Tool, names: Sequence[str]) -> tuple[Picture, ...]:
    """Raises :class:`DrawingFailed` for one that is not there."""
    must_edit = tool.get("action") == "edit" or "input_image_mask" in tool
    if not names and not must_edit:
        return ()
    if tool.get("action") == "generate":
        raise DrawingFailed("unsupported", "The user wants new images here, and none edited: describe the whole image.")
    known = _by_name(run.known.response_id, [item async for item in run.earlier()])
    wanted = list(names) or [next(reversed(known), "")]
    missing = next((name for name in wanted if name not in known), None)
    if missing is not None:
        there = f"There are: {', '.join(list(known)[-limits.IMAGES_DRAWN_ON_MAX :])}." if known else "There is none at all."
        raise DrawingFailed("no_such_image", f"There is no image '{missing}'. {there}" if missing else "There is no image to edit.")
    return tuple([await _picture(run.outside, name, known[name]) for name in wanted])


async def mask_of(run: Run, tool: Tool) -> Picture | None:
    """Raises :class:`DrawingFailed` if there is none that is said to be there."""
    mask = tool.get("input_image_mask")
    return None if mask is None else await _picture(run.outside, "mask", mask)


def _by_name(response_id: str, earlier: Sequence[Item]) -> dict[str, Mapping[str, Any]]:
    """Images by the names that models have for them, the latest last. ``earlier`` has this response's images first."""
    own = [item for item in earlier if ids.response_of(item.get("id", "")) == response_id]
    found: dict[str, Mapping[str, Any]] = {}
    sent = 0
    for item in (*(item for item in earlier if not any(item is made for made in own)), *own):
        if item["type"] == _CALL:
            if item.get("error") is None:
                found[item["id"]] = item
            continue
        for part in _parts(item):
            sent += 1
            found[f"{_SENT}{sent}"] = part
    return found


def _parts(item: Item) -> Iterable[Mapping[str, Any]]:
    parts = item.get("content") if item["type"] == "message" else item.get("output")
    return (part for part in parts if isinstance(part, dict) and part.get("type") == "input_image") if isinstance(parts, list) else ()


async def _picture(outside: Service, name: str, source: Mapping[str, Any]) -> Picture:
    try:
        content = await _content(outside, source)
    except (ApiError, FetchError, ValueError) as error:
        raise DrawingFailed("no_such_image", f"The image '{name}' cannot be read: {error}.") from error
    found = None if content is None else picture_of(content)
    if found is None:
        raise DrawingFailed("no_such_image", f"The image '{name}' is not there any more, or is no PNG, JPEG or WebP.")
    return found


async def _content(outside: Service, source: Mapping[str, Any]) -> bytes | None:
    if source.get("type") == _CALL:
        return await outside.contents.read(source, "result")
    if source.get("file_id"):
        return await outside.contents.file(source["file_id"], limits.IMAGE_BYTES_MAX)
    url = source.get("image_url") or ""
    if not url.startswith("data:"):
        async with outside.fetcher.open(url, bytes_max=limits.IMAGE_BYTES_MAX) as download:
            return b"".join([chunk async for chunk in download.chunks])
    try:
        return base64.b64decode(url.partition(",")[2], validate=True)
    except binascii.Error as error:
        raise ValueError("it is no base64") from error
