"""The composition root: one runtime per process, built from the settings and passed to its users."""

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from moorage import limits
from moorage.approvals.link_store import ApprovalLinks
from moorage.containers.containers import Containers
from moorage.containers.packages import Mirrors
from moorage.containers.sandbox_wait import of_responses
from moorage.dataclass import dataclass
from moorage.egress.fetch import Fetcher
from moorage.egress.fleet import ProxyFleet
from moorage.egress.keys import key_service
from moorage.egress.service import EgressService
from moorage.identity.ended_sessions import EndedSessions, looks_like_token
from moorage.inputs import Inputs
from moorage.knowledge.knowledge import Knowledge
from moorage.model.catalog import ModelCatalog, ModelEntry
from moorage.net.aws import READ_SECONDS, aws_client
from moorage.net.transport import upstream_transport
from moorage.sandbox.by_tier import ByTierProvisioner, ProvisionersByTier, Reaches
from moorage.sandbox.docker import DockerProvisioner, DockerSettings
from moorage.sandbox.docker_engine import Engine, engine_socket
from moorage.sandbox.exec_client import ExecClient, ExecConnections
from moorage.sandbox.fargate import FargateProvisioner, FargateSettings
from moorage.sandbox.lambda_microvm import LambdaMicrovmProvisioner, MicrovmSettings
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.sandbox.lost_microvms import LostMicrovms
from moorage.sandbox.microvm_versions import MicrovmVersions
from moorage.sandbox.orphans import OrphanSandboxes
from moorage.sandbox.provisioner import Handle, Provisioner
from moorage.sandbox.reach_only import ReachOnlyProvisioner
from moorage.sandbox.warm_pool import PooledProvisioner, WarmPool
from moorage.settings import Settings, SettingsError
from moorage.store.api_keys import ApiKey, ApiKeys, hash_of
from moorage.store.audit import Audit, AuditFile, AuditLog
from moorage.store.bell import BELL, Bell
from moorage.store.blobs import Blobs
from moorage.store.deployment_keys import DeploymentKeys
from moorage.store.dynamodb import DynamoTable
from moorage.store.execution_rows import ExecutionRows
from moorage.store.executions import Executions
from moorage.store.file_blobs import FileBlobs
from moorage.store.journal import Journal
from moorage.store.live_sandboxes import SandboxBounds
from moorage.store.responses import StoredResponse
from moorage.store.s3 import S3Blobs
from moorage.store.sealed import Sealer
from moorage.store.sqlite_table import SqliteTable
from moorage.store.step_functions import StepFunctions
from moorage.store.stored_keys import StoredKeys
from moorage.store.table import Table
from moorage.store.vector_bucket import VectorBucket
from moorage.stores import Stores
from moorage.telemetry import open_log
from moorage.vector_stores.attachments import AttachmentReader, FairTurns
from moorage.vector_stores.vector_stores import VectorStores
from moorage.wire.requests import WebSearchMode

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from moorage.identity.tokens import Tokens

_YOUNG_OBJECTS = 10_000


@dataclass(frozen=True, slots=True)
class SandboxFleet:
    """Who runs sandboxes, and what the reaper does with them."""

    owner: PooledProvisioner | LambdaMicrovmProvisioner
    orphans: OrphanSandboxes | LostMicrovms | None = None
    """None where sandboxes end with their owner's process, or cannot be told apart from outside."""
    image_versions: MicrovmVersions | None = None
    """None where sandboxes have no images of which a deployment leaves versions."""


@dataclass(frozen=True, slots=True)
class ModelAccess:
    catalog: ModelCatalog
    http: httpx.AsyncBaseTransport
    """The way to model upstreams."""
    knowledge: Knowledge
    """One for the process: it holds the read parts of indexes."""
    without_search: WebSearchMode
    """The fate of tools that search the web if the catalogue names no search engine."""

    @property
    def web_search(self) -> WebSearchMode:
        """The fate of tools that search the web."""
        return "serve" if self.catalog.searches_web else self.without_search


