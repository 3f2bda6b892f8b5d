"""A container as an environment shows it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from moorage import limits
from moorage.containers.containers import Containers
from moorage.containers.store import ContainerFileRecord, ContainerRecord
from moorage.environments.opening import environment_path
from moorage.environments.shapes import (
    ContainerSize,
    EnvironmentErrorAnswer,
    EnvironmentFile,
    EnvironmentInfo,
    EnvironmentState,
    EnvironmentStatus,
    FileByIdAnswer,
    HostedEnvironment,
    InlineFileAnswer,
    InlineSkillAnswer,
    NetworkAnswer,
    NoEnvironment,
    PackagesAnswer,
    PluginAnswer,
    SkillReferenceAnswer,
)
from moorage.files.store import Clock
from moorage.runtime import Runtime
from moorage.settings import Settings
from moorage.skills.attached_store import ContainerSkill

_SIZES: Final[dict[str, ContainerSize]] = {limit: size for size, limit in limits.ENVIRONMENT_SIZES.items()}  # type: ignore[misc]


async def environment_of(runtime: Runtime, record: ContainerRecord | None) -> NoEnvironment | HostedEnvironment:
    """The ``environment`` of a session, by its container; None is ``none``."""
    if record is None:
        return {"type": "none"}
    return {
        "id": record.id,
        "type": "openai_hosted",
        "capability_directories": [],
        "container_size": _SIZES.get(record.memory_limit),
        "desktop": {"enabled": False},
        "files": await given_files(runtime.computers.containers, record),
        "network": _network(runtime.settings, record),
        "packages": shown_packages(record.packages),
        "plugins": shown_plugins(record.plugins),
        "skills": await given_skills(runtime.computers.containers, record),
    }


def state_of(settings: Settings, clock: Clock, record: ContainerRecord) -> EnvironmentState:
    """What a session's events say of its environment."""
    status = status_of(record, now=clock(), strict_expiry=settings.strict_expiry)
    return {"id": record.id, "type": "openai_hosted", "status": status, "error": _error(record)}


def _error(record: ContainerRecord) -> EnvironmentErrorAnswer | None:
    if not record.setup_error:
        return None
    return {"code": "setup_failed", "message": record.setup_error, "type": "invalid_request_error"}


def status_of(record: ContainerRecord, *, now: float, strict_expiry: bool) -> EnvironmentStatus:
    """One that has lost its sandbox is ``suspended``: the next command brings it back with its files. It is ``expired`` only where the
    operator lets no expired container come back."""
    if record.setup_error:
        return "failed"
    state = None if record.sandbox is None else record.sandbox.state
    match state:
        case "running":
            return "ready"
        case "starting":
            return "pending"
        case "stopping":
            return "disconnected"
        case None:
            if record.expires_at <= now:
                return "expired" if strict_expiry else "suspended"
            return "suspended" if record.incarnation else "pending"


async def info_of(runtime: Runtime, record: ContainerRecord) -> EnvironmentInfo:
    """The environment as its own routes show it."""
    state = state_of(runtime.settings, runtime.clock, record)
    return {
        "id": record.id,
        "object": "agent.environment",
        "type": "openai_hosted",
        "status": state["status"],
        "error": state["error"],
        "files": await given_files(runtime.computers.containers, record),
        "plugins": shown_plugins(record.plugins),
        "skills": await given_skills(runtime.computers.containers, record),
    }


def shown_packages(packages: Mapping[str, Sequence[str]]) -> PackagesAnswer:
    return {"npm": list(packages.get("npm", ())), "python": list(packages.get("python", ())), "system": []}


def shown_plugins(plugins: Sequence[Mapping[str, Any]]) -> list[PluginAnswer]:
    return [{"type": "inline", "name": plugin["name"], "description": plugin["description"]} for plugin in plugins]


def file_of(row: ContainerFileRecord) -> EnvironmentFile:
    return {
        "object": "agent.environment.file",
        "environment_id": row.container_id,
        "path": environment_path(row.path),
        "size_bytes": row.bytes,
    }


async def given_files(containers: Containers, record: ContainerRecord) -> list[FileByIdAnswer | InlineFileAnswer]:
    """What users put there, by path; not what commands made."""
    rows = await containers.files_of(record.tenant_id, record.id)
    return [_given_file(row) for row in sorted(rows, key=lambda row: row.path) if row.origin is not None]


def _given_file(row: ContainerFileRecord) -> FileByIdAnswer | InlineFileAnswer:
    path = environment_path(row.path)
    if row.upload_id:
        return {"type": "file_id", "id": row.id, "file_id": row.upload_id, "path": path, "size_bytes": row.bytes}
    return {"type": "inline", "id": row.id, "path": path, "size_bytes": row.bytes}


async def given_skills(containers: Containers, record: ContainerRecord) -> list[SkillReferenceAnswer | InlineSkillAnswer]:
    """Those that were given by themselves, and not in a plugin."""
    return [_given_skill(skill) for skill in await containers.skills.of(record) if skill.plugin is None]


def _given_skill(skill: ContainerSkill) -> SkillReferenceAnswer | InlineSkillAnswer:
    if skill.skill_id is None or skill.version is None:
        return {"type": "inline", "name": skill.name, "description": skill.description}
    return {
        "type": "skill_reference",
        "skill_id": skill.skill_id,
        "version": skill.version,
        "name": skill.name,
        "description": skill.description,
    }


def _network(settings: Settings, record: ContainerRecord) -> NetworkAnswer:
    """``enabled`` if a container reaches all that the operator lets any reach. Without ``*``, which is no domain."""
    policy = record.network_policy
    if policy["type"] == "disabled":
        return {"access": "disabled", "allowed_domains": []}
    domains: Collection[str] = policy["allowed_domains"]
    is_all = set(domains) == set(settings.allowed_egress_domains)
    return {"access": "enabled" if is_all else "restricted", "allowed_domains": [each for each in domains if each != "*"]}
