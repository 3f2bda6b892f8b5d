"""Tools of a request: the shell's environment, its network policy, and where secrets are not."""

from typing import Any

import orjson
import pytest
from moorage.errors import ApiError
from moorage.wire.requests import CreateRequest, parse_create
from moorage.wire.responses import echo
from moorage.wire.tools import DomainSecret, NetworkPolicy, ShellEnvironment, parse_network_policy

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
    assert hosted_with_secret().shell == ShellEnvironment(
        type="container_auto",
        file_ids=("file-1",),
        memory_limit="4g",
        network_policy=NetworkPolicy("allowlist", ("api.example.com",), (DomainSecret("api.example.com", "TOKEN", SECRET),)),
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
        (None, ShellEnvironment("local")),
        ({"type": "local", "skills": []}, ShellEnvironment("local")),
        ({"type": "container_auto"}, ShellEnvironment("container_auto")),
        (
            {"type": "container_reference", "container_id": "cntr_1"},
            ShellEnvironment("container_reference", container_id="cntr_1"),
        ),
    ],
)
def test_where_the_commands_run(environment: Any, expected: ShellEnvironment) -> None:
    request = with_shell(environment)
    assert request.shell == expected
    assert request.is_hosted == (expected.type != "local")


def test_without_a_shell_nothing_is_hosted() -> None:
    assert not parse_create({"model": "m", "input": "x", "tools": [{"type": "apply_patch"}]}).is_hosted


DOMAINS = {
    "EXAMPLE.com.": "example.com",
    "*.example.com": "*.example.com",
    "bücher.example": "xn--bcher-kva.example",
    "a_b.example.com": "a_b.example.com",
}


@pytest.mark.parametrize(("given", "expected"), DOMAINS.items())
def test_domains_are_compared_in_one_form(given: str, expected: str) -> None:
    assert parse_network_policy(allowlist(given), "network_policy").allowed_domains == (expected,)


BAD_DOMAINS = [
    "https://example.com",
    "example.com:443",
    "example.com/path",
    "10.0.0.1",
    "[::1]",
    "exa mple.com",
    "a..b",
    "-a.example",
    "*",
    "*.*.example",
    "a.*.example",
    "",
    "x" * 64 + ".example",
    "example.com\r\n",
    "." * 3,
    "a" * 2000,
]


@pytest.mark.parametrize("domain", BAD_DOMAINS)
def test_what_is_no_domain_is_refused_where_it_stands(domain: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_network_policy(allowlist("example.com", domain), "network_policy")
    assert (refused.value.status, refused.value.param) == (400, "network_policy.allowed_domains[1]")


BAD_SECRETS: dict[str, tuple[dict[str, str], str]] = {
    "a domain that is not allowed": ({"domain": "b.example", "name": "T", "value": "v"}, "domain"),
    "a name that no variable can have": ({"domain": "a.example", "name": "MY-TOKEN", "value": "v"}, "name"),
    "a line break in the value": ({"domain": "a.example", "name": "T", "value": "v\r\nx-evil: 1"}, "value"),
    "an empty value": ({"domain": "a.example", "name": "T", "value": ""}, "value"),
    "narrowing that is no list": ({"domain": "a.example", "name": "T", "value": "v", "methods": "GET"}, "methods"),
}


@pytest.mark.parametrize(("secret", "field"), BAD_SECRETS.values(), ids=BAD_SECRETS.keys())
def test_a_bad_secret_is_refused_without_repeating_its_value(secret: dict[str, str], field: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_network_policy(allowlist("a.example", domain_secrets=[secret]), "p")
    assert refused.value.param == f"p.domain_secrets[0].{field}"
    assert "evil" not in refused.value.message


def test_a_secret_may_be_narrowed_or_be_the_operators() -> None:
    given = allowlist(
        "a.example",
        domain_secrets=[
            {"domain": "a.example", "name": "T", "value": "v", "methods": ["GET"], "path_prefixes": ["/v1"], "places": ["query"]},
            {"domain": "a.example", "name": "OURS"},
        ],
    )
    policy = parse_network_policy(given, "p")
    assert policy.domain_secrets == (
        DomainSecret("a.example", "T", "v", methods=("GET",), path_prefixes=("/v1",), places=("query",)),
        DomainSecret("a.example", "OURS"),
    )
    assert policy.to_json() == given


def test_a_wildcard_covers_its_subdomains_secrets_but_not_the_domain_itself() -> None:
    def policy(domain: str) -> dict[str, Any]:
        return allowlist("*.a.example", domain_secrets=[{"domain": domain, "name": "T", "value": "v"}])

    assert parse_network_policy(policy("x.a.example"), "p").domain_secrets[0].domain == "x.a.example"
    with pytest.raises(ApiError):
        parse_network_policy(policy("a.example"), "p")


def test_a_disabled_policy_takes_no_domains() -> None:
    assert parse_network_policy({"type": "disabled"}, "p") == NetworkPolicy("disabled")
    with pytest.raises(ApiError) as refused:
        parse_network_policy({"type": "disabled", "allowed_domains": []}, "p")
    assert (refused.value.param, refused.value.code) == ("p.allowed_domains", "unknown_parameter")


CHOICES: dict[str, tuple[Any, list[Any]]] = {
    "a function": ({"type": "function", "name": "f"}, [{"type": "function", "name": "f"}]),
    "a function in a namespace": (
        {"type": "function", "name": "f"},
        [{"type": "namespace", "name": "n", "description": "", "tools": [{"type": "function", "name": "f"}]}],
    ),
    "the shell": ({"type": "shell"}, [{"type": "shell"}]),
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
