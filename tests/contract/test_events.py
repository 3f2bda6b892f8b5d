"""The catalogue of events against the newest SDK's union of stream events."""

import ast
import inspect
import re
import typing
from pathlib import Path
from typing import Any

import orjson
import pytest
from moorage.tools.registry import ROOMS
from moorage.wire import events
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from tests.contract.test_architecture import nodes

NEVER_SENT = {
    **dict.fromkeys(
        [
            "response.audio.delta",
            "response.audio.done",
            "response.audio.transcript.delta",
            "response.audio.transcript.done",
        ],
        "the Responses API takes no audio parameters",
    ),
}
"""Events of the SDK that this service never sends, each with its reason."""


BEYOND_THE_SDK: dict[str, set[str]] = {events.FUNCTION_CALL_ARGUMENTS_DONE: {"name"}}
"""Fields that the newest SDK has no place for: the OpenAPI document demands this one, and so did older SDKs."""


def sdk_events() -> dict[str, Any]:
    """Event classes by ``type``."""
    union = typing.get_args(ResponseStreamEvent)[0]
    return {typing.get_args(cls.model_fields["type"].annotation)[0]: cls for cls in typing.get_args(union)}


def test_the_catalogue_is_the_sdks_union_less_what_is_never_sent() -> None:
    """And no more: openai-node's stream helper fails at an event that it does not know."""
    assert set(events.CATALOGUE) | set(NEVER_SENT) == set(sdk_events())
    assert set(events.CATALOGUE) & set(NEVER_SENT) == set()


@pytest.mark.parametrize("name", sorted(events.CATALOGUE.keys() - {events.ERROR}))
def test_an_event_has_the_fields_that_the_sdk_requires(name: str) -> None:
    required = {field for field, info in sdk_events()[name].model_fields.items() if info.is_required()}
    assert required - {"type"} - events.CATALOGUE[name] == set()
    beyond = BEYOND_THE_SDK.get(name, set())
    assert events.CATALOGUE[name] - sdk_events()[name].model_fields.keys() == beyond


def test_obfuscated_events_still_parse_in_the_sdk() -> None:
    event = {
        "type": events.OUTPUT_TEXT_DELTA,
        "sequence_number": 4,
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "delta": "hello",
        "logprobs": [],
    }
    parsed = TypeAdapter(ResponseStreamEvent).validate_json(orjson.dumps(events.obfuscated(event)), strict=True)
    assert parsed.model_dump(exclude={"obfuscation"}) == event


def test_every_delta_of_the_models_words_can_be_obfuscated() -> None:
    deltas = {name for name in events.CATALOGUE if name.endswith(".delta")}
    open_ones = {name for name in deltas if not events.is_obfuscated(name)}
    assert open_ones == {"response.shell_call_output_content.delta"}, "a command's output is not the model's words"


ELSEWHERE = {
    "wire/events.py": "the list",
    "model/openai_responses.py": "the events of an upstream",
    "agents/turn_events.py": "the Agents API shows one event of the shell as one of its own",
    "cli/checks/deployment.py": "a client",
    "cli/tail.py": "a client",
    "local/demo.py": "a client",
    "webhooks/event_types.py": "the list of the events of webhooks, some of which are called the same",
}
"""Modules that write the names of events out, and why. A tool's folder names its own."""


def test_every_event_is_named_in_one_place() -> None:
    core = Path(__file__).parents[2] / "layers" / "core" / "python" / "moorage"
    catalogue = events.CATALOGUE.keys() - {events.ERROR}
    named = {
        str(path.relative_to(core))
        for path in core.rglob("*.py")
        if path.relative_to(core).parts[:1] != ("tools",)
        for node in nodes(path, *catalogue)
        if isinstance(node, ast.Constant) and node.value in catalogue
    }
    assert named == set(ELSEWHERE)


def said_in_its_folder(name: str) -> bool:
    """By a module of the tool's folder, beside the one that declares it."""
    room = ROOMS.of_event(name.removeprefix("response."))
    if room is None:
        return False
    folder = Path(inspect.getfile(type(room))).parent
    source = "".join(path.read_text() for path in folder.glob("*.py") if path.name != "shapes.py")
    return f'"{name.removeprefix("response.")}"' in source


def test_the_catalogue_has_no_event_that_nothing_sends() -> None:
    core = Path(__file__).parents[2] / "layers" / "core" / "python" / "moorage"
    source = "".join(path.read_text() for folder in ("loop", "tools") for path in (core / folder).rglob("*.py"))
    constants = {value: name for name, value in vars(events).items() if name.isupper() and isinstance(value, str)}
    unsent = {
        name
        for name in events.CATALOGUE
        if not (name in constants and re.search(rf"\b{constants[name]}\b", source)) and not said_in_its_folder(name)
    }
    assert unsent <= set(events.OF_STATUS.values())
