"""``/v1/files``."""

from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from moorage import errors, limits
from moorage.api.downloads import download
from moorage.api.listings import page_of
from moorage.api.multipart import parts
from moorage.ids import new_file_id
from moorage.runtime import Runtime
from moorage.store.files import PURPOSES, Content, File, as_object
from moorage.wire.responses import deleted, list_object

router = APIRouter()

_OUTPUT_PURPOSES: Final = ("assistants_output", "batch_output", "fine-tune-results")
"""Purposes that a list may be asked for and that no upload has."""

_FIELDS: Final = ("purpose", "expires_after[anchor]", "expires_after[seconds]")


@router.post("/files")
async def create(request: Request) -> dict[str, Any]:
    runtime: Runtime = request.app.state.runtime
    fields: dict[str, str] = {}
    content: Content | None = None
    filename = ""
    try:
        async for part in parts(request, bytes_max=limits.FILE_BYTES_MAX + limits.FORM_OVERHEAD_BYTES_MAX):
            if part.name == "file":
                if content is not None:
                    raise errors.invalid_value("file", "give one file.")
                filename = _name_of(part.filename)
                # Clients that send the fields first learn of a wrong one before their file is taken in.
                _check(fields)
                content = await runtime.files.receive(request.state.tenant_id, new_file_id(), part.chunks())
            elif part.name in _FIELDS:
                fields[part.name] = await part.text()
            else:
                raise errors.unknown_parameter(part.name[: limits.PARAM_NAME_CHARS_MAX])
        if content is None:
            raise errors.missing_parameter("file")
        if "purpose" not in fields:
            raise errors.missing_parameter("purpose")
        for name in ("expires_after[anchor]", "expires_after[seconds]"):
            if name not in fields and any(other.startswith("expires_after") for other in fields):
                raise errors.missing_parameter(name)
        expires_after_seconds = _check(fields)
    except BaseException:
        if content is not None:
            await runtime.files.drop(content)
        raise
    file = await runtime.files.add(
        content, filename=filename, purpose=fields["purpose"], expires_after_seconds=expires_after_seconds
    )
    return as_object(file)


@router.get("/files")
async def list_files(request: Request) -> dict[str, Any]:
    runtime: Runtime = request.app.state.runtime
    page = page_of(request, limit_default=limits.FILES_LIST_MAX, limit_max=limits.FILES_LIST_MAX, others=("purpose",))
    purpose = request.query_params.get("purpose")
    if purpose is not None and purpose not in (*PURPOSES, *_OUTPUT_PURPOSES):
        raise errors.invalid_choice("purpose", purpose[: limits.PARAM_NAME_CHARS_MAX], (*PURPOSES, *_OUTPUT_PURPOSES))
    found = await runtime.files.page(request.state.tenant_id, page, purpose=purpose)
    return list_object([as_object(file) for file in found.files], has_more=found.has_more)


@router.get("/files/{file_id}")
async def retrieve(request: Request, file_id: str) -> dict[str, Any]:
    return as_object(await _file(request, file_id))


@router.delete("/files/{file_id}")
async def delete(request: Request, file_id: str) -> dict[str, Any]:
    runtime: Runtime = request.app.state.runtime
    await runtime.files.delete(request.state.tenant_id, file_id)
    return deleted(file_id, "file")


@router.get("/files/{file_id}/content")
async def content(request: Request, file_id: str) -> Response:
    runtime: Runtime = request.app.state.runtime
    file = await _file(request, file_id)
    return await download(
        request,
        key=file.key,
        filename=file.filename,
        size=file.bytes,
        content=lambda start, end: runtime.files.content(file, start=start, end=end),
    )


async def _file(request: Request, file_id: str) -> File:
    runtime: Runtime = request.app.state.runtime
    return await runtime.files.get(request.state.tenant_id, file_id)


def _name_of(filename: str | None) -> str:
    if not filename:
        raise errors.invalid_type("file", "a file with a name", "a field without one")
    return filename


def _check(fields: dict[str, str]) -> int | None:
    """Check the fields that are there; returns the lifetime in seconds, None if there is none."""
    purpose = fields.get("purpose")
    if purpose is not None and purpose not in PURPOSES:
        raise errors.invalid_choice("purpose", purpose[: limits.PARAM_NAME_CHARS_MAX], PURPOSES)
    anchor, seconds = fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]")
    if anchor is not None and anchor != "created_at":
        raise errors.invalid_choice("expires_after[anchor]", anchor[: limits.PARAM_NAME_CHARS_MAX], ("created_at",))
    if seconds is None:
        return None
    return _lifetime(seconds)


def _lifetime(seconds: str) -> int:
    param = "expires_after[seconds]"
    if not (seconds.isascii() and seconds.isdigit() and len(seconds) <= limits.QUERY_DIGITS_MAX):
        raise errors.invalid_type(param, "an integer", "a string")
    return checked_lifetime(param, int(seconds))


def checked_lifetime(param: str, seconds: int) -> int:
    """``seconds`` of ``expires_after`` within the API's bounds. Raises :class:`ApiError`."""
    if seconds < limits.FILE_EXPIRES_SECONDS_MIN:
        raise errors.below_minimum(param, "integer", seconds, limits.FILE_EXPIRES_SECONDS_MIN)
    if seconds > limits.FILE_EXPIRES_SECONDS_MAX:
        raise errors.above_maximum(param, "integer", seconds, limits.FILE_EXPIRES_SECONDS_MAX)
    return seconds
