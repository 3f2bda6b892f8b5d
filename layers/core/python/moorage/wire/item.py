"""What all items have in common: an id, and fields that have no effect here."""

from collections.abc import Callable
from typing import Annotated, Final, Literal, Required, TypeVar

from pydantic import Field
from typing_extensions import TypedDict

from moorage import ids, limits
from moorage.wire.types import Item
from moorage.wire.validation import CallId, Dropped, Fields, Free, Id, OneOf, Text, wire, wire_with

_Class = TypeVar("_Class", bound=type)

ID_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "additional_tools": "at",
    "compaction": "cmp",
    "compaction_trigger": "cmpt",
}


def an_item(prefix: str, complete: Callable[[Fields], Fields] | None = None) -> Callable[[_Class], _Class]:
    """A type of the wire that is an item: it gets an id with this prefix if it has none."""

    def finish(value: Fields) -> Fields:
        if complete is not None:
            value = complete(value)
        if "id" not in value:
            value["id"] = ids.new_id(prefix)
        return value

    return wire_with(finish)


Status = Literal["in_progress", "completed", "incomplete"]


AgentName = Annotated[str, Field(min_length=1, max_length=limits.TEAM_NAME_CHARS_MAX)]


@wire
class Agent(TypedDict):
    """Whose item it is. Null and ``/root`` are the agent that the client speaks to, which does not see the items of others."""

    agent_name: Required[AgentName]


class Common(TypedDict, total=False):
    """Fields that any item may have. The last one is Codex CLI's; it and ``created_by`` have no effect here."""

    id: Id
    agent: Agent
    created_by: Annotated[Text, Dropped]
    internal_chat_message_metadata_passthrough: Annotated[Free, Dropped]


@wire
class DirectCaller(TypedDict):
    type: Literal["direct"]


@wire
class ProgramCaller(TypedDict):
    type: Literal["program"]
    caller_id: CallId


Caller = Annotated[DirectCaller | ProgramCaller, OneOf({"direct": DirectCaller, "program": ProgramCaller})]


def program_of(item: Item) -> str | None:
    """The call id of the program that has made a call; None if the model has made it."""
    caller = item.get("caller") or {}
    return str(caller["caller_id"]) if caller.get("type") == "program" else None


def made_by(program: str) -> Item:
    """``caller`` of the calls of a program."""
    return {"type": "program", "caller_id": program}


class Call(Common, total=False):
    status: Status
    caller: Caller
