"""The table of parameters against the newest SDK, against the parser, and against the page made from it."""

import json
import re
import typing
from typing import Any

import pytest
from moorage.errors import ApiError
from moorage.wire import client_events, events
from moorage.wire.create import Approvals, Budget, SubagentBudget
from moorage.wire.requests import parse_create
from openai.types.beta.beta_response_input_item_param import BetaResponseInputItemParam
from openai.types.beta.beta_responses_client_event import BetaResponsesClientEvent
from openai.types.beta.beta_responses_server_event import BetaResponsesServerEvent
from openai.types.responses import (
    ResponseInputContentParam,
    ResponseOutputMessageParam,
    ResponsesClientEvent,
    ResponsesServerEvent,
    ToolParam,
)
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from openai.types.responses.response_includable import ResponseIncludable
from openai.types.responses.response_input_item_param import ResponseInputItemParam

from docs import parameters
from tests.contract import agent_bodies, sdk_shapes
from tests.contract.test_events import NEVER_SENT

TABLE = parameters.load()

DOMAIN_SECRETS = "network_policy<allowlist>.domain_secrets[]"
SECRETS_OF_CONTAINERS = (f"shell.environment<container_auto>.{DOMAIN_SECRETS}", f"code_interpreter.container<auto>.{DOMAIN_SECRETS}")

SUBAGENT_BUDGET = [f"subagent_budget.{name}" for name in SubagentBudget.__annotations__]

OURS_ALONE = {
    "parameter": {
        "client_metadata": "Codex CLI sends it",
        **{f"multi_agent{field}": "the SDK has it among its beta resources" for field in ("", ".enabled", ".max_concurrent_subagents")},
        **{f"multi_agent.{name}": "an extension" for name in ("subagent_budget", *SUBAGENT_BUDGET)},
        "budget": "an extension",
        **{f"budget.{name}": "an extension" for name in Budget.__annotations__},
        "approvals": "an extension",
        **{f"approvals.{name}": "an extension" for name in Approvals.__annotations__},
        **{f"context_management[].{field}": "an extension" for field in ("strategy", "prompt", "keep_recent_items")},
    },
    "tool": {
        "function.function": "the nested form of chat completions, refused with a hint",
        "mcp.environment": "an extension",
        "web_search.filters.blocked_domains": "the API takes it, and the SDK has no name for it yet",
        "shell.environment<container_reference>.skills": "an extension",
        "automations": "the SDK has it among the tools of agents",
        "automations.require_approval": "an extension",
        "shell.require_approval": "an extension",
        "code_interpreter.require_approval": "an extension",
        **{
            f"{tool}.{field}": "an extension"
            for tool in ("computer", "computer_use_preview")
            for field in ("container", "require_approval")
        },
        "web_search.require_approval": "an extension",
        "file_search.require_approval": "an extension",
        "image_generation.require_approval": "an extension",
        **{f"shell.require_approval.{name}": "an extension" for name in ("always", "never", "always.commands", "never.commands")},
        "shell.environment<container_auto>.file_map": "an extension",
        "shell.environment<container_reference>.file_map": "an extension",
        "shell.environment<container_auto>.agents_md": "an extension",
        "shell.environment<container_reference>.agents_md": "an extension",
        **{
            f"{secrets}.{field}": "an extension"
            for secrets in SECRETS_OF_CONTAINERS
            for field in ("methods", "path_prefixes", "places")
        },
        **{
            f"{secrets.removesuffix('.domain_secrets[]')}.require_approval{field}": "an extension"
            for secrets in SECRETS_OF_CONTAINERS
            for field in ("", ".hosts", ".secrets")
        },
    },
    "tool_choice": {
        "local_shell": "a tool that can be offered can be chosen",
        "tool_search": "a tool that can be offered can be chosen",
        "web_search": "a tool that can be offered can be chosen",
        "web_search_2025_08_26": "a tool that can be offered can be chosen",
    },
    "item": {
        **dict.fromkeys(("multi_agent_call", "multi_agent_call_output", "agent_message"), "the SDK has it among its beta resources"),
        "automation_call": "an extension",
    },
    "part": {},
}
"""Names that the SDK's request types do not have, each with the reason why it is in the table."""


def names(group: str) -> set[str]:
    return {row["name"] for row in TABLE[group]}


def rows() -> list[Any]:
    return [pytest.param(row, id=f"{group} {row['name']}") for group in TABLE for row in TABLE[group]]


def refusals() -> list[Any]:
    return [
        pytest.param(row["name"] if group == "agent" else None, refusal, id=f"{group} {row['name']} {number}")
        for group in TABLE
        for row in TABLE[group]
        for number, refusal in enumerate(row.get("refusals", ()))
    ]


