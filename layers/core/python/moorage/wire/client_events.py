"""Frames by which a client reaches a response that runs on its WebSocket connection.

``response.steer`` is in the SDKs' union of client events. ``response.interrupt`` is sent by Codex from version 0.162 on.
``response.inject`` is of OpenAI's beta of teams.
"""

from typing import Annotated, Any, Final, Literal, Required

from pydantic import Field
from typing_extensions import TypedDict

from moorage import limits
from moorage.errors import bad_request
from moorage.wire.types import Item
from moorage.wire.validation import Fields, JsonValidator, wire

INTERRUPT: Final = "response.interrupt"
INJECT: Final = "response.inject"
INJECT_CREATED: Final = "response.inject.created"
INJECT_FAILED: Final = "response.inject.failed"
STEER: Final = "response.steer"
STEER_ACCEPTED: Final = "response.steer.accepted"
STEER_PENDING: Final = "response.steer.pending"
STEER_FAILED: Final = "response.steer.failed"

_Id = Annotated[str, Field(min_length=1)]


@wire
class _ClientFrame(TypedDict):
    type: Required[Literal["response.create", "response.steer", "response.interrupt", "response.inject"]]


@wire
class _Interrupt(TypedDict, total=False):
    type: Required[Literal["response.interrupt"]]
    response_id: Required[_Id]
    mode: Required[Literal["discard_partial_items"]]


@wire
class _Inject(TypedDict, total=False):
    type: Required[Literal["response.inject"]]
    response_id: Required[_Id]
    input: Required[Annotated[list[Any], Field(min_length=1, max_length=limits.TEAM_OUTPUTS_MAX)]]


@wire
class _Steer(TypedDict, total=False):
    type: Required[Literal["response.steer"]]
    previous_response_id: Required[_Id]
    input: Required[str | list[Any]]


_FRAME: Final = JsonValidator[Fields](_ClientFrame)
_INTERRUPT: Final = JsonValidator[Fields](_Interrupt)
_INJECT: Final = JsonValidator[Fields](_Inject)
_STEER: Final = JsonValidator[Fields](_Steer)
_MESSAGE: Final = frozenset({"type", "role", "content"})
_PARTS: Final = frozenset({"input_text", "input_image", "input_file"})


def check_type(frame: dict[str, Any]) -> None:
    """Raises :class:`~moorage.errors.ApiError` for a frame of a type that clients do not send here."""
    _FRAME({name: value for name, value in frame.items() if name == "type"})


def parse_interrupt(frame: dict[str, Any]) -> str:
    """The id of the response that is to end. Raises :class:`~moorage.errors.ApiError`."""
    response_id: str = _INTERRUPT(frame)["response_id"]
    return response_id


def parse_inject(frame: dict[str, Any]) -> tuple[str, list[Any]]:
    """The id of the response that the outputs are for, and these, not yet in canonical form. Raises
    :class:`~moorage.errors.ApiError`."""
    given = _INJECT(frame)
    return given["response_id"], given["input"]


def parse_steer(frame: dict[str, Any]) -> list[Item]:
    """The messages of a steering frame, not yet in canonical form. Raises :class:`~moorage.errors.ApiError`.

    Only messages of the user may steer, with text, images and files (the SDK's ``ResponseSteerEvent``).
    """
    given = _STEER(frame)["input"]
    if not given:
        raise bad_request("'input' must not be empty.", param="input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    for index, message in enumerate(given):
        if not _is_message_of_user(message):
            raise bad_request(
                "A response is steered by messages of the role 'user' alone, with 'input_text', 'input_image' and 'input_file' parts.",
                param=f"input[{index}]",
            )
    return [{"type": "message", **message} for message in given]


def _is_message_of_user(message: Any) -> bool:
    if not isinstance(message, dict) or not message.keys() <= _MESSAGE:
        return False
    if message.get("role") != "user" or message.get("type", "message") != "message":
        return False
    content = message.get("content")
    return isinstance(content, str) or (
        isinstance(content, list) and all(isinstance(part, dict) and part.get("type") in _PARTS for part in content)
    )