@dataclass(frozen=True, slots=True)
class Computers:
    """Containers, and what runs their sandboxes."""

    containers: Containers
    egress: EgressService
    fleets: tuple[SandboxFleet, ...] = ()
    """Those whose sandboxes can be listed from here."""
    warm_pool: WarmPool | None = None
    """Also where none is wanted any more, on Fargate: the reaper then stops what an earlier deployment left waiting."""
    connections: ExecConnections = field(default_factory=ExecConnections)
    """To sandboxes of this machine."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls."""

    api_keys: ApiKeys
    ended: EndedSessions
    """Sessions of the console, and of tokens, that were ended before their time. One for the process: it holds its reads."""
    tokens: "Tokens | None" = None
    """Of an issuer, beside API keys; None where none is taken."""

    async def caller_of(self, secret: str) -> ApiKey | None:
        """The caller of a key or a token; None for an invalid one. Raises :class:`~moorage.errors.ApiError` for such a token."""
        if self.tokens is not None and looks_like_token(secret):
            return await self.tokens.find(secret)
        found = await self.api_keys.find(secret)
        if found is not None and found.parent and await self.ended.has(hash_of(secret)):
            return None
        return found


@dataclass(frozen=True, slots=True)
class Process:
    """What ends with this process, and its pace."""

    cancel_poll_seconds: float = limits.CANCEL_POLL_SECONDS
    """Between two looks for a request to cancel."""
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    attempts: Counter[str] = field(default_factory=Counter)
    """Requests for a response that are being answered here, whose clients may send them again (``api/idempotency.py``)."""
    farewells: Counter[str] = field(default_factory=Counter)
    """Those whose clients have gone, and of which is being noted where they can be gone on with."""
    attachment_turns: FairTurns = field(default_factory=FairTurns)
    """For documents of the input that are read here."""
    grammar_places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(limits.GRAMMAR_CHECKS_MAX))
    """For checks of grammars, each of which is a process."""

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Hold a task that outlives its request; asyncio itself holds tasks only weakly."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def rest(self, seconds: float) -> None:
        """Let kept work come to its end, if the process stands still after its answer (Lambda)."""
        if self.tasks:
            await asyncio.wait(set(self.tasks), timeout=seconds)


@dataclass(frozen=True, slots=True)
class SessionHooks:
    """What agents' sessions do about their responses."""

    end: Callable[[StoredResponse], Awaitable[None]]
    """Lets the session of a response that has ended go on. Harmless to run twice."""
    wants: Callable[[StoredResponse], Awaitable[bool]]
    """Says whether a response belongs to one of its session's turns."""
    automate: Callable[[StoredResponse, str, Mapping[str, Any]], Awaitable[str]]
    """What a call of a session's response does with automations (``automations/by_agents.py``)."""


@dataclass(slots=True)
class Runtime:
    settings: Settings
    keys: DeploymentKeys
    stores: Stores
    models: ModelAccess
    computers: Computers
    identity: Identity
    vector_stores: VectorStores
    inputs: Inputs
    clock: Callable[[], float]
    """Unix seconds."""
    fetcher: Fetcher = field(default_factory=Fetcher)
    """The way to addresses that users give."""
    process: Process = field(default_factory=Process)
    command: str = "moorage"
    """The word that starts moorage where a client of the API is thought to be; what answers advise begins with it."""
    sessions: SessionHooks | None = None
    """Of a process that ends or takes up responses (``agents/listener.py``)."""

    def attachments(self, tenant_id: str, entry: ModelEntry) -> AttachmentReader:
        """The reader of an input's documents for a model."""
        chars_max = min(limits.ATTACHMENT_CHARS_MAX, entry.context_window_tokens * limits.ATTACHMENT_CHARS_PER_WINDOW_TOKEN)
        turns = self.process.attachment_turns
        return AttachmentReader(self.computers.containers, turns, tenant_id, takes=entry.documents, chars_max=chars_max)

    @property
    def approval_links(self) -> ApprovalLinks:
        return ApprovalLinks.of(self.keys.content())

    def now_ms(self) -> int:
        return int(self.clock() * 1000)

    async def aclose(self) -> None:
        await asyncio.gather(*self.process.tasks, return_exceptions=True)
        await self.models.http.aclose()
        await self.computers.connections.aclose()
        for fleet in self.computers.fleets:
            if isinstance(fleet.owner, LauncherProvisioner | DockerProvisioner):
                await fleet.owner.aclose()


