"""The resources' routes in the real application, without the loop: two tenants, an SDK client for each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import httpx
import httpx2
from fastapi import FastAPI
from moorage.api.app import create_app
from moorage.containers import inspection_routes as inspection
from moorage.containers import routes as containers
from moorage.containers.containers import Containers
from moorage.conversations import routes as conversations
from moorage.egress.fetch import Fetcher
from moorage.egress.service import EgressService
from moorage.environments import routes as environments
from moorage.environments import template_routes as environment_templates
from moorage.files import routes as files
from moorage.files import upload_routes as uploads
from moorage.files.upload_store import Uploads
from moorage.identity.ended_sessions import EndedSessions
from moorage.inputs import Inputs
from moorage.knowledge.knowledge import Knowledge
from moorage.runtime import Computers, Identity, ModelAccess, Runtime
from moorage.settings import Settings
from moorage.skills import routes as skills
from moorage.store.api_keys import ApiKey
from moorage.store.audit import Audit
from moorage.store.deployment_keys import DeploymentKeys
from moorage.store.sealed import Sealer
from moorage.store.vector_bucket import VectorBucket
from moorage.stores import Stores
from moorage.terminals import routes as sessions
from moorage.vector_stores import routes as vector_stores
from moorage.vector_stores.vector_stores import VectorStores
from openai import AsyncOpenAI

from tests.unit.resources.support import Clock, FakeProvisioner, Store

TENANTS = {"key-a": "ten_a", "key-b": "ten_b"}


_ROUTERS = (
    files.router,
    uploads.router,
    containers.router,
    environment_templates.router,
    environments.router,
    inspection.router,
    sessions.router,
    conversations.router,
    skills.router,
    vector_stores.router,
)


class _Keys:
    def __init__(self) -> None:
        self.budgets: dict[str, tuple[str, ...]] = {}

    async def find(self, secret: str) -> ApiKey | None:
        return ApiKey(secret, TENANTS[secret], "", 0, budgets=self.budgets.get(secret, ())) if secret in TENANTS else None


class NoModels:
    """No embedding model is configured: the small one that comes along embeds."""

    embeddings = ()

    def embedding_upstream(self, table: Any, transport: Any) -> Any:
        raise AssertionError("there is none")


class FakeExecutions:
    """Notes what is started; a test runs it, or loses it."""

    def __init__(self) -> None:
        self.started: dict[str, dict[str, Any]] = {}
        self.status_of: dict[str, str] = {}
        self.is_busy = False

    async def start_soon(self, name: str, state: dict[str, Any], trace: Any) -> bool:
        if not self.is_busy:
            self.started[name] = state
        return not self.is_busy

    async def status(self, name: str) -> str | None:
        return self.status_of.get(name, "RUNNING" if name in self.started else None)


@dataclass(frozen=True)
class Service:
    app: FastAPI
    runtime: Any
    store: Store
    clock: Clock
    provisioner: FakeProvisioner
    uploads: Uploads
    http: httpx.AsyncClient
    """Speaks as tenant a."""
    sdk: AsyncOpenAI
    """Speaks as tenant a."""
    stranger: AsyncOpenAI
    """Speaks as tenant b."""


def build_app(
    store: Store,
    clock: Clock,
    provisioner: FakeProvisioner,
    *,
    presigned_downloads: bool = False,
    egress: EgressService | None = None,
    vector_bucket: Callable[[], VectorBucket] | None = None,
    strict_expiry: bool = False,
) -> FastAPI:
    settings = Settings("table", "bucket", content_key="ab" * 32, presigned_downloads=presigned_downloads)
    keys, executions = DeploymentKeys(settings, lambda arn: ""), cast("Any", FakeExecutions())
    sealer, audit = Sealer(keys.content, keys.opening_anew), Audit(None, clock)
    stores = Stores.of(settings, store.table, store.blobs, sealer, executions, audit, clock=clock)
    store_containers = Containers(
        store.table,
        store.blobs,
        provisioner,
        stores.files,
        clock=clock,
        sandbox_key=lambda: b"k" * 32,
        egress=egress,
        egress_proxy=None if egress is None else "unix:/run/egress.sock",
        connect=provisioner.connect,
        strict_expiry=strict_expiry,
        webhooks=stores.webhooks,
    )
    catalog, http = cast("Any", NoModels()), cast("Any", None)
    knowledge = Knowledge(catalog, http, store.blobs, stores.embedding_usage, stores.budgets, clock, vector_bucket)
    vectors = VectorStores(store.table, store.blobs, stores.files, store_containers, executions, knowledge, clock=clock)
    stores.files.before_erasure = vectors.forget_file
    runtime = Runtime(
        settings=settings,
        keys=keys,
        stores=stores,
        models=ModelAccess(catalog, http, knowledge, settings.web_search),
        computers=Computers(store_containers, cast("Any", egress)),
        identity=Identity(cast("Any", _Keys()), EndedSessions(store.table, clock)),
        vector_stores=vectors,
        inputs=Inputs(stores.table, stores.blobs, stores.files, Fetcher(), clock=clock, retention_seconds=settings.retention_seconds),
        clock=clock,
    )
    return create_app(runtime, _ROUTERS)


def build_service(
    store: Store,
    clock: Clock,
    *,
    presigned_downloads: bool = False,
    egress: EgressService | None = None,
    vector_bucket: Callable[[], VectorBucket] | None = None,
    strict_expiry: bool = False,
) -> Service:
    provisioner = FakeProvisioner()
    app = build_app(
        store,
        clock,
        provisioner,
        presigned_downloads=presigned_downloads,
        egress=egress,
        vector_bucket=vector_bucket,
        strict_expiry=strict_expiry,
    )

    def sdk(key: str) -> AsyncOpenAI:
        # The SDK brings its own successor of httpx.
        client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
        return AsyncOpenAI(api_key=key, base_url="http://api/v1", http_client=client, max_retries=0)

    return Service(
        app=app,
        runtime=app.state.runtime,
        store=store,
        clock=clock,
        provisioner=provisioner,
        uploads=Uploads(store.table, store.blobs, app.state.runtime.stores.files, clock=clock),
        http=httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api/v1", headers={"authorization": "Bearer key-a"}),
        sdk=sdk("key-a"),
        stranger=sdk("key-b"),
    )
