"""``/v1/files``."""

from typing import Annotated, Final, Literal

from fastapi import Request
from starlette.responses import Response

from moorage import errors, limits
from moorage.api.caller import Caller
from moorage.api.downloads import download
from moorage.api.multipart import FILE_TOO_LARGE, parts
from moorage.api.queries import query_of
from moorage.api.routing import BINARY, Router
from moorage.dataclass import dataclass
from moorage.files.store import StoredContent, StoredFile, as_object
from moorage.wire.answers import Deleted, File, ListOf
from moorage.wire.forms import FILE_FORM
from moorage.wire.queries import PageQuery
from moorage.wire.query_strings import choice, whole_number
from moorage.wire.resources import PURPOSES
from moorage.wire.responses import deleted

router = Router()

_OUTPUT_PURPOSES: Final = ("assistants_output", "batch_output", "fine-tune-results")
"""Purposes that a list may be asked for and that no upload has."""


@dataclass(frozen=True, slots=True)
class FilesPage(PageQuery):
    limit: Annotated[int, whole_number(1, limits.FILES_LIST_MAX)] = limits.FILES_LIST_MAX
    purpose: Annotated[str | None, choice(*PURPOSES, *_OUTPUT_PURPOSES)] = None


_FORM_BYTES_MAX: Final = limits.FILE_BYTES_MAX + limits.FORM_OVERHEAD_BYTES_MAX
_FIELDS: Final = ("purpose", "expires_after[anchor]", "expires_after[seconds]")


@router.post("/files", "createFile", "Upload a file", form=FILE_FORM)
async def create(request: Request, caller: Caller) -> File:
    files = caller.runtime.stores.files
    fields: dict[str, str] = {}
    content: StoredContent | None = None
    filename = ""
    try:
        async for part in parts(request, bytes_max=_FORM_BYTES_MAX, too_large=FILE_TOO_LARGE):
            if part.name == "file":
                if content is not None:
                    raise errors.invalid_value("file", "give one file.")
                filename = _name_of(part.filename)
                # Clients that send the fields first learn of a wrong one before their file is taken in.
                _check(fields)
                content = await files.receive(caller.tenant_id, part.chunks())
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
            await files.drop(content)
        raise
    file = await files.add(content, filename=filename, purpose=fields["purpose"], expires_after_seconds=expires_after_seconds)
    return as_object(file)


@router.get("/files", "listFiles", "All files")
async def list_files(caller: Caller, page: Annotated[FilesPage, query_of(FilesPage)]) -> ListOf[File]:
    return (await caller.runtime.stores.files.page(caller.tenant_id, page, purpose=page.purpose)).shown(as_object)


@router.get("/files/{file_id}", "retrieveFile", "A file")
async def retrieve(caller: Caller, file_id: str) -> File:
    return as_object(await _file(caller, file_id))


@router.delete("/files/{file_id}", "deleteFile", "Delete a file")
async def delete(caller: Caller, file_id: str) -> Deleted[Literal["file"]]:
    await caller.runtime.stores.files.delete(caller.tenant_id, file_id)
    return deleted(file_id, "file")


@router.get("/files/{file_id}/content", "downloadFile", "A file's content", sends=BINARY, statuses=(206, 302, 416))
async def content(request: Request, caller: Caller, file_id: str) -> Response:
    file = await _file(caller, file_id)
    return await download(
        request,
        caller.runtime.stores,
        caller.runtime.settings,
        key=file.key,
        filename=file.filename,
        size=file.bytes,
        content=lambda start, end: caller.runtime.stores.files.content(file, start=start, end=end),
    )


async def _file(caller: Caller, file_id: str) -> StoredFile:
    return await caller.runtime.stores.files.get(caller.tenant_id, file_id)


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