def runtime_of_process() -> Runtime:
    """The runtime of a function on AWS, by the settings in its environment. Its log is open then."""
    settings = Settings.from_environment()
    open_log(level=settings.log_level, service=settings.name)
    return build_runtime(settings)


def build_runtime(settings: Settings, *, clock: Callable[[], float] = time.time) -> Runtime:
    """Everything a process of this deployment needs; nothing is contacted yet."""
    executor = ThreadPoolExecutor(max_workers=64, thread_name_prefix="aws")
    table, blobs = _store(settings, executor)
    keys, fetcher = DeploymentKeys(settings, _secret), Fetcher.of(settings)
    stores = Stores.of(
        settings,
        table,
        blobs,
        Sealer(keys.content, keys.opening_anew),
        _executions(settings, executor),
        Audit(_audit_log(settings, executor), clock),
        clock=clock,
        bell=None if settings.executions_file is None else Bell(Path(settings.executions_file).with_name(BELL)),
    )
    models, computers = _models(settings, stores, executor, clock), _computers(settings, stores, keys, executor, clock)
    vector_stores = VectorStores(table, blobs, stores.files, computers.containers, stores.executions, models.knowledge, clock=clock)
    stores.files.before_erasure = vector_stores.forget_file
    return Runtime(
        settings=settings,
        keys=keys,
        stores=stores,
        models=models,
        computers=computers,
        identity=_identity(settings, table, fetcher, clock),
        vector_stores=vector_stores,
        inputs=Inputs(stores.table, stores.blobs, stores.files, fetcher, clock=clock, retention_seconds=settings.retention_seconds),
        clock=clock,
        fetcher=fetcher,
    )


def _models(settings: Settings, stores: Stores, executor: Executor, clock: Callable[[], float]) -> ModelAccess:
    catalog = ModelCatalog.load(Path(settings.models_file), settings.upstream, secret=StoredKeys().value)
    http = upstream_transport()
    knowledge = Knowledge(
        catalog,
        http,
        stores.blobs,
        stores.embedding_usage,
        stores.budgets,
        clock,
        _vector_bucket(settings, executor),
        limits.index_cache_bytes(settings.function_memory_mib),
    )
    return ModelAccess(catalog, http, knowledge, settings.web_search)


def _computers(settings: Settings, stores: Stores, keys: DeploymentKeys, executor: Executor, clock: Callable[[], float]) -> Computers:
    table = stores.table
    sealed_with = None if settings.egress_key is None else key_service(settings.egress_key, executor, lambda: aws_client("kms"))
    egress = EgressService(table, sealed_with, settings, lambda: int(clock()), fleet=_egress_fleet(settings, executor))
    microvms = _microvms(settings, executor)
    provisioner = _provisioner(settings, executor, microvms)
    connections = ExecConnections()
    connect, pooled = _connect(provisioner, connections), _pooled(provisioner)
    pool = _warm_pool(settings, table, pooled, keys, clock, connect)
    if settings.warm_pool:
        # Inside the sandboxes' network nothing is claimed or refilled, only given its container's token.
        provisioner = pool or WarmPool(table, ReachOnlyProvisioner(), {}, key=keys.sandboxes, clock=clock)
    provisioner, connect = _with_microvms(settings, provisioner, microvms, connect)
    containers = Containers(
        table,
        stores.blobs,
        provisioner,
        stores.files,
        clock=clock,
        sandbox_key=keys.sandboxes,
        retention_seconds=settings.retention_seconds,
        strict_expiry=settings.strict_expiry,
        auto_idle_seconds=settings.auto_idle_seconds,
        egress=None if settings.provisioner == "elsewhere" else egress,  # who starts a sandbox gives it its way out
        egress_proxy=settings.egress_proxy,
        connect=connect,
        reaches=_reaches(settings),
        programs=settings.sandbox_programs,
        has_browsers=settings.sandbox_browser,
        at_work=of_responses(stores.responses),
        bounds=SandboxBounds(settings.tenant_sandboxes_max, settings.tenant_vcpus_max, settings.tenant_starts_per_second),
        usage=stores.sandbox_usage,
        can_start=settings.provisioner != "elsewhere",
        webhooks=stores.webhooks,
        mirrors=Mirrors(settings.python_mirror, settings.npm_mirror),
    )
    fleets = _fleets(pooled, microvms, settings, table, containers.incarnations.token_of, clock)
    return Computers(containers, egress, tuple(fleets), pool, connections)


