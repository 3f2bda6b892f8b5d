"""``/v1/uploads``: files in parts, for ways that are too narrow for a whole one."""

from typing import Annotated, Final

from fastapi import Depends, Request

from moorage import errors, limits
from moorage.api.bodies import body_of
from moorage.api.caller import Caller
from moorage.api.multipart import parts
from moorage.api.routing import Router
from moorage.files.upload_store import UploadPartRecord, Uploads, as_object, part_as_object
from moorage.wire.answers import Upload, UploadPart
from moorage.wire.forms import form_of
from moorage.wire.resources import CompleteUpload, CreateUpload

router = Router()

_FORM_BYTES_MAX: Final = limits.UPLOAD_PART_BYTES_MAX + limits.FORM_OVERHEAD_BYTES_MAX
_PART_TOO_LARGE: Final = f"A part has at most {limits.UPLOAD_PART_BYTES_MAX >> 20} MiB. Send more parts."


async def _uploads(caller: Caller) -> Uploads:
    runtime = caller.runtime
    return Uploads(runtime.stores.table, runtime.stores.blobs, runtime.stores.files, clock=runtime.clock)


_Uploads = Annotated[Uploads, Depends(_uploads)]


@router.post("/uploads", "createUpload", "Begin a file in parts")
async def create(caller: Caller, uploads: _Uploads, wanted: Annotated[CreateUpload, body_of(CreateUpload)]) -> Upload:
    upload = await uploads.create(
        caller.tenant_id,
        filename=wanted.filename,
        size=wanted.bytes,
        purpose=wanted.purpose,
        mime_type=wanted.mime_type,
        expires_after_seconds=None if wanted.expires_after is None else wanted.expires_after.seconds,
    )
    return as_object(upload)


@router.post("/uploads/{upload_id}/parts", "addUploadPart", "Add a part", form=form_of("data"))
async def add_part(request: Request, caller: Caller, uploads: _Uploads, upload_id: str) -> UploadPart:
    added: UploadPartRecord | None = None
    async for part in parts(request, bytes_max=_FORM_BYTES_MAX, too_large=_PART_TOO_LARGE):
        if part.name != "data":
            raise errors.unknown_parameter(part.name[: limits.PARAM_NAME_CHARS_MAX])
        if added is not None:
            raise errors.invalid_value("data", "give one part.")
        added = await uploads.add_part(caller.tenant_id, upload_id, part.chunks())
    if added is None:
        raise errors.missing_parameter("data")
    return part_as_object(added)


@router.post("/uploads/{upload_id}/complete", "completeUpload", "Make the file out of its parts", statuses=(409,))
async def complete(
    caller: Caller, uploads: _Uploads, upload_id: str, wanted: Annotated[CompleteUpload, body_of(CompleteUpload)]
) -> Upload:
    upload, file = await uploads.complete(caller.tenant_id, upload_id, wanted.part_ids, md5=wanted.md5)
    return as_object(upload, file)


@router.post("/uploads/{upload_id}/cancel", "cancelUpload", "Drop the parts", statuses=(409,))
async def cancel(caller: Caller, uploads: _Uploads, upload_id: str) -> Upload:
    return as_object(await uploads.cancel(caller.tenant_id, upload_id))
