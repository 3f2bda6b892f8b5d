"""The real application over the loop's laboratory: what clients see of responses whose every write is in memory."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import httpx
from fastapi import FastAPI
from moorage.api.app import create_app
from moorage.api.routers import ROUTERS
from moorage.store.api_keys import ApiKey, hash_of, key_id_of

from tests.unit.loop.lab import Lab

KEYS: Mapping[str, str] = {"key-a": "t", "key-b": "other"}
KEY_A = key_id_of(hash_of("key-a"))


class Keys:
    """Two tenants with a key each."""

    def __init__(self) -> None:
        self.budgets: dict[str, tuple[str, ...]] = {}
        self.revoked: set[str] = set()
        """Ids."""

    async def find(self, secret: str) -> ApiKey | None:
        if secret not in KEYS:
            return None
        budgets = self.budgets.get(secret, ())
        return ApiKey(key_id_of(hash_of(secret)), KEYS[secret], f"{secret} by name", 1_700_000_000, budgets=budgets)

    async def of_id(self, key_id: str) -> ApiKey | None:
        secret = next((secret for secret in KEYS if key_id_of(hash_of(secret)) == key_id), None)
        return None if secret is None or key_id in self.revoked else await self.find(secret)

    async def is_known(self, key_id: str) -> bool:
        return key_id not in self.revoked and key_id in {key_id_of(hash_of(secret)) for secret in KEYS}

    async def tenant_of(self, secret: str) -> str | None:
        return KEYS.get(secret)


@dataclass
class Served:
    lab: Lab
    app: FastAPI

    @classmethod
    def of(cls, lab: Lab) -> "Served":
        lab.runtime.identity = replace(lab.runtime.identity, api_keys=cast("Any", Keys()))
        return cls(lab, create_app(lab.runtime, ROUTERS))

    async def get(self, path: str, by: str = "key-a", **query: Any) -> httpx.Response:
        return await self.ask("GET", path, by, params=query)

    async def post(self, path: str, body: Any = None, by: str = "key-a") -> httpx.Response:
        return await self.ask("POST", path, by, json=body)

    async def delete(self, path: str, by: str = "key-a") -> httpx.Response:
        return await self.ask("DELETE", path, by)

    async def ask(
        self, method: str, path: str, by: str = "key-a", *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://api/v1") as http:
            return await http.request(method, path, headers={"authorization": f"Bearer {by}", **(headers or {})}, **options)
