"""The bodies of the Agents API: where they are sent, what checks them, and what the openai SDK says of them.

A row of docs/parameters.toml is named after the body and the field: ``session.review``, ``environment<openai_hosted>.env``. What
several bodies share, such as the fields of an environment, has one row.
"""

import re
from collections.abc import Mapping
from typing import Any

from moorage.agents.session_shapes import CREATE_SESSION, CREATE_SESSION_EVENTS, UPDATE_SESSION
from moorage.agents.shapes import CREATE_AGENT, UPDATE_AGENT
from moorage.automations.shapes import CREATE_AUTOMATION, UPDATE_AUTOMATION
from moorage.environments.shapes import ADD_FILE, CREATE_ENVIRONMENT
from moorage.environments.template_shapes import SAVE_TEMPLATE
from moorage.vaults.shapes import CHANGE_VAULT, CREATE_CREDENTIAL, UPDATE_CREDENTIAL
from moorage.wire.validation import JsonValidator
from openai.types.beta.agent_create_params import AgentCreateParams
from openai.types.beta.agent_update_params import AgentUpdateParams
from openai.types.beta.agents.automation_create_params import AutomationCreateParams
from openai.types.beta.agents.automation_update_params import AutomationUpdateParams
from openai.types.beta.agents.environment_create_params import EnvironmentCreateParams
from openai.types.beta.agents.environments.file_create_params import FileCreateParams
from openai.types.beta.agents.environments.template_create_params import TemplateCreateParams
from openai.types.beta.agents.environments.template_update_params import TemplateUpdateParams
from openai.types.beta.agents.session_create_params import SessionCreateParamsStreaming
from openai.types.beta.agents.session_update_params import SessionUpdateParams
from openai.types.beta.agents.sessions.event_create_params import EventCreateParams
from openai.types.beta.agents.vault_create_params import VaultCreateParams
from openai.types.beta.agents.vault_update_params import VaultUpdateParams
from openai.types.beta.agents.vaults.credential_create_params import CredentialCreateParams
from openai.types.beta.agents.vaults.credential_update_params import CredentialUpdateParams

from tests.contract import sdk_shapes

VALIDATORS: Mapping[str, JsonValidator[Any]] = {
    "agent": CREATE_AGENT,
    "session": CREATE_SESSION,
    "events": CREATE_SESSION_EVENTS,
    "environment": CREATE_ENVIRONMENT,
    "template": SAVE_TEMPLATE,
    "automation": CREATE_AUTOMATION,
    "vault": CHANGE_VAULT,
    "credential": CREATE_CREDENTIAL,
}
"""By the first word of a row's name."""

ROUTES: Mapping[str, str] = {
    "agent": "/agents",
    "session": "/agents/sessions",
    "events": "/agents/sessions/{session_id}/events",
    "environment": "/agents/environments",
    "automation": "/agents/automations",
    "credential": "/vaults/{vault_id}/credentials",
}

BODIES: tuple[tuple[str, Any, JsonValidator[Any]], ...] = (
    ("agent", AgentCreateParams, CREATE_AGENT),
    ("agent", AgentUpdateParams, UPDATE_AGENT),
    ("session", SessionCreateParamsStreaming, CREATE_SESSION),
    ("session", SessionUpdateParams, UPDATE_SESSION),
    ("events", EventCreateParams, CREATE_SESSION_EVENTS),
    ("prewarmed", EnvironmentCreateParams, CREATE_ENVIRONMENT),
    ("file", FileCreateParams, ADD_FILE),
    ("template", TemplateCreateParams, SAVE_TEMPLATE),
    ("template", TemplateUpdateParams, SAVE_TEMPLATE),
    ("automation", AutomationCreateParams, CREATE_AUTOMATION),
    ("automation", AutomationUpdateParams, UPDATE_AUTOMATION),
    ("vault", VaultCreateParams, CHANGE_VAULT),
    ("vault", VaultUpdateParams, CHANGE_VAULT),
    ("credential", CredentialCreateParams, CREATE_CREDENTIAL),
    ("credential", CredentialUpdateParams, UPDATE_CREDENTIAL),
)
"""Each body of the SDK, under the word that its rows begin with."""

OF_THE_CLIENT = {
    "events.idempotency_key": "a header",
    "prewarmed.idempotency_key": "a header",
    "credential.vault_id": "a part of the path",
}
"""Parameters of the SDK's methods that stand in no body."""

OURS_ALONE = {
    "agent.tools[]<automations>.require_approval",
    "agent.tools[]<mcp>.require_approval",
    "session.agent_version",
    "session.budget",
    "session.spend_control",
}
"""Extensions: the newest SDK has no name for them."""

_ENVIRONMENT = "environment<openai_hosted>."
_SHARED = (
    (re.compile(r"^session\.agent\."), "agent."),
    (re.compile(r"^session\.environment<"), "environment<"),
    (re.compile(r"^prewarmed\.environment"), "environment"),
    (re.compile(r"^prewarmed\.vault_ids"), "session.vault_ids"),
    (re.compile(r"^file\.(file_id|inline)"), rf"{_ENVIRONMENT}files[]<\1>"),
    (re.compile(r"^template\.(?!name$)"), _ENVIRONMENT),
    (re.compile(r"^automation\.(periodic|once)$"), r"automation<\1>"),
    (re.compile(r"^automation\.(?:periodic|once)\."), "automation."),
)
"""Where a part of a body has its rows."""
_LAST = re.compile(r"(\.[^.\[\]<>]+|\[\]|<[^<>]*>)$")


def body_of(row: str) -> str:
    """The body that a row is about."""
    return re.split(r"[.<]", row, maxsplit=1)[0]


def fields() -> list[tuple[str, str, JsonValidator[Any]]]:
    """Each field of the SDK: its name in the table, its path in its body, and what checks that body."""
    found = []
    for body, params, check in BODIES:
        for path in sorted(sdk_shapes.paths(params)):
            name = f"{body}.{path}".replace("compaction.async_", "compaction.async")  # Python has a word of this name.
            if name not in OF_THE_CLIENT:
                for pattern, place in _SHARED:
                    name = pattern.sub(place, name)
                found.append((name, path.replace("compaction.async_", "compaction.async"), check))
    return found


def row_of(name: str, rows: set[str]) -> str | None:
    """The row that tells of a field: its own, those of its variants, or the nearest one above that has no rows below itself."""
    if name in rows:
        return name
    variants = [row for row in rows if row.startswith(f"{name}<")]
    if variants:
        return min(variants)
    above = name
    while above not in rows:
        shorter = _LAST.sub("", above)
        if shorter == above:
            return None
        above = shorter
    return None if any(re.match(rf"{re.escape(above)}[.\[<]", row) for row in rows) else above
