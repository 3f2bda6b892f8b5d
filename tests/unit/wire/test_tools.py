"""Tools of a request: the shell's environment, its network policy, and where secrets are not."""

from typing import Any

import orjson
import pytest
from moorage.errors import ApiError
from moorage.loop.create import echo
from moorage.wire.environments import Environment, unplaced
from moorage.wire.network_policy import DomainSecret, NetworkPolicy
from moorage.wire.requests import CreateRequest, parse_create

SECRET = "s3cr3t-value"


def with_shell(environment: Any) -> CreateRequest:
    return parse_create({"model": "m", "input": "hi", "tools": [{"type": "shell", "environment": environment}]})


def allowlist(*domains: str, **fields: Any) -> dict[str, Any]:
    return {"type": "allowlist", "allowed_domains": list(domains), **fields}


def hosted_with_secret() -> CreateRequest:
    secrets = [{"domain": "API.example.com", "name": "TOKEN", "value": SECRET}]
    policy = allowlist("api.example.com", domain_secrets=secrets)
    return with_shell({"type": "container_auto", "memory_limit": "4g", "file_ids": ["file-1"], "network_policy": policy})


def test_a_hosted_shell_has_its_policy_with_secrets_in_one_place() -> None:
    assert hosted_with_secret().environment == Environment(
        type="container_auto",
        file_ids={"file-1": "tools[0].environment.file_ids[0]"},
        memory_limit="4g",
        network_policy=NetworkPolicy(
            "allowlist", ("api.example.com",), (DomainSecret(domain="api.example.com", name="TOKEN", value=SECRET),)
        ),
    )


def test_a_secret_is_neither_in_the_tools_nor_in_the_echo_nor_in_a_repr() -> None:
    request = hosted_with_secret()
    assert SECRET not in repr(request)
    assert SECRET.encode() not in orjson.dumps(request.tools)
    assert SECRET.encode() not in orjson.dumps(echo(request, "cntr_1"))
    (tool,) = request.tools
    assert tool["environment"]["network_policy"]["domain_secrets"] == [{"domain": "api.example.com", "name": "TOKEN"}]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (None, Environment("local")),
        ({"type": "local", "skills": []}, Environment("local")),
        ({"type": "container_auto"}, Environment("container_auto")),
        (
            {"type": "container_reference", "container_id": "cntr_1"},
            Environment("container_reference", container_id="cntr_1", param="tools[0].environment.container_id"),
        ),
    ],
)
def test_where_the_commands_run(environment: Any, expected: Environment) -> None:
    request = with_shell(environment)
    assert request.environment == expected
    assert request.is_hosted == (expected.type != "local")


def test_without_a_shell_nothing_is_hosted() -> None:
    assert not parse_create({"model": "m", "input": "x", "tools": [{"type": "apply_patch"}]}).is_hosted


POLICY: dict[str, Any] = {"type": "allowlist", "allowed_domains": ["a.example"]}


def interpreter(container: Any) -> dict[str, Any]:
    return {"type": "code_interpreter", "container": container}


def shell(**environment: Any) -> dict[str, Any]:
    return {"type": "shell", "environment": environment}


SHARED: dict[str, tuple[list[Any], Environment]] = {
    "a code interpreter alone": ([interpreter({"type": "auto"})], Environment("container_auto")),
    "a code interpreter in a container of its own choice": (
        [interpreter("cntr_1")],
        Environment("container_reference", "cntr_1", "tools[0].container"),
    ),
    "a shell of the client beside it": ([{"type": "shell"}, interpreter({"type": "auto"})], Environment("container_auto")),
    "files of both": (
        [shell(type="container_auto", file_ids=["file-1"]), interpreter({"type": "auto", "file_ids": ["file-2", "file-1"]})],
        Environment(
            "container_auto",
            file_ids={"file-1": "tools[0].environment.file_ids[0]", "file-2": "tools[1].container.file_ids[0]"},
        ),
    ),
    "the one's memory and the other's network": (
        [interpreter({"type": "auto", "memory_limit": "4g"}), shell(type="container_auto", network_policy=POLICY)],
        Environment("container_auto", memory_limit="4g", network_policy=NetworkPolicy("allowlist", ("a.example",))),
    ),
    "auto beside a container that is named": (
        [interpreter({"type": "auto", "file_ids": ["file-1"]}), shell(type="container_reference", container_id="cntr_1")],
        Environment(
            "container_reference",
            "cntr_1",
            "tools[1].environment.container_id",
            file_ids={"file-1": "tools[0].container.file_ids[0]"},
        ),
    ),
}


@pytest.mark.parametrize(("tools", "expected"), SHARED.values(), ids=SHARED.keys())
def test_shell_and_code_interpreter_share_one_container(tools: list[Any], expected: Environment) -> None:
    request = parse_create({"model": "m", "input": "x", "tools": tools})
    assert request.environment == expected
    assert request.is_hosted


