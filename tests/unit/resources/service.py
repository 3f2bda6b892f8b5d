"""The resources' routes in the real application, without the loop: two tenants, an SDK client for each."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import httpx
import httpx2
from fastapi import FastAPI
from moorage.api.app import create_app
from moorage.containers import archive_routes as archives
from moorage.containers import history_routes as container_past
from moorage.containers import routes as containers
from moorage.containers.containers import Containers
from moorage.containers.upstream_store import UpstreamContainers
from moorage.conversations import routes as conversations
from moorage.conversations.store import Conversations
from moorage.egress.service import EgressService
from moorage.environments import routes as environments
from moorage.environments import template_routes as environment_templates
from moorage.environments.template_store import EnvironmentTemplates
from moorage.files import routes as files
from moorage.files import upload_routes as uploads
from moorage.files.store import FileStore
from moorage.files.upload_store import Uploads
from moorage.knowledge.knowledge import Knowledge
from moorage.runtime import Runtime
from moorage.settings import Settings
from moorage.skills import routes as skills
from moorage.skills.store import SkillStore
from moorage.store.api_keys import ApiKey
from moorage.store.budgets import Budgets
from moorage.store.embedding_usage import EmbeddingUsageStore
from moorage.store.item_contents import Contents
from moorage.store.sealed import Sealer
from moorage.store.vector_bucket import VectorBucket
from moorage.terminals import routes as sessions
from moorage.vaults.store import Vaults
from moorage.vector_stores import routes as vector_stores
from moorage.vector_stores.vector_stores import VectorStores
from moorage.webhooks.store import Webhooks
from openai import AsyncOpenAI

from tests.unit.resources.support import Clock, FakeProvisioner, Store

TENANTS = {"key-a": "ten_a", "key-b": "ten_b"}


_ROUTERS = (
    files.router,
    uploads.router,
    containers.router,
    environment_templates.router,
    environments.router,
    container_past.router,
    archives.router,
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
    store_files = FileStore(store.table, store.blobs, clock=clock)
    webhooks = Webhooks(store.table, Sealer(lambda: b"k" * 32), clock=clock)
    store_containers = Containers(
        store.table,
        store.blobs,
        provisioner,
        store_files,
        clock=clock,
        sandbox_key=lambda: b"k" * 32,
        egress=egress,
        egress_proxy=None if egress is None else "unix:/run/egress.sock",
        connect=provisioner.connect,
        strict_expiry=strict_expiry,
        webhooks=webhooks,
    )
    executions = FakeExecutions()
    embedding_usage = EmbeddingUsageStore(store.table, clock=clock, retention_seconds=24 * 3600)
    budgets = Budgets(store.table, clock)
    knowledge = Knowledge(NoModels(), cast("Any", None), store.blobs, embedding_usage, budgets, clock, vector_bucket)
    stores = VectorStores(
        store.table,
        store.blobs,
        store_files,
        store_containers,
        cast("Any", executions),
        knowledge,
        clock=clock,
    )
    store_files.before_erasure = stores.forget_file
    api_keys = _Keys()
    runtime = SimpleNamespace(
        settings=Settings("table", "bucket", presigned_downloads=presigned_downloads),
        table=store.table,
        blobs=store.blobs,
        files=store_files,
        containers=store_containers,
        vector_stores=stores,
        executions=executions,
        knowledge=knowledge,
        embedding_usage=embedding_usage,
        budgets=budgets,
        upstream_containers=UpstreamContainers(store.table, clock=clock, retention_seconds=3600),
        skills=SkillStore(store.table, store.blobs, clock=clock),
        conversations=Conversations(store.table, store.blobs, clock=clock),
        api_keys=api_keys,
        caller_of=api_keys.find,
        tokens=None,
        contents_of=lambda tenant_id, include: Contents(store.blobs, store_files, tenant_id, include),
        vaults=Vaults(store.table, Sealer(lambda: b"k" * 32), clock=clock),
        environment_templates=EnvironmentTemplates(store.table, store.blobs, Sealer(lambda: b"k" * 32), clock=clock),
        clock=clock,
        tasks=set(),
        command="moorage",
        webhooks=webhooks,
    )
    runtime.keep = runtime.tasks.add
    return create_app(cast("Runtime", runtime), _ROUTERS)


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
        uploads=Uploads(store.table, store.blobs, app.state.runtime.files, clock=clock),
        http=httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api/v1", headers={"authorization": "Bearer key-a"}),
        sdk=sdk("key-a"),
        stranger=sdk("key-b"),
    )
