"""Image generation on the wire: its definition, its item, and its events in their order."""

import re
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, Required

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from moorage import limits
from moorage.wire.item import Common, an_item
from moorage.wire.parts import check_one_source
from moorage.wire.refusals import wrong_value
from moorage.wire.tools import RequireApproval
from moorage.wire.validation import Array, Fields, Id, Name, RefusedField, Text, wire, wire_with

PREFIXES: Final = MappingProxyType({"image_generation_call": "ig"})

_SIZE: Final = re.compile(r"[1-9]\d{1,4}x[1-9]\d{1,4}")
_MOVING: Final = "This deployment draws images that stand still: leave it out, and ask for 'png', 'webp' or 'jpeg'."
_VECTORS: Final = "This deployment draws pixels, and no SVG: leave it out, and ask for 'png', 'webp' or 'jpeg'."

Action = Literal["generate", "edit", "auto"]
Background = Literal["transparent", "opaque", "auto"]
Format = Literal["png", "webp", "jpeg"]
Quality = Literal["low", "medium", "high", "xhigh", "max", "auto"]


def _size(given: str) -> str:
    if given != "auto" and not _SIZE.fullmatch(given):
        raise wrong_value("it must be 'auto', or a width and a height such as '1536x1024'.")
    return given


Size = Annotated[str, AfterValidator(_size)]

# --- the tool -----------------------------------------------------------------------------------------------------------------


def _mask_url(given: str) -> str:
    if not given.startswith("data:image/png;base64,"):
        raise wrong_value("it must be a data URL with a PNG ('data:image/png;base64,...').")
    return given


def _one_source(mask: Fields) -> Fields:
    check_one_source(mask, "image_url", "file_id")
    return mask


@wire_with(_one_source)
class Mask(TypedDict, total=False):
    image_url: Annotated[str, Field(max_length=limits.IMAGE_MASK_CHARS_MAX), AfterValidator(_mask_url)]
    file_id: Id


def _belongs_together(tool: Fields) -> Fields:
    kind = tool.get("output_format", "png")
    if tool.get("background") == "transparent" and kind == "jpeg":
        raise wrong_value("a JPEG has no transparent background: ask for 'png' or 'webp'.", "background")
    if tool.get("output_compression", 100) < 100 and kind == "png":
        raise wrong_value("a PNG is never compressed with loss: ask for 'webp' or 'jpeg'.", "output_compression")
    if tool.get("action") == "generate" and "input_image_mask" in tool:
        raise wrong_value("it belongs to an edit, and 'action' is 'generate'.", "input_image_mask")
    return tool


@wire_with(_belongs_together)
class ImageGenerationTool(TypedDict, total=False):
    type: Required[Literal["image_generation"]]
    action: Action
    background: Background
    complexity: Literal["low", "medium", "high"]
    frame_count: Annotated[Any, RefusedField(_MOVING)]
    frame_duration_ms: Annotated[Any, RefusedField(_MOVING)]
    input_fidelity: Literal["high", "low"]
    input_image_mask: Mask
    model: Name
    moderation: Literal["auto", "low"]
    output_compression: Annotated[int, Field(ge=0, le=100)]
    output_format: Format
    partial_images: Annotated[int, Field(ge=0, le=limits.IMAGE_PARTS_MAX)]
    quality: Quality
    require_approval: RequireApproval
    size: Size
    svg: Annotated[Any, RefusedField(_VECTORS)]


TOOLS: Final[MappingProxyType[str, Any]] = MappingProxyType({"image_generation": ImageGenerationTool})

# --- the item -----------------------------------------------------------------------------------------------------------------


@wire
class ModerationDetails(TypedDict, total=False):
    categories: Array[Text]
    moderation_stage: Literal["input", "output", "unknown"]


@wire
class ImageError(TypedDict, total=False):
    type: Required[Text]
    message: Required[Text]
    code: Text
    param: Text
    moderation_details: ModerationDetails


@wire
class SvgUsage(TypedDict, total=False):
    """Of an image that OpenAI made."""

    input_tokens: int
    model: Text
    output_tokens: int
    reasoning_tokens: int
    total_tokens: int


@an_item(PREFIXES["image_generation_call"])
class ImageGenerationCall(Common, total=False):
    """``input_images`` names the sources of an edit, ``file_id`` a file of the same content as ``result``: additions to the API."""

    type: Required[Literal["image_generation_call"]]
    status: Literal["in_progress", "generating", "completed", "failed"]
    result: Annotated[str, Field(max_length=limits.IMAGE_EVENT_BYTES_MAX)]
    revised_prompt: Text
    action: Action
    background: Background
    output_format: Format
    quality: Quality
    size: Text
    error: ImageError
    svg_usage: SvgUsage
    approval_request_id: Id
    input_images: Annotated[list[Id], Field(max_length=limits.IMAGES_DRAWN_ON_MAX)]
    file_id: Id


# --- events -------------------------------------------------------------------------------------------------------------------

_ITEM: Final = ("item_id", "output_index")

EVENTS: Final = MappingProxyType(
    {
        "image_generation_call.in_progress": _ITEM,
        "image_generation_call.generating": _ITEM,
        "image_generation_call.partial_image": (
            *_ITEM,
            "partial_image_index",
            "partial_image_b64",
            "background",
            "output_format",
            "quality",
            "size",
        ),
        "image_generation_call.completed": _ITEM,
    }
)
"""In the order in which they come."""
