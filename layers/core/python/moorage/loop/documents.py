"""Documents of a prompt that are read elsewhere, because the process that asks the model cannot reach a sandbox.

On AWS with Fargate the model step runs outside of the sandboxes' network: there it may start a sandbox and not reach it. It lists the
documents, has a sandbox placed and answers ``read``. The task ``ParseStep`` runs inside, reads them, and keeps their texts with their
items. The model step is asked again, and finds the texts.

    model ──► read ──► model          (a foreground response comes to the first of these from the API process)

Running any part twice is harmless. A list and a text are written over by the same. A container that a dead step has reserved idles out.

A function on AWS goes on after its execution has been stopped. So each part asks at its end whether its response was erased, and then
erases its own texts.
"""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any, Final

import orjson

from moorage import limits
from moorage.containers.containers import Containers
from moorage.errors import ApiError, SandboxError, SandboxStarting, StorageFull
from moorage.inputs import unreadable_now
from moorage.loop import finish
from moorage.runtime import Runtime
from moorage.state import LoopState, Next
from moorage.store import object_keys
from moorage.store.blobs import BlobNotFound
from moorage.store.responses import Snapshot, StoredResponse
from moorage.stores import Stores
from moorage.telemetry import tell, tell_error
from moorage.vector_stores.attachments import AttachmentReader, UnreadDocument, reserve

WAITS_FOR: Final = "A sandbox, in which documents of the input are read."
_NONE_CAME: Final = "No container could be had for them."
_LIST: Final = "list"
_REFUSAL: Final = "refusal"


# --- outside of the sandboxes' network -------------------------------------------------------------------------------------------


async def send(runtime: Runtime, stored: StoredResponse, state: LoopState, documents: tuple[UnreadDocument, ...]) -> LoopState:
    """The documents that the model step of ``state`` cannot read are listed, and get a sandbox."""
    readings = state.readings + 1
    if readings > limits.ATTACHMENT_READINGS_MAX:
        error = finish.error_of(unreadable_now(_NONE_CAME))
        await finish.end_from_outside(runtime, stored, status="failed", error=error)
        return state.done()
    listed = [document.to_json(await _source_key(runtime.stores, stored, document)) for document in documents]
    await runtime.stores.blobs.put_bytes(_key(stored.tenant_id, stored.response_id, _LIST), orjson.dumps(listed))
    await runtime.stores.responses.note_wait(stored, WAITS_FOR)
    await put_nothing_back(runtime.stores, stored)
    reader_id = await _placed(runtime.computers.containers, stored.tenant_id, state.reader_id)
    return replace(state, next=Next.READ, calls=(), reader_id=reader_id, readings=readings, is_read=False)


async def come_back(stores: Stores, containers: Containers, snapshot: Snapshot, state: LoopState) -> dict[str, Any] | None:
    """After :func:`read_step`: let go of the container, once it is not needed. Returns the failure of the response, if there is one."""
    stored = snapshot.stored
    if not (state.is_read or snapshot.is_final or stored.is_cancel_requested):
        return None
    assert state.reader_id is not None
    await containers.release(stored.tenant_id, state.reader_id)
    try:
        refusal: dict[str, Any] = orjson.loads(await stores.blobs.get_bytes(_key(stored.tenant_id, stored.response_id, _REFUSAL)))
    except BlobNotFound:
        return None
    return refusal


async def _source_key(stores: Stores, stored: StoredResponse, document: UnreadDocument) -> str:
    """An object that holds it: data is put into one until it is read."""
    if document.source_key:
        return document.source_key
    key = _key(stored.tenant_id, stored.response_id, document.text_key.rpartition("/")[2])
    await stores.blobs.put_stream(key, document.content(), bytes_max=limits.INPUT_FILE_BYTES_MAX)
    return key


async def put_nothing_back(stores: Stores, stored: StoredResponse) -> None:
    """Erasing begins with the record. So the process that erases the record also erases texts put before the record was seen."""
    if await stores.responses.is_gone(stored.tenant_id, stored.response_id):
        await finish.forget(stores, stored)


