"""All routes, for the ways of running that serve everything from one process."""

from moorage.agents import archive_routes as agent_archives
from moorage.agents import artifact_routes as artifacts
from moorage.agents import routes as agents
from moorage.agents import session_routes as agent_sessions
from moorage.agents import subagent_routes as subagents
from moorage.api import (
    account,
    chat_completions,
    compact,
    console_session,
    egress,
    embeddings,
    forks,
    input_tokens,
    models,
    response_list,
    response_log,
    responses,
    usage,
    websocket,
)
from moorage.approvals import routes as approvals
from moorage.automations import routes as automations
from moorage.containers import inspection_routes as inspection
from moorage.containers import routes as containers
from moorage.containers import screen_routes as screens
from moorage.conversations import routes as conversations
from moorage.environments import routes as environments
from moorage.environments import template_routes as environment_templates
from moorage.files import routes as files
from moorage.files import upload_routes as uploads
from moorage.skills import routes as skills
from moorage.terminals import routes as sessions
from moorage.vaults import routes as vaults
from moorage.vector_stores import routes as vector_stores
from moorage.webhooks import routes as webhooks

ROUTERS = (
    responses.router,
    forks.router,
    response_list.router,
    response_log.router,
    approvals.router,
    websocket.router,
    input_tokens.router,
    compact.router,
    chat_completions.router,
    conversations.router,
    agent_sessions.router,
    subagents.router,
    artifacts.router,
    automations.router,
    agent_archives.router,
    agents.router,
    vaults.router,
    environment_templates.router,
    environments.router,
    models.router,
    embeddings.router,
    files.router,
    uploads.router,
    containers.router,
    inspection.router,
    screens.router,
    sessions.router,
    egress.router,
    skills.router,
    vector_stores.router,
    webhooks.router,
    account.router,
    usage.router,
    console_session.router,
)
"""In order of match."""
