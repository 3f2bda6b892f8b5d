"""Templates of environments: configurations under a name, sealed, for they hold variables, setup commands and files.

A template's record counts its changes, so that two changes at once come one after the other. A long configuration is an object in the
bucket, which its record names.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import ApiError, ConditionFailed, bad_request, not_found
from moorage.files.store import Clock
from moorage.ids import new_listed_id
from moorage.parallel import as_json, beside
from moorage.store import keys, object_keys
from moorage.store.blobs import Blobs
from moorage.store.listing import Page, gone_record, listing_attributes, read_page
from moorage.store.sealed import Sealer
from moorage.store.table import Record, Table
from moorage.wire.queries import PageQuery

KIND: Final = "environment_templates"


@dataclass(frozen=True, slots=True)
class TemplateRecord:
    tenant_id: str
    id: str
    created_at: int
    updated_at: int
    configuration: Mapping[str, Any]
    """Fields of ``template_shapes.py: SaveTemplate`` in canonical form."""


class EnvironmentTemplates:
    def __init__(self, table: Table, blobs: Blobs, sealer: Sealer, *, clock: Clock) -> None:
        self._table = table
        self._blobs = blobs
        self._sealer = sealer
        self._clock = clock

    async def create(self, tenant_id: str, configuration: Mapping[str, Any]) -> TemplateRecord:
        now = self._clock()
        template_id = new_listed_id("envtmpl", now)
        record = {
            "PK": keys.environment_template(tenant_id, template_id),
            "SK": keys.META,
            "id": template_id,
            "created_at": int(now),
            "updated_at": int(now),
            "changes": 0,
            **await self._body(tenant_id, template_id, configuration),
            **listing_attributes(tenant_id, KIND, int(now), template_id),
        }
        await self._table.put(record)
        return TemplateRecord(tenant_id, template_id, int(now), int(now), configuration)

    async def get(self, tenant_id: str, template_id: str, *, param: str | None = None) -> TemplateRecord:
        """Raises 404 for what is unknown, deleted or foreign."""
        return await self._opened(tenant_id, await self._record(tenant_id, template_id, param))

    async def page(self, tenant_id: str, page: PageQuery) -> Page[TemplateRecord]:
        found = await read_page(self._table, tenant_id, KIND, page, pk_of=keys.environment_template)
        return await found.fitting(lambda record: record["size"]).opened(lambda record: self._opened(tenant_id, record))

    async def update(
        self, tenant_id: str, template_id: str, change: Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
    ) -> TemplateRecord:
        """``change`` makes the next configuration of the present one. Raises :class:`~moorage.errors.ApiError`."""
        for _ in range(limits.CONDITIONAL_WRITES_MAX):
            record = await self._record(tenant_id, template_id)
            configuration = await change((await self._opened(tenant_id, record)).configuration)
            body = await self._body(tenant_id, template_id, configuration)
            changed = {"sealed": "", "blob": "", **body, "updated_at": int(self._clock()), "changes": record["changes"] + 1}
            try:
                written = await self._table.update(record["PK"], keys.META, set=changed, condition={"changes": record["changes"]})
            except ConditionFailed:
                await self._drop(body)
                continue
            await self._drop(record)
            return TemplateRecord(tenant_id, template_id, written["created_at"], written["updated_at"], configuration)
        # Worth a retry, and the SDKs do retry a 409.
        message = f"Environment template '{template_id}' is being changed by too many requests at once. Please retry."
        raise ApiError(409, message, code="environment_template_locked")

    async def delete(self, tenant_id: str, template_id: str) -> None:
        """What hangs below goes first, so that a deletion that breaks off can be repeated."""
        record = await self._record(tenant_id, template_id)
        await self._blobs.delete_prefix(object_keys.environment_template_objects(tenant_id, template_id))
        gone = gone_record(record["PK"], keys.GONE, record["created_at"], template_id, self._clock())
        await self._table.write_many(puts=[gone], deletes=[(record["PK"], keys.META)])

    async def _record(self, tenant_id: str, template_id: str, param: str | None = None) -> Record:
        record = await self._table.get(keys.environment_template(tenant_id, template_id), keys.META)
        if record is None:
            raise not_found(
                f"Environment template with id '{template_id}' not found.", param=param, code="environment_template_not_found"
            )
        return record

    async def _opened(self, tenant_id: str, record: Record) -> TemplateRecord:
        sealed = record["sealed"] or (await self._blobs.get_bytes(record["blob"])).decode()
        text = await beside(len(sealed), lambda: self._sealer.open(tenant_id, sealed))
        assert text is not None, f"{record['id']} was sealed by another deployment"
        return TemplateRecord(tenant_id, record["id"], record["created_at"], record["updated_at"], orjson.loads(text))

    async def _body(self, tenant_id: str, template_id: str, configuration: Mapping[str, Any]) -> Record:
        text = (await as_json(dict(configuration))).decode()
        if len(text) > limits.ENVIRONMENT_TEMPLATE_BYTES_MAX:
            most = limits.ENVIRONMENT_TEMPLATE_BYTES_MAX
            raise bad_request(f"A template has at most {most} bytes of JSON; this one has {len(text)}. Name large files by 'file_id'.")
        sealed = await beside(len(text), lambda: self._sealer.seal(tenant_id, text))
        if len(sealed) <= limits.AGENT_INLINE_BYTES_MAX:
            return {"sealed": sealed, "blob": "", "size": len(sealed)}
        key = object_keys.environment_template_objects(tenant_id, template_id, secrets.token_hex(16))
        await self._blobs.put_bytes(key, sealed.encode())
        return {"sealed": "", "blob": key, "size": len(sealed)}

    async def _drop(self, body: Record) -> None:
        if body["blob"]:
            await self._blobs.delete(body["blob"])
