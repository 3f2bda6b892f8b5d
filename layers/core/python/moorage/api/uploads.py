"""``/v1/uploads``: files in parts, for ways that are too narrow for a whole one."""

from typing import Any, Final

from fastapi import APIRouter, Request

from moorage import errors, limits
from moorage.api.listings import json_body
from moorage.api.multipart import parts
from moorage.runtime import Runtime
from moorage.store.files import PURPOSES
from moorage.store.uploads import UploadPart, Uploads, as_object, part_as_object
from moorage.wire.shapes import Shape, array, choice, constant, integer, text

router = APIRouter()

EXPIRES_AFTER: Final = Shape(
    {
        "anchor": constant("created_at"),
        "seconds": integer(minimum=limits.FILE_EXPIRES_SECONDS_MIN, maximum=limits.FILE_EXPIRES_SECONDS_MAX),
    }
)
_CREATE: Final = Shape(
    {
        "filename": text(chars_min=1, chars_max=limits.FILE_NAME_BYTES_MAX),
        "bytes": integer(minimum=1, maximum=limits.FILE_BYTES_MAX),
        "purpose": choice(*PURPOSES),
        "mime_type": text(chars_min=1, chars_max=limits.NAME_CHARS_MAX),
    },
    {"expires_after": EXPIRES_AFTER},
)
_COMPLETE: Final = Shape(
    {"part_ids": array(text(chars_max=limits.NAME_CHARS_MAX), items_min=1, items_max=limits.UPLOAD_PARTS_MAX)},
    {"md5": text(chars_min=32, chars_max=32, pattern="[0-9a-fA-F]{32}")},
)


@router.post("/uploads")
async def create(request: Request) -> dict[str, Any]:
    body = await json_body(request, _CREATE)
    upload = await _uploads(request).create(
        request.state.tenant_id,
        filename=body["filename"],
        size=body["bytes"],
        purpose=body["purpose"],
        mime_type=body["mime_type"],
        expires_after_seconds=body.get("expires_after", {}).get("seconds"),
    )
    return as_object(upload)


@router.post("/uploads/{upload_id}/parts")
async def add_part(request: Request, upload_id: str) -> dict[str, Any]:
    added: UploadPart | None = None
    async for part in parts(request, bytes_max=limits.UPLOAD_PART_BYTES_MAX + limits.FORM_OVERHEAD_BYTES_MAX):
        if part.name != "data":
            raise errors.unknown_parameter(part.name[: limits.PARAM_NAME_CHARS_MAX])
        if added is not None:
            raise errors.invalid_value("data", "give one part.")
        added = await _uploads(request).add_part(request.state.tenant_id, upload_id, part.chunks())
    if added is None:
        raise errors.missing_parameter("data")
    return part_as_object(added)


@router.post("/uploads/{upload_id}/complete")
async def complete(request: Request, upload_id: str) -> dict[str, Any]:
    body = await json_body(request, _COMPLETE)
    upload, file = await _uploads(request).complete(
        request.state.tenant_id, upload_id, body["part_ids"], md5=body.get("md5")
    )
    return as_object(upload, file)


@router.post("/uploads/{upload_id}/cancel")
async def cancel(request: Request, upload_id: str) -> dict[str, Any]:
    return as_object(await _uploads(request).cancel(request.state.tenant_id, upload_id))


def _uploads(request: Request) -> Uploads:
    runtime: Runtime = request.app.state.runtime
    return Uploads(runtime.table, runtime.blobs, runtime.files, clock=runtime.clock)