def covers_below(group: str, *others: str) -> sdk_shapes.Stop:
    closed = {row["name"] for row in TABLE[group] if row["status"] != "honoured"} | set(others)
    return lambda path: path in closed


PARAMETERS_WITH_OWN_ROWS_ELSEWHERE = ("input", "tools", "tool_choice", "conversation", "text.format")


def sdk_parameters() -> set[str]:
    stop = covers_below("parameter", *PARAMETERS_WITH_OWN_ROWS_ELSEWHERE)
    open_parents = {"stream_options", "prompt_cache_options", "image", "reasoning", "text"}
    return sdk_shapes.paths(ResponseCreateParamsStreaming, stop=lambda path: path not in open_parents and stop(path))


def sdk_tools() -> set[str]:
    environments = ("shell.environment<local>.skills", "shell.environment<container_auto>.skills")
    rows_below = ("namespace.tools", "custom.format", "file_search.filters", *environments)
    return sdk_shapes.paths(ToolParam, stop=covers_below("tool", *rows_below))


def sdk_choices() -> set[str]:
    return sdk_shapes.tags(sdk_shapes.fields(ResponseCreateParamsStreaming)["tool_choice"])


def sdk_items() -> set[str]:
    return sdk_shapes.tags(ResponseInputItemParam)


def sdk_parts() -> set[str]:
    output_parts = sdk_shapes.tags(sdk_shapes.fields(ResponseOutputMessageParam)["content"])
    return sdk_shapes.tags(ResponseInputContentParam) | output_parts | {"prompt_cache_breakpoint"}


@pytest.mark.parametrize(
    ("group", "sdk_names"),
    [
        ("parameter", sdk_parameters()),
        ("tool", sdk_tools()),
        ("tool_choice", sdk_choices()),
        ("item", sdk_items()),
        ("part", sdk_parts()),
    ],
)
def test_the_table_has_a_row_for_everything_in_the_sdk_and_for_nothing_else(group: str, sdk_names: set[str]) -> None:
    assert (sdk_names - names(group), names(group) - sdk_names) == (set(), set(OURS_ALONE[group]))


def test_no_row_is_there_twice() -> None:
    for group, group_rows in TABLE.items():
        assert len(names(group)) == len(group_rows), group


@pytest.mark.parametrize("row", rows())
def test_a_row_has_a_known_fate_and_a_refused_one_shows_its_error(row: dict[str, Any]) -> None:
    assert row["status"] in ("honoured", "informational", "refused")
    assert row.keys() <= {"name", "status", "note", "refusals"}
    is_body = "/v1/" not in row["name"] and row not in TABLE["frame"]
    assert not is_body or row["status"] != "refused" or row["refusals"]


@pytest.mark.parametrize(("agent_row", "refusal"), refusals())
def test_a_refused_request_gets_the_error_of_its_row(agent_row: str | None, refusal: dict[str, str]) -> None:
    asked = json.loads(refusal["request"])
    check: Any = parse_create
    if agent_row is None:
        asked = {"model": "m", "input": "hi", **asked}
    else:
        check = agent_bodies.VALIDATORS[agent_bodies.body_of(agent_row)]

    with pytest.raises(ApiError) as refused:
        check(asked)

    error = refused.value
    assert (error.status, error.type, error.param, error.code or "") == (
        400,
        "invalid_request_error",
        refusal["param"],
        refusal["code"],
    )
    assert len(error.message) > len(refusal["param"])


# --- The parser knows every field of the SDK that is not refused -----------------------------------------------------------------


def probe(path: str, leaf: Any) -> Any:
    """An object in which the field at ``path`` holds ``leaf`` and every variant on the way has its ``type``."""
    segments = re.findall(r"\.?([A-Za-z_0-9]+)|(\[\])|<([^>]+)>", path)
    value = leaf
    for name, is_list, tag in reversed(segments):
        if name:
            value = {name: value}
        elif is_list:
            value = [value]
        elif isinstance(value, dict):
            value = {"type": tag, **value}
    return value


def is_unknown(body: dict[str, Any]) -> bool:
    try:
        parse_create(body)
    except ApiError as error:
        return error.code == "unknown_parameter"
    return False


class Odd:
    """A value that no field takes."""


def tool_fields() -> list[str]:
    return sorted(path for path in sdk_shapes.paths(ToolParam, stop=covers_below("tool")) if "." in path)


def refused_items() -> set[str]:
    return {row["name"] for row in TABLE["item"] if row["status"] == "refused"}


