"""A local drawing fake: it paints the prompt's hash as a flat colour, over real HTTP in the test's own process. It is for tests alone.

It takes what OpenAI's Images API and Stability's models on Bedrock document, and refuses everything else: another path, a key that is
missing, a parameter that they do not know or that does not fit, a form without its image.
"""

import base64
import hashlib
import re
import struct
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any

import orjson
from moorage.model.image_engine import ImageEngine, ImageKind

from tests.asgi import body_of, live

KEY = "dr4wing-key"
MODEL = "gpt-image-1.5"
STABLE = "stability.stable-image-ultra-v1:1"

_WORDS: dict[str, tuple[Any, ...]] = {
    "background": ("transparent", "opaque", "auto"),
    "complexity": ("low", "medium", "high"),
    "input_fidelity": ("high", "low"),
    "moderation": ("low", "auto"),
    "output_format": ("png", "jpeg", "webp"),
    "quality": ("low", "medium", "high", "xhigh", "max", "auto"),
    "stream": (True, False, "true", "false"),
    "response_format": ("b64_json",),
}
_NUMBERS = {"n": (1, 10), "output_compression": (0, 100), "partial_images": (0, 3)}
_RATIOS = {"16:9", "1:1", "21:9", "2:3", "3:2", "4:5", "5:4", "9:16", "9:21"}


def png(text: str, width: int = 16, height: int = 16) -> bytes:
    """A flat colour that is this text's."""
    colour = hashlib.sha256(text.encode()).digest()[:3]
    rows = (b"\0" + colour * width) * height

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


VAST: dict[str, bytes] = {
    # Width and height as large as the format lets a head say (a PNG's have 31 bits), with next to no pixels behind it.
    "png": png("a").replace(struct.pack(">II", 16, 16), struct.pack(">II", 2**31 - 1, 2**31 - 1), 1),
    "jpeg": b"\xff\xd8\xff\xc0" + struct.pack(">HBHHB", 17, 8, 65_535, 65_535, 3) + bytes(9) + b"\xff\xd9",
    "webp": b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\xff" * 6,
}
"""Pictures that nobody could hold in memory once they are decoded."""


USAGE: dict[str, Any] = {
    "input_tokens": 9,
    "input_tokens_details": {"image_tokens": 2, "text_tokens": 7},
    "output_tokens": 196,
    "output_tokens_details": {"image_tokens": 196, "text_tokens": 0},
    "total_tokens": 205,
}
"""What each image takes."""


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


@dataclass
class Drawing:
    """What it was asked for, and how it answers."""

    asked: list[dict[str, Any]] = field(default_factory=list)
    """The parameters of each request that it took; ``images`` and ``mask`` hold the bytes of a form's files."""
    refusal: tuple[int, Any] | None = None
    """Status and body of every answer, in place of an image."""
    before_answer: Callable[[], Awaitable[None]] | None = None

    def engine(self, port: int, kind: ImageKind = "openai") -> ImageEngine:
        url = f"http://localhost:{port}"
        if kind == "openai":
            return ImageEngine("openai", f"{url}/v1", MODEL, ("gpt-image-*",), KEY)
        return ImageEngine("bedrock", url, STABLE, ("stability.stable-image-core-v1:1",), KEY, "us-west-2")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await live(receive, send)
            return
        body = await body_of(receive)
        if self.before_answer is not None:
            await self.before_answer()
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        status, kind, answer = self._answer(scope["method"], scope["path"], headers, body)
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind.encode())]})
        for piece in answer:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, str, list[bytes]]:
        signed = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=\S+/us-west-2/bedrock/aws4_request, SignedHeaders=\S+, Signature=[0-9a-f]{64}",
            headers.get("authorization", ""),
        )
        if headers.get("authorization") != f"Bearer {KEY}" and not (path.startswith("/model/") and signed):
            return _refused(401, "invalid_api_key")
        if method != "POST":
            return _refused(405, "method_not_allowed")
        if path.startswith("/model/"):
            return self._stability(path, headers, body)
        if path not in ("/v1/images/generations", "/v1/images/edits"):
            return _refused(404, "not_found")
        asked = _form(headers, body) if path.endswith("edits") else _json(headers, body)
        wrong = "body" if asked is None else _wrong(asked, is_edit=path.endswith("edits"))
        if asked is None or wrong is not None:
            return _refused(400, "invalid_value", wrong)
        self.asked.append(asked)
        if self.refusal is not None:
            return self.refusal[0], "application/json", [orjson.dumps(self.refusal[1])]
        return _drawn(asked, "image_edit" if path.endswith("edits") else "image_generation")

    def _stability(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, str, list[bytes]]:
        asked = _json(headers, body)
        model = re.fullmatch(r"/model/(stability\.[a-z0-9.:-]+)/invoke", path)
        known = {"prompt", "output_format", "aspect_ratio", "image", "strength", "mode"}
        if model is None or asked is None or not asked.get("prompt") or asked.keys() - known:
            return _refused(400, "ValidationException")
        if asked.get("aspect_ratio", "1:1") not in _RATIOS or asked.get("output_format") not in ("png", "jpeg"):
            return _refused(400, "ValidationException")
        if ("image" in asked) != ("strength" in asked) or ("core" in model[1] and "image" in asked) or "mode" in asked:
            return _refused(400, "ValidationException")
        self.asked.append(asked | {"model": model[1]})
        if self.refusal is not None:
            return self.refusal[0], "application/json", [orjson.dumps(self.refusal[1])]
        image = encoded(png(asked["prompt"], 24, 16))
        return 200, "application/json", [orjson.dumps({"seeds": [1], "finish_reasons": [None], "images": [image]})]