def _warm_pool(
    settings: Settings,
    table: Table,
    fleet: PooledProvisioner | None,
    keys: DeploymentKeys,
    clock: Callable[[], float],
    connect: Callable[[Handle], ExecClient] | None,
) -> WarmPool | None:
    """On Fargate also without a wanted size: the reaper then stops what an earlier deployment left waiting."""
    if fleet is None or not (settings.warm_pool or isinstance(fleet, FargateProvisioner)):
        return None
    return WarmPool(table, fleet, settings.warm_pool, key=keys.sandboxes, clock=clock, connect=connect)


def _identity(settings: Settings, table: Table, fetcher: Fetcher, clock: Callable[[], float]) -> Identity:
    api_keys, ended = ApiKeys(table, clock=clock), EndedSessions(table, clock)
    if settings.oidc_issuer is None:
        return Identity(api_keys, ended)
    from moorage.identity.issuer import Issuer  # With a library that others have no use for.
    from moorage.identity.tokens import Tokens

    issuer = Issuer(settings.oidc_issuer, fetcher, clock)
    return Identity(api_keys, ended, Tokens(settings, issuer, table, ended, clock))


def _audit_log(settings: Settings, executor: Executor) -> AuditLog | None:
    if settings.audit_file is not None:
        return AuditFile(Path(settings.audit_file))
    if settings.audit_log_group is None:
        return None
    from moorage.store.audit_log_group import AuditLogGroup  # With botocore's errors (net/aws.py).

    return AuditLogGroup(aws_client("logs"), settings.audit_log_group, executor)


