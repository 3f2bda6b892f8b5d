"""What is said about the agents of a team on the wire: what one of them asks of it, what comes of that, and their messages."""

from types import MappingProxyType
from typing import Annotated, Final, Literal, Required

from typing_extensions import TypedDict

from moorage.wire.item import AgentName, Common, an_item
from moorage.wire.parts import InputText
from moorage.wire.validation import Array, CallId, Dropped, Free, OneOf, RefusedVariant, Text, wire

PREFIXES: Final = MappingProxyType({"multi_agent_call": "mac", "multi_agent_call_output": "maco", "agent_message": "amsg"})
Action = Literal["spawn_agent", "interrupt_agent", "list_agents", "send_message", "followup_task", "wait_agent"]


@wire
class ActionOutput(TypedDict, total=False):
    type: Required[Literal["output_text"]]
    text: Required[Text]
    annotations: Annotated[Free, Dropped]
    logprobs: Annotated[Free, Dropped]


_NOT_TEXT: Final = RefusedVariant("Agents send text to each other here: give it as 'input_text'.")


@an_item(PREFIXES["multi_agent_call"])
class MultiAgentCall(Common, total=False):
    type: Required[Literal["multi_agent_call"]]
    call_id: Required[CallId]
    action: Required[Action]
    arguments: Required[Text]


@an_item(PREFIXES["multi_agent_call_output"])
class MultiAgentCallOutput(Common, total=False):
    type: Required[Literal["multi_agent_call_output"]]
    call_id: Required[CallId]
    action: Required[Action]
    output: Required[Array[Annotated[ActionOutput, OneOf({"output_text": ActionOutput})]]]


@an_item(PREFIXES["agent_message"])
class AgentMessageItem(Common, total=False):
    type: Required[Literal["agent_message"]]
    author: Required[AgentName]
    recipient: Required[AgentName]
    content: Required[
        Array[Annotated[InputText, OneOf({"input_text": InputText, "input_image": _NOT_TEXT, "encrypted_content": _NOT_TEXT})]]
    ]
