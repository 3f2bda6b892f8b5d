"""``/v1/agents/automations``: input for sessions at set times."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from moorage import limits
from moorage.agents.session_start import agent_of, check_agent
from moorage.agents.session_vaults import chosen
from moorage.api.bodies import RawBody
from moorage.api.caller import Caller
from moorage.api.queries import AnyPage, query_of
from moorage.api.routing import Router
from moorage.automations import changes
from moorage.automations.answers import automation_object, invocation_object
from moorage.automations.delivery import deliver
from moorage.automations.shapes import CREATE_AUTOMATION, UPDATE_AUTOMATION, Automation, AutomationInvocation, AutomationsPage
from moorage.automations.store import AutomationRecord
from moorage.containers.containers import Containers
from moorage.errors import ApiError, below, container_not_found, invalid_value
from moorage.errors.agents import automation_busy
from moorage.parallel import as_json, beside
from moorage.skills.attach import given_plugins
from moorage.stores import Stores
from moorage.vaults.choice import credentials_in
from moorage.wire.answers import Deleted, ListOf
from moorage.wire.responses import deleted

router = Router()
_ONE: Final = "/agents/automations/{automation_id}"


@router.post(
    "/agents/automations",
    "createAutomation",
    "Give a session input at set times, or once",
    body=("CreateAutomation", CREATE_AUTOMATION),
    statuses=(404,),
)
async def create(caller: Caller, body: RawBody) -> Automation:
    given = await beside(len(body), lambda: CREATE_AUTOMATION.body(body))
    now = caller.runtime.clock()
    schedule = changes.schedule_of(given, now)
    await _check_target(caller, given["target"])
    made = await caller.runtime.stores.automations.create(
        caller.tenant_id,
        given["target"],
        type=given["type"],
        name=given["name"],
        metadata=given.get("metadata", {}),
        key_id=caller.key_id,
        subject=caller.subject,
        draws_on=caller.draws_on if caller.subject else (),
        **schedule,
    )
    return automation_object(made)


@router.get("/agents/automations", "listAutomations", "Automations, newest first")
async def list_automations(caller: Caller, page: Annotated[AutomationsPage, query_of(AutomationsPage)]) -> ListOf[Automation]:
    return (await caller.runtime.stores.automations.page(caller.tenant_id, page, page.session_id)).shown(automation_object)


@router.get(_ONE, "retrieveAutomation", "An automation")
async def retrieve(caller: Caller, automation_id: str) -> Automation:
    return automation_object(await caller.runtime.stores.automations.get(caller.tenant_id, automation_id))


@router.post(
    _ONE,
    "updateAutomation",
    "Change an automation",
    body=("UpdateAutomation", UPDATE_AUTOMATION),
    statuses=(404, 409),
)
async def update(caller: Caller, automation_id: str, body: RawBody) -> Automation:
    given = await beside(len(body), lambda: UPDATE_AUTOMATION.body(body))
    now = caller.runtime.clock()
    there = await caller.runtime.stores.automations.get(caller.tenant_id, automation_id)
    if "target" in given:
        if given["target"]["type"] != there.target["type"]:
            raise invalid_value("target.type", f"this automation has '{there.target['type']}', and keeps it.")
        await _check_target(caller, given["target"])

    def change(there: AutomationRecord) -> Mapping[str, Any]:
        return changes.change_of(there, given, now)

    return automation_object(await caller.runtime.stores.automations.change(caller.tenant_id, automation_id, change))


@router.delete(_ONE, "deleteAutomation", "Delete an automation with its invocations; sessions stay")
async def remove(caller: Caller, automation_id: str) -> Deleted[Literal["agent.automation.deleted"]]:
    await caller.runtime.stores.automations.delete(caller.tenant_id, automation_id)
    return deleted(automation_id, "agent.automation.deleted")


@router.post(f"{_ONE}/pause", "pauseAutomation", "Invoke an automation no more", statuses=(404, 409))
async def pause(caller: Caller, automation_id: str) -> Automation:
    return automation_object(await changes.pause(caller.runtime.stores, caller.tenant_id, automation_id))


@router.post(f"{_ONE}/resume", "resumeAutomation", "Invoke an automation again", statuses=(404, 409))
async def resume(caller: Caller, automation_id: str) -> Automation:
    return automation_object(await changes.resume(caller.runtime.stores, caller.runtime.clock, caller.tenant_id, automation_id))


# --- Invocations --------------------------------------------------------------------------------------------------------


@router.post(f"{_ONE}/invocations", "createAutomationInvocation", "Invoke an automation now; its schedule stays", statuses=(404, 409))
async def invoke(caller: Caller, automation_id: str) -> AutomationInvocation:
    automations = caller.runtime.stores.automations
    for _ in range(limits.CONDITIONAL_WRITES_MAX):
        automation = await automations.get(caller.tenant_id, automation_id)
        made = await automations.invoke(automation)
        if made is not None:
            if made.status == "queued":
                await deliver(caller.runtime, made)
            return invocation_object(await automations.invocation(automation, made.id))
    raise automation_busy(automation_id)


@router.get(f"{_ONE}/invocations", "listAutomationInvocations", "The invocations of an automation, newest first")
async def list_invocations(caller: Caller, automation_id: str, page: AnyPage) -> ListOf[AutomationInvocation]:
    automations = caller.runtime.stores.automations
    found = await automations.invocations(await automations.get(caller.tenant_id, automation_id), page)
    return found.shown(invocation_object)


@router.get(f"{_ONE}/invocations/{{invocation_id}}", "retrieveAutomationInvocation", "An invocation of an automation")
async def retrieve_invocation(caller: Caller, automation_id: str, invocation_id: str) -> AutomationInvocation:
    automations = caller.runtime.stores.automations
    automation = await automations.get(caller.tenant_id, automation_id)
    return invocation_object(await automations.invocation(automation, invocation_id))


# --- What bodies say ----------------------------------------------------------------------------------------------------


async def _check_target(caller: Caller, target: Mapping[str, Any]) -> None:
    """Whether it could be delivered now. Raises :class:`~moorage.errors.ApiError`."""
    runtime, tenant_id = caller.runtime, caller.tenant_id
    try:
        if target["type"] == "existing_session":
            await runtime.stores.agent_sessions.get(tenant_id, target["session_id"], param="session_id")
            return
        settings, _ = await agent_of(runtime.stores, tenant_id, target)
        await check_agent(runtime, tenant_id, settings, len(await as_json(target)))
        chosen(settings, await credentials_in(runtime.stores, tenant_id, target.get("vault_ids", ())))
        await _check_environment(runtime.stores, runtime.computers.containers, tenant_id, target["environment"])
    except ApiError as error:
        raise below(error, "target") from error


async def _check_environment(stores: Stores, containers: Containers, tenant_id: str, spec: Mapping[str, Any]) -> None:
    """Whether what it names is there."""
    place = spec.get("environment_id")
    if place is not None and await containers.peek(tenant_id, place) is None:
        raise container_not_found(place, param="environment.environment_id")
    if "environment_template_id" in spec:
        param = "environment.environment_template_id"
        await stores.environment_templates.get(tenant_id, spec["environment_template_id"], param=param)
    for index, file in enumerate(spec.get("files", ())):
        if file["type"] == "file_id":
            await stores.files.get(tenant_id, file["file_id"], param=f"environment.files[{index}].file_id")
    await containers.skills.resolve(tenant_id, spec.get("skills", ()), param="environment.skills")
    await given_plugins(spec.get("plugins", ()), param="environment.plugins")
