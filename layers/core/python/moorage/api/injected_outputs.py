"""Outputs that a client brings to a response with a team while it runs: ``response.inject`` of the WebSocket."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from moorage.api.running_responses import RunningResponse
from moorage.errors import ConditionFailed, bad_request
from moorage.loop import prepare, programs, team, team_outputs
from moorage.parallel import beside
from moorage.runtime import Runtime
from moorage.store.responses import ROOT_AGENT
from moorage.tools.registry import ROOMS
from moorage.wire import client_events
from moorage.wire.requests import parse_create_event
from moorage.wire.types import Event, Item

_OF_THE_BEGINNING: Final = ("input", "generate", "conversation", "previous_response_id")


async def inject(runtime: Runtime, running: RunningResponse, given: list[Any], size: int) -> bool:
    """Give outputs (``size`` bytes) to the agents that have called for them, all or none. False if the response takes none any more.
    Raises :class:`ApiError` for what is no output for an open call."""
    if not running.stored.takes_outputs:
        raise bad_request(
            "Only a response with 'multi_agent' takes outputs while it runs, on a connection that was opened with the header "
            "'OpenAI-Beta: responses_multi_agent=v1'. Others end with their calls: send the outputs with the next request.",
            param="response_id",
            code="unsupported_value",
        )
    body = {name: value for name, value in running.request.items() if name not in _OF_THE_BEGINNING} | {"input": given}
    event = await beside(size, partial(parse_create_event, body, web_search=runtime.models.web_search))
    items = event.request.input_items
    calls = [_call_of(item, f"input[{index}]", running) for index, item in enumerate(items)]
    stored = running.stored
    tools = stored.parameters.tools
    said = await prepare.gather(runtime, stored.tenant_id, model=stored.parameters.model, input_items=items, recent=calls, tools=tools)
    await prepare.check_tools(runtime, stored.tenant_id, said, tools)
    for call, item in zip(calls, said.input_items, strict=True):
        programs.check_output(call, item, tools)
    outputs: dict[str, list[Item]] = {}
    for call, item in zip(calls, said.input_items, strict=True):
        outputs.setdefault((call.get("agent") or {}).get("agent_name", ROOT_AGENT), []).append(item)
    try:
        return await team.answer(runtime.stores, stored, outputs)
    except ConditionFailed:
        raise bad_request("One of these calls has its output already.", param="input") from None


def _call_of(item: Item, param: str, running: RunningResponse) -> Item:
    """The open call that an item answers. Raises :class:`ApiError`."""
    if item["type"] not in team_outputs.ANSWERS:
        raise bad_request("A response that runs takes only outputs for the calls of its agents.", param=param)
    if _refers(item.get("output")):
        message = "While a response runs, an output has text and pictures as data URLs. Send others with the next request."
        raise bad_request(message, param=f"{param}.output", code="unsupported_value")
    call = running.calls.get(str(item.get("call_id")))
    room = None if call is None else ROOMS.of_call(call["type"])
    if call is None or room is None or room.output_type != item["type"]:
        raise bad_request(f"No open call found with call_id {item.get('call_id')}.", param=f"{param}.call_id")
    return call


def _refers(output: Any) -> bool:
    """Whether content lies elsewhere, or is a file for the container."""
    parts: Sequence[Any] = output if isinstance(output, list) else [output]
    return any(
        isinstance(part, dict)
        and (part.get("type") == "input_file" or part.get("file_id") or not str(part.get("image_url") or "data:").startswith("data:"))
        for part in parts
    )


def created(running: RunningResponse) -> Event:
    return {"type": client_events.INJECT_CREATED, "response_id": running.stored.response_id, "sequence_number": running.number}


def failed(response_id: str, given: list[Any], *, number: int, is_known: bool) -> Event:
    """``is_known``: the response has run on this connection."""
    code, message = "response_not_found", f"No response '{response_id}' runs on this connection."
    if is_known:
        code, message = (
            "response_already_completed",
            f"Response '{response_id}' takes no outputs any more. Send them with the next request.",
        )
    error = {"code": code, "message": message}
    return {"type": client_events.INJECT_FAILED, "response_id": response_id, "sequence_number": number, "input": given, "error": error}