def _drawn(asked: dict[str, Any], event: str) -> tuple[int, str, list[bytes]]:
    size = asked.get("size", "auto")
    width, height = (16, 16) if size == "auto" else (int(side) // 64 for side in size.split("x"))
    facts = {"background": "opaque", "output_format": "png", "quality": asked.get("quality", "medium"), "size": size}
    whole = {**facts, "created_at": 1, "usage": USAGE}
    image = encoded(png(asked["prompt"], width, height))
    if asked.get("stream") not in (True, "true"):
        entry = {"b64_json": image, "revised_prompt": f"{asked['prompt']}, in oil"}
        return 200, "application/json", [orjson.dumps(whole | {"data": [entry]})]
    events = [
        {"type": f"{event}.partial_image", "partial_image_index": n, "b64_json": encoded(png(f"{n}")), **facts, "created_at": 1}
        for n in range(int(asked["partial_images"]))
    ]
    events.append({"type": f"{event}.completed", "b64_json": image, **whole})
    pieces = [f"event: {each['type']}\ndata: {orjson.dumps(each).decode()}\n\n".encode() for each in events]
    return 200, "text/event-stream; charset=utf-8", pieces


def _wrong(asked: dict[str, Any], *, is_edit: bool) -> str | None:
    """The parameter that is wrong."""
    known = {"model", "prompt", "size", *_WORDS, *_NUMBERS, *(("images", "mask") if is_edit else ())} - (
        set() if is_edit else {"input_fidelity"}
    )
    if unknown := asked.keys() - known:
        return min(unknown)
    if not isinstance(asked.get("prompt"), str) or not 0 < len(asked["prompt"]) <= 32_000:
        return "prompt"
    if not str(asked.get("model", "")).startswith("gpt-image") or "response_format" in asked:
        return "model"
    for name, values in _WORDS.items():
        if name in asked and asked[name] not in values:
            return name
    for name, (least, most) in _NUMBERS.items():
        if name in asked and not least <= int(asked[name]) <= most:
            return name
    if asked.get("background") == "transparent" and asked.get("output_format") == "jpeg":
        return "background"
    if "partial_images" in asked and asked.get("stream") not in (True, "true"):
        return "partial_images"
    if not re.fullmatch(r"auto|\d+x\d+", asked.get("size", "auto")):
        return "size"
    return "image" if is_edit and not asked.get("images") else None


def _json(headers: dict[str, str], body: bytes) -> dict[str, Any] | None:
    if headers.get("content-type") != "application/json":
        return None
    value = orjson.loads(body)
    return value if isinstance(value, dict) else None


def _form(headers: dict[str, str], body: bytes) -> dict[str, Any] | None:
    """A form as the library of this language reads it, and not as the code under test writes it."""
    kind = headers.get("content-type", "")
    if not kind.startswith("multipart/form-data; boundary="):
        return None
    message = BytesParser(policy=HTTP).parsebytes(f"content-type: {kind}\r\n\r\n".encode() + body)
    asked: dict[str, Any] = {}
    for part in message.iter_parts():
        name, content = str(part.get_param("name", header="content-disposition")), part.get_payload(decode=True)
        assert isinstance(content, bytes)
        if name in ("image", "image[]"):
            asked.setdefault("images", []).append(content)
        elif name == "mask":
            asked["mask"] = content
        else:
            asked[name] = content.decode()
    return asked


def _refused(status: int, code: str, param: str | None = None) -> tuple[int, str, list[bytes]]:
    error = {"message": "A sentence that may quote what was asked.", "type": "user_error", "code": code, "param": param}
    return status, "application/json", [orjson.dumps({"error": error})]