AT_ODDS: dict[str, tuple[list[Any], str]] = {
    "two containers": (
        [shell(type="container_reference", container_id="cntr_1"), interpreter("cntr_2")],
        "tools[1].container",
    ),
    "two containers, the other way round": (
        [interpreter("cntr_2"), shell(type="container_reference", container_id="cntr_1")],
        "tools[1].environment.container_id",
    ),
    "two memory limits": (
        [shell(type="container_auto", memory_limit="1g"), interpreter({"type": "auto", "memory_limit": "4g"})],
        "tools[1].container.memory_limit",
    ),
    "two policies": (
        [shell(type="container_auto", network_policy=POLICY), interpreter({"type": "auto", "network_policy": {"type": "disabled"}})],
        "tools[1].container.network_policy",
    ),
    "a policy for a container that is named": (
        [interpreter({"type": "auto", "network_policy": POLICY}), shell(type="container_reference", container_id="cntr_1")],
        "tools[0].container.network_policy",
    ),
    "a computer in another container": (
        [
            shell(type="container_reference", container_id="cntr_1"),
            {"type": "computer", "container": {"type": "container_reference", "container_id": "cntr_2"}},
        ],
        "tools[1].container.container_id",
    ),
    "two code interpreters": ([interpreter("cntr_1"), interpreter("cntr_1")], "tools[1]"),
}


@pytest.mark.parametrize(("tools", "param"), AT_ODDS.values(), ids=AT_ODDS.keys())
def test_tools_that_want_different_containers_are_refused(tools: list[Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_create({"model": "m", "input": "x", "tools": tools})
    assert (refused.value.status, refused.value.param) == (400, param)


COMPUTERS: list[dict[str, Any]] = [
    {"type": "computer"},
    {"type": "computer_use_preview", "display_width": 1024, "display_height": 768, "environment": "browser"},
]


@pytest.mark.parametrize("computer", COMPUTERS, ids=lambda tool: tool["type"])
def test_a_hosted_computer_shares_the_container_and_keeps_its_secrets(computer: dict[str, Any]) -> None:
    secrets = [{"domain": "a.example", "name": "TOKEN", "value": SECRET}]
    container = {"type": "container_auto", "memory_limit": "4g", "network_policy": {**POLICY, "domain_secrets": secrets}}
    tools = [{**computer, "container": container}, shell(type="container_auto", file_ids=["file-1"])]
    request = parse_create({"model": "m", "input": "x", "tools": tools})
    assert request.environment is not None
    assert (request.environment.memory_limit, list(request.environment.file_ids)) == ("4g", ["file-1"])
    assert SECRET.encode() not in orjson.dumps(request.tools)
    reference = {"type": "container_reference", "container_id": "cntr_1"}
    assert echo(request, "cntr_1")["tools"][0] == {**computer, "container": reference}
    assert unplaced(request.tools)[0] == {**computer, "container": {"type": "container_auto"}}


def test_the_secrets_of_a_code_interpreter_stay_out_of_tools_and_echo() -> None:
    secrets = [{"domain": "a.example", "name": "TOKEN", "value": SECRET}]
    container = {"type": "auto", "file_ids": ["file-1"], "network_policy": {**POLICY, "domain_secrets": secrets}}
    request = parse_create({"model": "m", "input": "x", "tools": [interpreter(container)]})
    assert SECRET.encode() not in orjson.dumps(request.tools)
    assert echo(request, "cntr_1")["tools"] == [interpreter({"type": "auto"})]


CHOICES: dict[str, tuple[Any, list[Any]]] = {
    "a function": ({"type": "function", "name": "f"}, [{"type": "function", "name": "f"}]),
    "a function in a namespace": (
        {"type": "function", "name": "f"},
        [{"type": "namespace", "name": "n", "description": "", "tools": [{"type": "function", "name": "f"}]}],
    ),
    "the shell": ({"type": "shell"}, [{"type": "shell"}]),
    "the code interpreter": ({"type": "code_interpreter"}, [interpreter("cntr_1")]),
    "the computer by its other name": ({"type": "computer_use"}, [{"type": "computer"}]),
    "some of the tools": (
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "c"}, {"type": "apply_patch"}]},
        [{"type": "custom", "name": "c"}, {"type": "apply_patch"}, {"type": "local_shell"}],
    ),
    "any tool": ("required", [{"type": "local_shell"}]),
}


@pytest.mark.parametrize(("choice", "tools"), CHOICES.values(), ids=CHOICES.keys())
def test_an_offered_tool_can_be_chosen(choice: Any, tools: list[Any]) -> None:
    request = parse_create({"model": "m", "input": "x", "tools": tools, "tool_choice": choice})
    assert request.tool_choice == choice


def test_a_tool_that_an_item_offers_can_be_chosen() -> None:
    offer = {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "f"}]}
    choice = {"type": "function", "name": "f"}
    assert parse_create({"model": "m", "input": [offer], "tool_choice": choice}).tool_choice == choice
