"""``/v1/agents/environments/templates``: configurations of environments, under an id. Its router comes before that of environments."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from moorage.api.bodies import RawBody
from moorage.api.caller import Caller
from moorage.api.queries import AnyPage
from moorage.api.routing import Router
from moorage.environments.answers import shown_packages, shown_plugins
from moorage.environments.opening import shown_network
from moorage.environments.shapes import InlineSkillAnswer
from moorage.environments.template_shapes import (
    SAVE_TEMPLATE,
    EnvironmentTemplate,
    TemplateFileById,
    TemplateInlineFile,
    TemplateSkillReference,
)
from moorage.environments.template_store import TemplateRecord
from moorage.parallel import beside
from moorage.skills.attach import given_plugins
from moorage.wire.answers import Deleted, ListOf
from moorage.wire.responses import deleted
from moorage.wire.validation import parse_object

router = Router()
_ALL: Final = "/agents/environments/templates"
_ONE: Final = "/agents/environments/templates/{environment_template_id}"


@router.post(_ALL, "createEnvironmentTemplate", "Save a template of environments", body=("SaveTemplate", SAVE_TEMPLATE))
async def create(caller: Caller, body: RawBody) -> EnvironmentTemplate:
    configuration = await beside(len(body), lambda: SAVE_TEMPLATE.body(body))
    await given_plugins(configuration.get("plugins", ()), param="plugins")
    return as_object(await caller.runtime.stores.environment_templates.create(caller.tenant_id, configuration))


@router.get(_ALL, "listEnvironmentTemplates", "Templates of environments, newest first")
async def list_templates(caller: Caller, page: AnyPage) -> ListOf[EnvironmentTemplate]:
    return (await caller.runtime.stores.environment_templates.page(caller.tenant_id, page)).shown(as_object)


@router.get(_ONE, "retrieveEnvironmentTemplate", "A template of environments")
async def retrieve(caller: Caller, environment_template_id: str) -> EnvironmentTemplate:
    return as_object(await caller.runtime.stores.environment_templates.get(caller.tenant_id, environment_template_id))


@router.post(
    _ONE, "updateEnvironmentTemplate", "Change a template of environments", body=("SaveTemplate", SAVE_TEMPLATE), statuses=(409,)
)
async def update(caller: Caller, environment_template_id: str, body: RawBody) -> EnvironmentTemplate:
    """What is left out stays, and null sets it back. Environments that were made from it stay as they are."""
    given = await beside(len(body), lambda: parse_object(body))
    changes = await beside(len(body), lambda: SAVE_TEMPLATE(given))
    await given_plugins(changes.get("plugins", ()), param="plugins")
    reset = {name for name, value in given.items() if value is None}

    async def change(before: Mapping[str, Any]) -> Mapping[str, Any]:
        following = {name: value for name, value in before.items() if name not in reset} | changes
        return await beside(len(body), lambda: SAVE_TEMPLATE(following))

    return as_object(await caller.runtime.stores.environment_templates.update(caller.tenant_id, environment_template_id, change))


@router.delete(_ONE, "deleteEnvironmentTemplate", "Delete a template of environments")
async def delete(caller: Caller, environment_template_id: str) -> Deleted[Literal["agent.environment.template.deleted"]]:
    """Environments that were made from it stay."""
    await caller.runtime.stores.environment_templates.delete(caller.tenant_id, environment_template_id)
    return deleted(environment_template_id, "agent.environment.template.deleted")


def as_object(template: TemplateRecord) -> EnvironmentTemplate:
    """Without the variables, the setup commands, and the content of files and skills."""
    given = template.configuration
    return {
        "id": template.id,
        "object": "agent.environment.template",
        "created_at": template.created_at,
        "updated_at": template.updated_at,
        "name": given.get("name"),
        "capability_directories": [],
        "desktop": {"enabled": False},
        "files": [_file(file) for file in given.get("files", ())],
        "network": shown_network(given.get("network")),
        "packages": shown_packages(given.get("packages", {})),
        "plugins": shown_plugins(given.get("plugins", ())),
        "skills": [_skill(skill) for skill in given.get("skills", ())],
    }


def _file(file: Mapping[str, Any]) -> TemplateFileById | TemplateInlineFile:
    if file["type"] == "file_id":
        return {"type": "file_id", "file_id": file["file_id"], "path": file["path"]}
    data = file["data"]
    return {"type": "inline", "path": file["path"], "size_bytes": len(data) // 4 * 3 - data[-2:].count("=")}


def _skill(skill: Mapping[str, Any]) -> TemplateSkillReference | InlineSkillAnswer:
    if skill["type"] == "skill_reference":
        return {"type": "skill_reference", "skill_id": skill["skill_id"], "version": skill.get("version")}
    return {"type": "inline", "name": skill["name"], "description": skill["description"]}