def item_fields() -> list[str]:
    """Those of the beta client too, which has a few more."""
    tools_elsewhere = {"additional_tools.tools", "tool_search_output.tools"}
    closed = refused_items() | tools_elsewhere
    found = (
        sdk_shapes.paths(union, stop=lambda path: path in closed) for union in (ResponseInputItemParam, BetaResponseInputItemParam)
    )
    return sorted(path for path in set().union(*found) if "." in path)


@pytest.mark.parametrize("path", sorted(sdk_parameters()))
def test_the_parser_knows_every_parameter_of_the_sdk(path: str) -> None:
    assert not is_unknown({"model": "m", "input": "hi", **probe(path, Odd())})


@pytest.mark.parametrize("path", tool_fields())
def test_the_parser_knows_every_tool_field_of_the_sdk(path: str) -> None:
    kind, _, rest = path.partition(".")
    assert not is_unknown({"model": "m", "input": "hi", "tools": [{"type": kind, **probe(rest, Odd())}]})


@pytest.mark.parametrize("path", item_fields())
def test_the_parser_knows_every_item_field_of_the_sdk(path: str) -> None:
    kind, _, rest = path.partition(".")
    role = "assistant" if re.search("<(output_text|refusal)>", rest) else "user"
    common = {"type": kind, "role": role} if kind == "message" else {"type": kind}
    assert not is_unknown({"model": "m", "input": [{**common, **probe(rest, Odd())}]})


def test_the_table_has_a_row_for_each_field_of_the_agents_api() -> None:
    found = {name: agent_bodies.row_of(name, names("agent")) for name, _, _ in agent_bodies.fields()}
    told = {name for name in names("agent") if name in found or name in found.values()}
    assert ({name for name, row in found.items() if row is None}, names("agent") - told) == (set(), agent_bodies.OURS_ALONE)


@pytest.mark.parametrize(
    ("path", "check"),
    [pytest.param(path, check, id=f"{number} {name}") for number, (name, path, check) in enumerate(agent_bodies.fields())],
)
def test_the_parser_knows_every_field_of_the_agents_api(path: str, check: Any) -> None:
    kind, _, rest = path.partition(".")
    is_variant = kind in ("file_id", "inline", "periodic", "once")
    body = {"type": kind, **(probe(rest, Odd()) if rest else {})} if is_variant else probe(path, Odd())
    with pytest.raises(ApiError) as refused:
        check(body)
    assert refused.value.code != "unknown_parameter"


def test_the_probe_finds_a_field_that_the_parser_does_not_know() -> None:
    assert is_unknown({"model": "m", "input": "hi", **probe("text.format<json_schema>.colour", Odd())})
    assert is_unknown({"model": "m", "input": [{"type": "message", "role": "user", **probe("content[]<input_text>.colour", 1)}]})


def test_every_includable_value_of_the_sdk_is_accepted() -> None:
    values = sorted(sdk_shapes.literals(ResponseIncludable))
    assert parse_create({"model": "m", "input": "hi", "include": values}).include == tuple(values)


ENUMS = ["reasoning.effort", "reasoning.summary", "reasoning.context", "reasoning.mode", "service_tier", "truncation"]


@pytest.mark.parametrize("path", [*ENUMS, "prompt_cache_retention", "text.verbosity"])
def test_every_literal_value_of_the_sdk_is_accepted(path: str) -> None:
    annotation: Any = ResponseCreateParamsStreaming
    for name in path.split("."):
        typed_dict = next(v for v, _ in sdk_shapes.variants(annotation) if hasattr(v, "__required_keys__"))
        annotation = sdk_shapes.fields(typed_dict)[name]
    values = sdk_shapes.literals(annotation)
    assert values
    for value in values:
        parse_create({"model": "m", "input": "hi", **probe(path, value)})


# --- The page ---


def test_the_page_is_made_from_the_table() -> None:
    assert parameters.PAGE.read_text() == parameters.page(TABLE), "run: python docs/parameters.py"


def types_in(union: Any) -> set[str]:
    return {typing.get_args(cls.model_fields["type"].annotation)[0] for cls in typing.get_args(typing.get_args(union)[0])}


def test_the_frames_of_the_websocket_are_those_of_the_sdk() -> None:
    beside_a_stream = types_in(ResponsesServerEvent) - events.CATALOGUE.keys() - NEVER_SENT.keys() | {events.ERROR}
    named = {row["name"] for row in TABLE["frame"]}
    answers = {client_events.INJECT_CREATED, client_events.INJECT_FAILED}
    assert answers <= types_in(BetaResponsesServerEvent)
    of_codex, of_the_beta = {"response.interrupt"}, types_in(BetaResponsesClientEvent) | answers
    assert named == types_in(ResponsesClientEvent) | beside_a_stream | of_codex | of_the_beta
