"""``/v1/containers/{container_id}/screen``: a person watches a container's browser, and takes it over. An extension of ours."""

import base64
from typing import Annotated

from moorage.api.bodies import body_of
from moorage.api.caller import Caller
from moorage.api.queries import query_of
from moorage.api.routing import Router
from moorage.containers.screen_shapes import (
    ContainerScreen,
    ContainerScreenControl,
    ContainerScreenInput,
    ControlScreen,
    ScreenInput,
    ScreenQuery,
)
from moorage.sandbox.desk_client import DeskFrame

router = Router()
_SEPARATOR = "/"


@router.get(
    "/containers/{container_id}/screen",
    "readScreen",
    "The picture of a container's browser behind a number, as soon as there is one",
    statuses=(503,),
)
async def read(caller: Caller, container_id: str, wanted: Annotated[ScreenQuery, query_of(ScreenQuery)]) -> ContainerScreen:
    """Looking does not count as use: it must not keep an idle container alive."""
    containers = caller.runtime.computers.containers
    record = await containers.get(caller.tenant_id, container_id)
    frame = await containers.screens.look(record, wanted.starting_after, wait_ms=wanted.wait_ms)
    return as_object(container_id, frame)


@router.post("/containers/{container_id}/screen/control", "controlScreen", "Take control, or give it back", statuses=(503,))
async def control(
    caller: Caller, container_id: str, wanted: Annotated[ControlScreen, body_of(ControlScreen)]
) -> ContainerScreenControl:
    containers = caller.runtime.computers.containers
    record = await containers.get(caller.tenant_id, container_id)
    holder = _named(caller, wanted.holder)
    if wanted.action == "take":
        lease = await containers.screens.take(caller.tenant_id, record.id, holder)
    else:
        lease = await containers.screens.give(record, holder)
    return {
        "object": "container.screen.control",
        "container_id": container_id,
        "holder": lease.holder or None,
        "expires_in_ms": lease.ms,
    }


@router.post("/containers/{container_id}/screen/input", "actOnScreen", "Act on the browser, with control of it", statuses=(503,))
async def act(caller: Caller, container_id: str, wanted: Annotated[ScreenInput, body_of(ScreenInput)]) -> ContainerScreenInput:
    containers = caller.runtime.computers.containers
    record = await containers.get(caller.tenant_id, container_id)
    outcomes = await containers.screens.act(record, _named(caller, wanted.holder), wanted.number, wanted.actions)
    return {
        "object": "container.screen.input",
        "container_id": container_id,
        "actions": [{"ok": each.ok, "error": each.error or None} for each in outcomes],
    }


def _named(caller: Caller, holder: str) -> str:
    """Of one key's windows: no other key can speak for them."""
    return f"{caller.subject or caller.key_id}{_SEPARATOR}{holder}"


def as_object(container_id: str, frame: DeskFrame | None) -> ContainerScreen:
    if frame is None:
        return {
            "object": "container.screen",
            "container_id": container_id,
            "status": "closed",
            "number": 0,
            "picture": None,
            "url": None,
            "title": None,
            "holder": None,
            "pointer": None,
        }
    x, y = frame.pointer
    return {
        "object": "container.screen",
        "container_id": container_id,
        "status": "open",
        "number": frame.number,
        "picture": f"data:image/jpeg;base64,{base64.b64encode(frame.picture).decode()}" if frame.picture else None,
        "url": frame.url,
        "title": frame.title,
        "holder": frame.holder or None,
        "pointer": {"x": x, "y": y},
    }
