"""How a session begins: what a request, or an automation, says of it becomes a record that is not stored yet."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from moorage.agents.session_store import SessionRecord
from moorage.agents.session_vaults import chosen
from moorage.agents.session_webhooks import tell_endpoints
from moorage.agents.settings import checked
from moorage.containers.store import ContainerRecord
from moorage.environments.opening import open_environment
from moorage.errors import (
    ApiError,
    below,
    container_not_found,
    invalid_value,
    missing_parameter,
    passing_over_what_is_gone,
    unsupported_value,
)
from moorage.loop.prepare import conceal
from moorage.parallel import as_json, beside
from moorage.runtime import Runtime
from moorage.stores import Stores
from moorage.telemetry import tell
from moorage.tools.computer import availability
from moorage.vaults.choice import credentials_in
from moorage.webhooks.event_types import SESSION_CREATED
from moorage.wire.types import Item

_COMPUTER_USE: Final = "computer_use"
_COMPUTER: Final = "computer"


async def new_session(
    runtime: Runtime, tenant_id: str, given: Mapping[str, Any], *, size: int, session_id: str | None = None
) -> SessionRecord:
    """A session of ``session_shapes.py: CreateSession``, with its container; who does not store it deletes that. ``size`` is that of
    ``given``, in bytes. Raises :class:`~moorage.errors.ApiError`; nothing is left behind then."""
    stores = runtime.stores
    settings, agent = await agent_of(stores, tenant_id, given)
    await check_agent(runtime, tenant_id, settings, size)
    environment, vault_ids = given["environment"], tuple(given.get("vault_ids", ()))
    check_place(settings, has_environment=environment["type"] != "none")
    credentials = await credentials_in(stores, tenant_id, vault_ids)
    chosen(settings, credentials)
    container = await open_environment(runtime, tenant_id, environment, param="environment", kind="session", credentials=credentials)
    session = stores.agent_sessions.new(
        tenant_id,
        settings,
        None if agent is None else agent[0],
        session_id=session_id,
        agent_version=0 if agent is None else agent[1],
        container_id=None if container is None else container.id,
        owns_container=container is not None and "environment_id" not in environment,
        vault_ids=vault_ids,
        metadata=given.get("metadata", {}),
    )
    if container is None:
        return session
    text = (await as_json(environment)).decode()
    sealed = await beside(len(text), lambda: stores.sealer.seal(tenant_id, text))
    return await stores.agent_sessions.with_environment(session, sealed)


async def give_up_container(runtime: Runtime, session: SessionRecord) -> None:
    """Delete the container that was made for a session which is not stored."""
    if session.container_id is not None and session.owns_container:
        await runtime.computers.containers.delete(session.tenant_id, session.container_id)


async def make_anew(runtime: Runtime, session: SessionRecord) -> SessionRecord:
    """The session with a new container, because it has lost its own. Raises :class:`~moorage.errors.ApiError` where that cannot be."""
    sessions, tenant_id = runtime.stores.agent_sessions, session.tenant_id
    container = await container_as_asked(runtime, session)
    moved = await sessions.move(session, container.id)
    if moved is None:
        await runtime.computers.containers.delete(tenant_id, container.id)
        return await sessions.get(tenant_id, session.id)
    if session.owns_container and session.container_id is not None:
        with passing_over_what_is_gone():
            await runtime.computers.containers.delete(tenant_id, session.container_id)
    tell("environment_reset", {"session_id": session.id, "container_id": container.id, "reset_count": moved.resets})
    return moved


async def container_as_asked(runtime: Runtime, session: SessionRecord) -> ContainerRecord:
    """A new container as the session has asked for its own. One that was prewarmed by somebody else is made empty, with the defaults.
    Raises :class:`~moorage.errors.ApiError`."""
    tenant_id, sealed = session.tenant_id, await runtime.stores.agent_sessions.environment_of(session)
    text = await beside(len(sealed), lambda: runtime.stores.sealer.open(tenant_id, sealed))
    if text is None:
        raise container_not_found(session.container_id or "")
    environment = {name: value for name, value in orjson.loads(text).items() if name != "environment_id"}
    credentials = await credentials_in(runtime.stores, tenant_id, session.vault_ids)
    container = await open_environment(runtime, tenant_id, environment, param="environment", kind="session", credentials=credentials)
    assert container is not None
    return container


async def tell_beginning(runtime: Runtime, session: SessionRecord) -> None:
    """Tell the webhook endpoints of a session that was stored."""
    await tell_endpoints(runtime, session, SESSION_CREATED, about="", at_ms=session.created_at * 1000)


async def agent_of(stores: Stores, tenant_id: str, given: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, int] | None]:
    """The settings of a session's agent, and the saved agent, with its version, that they come from."""
    own: Mapping[str, Any] = given.get("agent", {})
    if "agent_id" not in given:
        if "agent_version" in given:
            raise invalid_value("agent_version", "it is only allowed together with 'agent_id'.")
        if own.get("model") is None:
            raise missing_parameter("agent.model")
        return set_back(own), None
    agent = await stores.agents.get(tenant_id, given["agent_id"], version=given.get("agent_version"), param="agent_id")
    if own.get("model", "") is None:
        raise invalid_value("agent.model", "an agent needs one.")
    if "name" in own:
        raise invalid_value("agent.name", "a session of a saved agent has the agent's.")
    saved = {name: value for name, value in agent.settings.items() if name != "metadata"}
    return set_back({**saved, **own}), (agent.id, agent.version)


def with_nulls(given: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    """What a request says, with None if it says null: that sets a setting back."""
    return {**given, **{name: None for name, value in sent.items() if value is None}}


def set_back(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without those that are None."""
    return {name: value for name, value in settings.items() if value is not None}


async def check_agent(runtime: Runtime, tenant_id: str, settings: Mapping[str, Any], size: int) -> None:
    """:func:`check_settings` of a body whose ``agent`` has them."""
    try:
        await check_settings(runtime, tenant_id, settings, size)
    except ApiError as error:
        raise below(error, "agent") from error


async def check_settings(runtime: Runtime, tenant_id: str, settings: Mapping[str, Any], size: int) -> None:
    """Raises :class:`~moorage.errors.ApiError` for what no turn could do."""
    wanted = await beside(size, lambda: checked(settings, web_search=runtime.models.web_search))
    entry = runtime.models.catalog.resolve(wanted.model)
    conceal(runtime, tenant_id, wanted.tools)
    has_computer = any(tool["type"] == _COMPUTER for tool in wanted.tools)
    if has_computer and (why := availability.refusal(entry, runtime.settings)):
        raise unsupported_value(f"tools[{_place_of_computer(settings)}].type", _COMPUTER_USE, why)


def check_place(settings: Mapping[str, Any], *, has_environment: bool) -> None:
    """Raises :class:`~moorage.errors.ApiError` for a tool that needs an environment, in a session without one."""
    at = _place_of_computer(settings)
    if at is not None and not has_environment:
        raise invalid_value(f"agent.tools[{at}]", "a browser runs beside an environment: give one of the type 'openai_hosted'.")


def _place_of_computer(settings: Mapping[str, Any]) -> int | None:
    return next((at for at, tool in enumerate(settings.get("tools", ())) if tool["type"] == _COMPUTER_USE), None)


def messages_of(given: str | Sequence[Mapping[str, Any]] | None) -> list[Item]:
    """As ``/v1/responses`` takes them."""
    if not given:
        return []
    if isinstance(given, str):
        given = [{"role": "user", "content": [{"type": "input_text", "text": given}]}]
    return [{"type": "message", **message} for message in given]
