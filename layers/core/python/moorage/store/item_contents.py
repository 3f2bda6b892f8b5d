"""Contents of items as objects of their own: images are too large for a record or a log.

If clients read base64, the item or event of a log has a handle instead (``kept``: the field's name and where its content lies), so
that a chain with many images is as short as one without. Who shows a log to a client puts the contents back (:meth:`Contents.whole`).
An object belongs to the response that made it, and goes with it; if an item has a file of the same content (``file_id``), that is
read from then on.

A field with a dot in its name is one of an inner object, such as ``output.image_url``: a data URL in place of bare base64, and read
only for clients that ask to ``include`` it.
"""

import base64
import binascii
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from moorage.dataclass import dataclass
from moorage.errors import ApiError
from moorage.files.store import FileStore
from moorage.store import object_keys
from moorage.store.blobs import BlobNotFound, Blobs
from moorage.store.stored_bytes import Holder
from moorage.wire.types import Event, Item

KEPT: Final = "kept"
"""Of an item or event: handles, by the field whose content they stand for. No client can send it."""

COUNTED: Final = "counted/"
"""What the names of counted objects begin with."""

PURPOSE: Final = "assistants_output"
"""Of the files that tools have made."""


@dataclass(frozen=True, slots=True)
class Contents:
    blobs: Blobs
    files: FileStore
    tenant_id: str
    include: frozenset[str] | None = None
    """What a client has asked to include; None: all that there is."""

    async def keep_counted(self, response_id: str, name: str, content: bytes) -> str:
        """The same as :meth:`keep`, for content that counts as stored by the tenant. Raises ``storage_limit_reached``.

        A second run after a death counts it twice, until the reaper counts the stored bytes."""
        await self.files.stored.add(Holder.response(self.tenant_id, response_id), len(content))
        return await self.keep(response_id, f"{COUNTED}{name}", content)

    async def keep(self, response_id: str, name: str, content: bytes) -> str:
        """Store content of a response; its handle. Doing it again writes the same object."""
        await self.blobs.put_bytes(object_keys.response_blob(self.tenant_id, response_id, name), content)
        return f"{response_id}/{name}"

    async def kept(self, response_id: str, name: str) -> bytes | None:
        """The content of a response under a name; None if there is none."""
        try:
            return await self.blobs.get_bytes(object_keys.response_blob(self.tenant_id, response_id, name))
        except BlobNotFound:
            return None

    async def as_file(self, filename: str, content: bytes) -> str:
        """Make a file of the tenant's; its id."""
        file = await self.files.create(self.tenant_id, filename=filename, purpose=PURPOSE, chunks=_once(content))
        return file.id

    async def file(self, file_id: str, bytes_max: int) -> bytes:
        """The bytes of a file. Raises :class:`ApiError` for one that is not there, ValueError for one that is too long."""
        file = await self.files.get(self.tenant_id, file_id)
        if file.bytes > bytes_max:
            raise ValueError(f"{file.bytes} bytes")
        return b"".join([chunk async for chunk in self.files.content(file)])

    async def read(self, item: Mapping[str, Any], field: str) -> bytes | None:
        """The content of a field, kept or in base64; None if there is none (any more)."""
        handle = (item.get(KEPT) or {}).get(field)
        if handle is None:
            return _decoded(item.get(field))
        response_id, _, name = handle.partition("/")
        content = await self.kept(response_id, name)
        return content if content is not None else await self._of_file(item.get("file_id"))

    async def _of_file(self, file_id: str | None) -> bytes | None:
        """The response that the object belonged to was deleted, or is too old."""
        if file_id is None:
            return None
        try:
            file = await self.files.get(self.tenant_id, file_id)
            return b"".join([chunk async for chunk in self.files.content(file)])
        except ApiError:
            return None

    # --- for clients ---

    async def events(self, events: Sequence[Event]) -> list[Event]:
        return [await self.event(event) for event in events]

    async def event(self, event: Event) -> Event:
        if KEPT in event:
            return await self._whole(event)
        if "item" in event and KEPT in event["item"]:
            return event | {"item": await self._whole(event["item"])}
        if "response" in event:
            return event | {"response": await self.response(event["response"])}
        return event

    async def response(self, response: dict[str, Any]) -> dict[str, Any]:
        if not any(KEPT in item for item in response["output"]):
            return response
        return response | {"output": await self.items(response["output"])}

    async def items(self, items: Sequence[Item]) -> list[Item]:
        return [await self._whole(item) if KEPT in item else item for item in items]

    async def pictured(self, items: Sequence[Item]) -> list[Item]:
        """The items as models get them: with the contents that are data URLs. Those in bare base64 are for clients alone."""
        return [await self._whole(item) if any("." in field for field in item.get(KEPT, ())) else item for item in items]

    async def _whole(self, thing: dict[str, Any]) -> dict[str, Any]:
        """With the contents in base64 in the place of their handles; null for one that is gone."""
        whole = {name: value for name, value in thing.items() if name != KEPT}
        for field in thing[KEPT]:
            outer, is_inner, inner = field.rpartition(".")
            is_wanted = not is_inner or self.include is None or f"{thing['type']}.{field}" in self.include
            content = await self.read(thing, field) if is_wanted else None
            encoded = None if content is None else base64.b64encode(content).decode()
            if not is_inner:
                whole[field] = encoded
            else:
                url = None if encoded is None or content is None else f"data:{_media_type(content)};base64,{encoded}"
                whole[outer] = {**whole[outer], inner: url}
        return whole


def _media_type(content: bytes) -> str:
    """The type of a picture, by its first bytes."""
    return "image/png" if content.startswith(b"\x89PNG") else "image/jpeg"


def _decoded(value: Any) -> bytes | None:
    if not isinstance(value, str):
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