def relieve_collector() -> None:
    """For a server, once it is built. Imports and configuration stay, and looking through them again and again takes a twelfth of a
    request; and a request makes more objects than Python's 700 before any of them can go. Leftovers of imports (a MiB) stay too: to
    look for them would be a sixth of a cold start.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    gc.enable()  # Some programs begin without it (moorage/local/stack.py).


def _store(settings: Settings, executor: Executor) -> tuple[Table, Blobs]:
    if settings.store_dir is not None:
        if settings.presigned_downloads:
            raise SettingsError("MOORAGE_PRESIGNED_DOWNLOADS needs a bucket on AWS: files of one machine have no address of their own.")
        journal = Journal(Path(settings.store_dir))
        return SqliteTable(journal), FileBlobs(journal, executor)
    from moorage.net.sender import sends_directly  # It is made of botocore's classes (net/aws.py).

    # What the table is sent is built in one place, whose tests would see a wrong shape.
    client = sends_directly(aws_client("dynamodb", checks_parameters=False), read_seconds=READ_SECONDS)
    return DynamoTable(client, settings.table_name, executor), S3Blobs(_s3(), settings.bucket_name, executor)


def _executions(settings: Settings, executor: Executor) -> Executions:
    if settings.executions_file is not None:
        return ExecutionRows(Path(settings.executions_file))
    return StepFunctions(aws_client("stepfunctions"), settings.state_machine_arn or "", executor)


def _s3() -> "S3Client":
    """Path-style addresses work on AWS and on emulators without DNS."""
    # Without the last word botocore dials the global name in us-east-1, which the DNS firewall of a deployment refuses.
    client: S3Client = aws_client(
        "s3", signature_version="s3v4", s3={"addressing_style": "path", "us_east_1_regional_endpoint": "regional"}
    )
    return client


def _secret(arn: str) -> str:
    client = aws_client("secretsmanager")
    value: str = client.get_secret_value(SecretId=arn)["SecretString"]
    return value


def _connect(provisioner: Provisioner, connections: ExecConnections) -> Callable[[Handle], ExecClient] | None:
    """The client of a sandbox; None if it cannot be reached from here."""
    match provisioner:
        case FargateProvisioner():
            return None
        case LambdaMicrovmProvisioner():
            return provisioner.connect
        case _:
            return connections.connect


def _with_microvms(
    settings: Settings,
    provisioner: Provisioner,
    microvms: LambdaMicrovmProvisioner | None,
    connect: Callable[[Handle], ExecClient] | None,
) -> tuple[Provisioner, Callable[[Handle], ExecClient] | None]:
    """Both provisioners as one, of which MicroVMs are reached from here."""
    if microvms is None or settings.provisioner != "by_tier":
        return provisioner, connect
    return ByTierProvisioner(provisioner, microvms, _by_tier(settings).microvms), microvms.connect


def _by_tier(settings: Settings) -> ProvisionersByTier:
    return ProvisionersByTier.of(settings.microvm)


def _reaches(settings: Settings) -> Reaches | None:
    """None: all or none of the sandboxes, as :func:`_connect` has it."""
    by_tier = _by_tier(settings)
    match settings.provisioner:
        case "by_tier":
            return by_tier.is_outside
        case "elsewhere" if by_tier.microvms:
            return by_tier.is_inside
        case _:
            return None


def _fleets(
    pooled: FargateProvisioner | LauncherProvisioner | DockerProvisioner | None,
    microvms: LambdaMicrovmProvisioner | None,
    settings: Settings,
    table: Table,
    token_of: Callable[[str, int], str],
    clock: Callable[[], float],
) -> Iterator[SandboxFleet]:
    if pooled is not None:
        # A launcher's sandboxes end with it, so that none of them is ever lost.
        orphans = None if isinstance(pooled, LauncherProvisioner) else OrphanSandboxes(table, pooled, token_of, clock)
        yield SandboxFleet(pooled, orphans)
    if microvms is not None:
        named = [value for name, value in settings.microvm.items() if name.startswith("version_")]
        yield SandboxFleet(microvms, LostMicrovms(table, microvms, clock), MicrovmVersions(microvms, named, clock))


def _pooled(provisioner: Provisioner) -> FargateProvisioner | LauncherProvisioner | DockerProvisioner | None:
    match provisioner:
        case FargateProvisioner(has_sandboxes=True) | LauncherProvisioner() | DockerProvisioner():
            return provisioner
        case _:
            return None


def _vector_bucket(settings: Settings, executor: Executor) -> Callable[[], VectorBucket] | None:
    """Made when files are first searched or put: its client takes a tenth of a second, and most processes do neither."""
    arn = settings.vector_bucket
    if arn is None:
        return None
    # Checking the shape of each number takes longer than sending it; the tests hold all calls against the service's model.
    return lambda: VectorBucket(aws_client("s3vectors", checks_parameters=False), arn, executor)


def _egress_fleet(settings: Settings, executor: Executor) -> ProxyFleet | None:
    """The proxy's ECS service: it runs only while a container may use it; None if the proxy always runs."""
    if settings.egress_service is None or settings.provisioner == "elsewhere":
        return None
    return ProxyFleet(aws_client("ecs"), settings.egress_service, executor)


def docker_provisioner(settings: Settings) -> DockerProvisioner:
    """Sandboxes on the engine that the environment names. Raises :class:`SettingsError` and :class:`SettingsConflict`."""
    read = DockerSettings.from_settings(settings.docker, settings.table_name)
    return DockerProvisioner(read, Engine(engine_socket(settings.upstream)))


def _provisioner(settings: Settings, executor: Executor, microvms: LambdaMicrovmProvisioner | None) -> Provisioner:
    match settings.provisioner:
        case "launcher":
            if settings.launcher_socket is None:
                raise SettingsError("MOORAGE_LAUNCHER_SOCKET is not set: the provisioner 'launcher' needs it.")
            return LauncherProvisioner(settings.launcher_socket)
        case "docker":
            return docker_provisioner(settings)
        case "fargate" | "by_tier":
            fargate = FargateSettings.from_settings(settings.fargate, has_desks=settings.sandbox_browser)
            return FargateProvisioner(aws_client("ecs"), fargate, executor)
        case "elsewhere":
            return ReachOnlyProvisioner()
        case "lambda_microvm":
            assert microvms is not None, "they are made for this setting"
            return microvms


def _microvms(settings: Settings, executor: Executor) -> LambdaMicrovmProvisioner | None:
    if settings.provisioner not in ("lambda_microvm", "by_tier"):
        return None
    client = aws_client("lambda-microvms")
    core = cache(partial(aws_client, "lambda-core"))
    return LambdaMicrovmProvisioner(client, core, MicrovmSettings.from_settings(settings.microvm, settings.name), executor)
