"""An automation, and an invocation, as they are shown. What is confidential in a target, such as the content of its files, is not."""

import binascii
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, cast

from moorage.agents.settings import as_session_answer
from moorage.automations.shapes import (
    Automation,
    AutomationInvocation,
    EnvironmentOfAutomation,
    ExistingSessionAnswer,
    FileByIdOfAutomation,
    InlineFileOfAutomation,
    MadeByAgent,
    MadeByDeveloper,
    NewSessionAnswer,
    SkillReferenceOfAutomation,
)
from moorage.automations.store import AutomationRecord, InvocationRecord
from moorage.environments.answers import shown_packages, shown_plugins
from moorage.environments.shapes import InlineSkillAnswer, NetworkAnswer, NoEnvironment


def automation_object(automation: AutomationRecord) -> Automation:
    if automation.type == "periodic":
        schedule: dict[str, Any] = {"expression": automation.expression, "timezone": automation.timezone}
    else:
        schedule = {"run_at": automation.run_at}
    said = {
        "id": automation.id,
        "object": "agent.automation",
        "type": automation.type,
        "created_at": automation.created_at,
        "created_by": _maker(automation),
        "name": automation.name,
        **schedule,
        "status": automation.status,
        "pause_reason": automation.pause_reason or None,
        "target": _target(automation.target),
        "metadata": dict(automation.metadata),
    }
    return cast("Automation", said)


def _maker(automation: AutomationRecord) -> MadeByDeveloper | MadeByAgent:
    if not automation.made_in:
        return {"type": "developer"}
    return {"type": "agent", "session_id": automation.made_in, "tool_call_id": automation.made_by}


def invocation_object(invocation: InvocationRecord) -> AutomationInvocation:
    source: Any = {"type": "manual"}
    if invocation.scheduled_at:
        source = {"type": "automation", "automation": automation_object(invocation.automation)}
    error = invocation.error
    said = {
        "id": invocation.id,
        "object": "agent.automation.invocation",
        "automation_id": invocation.automation.id,
        "created_at": invocation.created_at,
        "scheduled_at": invocation.scheduled_at or None,
        "status": invocation.status,
        "session_id": invocation.session_id or None,
        "error": None if error is None else {"code": error["code"], "message": error["message"]},
        "skip_reason": "pending_delivery" if invocation.status == "skipped" else None,
        "source": source,
    }
    return cast("AutomationInvocation", said)


def _target(target: Mapping[str, Any]) -> NewSessionAnswer | ExistingSessionAnswer:
    if target["type"] == "existing_session":
        return {"type": "existing_session", "session_id": target["session_id"], "instructions": target["instructions"]}
    agent = as_session_answer(target["agent"]) if "agent" in target else None
    if agent is not None:
        del agent["name"]
    return {
        "type": "new_session",
        "environment": _environment(target["environment"]),
        "input": [{"type": "message", **message} for message in target["input"]],
        "agent": cast("Any", agent),
        "agent_id": target.get("agent_id"),
        "metadata": dict(target.get("metadata", {})),
        "vault_ids": list(target.get("vault_ids", ())),
    }


def _environment(spec: Mapping[str, Any]) -> NoEnvironment | EnvironmentOfAutomation:
    if spec["type"] == "none":
        return {"type": "none"}
    return {
        "type": "openai_hosted",
        "environment_id": spec.get("environment_id"),
        "environment_template_id": spec.get("environment_template_id"),
        "container_size": spec.get("container_size"),
        "files": [_file(file) for file in spec["files"]] if "files" in spec else None,
        "skills": [_skill(skill) for skill in spec["skills"]] if "skills" in spec else None,
        "network": _network(spec["network"]) if "network" in spec else None,
        "capability_directories": [] if "capability_directories" in spec else None,
        "desktop": {"enabled": False} if "desktop" in spec else None,
        "packages": {**shown_packages(spec["packages"])} if "packages" in spec else None,
        "plugins": shown_plugins(spec["plugins"]) if "plugins" in spec else None,
    }


def _file(file: Mapping[str, Any]) -> FileByIdOfAutomation | InlineFileOfAutomation:
    if file["type"] == "file_id":
        return {"type": "file_id", "file_id": file["file_id"], "path": file["path"]}
    try:
        size = len(b64decode(file["data"], validate=True))
    except (binascii.Error, ValueError):
        size = 0
    return {"type": "inline", "path": file["path"], "size_bytes": size}


def _skill(skill: Mapping[str, Any]) -> SkillReferenceOfAutomation | InlineSkillAnswer:
    if skill["type"] == "inline":
        return {"type": "inline", "name": skill["name"], "description": skill["description"]}
    version = skill.get("version")
    return {"type": "skill_reference", "skill_id": skill["skill_id"], "version": None if version is None else str(version)}


def _network(network: Mapping[str, Any]) -> NetworkAnswer:
    return {"access": network["access"], "allowed_domains": list(network.get("allowed_domains", ()))}