async def _placed(containers: Containers, tenant_id: str, reader_id: str | None) -> str:
    """The container, or another one if that is gone, with a sandbox on its way."""
    if reader_id is not None:
        try:
            await containers.sandboxes.place(tenant_id, reader_id)
        except ApiError as error:
            tell_error(error, "the container for documents of an input is gone", tenant_id=tenant_id)
        else:
            return reader_id
    reader_id = await reserve(containers, tenant_id)
    await containers.sandboxes.place(tenant_id, reader_id)
    return reader_id


# --- inside ----------------------------------------------------------------------------------------------------------------------


async def read_step(runtime: Runtime, state: LoopState) -> LoopState:
    """The task ``ParseStep`` for a response: read the listed documents, and keep the texts.

    If time is up, or without a sandbox, the model step finds the rest and sends it again. Raises 404 if the response is gone.
    """
    stored = await runtime.stores.responses.load(state.tenant_id, state.response_id)
    try:
        return await _with_sandbox(runtime, state)
    finally:
        await put_nothing_back(runtime.stores, stored)


async def _with_sandbox(runtime: Runtime, state: LoopState) -> LoopState:
    assert state.reader_id is not None
    async with AttachmentReader(
        runtime.computers.containers, runtime.process.attachment_turns, state.tenant_id, container_id=state.reader_id
    ) as attachments:
        try:
            await attachments.sandbox()
        except SandboxStarting:
            return state
        except SandboxError as error:
            return await _refused(runtime.stores, state, unreadable_now(error.message))
        except ApiError as error:
            tell_error(error, "documents of an input have no container", response_id=state.response_id)
            return state
        return await _read(runtime, state, attachments)


async def _read(runtime: Runtime, state: LoopState, attachments: AttachmentReader) -> LoopState:
    stores = runtime.stores
    deadline = asyncio.get_running_loop().time() + limits.INDEXING_SLICE_SECONDS
    documents = await _listed(stores, state)
    for document in documents:
        if asyncio.get_running_loop().time() > deadline:
            return state
        if await stores.responses.is_cancel_requested(state.tenant_id, state.response_id):
            return state  # Nobody waits for the text.
        if await _is_there(stores, document.text_key):
            continue
        try:
            await runtime.inputs.read(state.tenant_id, document, attachments)
        except BlobNotFound:
            continue  # Its owner has deleted it, which the model step finds out.
        except StorageFull:
            raise  # There will be room again, and no file is to blame.
        except ApiError as error:
            if error.code == "container_unavailable":
                return state  # The sandbox is lost. There will be another one.
            return await _refused(stores, state, error)
    await stores.blobs.delete_prefix(_key(state.tenant_id, state.response_id, ""))
    tell("documents_read", {"tenant_id": state.tenant_id, "response_id": state.response_id, "documents": len(documents)})
    return replace(state, is_read=True)


async def _listed(stores: Stores, state: LoopState) -> list[UnreadDocument]:
    """Nothing, if an earlier run has read it all."""
    try:
        listed = orjson.loads(await stores.blobs.get_bytes(_key(state.tenant_id, state.response_id, _LIST)))
    except BlobNotFound:
        return []
    return [UnreadDocument(**each, content=partial(stores.blobs.get_stream, each["source_key"])) for each in listed]


async def _is_there(stores: Stores, key: str) -> bool:
    try:
        await stores.blobs.get_bytes(key)
    except BlobNotFound:
        return False
    return True


async def _refused(stores: Stores, state: LoopState, error: ApiError) -> LoopState:
    """The response is ended outside: webhooks and traces can be sent there."""
    key = _key(state.tenant_id, state.response_id, _REFUSAL)
    await stores.blobs.put_bytes(key, orjson.dumps(finish.error_of(error)))
    return replace(state, is_read=True)


def _key(tenant_id: str, response_id: str, name: str) -> str:
    """The objects that are deleted with the response."""
    return object_keys.response_blob(tenant_id, response_id, f"documents/{name}")
