"""All that a deployment keeps: each store is made once."""

from collections.abc import Callable
from typing import Self

from moorage.agents.session_store import AgentSessions
from moorage.agents.store import Agents
from moorage.approvals.store import ApprovalStore
from moorage.automations.store import Automations
from moorage.containers.upstream_store import UpstreamContainers
from moorage.conversations.store import Conversations
from moorage.dataclass import dataclass
from moorage.environments.template_store import EnvironmentTemplates
from moorage.files.store import FileStore
from moorage.files.upload_store import Uploads
from moorage.settings import Settings
from moorage.skills.store import SkillStore
from moorage.store.audit import Audit
from moorage.store.bell import Bell
from moorage.store.blobs import Blobs
from moorage.store.budgets import Budgets
from moorage.store.embedding_usage import EmbeddingUsageStore
from moorage.store.executions import Executions
from moorage.store.item_contents import Contents
from moorage.store.lanes import Lanes
from moorage.store.response_list import ResponseList
from moorage.store.responses import Responses
from moorage.store.sandbox_usage import SandboxPrice, SandboxUsage
from moorage.store.sealed import Sealer
from moorage.store.steps import Steps
from moorage.store.stored_bytes import StoredBytes
from moorage.store.table import Table
from moorage.vaults.store import Vaults
from moorage.webhooks.store import Webhooks


@dataclass(frozen=True, slots=True)
class Stores:
    table: Table
    blobs: Blobs
    sealer: Sealer
    executions: Executions
    audit: Audit
    agent_sessions: AgentSessions
    agents: Agents
    approvals: ApprovalStore
    automations: Automations
    budgets: Budgets
    conversations: Conversations
    embedding_usage: EmbeddingUsageStore
    environment_templates: EnvironmentTemplates
    files: FileStore
    lanes: Lanes
    response_list: ResponseList
    responses: Responses
    sandbox_usage: SandboxUsage
    skills: SkillStore
    steps: Steps
    uploads: Uploads
    upstream_containers: UpstreamContainers
    vaults: Vaults
    webhooks: Webhooks

    @classmethod
    def of(
        cls,
        settings: Settings,
        table: Table,
        blobs: Blobs,
        sealer: Sealer,
        executions: Executions,
        audit: Audit,
        *,
        clock: Callable[[], float],
        bell: Bell | None = None,
    ) -> Self:
        """``clock`` gives Unix seconds. ``bell`` as :class:`~moorage.store.responses.Responses` has it."""
        retention_seconds, now_ms = settings.retention_seconds, lambda: int(clock() * 1000)
        budgets = Budgets(table, clock)
        responses = Responses(table, blobs, now_ms=now_ms, retention_seconds=retention_seconds, bell=bell)
        files = FileStore(table, blobs, clock=clock, stored=StoredBytes(table, clock=clock, most=settings.stored_bytes_max))
        price = SandboxPrice.of(settings)
        return cls(
            table=table,
            blobs=blobs,
            sealer=sealer,
            executions=executions,
            audit=audit,
            agent_sessions=AgentSessions(table, blobs, clock=clock, bell=bell),
            agents=Agents(table, blobs, clock=clock),
            approvals=ApprovalStore(table),
            automations=Automations(table, blobs, sealer, clock=clock, most=settings.automations_max),
            budgets=budgets,
            conversations=Conversations(table, blobs, clock=clock),
            embedding_usage=EmbeddingUsageStore(table, clock=clock, retention_seconds=retention_seconds),
            environment_templates=EnvironmentTemplates(table, blobs, sealer, clock=clock),
            files=files,
            lanes=Lanes(table, blobs, now_ms=now_ms),
            response_list=ResponseList(table),
            responses=responses,
            sandbox_usage=SandboxUsage(table, budgets, price, clock=clock, retention_seconds=retention_seconds),
            skills=SkillStore(table, blobs, clock=clock),
            steps=Steps(table, blobs, now_ms=now_ms),
            uploads=Uploads(table, blobs, files, clock=clock),
            upstream_containers=UpstreamContainers(table, clock=clock, retention_seconds=retention_seconds),
            vaults=Vaults(table, sealer, clock=clock),
            webhooks=Webhooks(table, sealer, clock=clock),
        )

    def contents_of(self, tenant_id: str, include: frozenset[str] | None = None) -> Contents:
        """The content of a tenant's items that is stored as objects; ``include`` as a client has asked for them."""
        return Contents(self.blobs, self.files, tenant_id, include)
