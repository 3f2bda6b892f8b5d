"""What a request tells the model, from the request into the record and out of it to a provider."""

import orjson
import pytest
from moorage.model.base import ModelRequest
from moorage.wire.parameters import NAMES, RECORD, Parameters
from moorage.wire.requests import parse_create

BODY = {
    "model": "m",
    "input": "hi",
    "instructions": "Be brief.",
    "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "max_output_tokens": 50,
    "max_tool_calls": 3,
    "temperature": 0.5,
    "top_p": 0.25,
    "top_logprobs": 2,
    "text": {"verbosity": "low"},
    "reasoning": {"effort": "low"},
    "truncation": "auto",
    "context_management": [{"type": "compaction", "compact_threshold": 5_000}],
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "explicit"},
    "prompt_cache_retention": "24h",
    "service_tier": "flex",
    "safety_identifier": "s",
    "user": "u",
    "budget": {"tool_calls": 3},
    "background": True,
    "approvals": {"timeout_seconds": 600},
}


def test_every_parameter_goes_through_the_record_and_reaches_the_provider() -> None:
    request = parse_create(orjson.dumps(BODY))
    parameters = Parameters.of(request, multi_agent={"max_concurrent_subagents": 3})  # Not beside max_tool_calls.
    assert tuple(name for name in NAMES if name in {**BODY, "multi_agent": ...}) == NAMES, "BODY has each parameter"
    assert parameters != Parameters("m")
    stored = RECORD.unpack(orjson.loads(orjson.dumps(RECORD.pack(parameters))))
    assert stored == parameters
    asked = ModelRequest.of(stored, model="upstream", items=({"type": "message"},), max_output_tokens=30)
    expected = {name: getattr(parameters, name) for name in NAMES} | {"model": "upstream", "max_output_tokens": 30}
    assert {name: getattr(asked, name) for name in NAMES} == expected


def test_what_was_left_open_is_not_written() -> None:
    record = RECORD.pack(Parameters("m"))
    assert record.keys() == {"model", "tool_choice", "parallel_tool_calls", "truncation"}
    assert RECORD.unpack(record) == Parameters("m")


@pytest.mark.parametrize("others", [{"extra": {"user": "u"}, "compact_threshold": None}, {"parameter_of_tomorrow": 1}])
def test_the_record_of_another_version_is_read(others: dict[str, object]) -> None:
    assert RECORD.unpack({"model": "m", "include": [], **others}) == Parameters("m")
