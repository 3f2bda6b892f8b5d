"""``GET /v1/containers/{id}/egress`` over a log in memory."""

from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse
from moorage.api.egress import router
from moorage.egress.policy import EgressReason, sentence
from moorage.errors import ApiError, container_not_found

from tests.egress.test_service import World, entry


class Containers:
    async def get(self, tenant_id: str, container_id: str) -> None:
        if (tenant_id, container_id) != ("t1", "cntr_1"):
            raise container_not_found(container_id)


@pytest.fixture
async def client() -> httpx.AsyncClient:
    world = World()
    await world.egress.store.append([entry(f"{n:013d}-0", at_ms=n * 1000) for n in range(5)], expires_at=9)
    app = FastAPI()
    app.state.runtime = SimpleNamespace(computers=SimpleNamespace(egress=world.egress, containers=Containers()))

    @app.middleware("http")
    async def authenticate(request: Request, call_next: Any) -> Any:
        request.state.tenant_id = request.headers.get("x-tenant", "t1")
        request.state.key_digest = "0" * 64
        request.state.subject = ""
        request.state.budgets = ()
        return await call_next(request)

    @app.exception_handler(ApiError)
    async def refuse(request: Request, error: ApiError) -> JSONResponse:
        return JSONResponse(error.envelope(), error.status)

    app.include_router(APIRouter(routes=router.routes), prefix="/v1")
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


async def test_decisions_are_listed_newest_first_and_paged(client: httpx.AsyncClient) -> None:
    first = (await client.get("/v1/containers/cntr_1/egress?limit=3")).json()
    rest = (await client.get(f"/v1/containers/cntr_1/egress?limit=3&after={first['last_id']}")).json()
    assert [page["has_more"] for page in (first, rest)] == [True, False]
    assert [one["created_at"] for page in (first, rest) for one in page["data"]] == [4, 3, 2, 1, 0]
    oldest = (await client.get("/v1/containers/cntr_1/egress?order=asc&limit=1")).json()
    assert oldest["data"] == [
        {
            "id": "egress_0000000000000-0",
            "object": "container.egress",
            "created_at": 0,
            "container_id": "cntr_1",
            "decision": "denied",
            "reason": "domain_not_allowed",
            "message": sentence(EgressReason.DOMAIN_NOT_ALLOWED, "h.example.com", 443),
            "host": "h.example.com",
            "port": 443,
            "method": "GET",
            "path": "/",
            "address": None,
            "secrets": [],
            "bytes_sent": 0,
            "bytes_received": 0,
            "status": None,
            "error": None,
            "count": 1,
        }
    ]


async def test_no_page_begins_behind_what_is_no_entry(client: httpx.AsyncClient) -> None:
    for after in ("nope", "egress_nope"):
        answer = await client.get("/v1/containers/cntr_1/egress", params={"after": after})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "after")


async def test_a_foreign_or_unknown_container_is_not_found(client: httpx.AsyncClient) -> None:
    answers = [
        await client.get("/v1/containers/cntr_1/egress", headers={"x-tenant": "t2"}),
        await client.get("/v1/containers/cntr_2/egress"),
    ]
    assert [answer.status_code for answer in answers] == [404, 404]
