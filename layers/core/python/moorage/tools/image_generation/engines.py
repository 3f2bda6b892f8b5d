"""Image models: what each is asked, and what its answer holds.

OpenAI's Images API   https://platform.openai.com/docs/api-reference/images
    ``POST /images/generations`` (JSON) and ``/images/edits`` (a form); with ``stream`` the answer is server-sent events, partial images
    among them. Servers of one's own speak it too: LocalAI, vLLM-Omni, sd-server.
Stability on Bedrock  https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-stability-diffusion.html
    ``POST /model/{id}/invoke``: ``prompt``, ``aspect_ratio``, ``output_format``; from an image ``image`` and ``strength``.
"""

import base64
import binascii
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import field
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.egress.fetch import FetchError, Reply
from moorage.errors import UpstreamError
from moorage.model.image_engine import ImageEngine
from moorage.net.sse import SseParser
from moorage.tools.image_generation.pictures import Picture, picture_of
from moorage.tools.image_generation.tokens import tokens_of
from moorage.tools.run import Service
from moorage.wire.types import Tool


class DrawingFailed(Exception):
    """There is no image. The message gives the reason, with the server's names of errors and parameters alone."""

    def __init__(self, code: str, message: str, moderation: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.moderation = moderation


@dataclass(frozen=True, slots=True)
class ImageOrder:
    prompt: str
    tool: Tool
    """What the request says about images."""
    images: tuple[Picture, ...] = ()
    """To begin with; an edit if there are any."""
    mask: Picture | None = None


@dataclass(frozen=True, slots=True)
class DrawnImage:
    """An image, or one that comes before it."""

    picture: Picture
    is_partial: bool = False
    revised_prompt: str | None = None
    told: Mapping[str, str] = field(default_factory=dict)
    """``background`` and ``quality``, where the server says what it chose."""
    tokens: Mapping[str, Any] | None = None
    """What the image took, where the server says it."""


@dataclass(frozen=True, slots=True)
class _ImageQuestion:
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


async def drawn(outside: Service, engine: ImageEngine, wanted: ImageOrder) -> AsyncGenerator[DrawnImage, None]:
    """Partial images, if the server sends them, and last the image. Raises :class:`DrawingFailed`."""
    if engine.kind == "openai":
        question, read = _of_openai(engine, wanted), _from_openai
    else:
        question, read = _of_bedrock(outside, engine, wanted), _from_stability
    try:
        async with (
            outside.fetcher.asked(
                question.url,
                method="POST",
                headers=question.headers,
                body=question.body,
                bytes_max=limits.IMAGE_ANSWER_BYTES_MAX,
                seconds=limits.IMAGE_CALL_SECONDS_MAX,
            ) as reply,
            aclosing(read(reply)) as images,
        ):
            if reply.status != 200:
                raise _refusal(reply.status, await _beginning(reply.chunks))
            async for image in images:
                yield image
                if not image.is_partial:
                    return
    except FetchError as error:
        raise DrawingFailed("no_answer", f"The image model gave no answer: {error}.") from error
    raise DrawingFailed("no_image", "The image model's answer holds no image.")


# --- OpenAI's Images API ------------------------------------------------------------------------------------------------------

_PASSED: Final = (
    "background",
    "complexity",
    "moderation",
    "output_compression",
    "output_format",
    "quality",
    "size",
)
"""What a request may say of an image, under the names that the Images API has for it. Only what was said is passed on: servers of one's
own refuse what they do not know."""

_ALWAYS_BASE64: Final = ("gpt-image", "chatgpt-image")
"""OpenAI's models take no ``response_format``; others give an address without it."""


def _of_openai(engine: ImageEngine, wanted: ImageOrder) -> _ImageQuestion:
    tool, model = wanted.tool, wanted.tool.get("model") or engine.model
    fields: dict[str, Any] = {"model": model, "prompt": wanted.prompt} | {name: tool[name] for name in _PASSED if name in tool}
    if not model.startswith(_ALWAYS_BASE64):
        fields["response_format"] = "b64_json"
    if tool.get("partial_images"):
        fields |= {"stream": True, "partial_images": tool["partial_images"]}
    key = {"authorization": f"Bearer {engine.key}"} if engine.key else {}
    if not wanted.images:
        return _ImageQuestion(f"{engine.url}/images/generations", {"content-type": "application/json", **key}, orjson.dumps(fields))
    if "input_fidelity" in tool:
        fields["input_fidelity"] = tool["input_fidelity"]
    kind, body = _form(fields, wanted)
    return _ImageQuestion(f"{engine.url}/images/edits", {"content-type": kind, **key}, body)


def _form(fields: Mapping[str, Any], wanted: ImageOrder) -> tuple[str, bytes]:
    """``multipart/form-data`` (RFC 7578), under a boundary that nobody can know."""
    boundary = f"moorage-{secrets.token_hex(16)}"
    name = "image" if len(wanted.images) == 1 else "image[]"
    files = [(name, picture) for picture in wanted.images] + ([("mask", wanted.mask)] if wanted.mask is not None else [])
    parts = [
        f'--{boundary}\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{_said(value)}\r\n'.encode()
        for name, value in fields.items()
    ]
    for number, (name, picture) in enumerate(files):
        disposition = f'form-data; name="{name}"; filename="{number}.{picture.format}"'
        head = f"--{boundary}\r\ncontent-disposition: {disposition}\r\ncontent-type: {picture.media_type}\r\n\r\n"
        parts += [head.encode(), picture.content, b"\r\n"]
    return f"multipart/form-data; boundary={boundary}", b"".join([*parts, f"--{boundary}--\r\n".encode()])


def _said(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _from_openai(reply: Reply) -> AsyncGenerator[DrawnImage, None]:
    if reply.media_type != "text/event-stream":
        answer = _object(b"".join([chunk async for chunk in reply.chunks]))
        entries = answer.get("data")
        entry = entries[0] if isinstance(entries, list) and entries and isinstance(entries[0], dict) else {}
        if entry.get("b64_json"):
            said = _text(entry.get("revised_prompt"))
            yield DrawnImage(_picture(entry["b64_json"]), False, said, _told(answer), tokens_of(answer.get("usage")))
        return
    parser = SseParser(limits.IMAGE_EVENT_BYTES_MAX)
    try:
        async for chunk in reply.chunks:
            for event in parser.feed(chunk):
                for image in _of_event(event.data):
                    yield image
        for event in parser.end():
            for image in _of_event(event.data):
                yield image
    except UpstreamError as error:
        raise DrawingFailed("no_image", "The image model's answer is too long.") from error


def _of_event(data: str) -> list[DrawnImage]:
    if data == "[DONE]":
        return []
    event = _object(data.encode())
    kind = str(event.get("type"))
    if kind == "error" or isinstance(event.get("error"), dict):
        raise _refusal(400, data.encode())
    if not kind.endswith((".partial_image", ".completed")) or not event.get("b64_json"):
        return []
    is_partial = kind.endswith(".partial_image")
    said = _text(event.get("revised_prompt"))
    return [DrawnImage(_picture(event["b64_json"]), is_partial, said, _told(event), tokens_of(event.get("usage")))]


def _told(answer: Mapping[str, Any]) -> dict[str, str]:
    known = {"background": ("transparent", "opaque", "auto"), "quality": ("low", "medium", "high", "xhigh", "max", "auto")}
    return {name: answer[name] for name, values in known.items() if answer.get(name) in values}


# --- Stability on Bedrock -----------------------------------------------------------------------------------------------------

_RATIOS: Final = MappingProxyType(
    {Fraction(*map(int, ratio.split(":"))): ratio for ratio in ("16:9", "1:1", "21:9", "2:3", "3:2", "4:5", "5:4", "9:16", "9:21")}
)
_STABILITY_PROMPT_CHARS_MAX: Final = 10_000
_STRENGTH: Final = 0.65
"""How far an edit goes from its image: 0 leaves it, 1 forgets it."""

_FIXED: Final = MappingProxyType(
    {
        "background": ("auto", "opaque"),
        "moderation": ("auto",),
        "output_compression": (100,),
        "output_format": ("png", "jpeg"),
        "partial_images": (0,),
        "quality": ("auto",),
    }
)
"""What these models can be told, or do anyhow."""
_UNKNOWN: Final = ("complexity", "input_fidelity", "input_image_mask")


def unserved(engine: ImageEngine, tool: Tool) -> str | None:
    """The part of a request that this image model cannot do, in a sentence; None if it can do all."""
    model = tool.get("model")
    if model is not None and not engine.serves(model):
        return f"This deployment draws with '{engine.model}', and not with '{model}': leave 'model' out."
    if engine.kind == "openai":
        return None
    for name in _UNKNOWN:
        if name in tool:
            return f"The image model of this deployment does not know '{name}': leave it out."
    for name, values in _FIXED.items():
        if tool.get(name, values[0]) not in values:
            supported = " or ".join(repr(value) for value in values)
            return f"The image model of this deployment takes {supported} for '{name}'."
    if tool.get("action") == "edit" and not _draws_on(tool.get("model") or engine.model):
        return "The image model of this deployment edits no images: leave 'action' out."
    if _ratio(tool) is None:
        return f"The image model of this deployment draws in these ratios of width to height: {', '.join(_RATIOS.values())}."
    return None


def _ratio(tool: Tool) -> str | None:
    size = tool.get("size", "auto")
    return "1:1" if size == "auto" else _RATIOS.get(Fraction(*map(int, size.split("x"))))


def _draws_on(model: str) -> bool:
    """Stable Image Core takes no image."""
    return "core" not in model


def _of_bedrock(outside: Service, engine: ImageEngine, wanted: ImageOrder) -> _ImageQuestion:
    model = wanted.tool.get("model") or engine.model
    body: dict[str, Any] = {
        "prompt": wanted.prompt[:_STABILITY_PROMPT_CHARS_MAX],
        "output_format": wanted.tool.get("output_format", "png"),
    }
    if not wanted.images:
        body["aspect_ratio"] = _ratio(wanted.tool)
    elif not _draws_on(model):
        raise DrawingFailed("unsupported", "The image model of this deployment edits no images. Describe the whole image instead.")
    elif len(wanted.images) > 1:
        raise DrawingFailed("unsupported", "The image model of this deployment begins with one image: name the one that matters most.")
    else:
        body |= {"image": base64.b64encode(wanted.images[0].content).decode(), "strength": _STRENGTH}
        body |= {"mode": "image-to-image"} if "sd3" in model else {}
    url, sent = f"{engine.url}/model/{quote(model, safe='')}/invoke", orjson.dumps(body)
    if engine.key:
        return _ImageQuestion(url, {"content-type": "application/json", "authorization": f"Bearer {engine.key}"}, sent)
    try:
        return _ImageQuestion(url, outside.signature(engine.region, url, sent), sent)
    except UpstreamError as error:
        raise DrawingFailed("no_answer", f"The image model cannot be asked: {error}") from error


async def _from_stability(reply: Reply) -> AsyncGenerator[DrawnImage, None]:
    answer = _object(b"".join([chunk async for chunk in reply.chunks]))
    reasons, images = answer.get("finish_reasons"), answer.get("images")
    reason = reasons[0] if isinstance(reasons, list) and reasons else None
    if isinstance(reason, str) and reason.startswith("Filter reason"):
        stage = "output" if "output" in reason else "input"
        raise DrawingFailed("moderation_blocked", _BLOCKED, {"categories": [], "moderation_stage": stage})
    if reason is None and isinstance(images, list) and images:
        yield DrawnImage(_picture(images[0]))


# --- answers ------------------------------------------------------------------------------------------------------------------

_BLOCKED: Final = "The image model does not draw this: its moderation has stopped it. Do not try to get round that; say so."
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.\[\]]{0,63}")
_STAGES: Final = ("input", "output", "unknown")


def _refusal(status: int, body: bytes) -> DrawingFailed:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = None
    error = value.get("error") if isinstance(value, dict) else None
    error = error if isinstance(error, dict) else {}
    code, param = _name(error.get("code")), _name(error.get("param"))
    if code in ("moderation_blocked", "content_policy_violation"):
        return DrawingFailed("moderation_blocked", _BLOCKED, _moderation(error.get("moderation_details")))
    if status in (401, 403):
        return DrawingFailed("no_access", f"The image model answered {status}: it does not take this deployment's key.")
    if status in (402, 429):
        return DrawingFailed("rate_limited", f"The image model answered {status}: it takes no more for now. Try it later.")
    named = ", ".join(f"{label} {name}" for label, name in (("code", code), ("parameter", param)) if name)
    return DrawingFailed(code or "refused", f"The image model answered {status}{f' ({named})' if named else ''}.")


def _moderation(details: Any) -> dict[str, Any] | None:
    if not isinstance(details, dict):
        return None
    given, stage = details.get("categories"), details.get("moderation_stage")
    categories = [name for each in given if (name := _name(each))][:16] if isinstance(given, list) else []
    return {"categories": categories, "moderation_stage": stage if stage in _STAGES else "unknown"}


def _name(value: Any) -> str:
    return value if isinstance(value, str) and _NAME.fullmatch(value) else ""


def _text(value: Any) -> str | None:
    return value[: limits.IMAGE_PROMPT_CHARS_MAX] if isinstance(value, str) and value else None


async def _beginning(chunks: AsyncIterator[bytes]) -> bytes:
    content = bytearray()
    async for chunk in chunks:
        content += chunk
        if len(content) > limits.IMAGE_REFUSAL_BYTES_MAX:
            break
    return bytes(content[: limits.IMAGE_REFUSAL_BYTES_MAX])


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise DrawingFailed("no_image", "The image model's answer is not JSON.") from error
    if not isinstance(value, dict):
        raise DrawingFailed("no_image", "The image model's answer is no JSON object.")
    return value


def _picture(encoded: Any) -> Picture:
    try:
        content = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError, TypeError) as error:
        raise DrawingFailed("no_image", "The image model's answer holds no image in base64.") from error
    if len(content) > limits.IMAGE_BYTES_MAX:
        raise DrawingFailed("too_large", f"The image is larger than {limits.IMAGE_BYTES_MAX} bytes.")
    found = picture_of(content)
    if found is None:
        raise DrawingFailed("no_image", "What the image model sent is no PNG, JPEG or WebP.")
    return found
