"""Files and images in the input: for the model they become data, for the container they become files under ``/mnt/data``.

``input_file`` comes as ``file_id``, ``file_data`` or ``file_url``, ``input_image`` as ``file_id`` or ``image_url``. What a URL gave is
kept under the id of its item for as long as responses are: every later step and turn sees the same bytes (a prompt that changed
would lose its cache), and the server is asked once. An image's URL is left to the model's provider.
"""

import base64
import binascii
import codecs
import hashlib
import mimetypes
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from moorage import limits
from moorage.containers.containers import Incoming
from moorage.containers.store import WORKSPACE
from moorage.dataclass import dataclass
from moorage.egress.fetch import Fetcher, FetchError
from moorage.errors import ApiError, SandboxError, bad_request
from moorage.files.store import Clock, FileStore, file_name, free_name
from moorage.parallel import beside, worked
from moorage.store import keys, object_keys, schema
from moorage.store.blobs import Blob, BlobNotFound, Blobs
from moorage.store.table import Table
from moorage.vector_stores.attachments import AttachmentReader, DocumentsUnread, UnreadDocument
from moorage.vector_stores.documents import HEAD_BYTES, UnreadableDocument, look
from moorage.wire.types import Item

T = TypeVar("T")

Part = dict[str, Any]

KIND: Final = "inputs"
_DATA_URL: Final = re.compile(r"data:([\w.+/-]*)(?:;[\w=.+-]+)*?;base64,", re.ASCII)
_MAGIC: Final = (
    (b"\x89PNG\r\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
    (b"%PDF-", "application/pdf"),
)
"""What content begins with, and its type: a file's name may lie, and a model refuses an image under a wrong type."""

_SHOWN_WITH_CONTAINER: Final = ("application/pdf", "text/")
"""Types that a model gets to read although the file is in its container too."""


async def forget_inputs(table: Table, blobs: Blobs, tenant_id: str, items: Iterable[Item]) -> None:
    """Erase the content of the items' URLs: the response was deleted, or was not to be stored."""
    kept = list(items)
    for item, has in zip(kept, await _looked_over(kept, _has_files), strict=True):
        if has:
            await _erase(table, blobs, tenant_id, item["id"])


async def has_files(items: Sequence[Item]) -> bool:
    """Whether something may be kept for one of these items."""
    return any(await _looked_over(items, _has_files))


async def purge_inputs(table: Table, blobs: Blobs, now: float) -> int:
    """Erase content at the end of its retention; answers of how many items. Harmless to repeat."""
    entries = await table.query(keys.due_list(KIND), up_to=keys.due(int(now), "~"), index=schema.INDEX)
    records = await table.get_many((entry["PK"], entry["SK"]) for entry in entries)
    for record in records:
        await _erase(table, blobs, record["tenant_id"], record["item_id"])
    return len(records)


async def _erase(table: Table, blobs: Blobs, tenant_id: str, item_id: str) -> None:
    await blobs.delete_prefix(object_keys.input_objects(tenant_id, item_id))
    pk = keys.input_item(tenant_id, item_id)
    await table.write_many(deletes=[(pk, record["SK"]) for record in await table.query(pk)])


def unreadable_now(why: str) -> ApiError:
    """No sandbox could be had for the documents of an input, for a reason that passes."""
    message = f"The files of the input could not be read: {why} Please retry."
    return ApiError(503, message, type="server_error", code="container_unavailable", headers={"retry-after": "5"})


class Inputs:
    def __init__(self, table: Table, blobs: Blobs, files: FileStore, fetcher: Fetcher, *, clock: Clock, retention_seconds: int) -> None:
        self._table = table
        self._blobs = blobs
        self._files = files
        self._fetcher = fetcher
        self._clock = clock
        self._retention_seconds = retention_seconds

    async def resolve(
        self, tenant_id: str, items: Sequence[Item], *, has_container: bool = False, attachments: AttachmentReader | None = None
    ) -> list[Item]:
        """The items with the content of their files and images as data URLs, as every provider takes them.

        With a container a file is also named by its path there, and one that a model cannot read (or that is longer than
        ``limits.INPUT_INLINE_BYTES_MAX``) is only named. Without one, documents that the model's server does not take become text. It
        is read by ``attachments`` once, and kept like what a URL gave. If there is more than fits into one request, the latest is
        shown. Raises :class:`ApiError` for what cannot be had, and :class:`DocumentsUnread` if texts are not there yet and no sandbox
        can be reached.
        """
        room = _ImageBudget(limits.INPUT_FILE_BYTES_MAX)
        read = None if has_container else attachments
        has_media = await _looked_over(items, lambda item: bool(_media(item)))
        pairs = zip(reversed(items), reversed(has_media), strict=True)
        latest = [await self._resolved(tenant_id, i, has_container, room, read) if has else i for i, has in pairs]
        if read is not None and read.unread:
            raise DocumentsUnread(tuple(read.unread.values()))
        return latest[::-1]

    async def admit(self, tenant_id: str, items: Sequence[Item]) -> None:
        """Look up the files and fetch the URLs of a new request's items, so that it fails at once if it must."""
        for index, parts in enumerate(await _looked_over(items, _placed_media)):
            for place, part in parts:
                await self._source(tenant_id, items[index], part, param=f"input[{index}].{place}.file_id")

    async def to_stage(self, tenant_id: str, items: Iterable[Item]) -> list[Incoming]:
        """The ``input_file`` parts of the items, for ``Containers.put_inputs``."""
        staged: list[Incoming] = []
        for item in items:
            taken: set[str] = set()
            for part in _media(item):
                if part["type"] == "input_file":
                    source = await self._source(tenant_id, item, part)
                    staged.append(Incoming(_free(source.filename, taken), source.sha256, source.size, source.chunks))
        return staged

    async def _resolved(
        self, tenant_id: str, item: Item, has_container: bool, room: "_ImageBudget", attachments: AttachmentReader | None
    ) -> Item:
        field = _field(item)
        if isinstance(item[field], dict):
            return {**item, field: await self._screenshot(tenant_id, item, item[field], room)}
        parts: list[Part] = []
        taken: set[str] = set()
        for part in item[field]:
            if not _is_media(part):
                parts.append(part)
                continue
            try:
                source = await self._source(tenant_id, item, part)
            except ApiError as error:
                # It was there when the item came in. An old file that is gone must not end the conversation that spoke of it.
                parts.append(_note(f"[{part['type'].removeprefix('input_')} not available: {error.message}]"))
                continue
            if part["type"] == "input_image":
                parts.append(await _shown_image(part, source, room))
                continue
            text = None
            if attachments is not None and source.size <= room.left:
                source = replace(source, chunks=_read_once(source))
                text = await self._text(tenant_id, item, source, attachments)
            if text is not None and room.takes(source):
                parts.append(_note(text))
            else:
                parts += await _shown_file(part, source, _free(source.filename, taken), has_container, room)
        return {**item, field: parts}

    async def _text(self, tenant_id: str, item: Item, source: "_PartSource", attachments: AttachmentReader) -> str | None:
        """A document's text with its name; None of a file that the model's server takes, that is text already, or that has none."""
        try:
            kind = look(source.filename, await source.head()).kind
        except UnreadableDocument:
            return None  # The provider says what it makes of such a file.
        if kind in attachments.takes or (kind in ("text", "html") and await source.is_plain()):
            return None
        key = f"{object_keys.input_objects(tenant_id, item['id'])}{source.sha256[:32]}.txt"
        try:
            data = await self._blobs.get_bytes(key)
        except BlobNotFound:
            document = UnreadDocument(item["id"], source.filename, kind, key, source.key, source.chunks)
            if not attachments.can_read:
                attachments.unread[key] = document
                return ""  # Nobody is shown it.
            data = await self.read(tenant_id, document, attachments)
        text = data.decode("utf-8", "ignore").strip()
        name, shown = file_name(source.filename), text[: attachments.chars_max]
        left = "" if len(shown) == len(text) else f"\n[The text goes on. Its first {attachments.chars_max} characters are shown.]"
        return f"[File {name}]\n{shown}{left}\n[End of {name}]"

    async def read(self, tenant_id: str, document: UnreadDocument, attachments: AttachmentReader) -> bytes:
        """The text of a document, from a sandbox. It is kept. Raises :class:`ApiError` if it cannot be read. Harmless to run twice: the
        second text takes the place of the first, which is the same."""
        try:
            data = await attachments.read(document.kind, document.content())
        except UnreadableDocument as error:
            raise bad_request(
                f"This model's server takes no such files, and '{document.filename}' cannot be read here: {error.message}",
                param="input",
                code="invalid_prompt",
            ) from error
        except SandboxError as error:
            raise unreadable_now(error.message) from error
        await self._note_due(tenant_id, document.item_id)
        await self._blobs.put_stream(document.text_key, _once(data), bytes_max=len(data))
        return data

    async def _screenshot(self, tenant_id: str, item: Item, part: Part, room: "_ImageBudget") -> Part:
        """A computer's output is one picture; if its file is gone, the model is told its name."""
        try:
            return await _shown_image(part, await self._source(tenant_id, item, part), room)
        except ApiError:
            return part

    async def _source(self, tenant_id: str, item: Item, part: Part, *, param: str = "input") -> "_PartSource":
        """The source of a part's content; ``param`` names its id. Raises :class:`ApiError` if the content cannot be had."""
        filename = part.get("filename")
        if "file_id" in part:
            file = await self._files.get(tenant_id, part["file_id"], param=param)
            return _PartSource(filename or file.filename, file.bytes, file.sha256, lambda: self._files.content(file), key=file.key)
        if "file_url" in part:
            url = part["file_url"]
            blob = await self._fetched(tenant_id, item["id"], url)
            name = filename or unquote(urlsplit(url).path.rsplit("/", 1)[-1])
            return _PartSource(name or "file", blob.bytes, blob.sha256, lambda: self._blobs.get_stream(blob.key), key=blob.key)
        content, media_type, sha256 = await beside(len(part["file_data"]), partial(_decoded, part["file_data"]))
        return _PartSource(filename or "file", len(content), sha256, lambda: _once(content), media_type)

    async def _fetched(self, tenant_id: str, item_id: str, url: str) -> Blob:
        """The content of the URL; it is fetched if that was not done for this item yet."""
        pk, name = keys.input_item(tenant_id, item_id), hashlib.sha256(url.encode()).hexdigest()[:32]
        key = object_keys.input_objects(tenant_id, item_id) + name
        record = await self._table.get(pk, keys.input_url(name))
        if record is not None:
            return Blob(key, record["bytes"], record["sha256"])
        await self._note_due(tenant_id, item_id)
        try:
            async with self._fetcher.open(url, bytes_max=limits.INPUT_FILE_BYTES_MAX) as download:
                blob = await self._blobs.put_stream(key, download.chunks, bytes_max=limits.INPUT_FILE_BYTES_MAX)
        except FetchError as error:
            raise bad_request(f"Could not fetch '{url[:200]}': {error}.", param="input", code="invalid_file_url") from error
        await self._table.put({"PK": pk, "SK": keys.input_url(name), "bytes": blob.bytes, "sha256": blob.sha256})
        return blob

    async def _note_due(self, tenant_id: str, item_id: str) -> None:
        """Something is about to be kept for the item: the retention erases it."""
        due_at = int(self._clock()) + self._retention_seconds
        await self._table.put(
            {
                "PK": keys.input_item(tenant_id, item_id),
                "SK": keys.PURGE,
                "GSI1PK": keys.due_list(KIND),
                "GSI1SK": keys.due(due_at, item_id),
                "tenant_id": tenant_id,
                "item_id": item_id,
            }
        )


@dataclass(frozen=True, slots=True)
class _PartSource:
    filename: str
    size: int
    sha256: str
    chunks: Callable[[], AsyncIterator[bytes]]
    media_type: str = ""
    """As the client gave it; empty if it gave none."""
    key: str = ""
    """Of the object that holds it; empty where the item does."""

    async def head(self) -> bytes:
        """The bytes that tell its kind."""
        head, chunks = b"", self.chunks()
        try:
            async for chunk in chunks:
                head += chunk
                if len(head) >= HEAD_BYTES:
                    break
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()
        return head[:HEAD_BYTES]

    async def is_plain(self) -> bool:
        """Whether it is text in UTF-8: every model is shown that as it is."""
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        try:
            async for chunk in self.chunks():
                if b"\0" in chunk:
                    return False
                decoder.decode(chunk)
            decoder.decode(b"", True)
        except UnicodeDecodeError:
            return False
        return True

    async def data_url(self) -> str:
        """Encoded while it is read, so that the content is in memory twice at most."""
        pieces, beginning, rest = [""], b"", b""
        async for chunk in self.chunks():
            content = rest + chunk
            beginning = beginning or content
            whole = len(content) - len(content) % 3
            pieces.append(await beside(whole, partial(_base64, memoryview(content)[:whole])))
            rest = content[whole:]
        pieces.append(_base64(rest))
        pieces[0] = f"data:{_media_type(self, beginning)};base64,"
        return await beside(self.size, partial(_joined, pieces))


def _read_once(source: _PartSource) -> Callable[[], AsyncIterator[bytes]]:
    """Content that is looked at before it is shown costs one request all the same, if it is small."""
    if source.size > limits.INPUT_INLINE_BYTES_MAX:
        return source.chunks
    held: list[bytes] = []

    async def chunks() -> AsyncIterator[bytes]:
        if not held:
            held.append(b"".join([chunk async for chunk in source.chunks()]))
        yield held[0]

    return chunks


@dataclass(slots=True)
class _ImageBudget:
    """The image bytes left in one request to a model."""

    left: int

    def takes(self, source: _PartSource) -> bool:
        if source.size > self.left:
            return False
        self.left -= source.size
        return True


async def _shown_image(part: Part, source: _PartSource, room: _ImageBudget) -> Part:
    if not room.takes(source):
        return _note(f"[image {source.filename}: {source.size} bytes are too many to show]")
    rest = {key: value for key, value in part.items() if key != "file_id"}
    url = await source.data_url()
    kind = url.removeprefix("data:").partition(";")[0]
    if not kind.startswith("image/"):
        words = f"The file '{source.filename}' is no image ({kind}). Send it as an 'input_file'."
        raise bad_request(words, param="input", code="invalid_image_format")
    return {**rest, "image_url": url}


async def _shown_file(part: Part, source: _PartSource, name: str, has_container: bool, room: _ImageBudget) -> list[Part]:
    """The file as data, or a note of it, or both."""
    notes = [_note(f"[The file {source.filename} ({source.size} bytes) is at {WORKSPACE}{name}]")] if has_container else []
    kind = source.media_type or mimetypes.guess_type(source.filename)[0] or ""
    if has_container and (source.size > limits.INPUT_INLINE_BYTES_MAX or not kind.startswith(_SHOWN_WITH_CONTAINER)):
        return notes
    if not room.takes(source):
        return notes or [_note(f"[file {source.filename}: {source.size} bytes are too many to show]")]
    rest = {key: value for key, value in part.items() if key not in ("file_id", "file_url")}
    return [*notes, {**rest, "filename": source.filename, "file_data": await source.data_url()}]


def _joined(pieces: list[str]) -> str:
    """They are gone then: the thread that joined them may know of them for longer than there is room for both."""
    whole = "".join(pieces)
    pieces.clear()
    return whole


def _base64(content: bytes | memoryview) -> str:
    return base64.b64encode(content).decode()


def _media_type(source: _PartSource, content: bytes) -> str:
    for beginning, media_type in _MAGIC:
        if content.startswith(beginning):
            return media_type
    return source.media_type or mimetypes.guess_type(source.filename)[0] or "application/octet-stream"


def _field(item: Item) -> str:
    """The field of an item's parts."""
    return "content" if item.get("type") == "message" else "output"


def _media(item: Item) -> list[Part]:
    """The file and image parts of a message or a tool's output whose content is not in them as a provider wants it."""
    return [part for _, part in _placed_media(item)]


def _has_files(item: Item) -> bool:
    return any(part["type"] == "input_file" for part in _media(item))


def _placed_media(item: Item) -> list[tuple[str, Part]]:
    """The same, each with its place in the item, such as ``content[1]``."""
    field = _field(item)
    match item.get(field):
        case list(parts):
            return [(f"{field}[{at}]", part) for at, part in enumerate(parts) if _is_media(part)]
        case dict(part) if _is_media(part):
            return [(field, part)]
        case _:
            return []


async def _looked_over(items: Sequence[Item], look: Callable[[Item], T]) -> list[T]:
    """The result of a look at each item: on a thread if they have many parts. What parts hold costs a look nothing."""
    parts = sum(len(value) for item in items if type(value := item.get(_field(item))) is list)
    is_long = len(items) + parts > limits.LOWERED_HERE_MAX
    return await worked(lambda: [look(item) for item in items]) if is_long else [look(item) for item in items]


def _is_media(part: Any) -> bool:
    match part:
        case {"type": "input_file"}:
            return True
        case {"type": "input_image" | "computer_screenshot", "file_id": _}:
            return True
        case _:
            return False


def _decoded(data: str) -> tuple[bytes, str, str]:
    """The bytes of ``file_data`` (a data URL, or bare base64), their type, empty if it names none, and their SHA-256."""
    match = _DATA_URL.match(data)
    try:
        content = base64.b64decode(data[match.end() :] if match else data, validate=True)
        return content, match[1] if match else "", hashlib.sha256(content).hexdigest()
    except (binascii.Error, ValueError) as error:
        raise bad_request(
            "'file_data' must be base64, or a data URL with base64 ('data:application/pdf;base64,...').",
            param="input",
            code="invalid_file_data",
        ) from error


def _free(filename: str, taken: set[str]) -> str:
    name = free_name(file_name(filename), taken)
    taken.add(name)
    return name


def _note(text: str) -> Part:
    return {"type": "input_text", "text": text}


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
