"""What AWS takes, checked where it is put together: a template beyond a quota stops synthesis with one sentence, not a deploy half-way.

Only hard quotas stand here, and those of a new account that nobody can raise in an afternoon. What is known at deployment alone, such
as the name of a table, is counted with the length that it can have.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.config import ConfigError

ENVIRONMENT_BYTES_MAX: Final = 4_096
"""Of a function's variables, names and values together (Lambda quotas)."""

RESOURCES_MAX: Final = 500
"""Of a stack, and its template's size from S3 (CloudFormation quotas)."""
TEMPLATE_BYTES_MAX: Final = 1024 * 1024
OUTPUTS_MAX: Final = 200

ROLE_POLICY_CHARS_MAX: Final = 10_240
"""Of all inline policies of a role, white space not counted (IAM quotas)."""

CODE_BYTES_MAX: Final = 250 * 1024 * 1024
"""Of a function and its layers, unzipped (Lambda quotas)."""

DEFINITION_BYTES_MAX: Final = 1024 * 1024
STATE_NAME_CHARS_MAX: Final = 80
"""Step Functions quotas."""

TARGETS_MAX: Final = 5
"""Of an EventBridge rule."""

DOMAINS_MAX: Final = 1_000
"""Of one list of the DNS firewall (Route 53 Resolver quotas, domains in a single list given inline)."""

TASK_DEFINITION_BYTES_MAX: Final = 64 * 1024
"""ECS quotas."""

EXPRESSION_CHARS_MAX: Final = 2_048
"""Of metric math (CloudWatch API reference, ``MetricDataQuery``)."""

USAGE_PLANS_MAX: Final = 300
GATEWAY_RESOURCES_MAX: Final = 300
"""Of an account and of a REST API (API Gateway quotas)."""

_REFERENCE_CHARS: Final = 128
"""What a reference can become: the ARNs and names of this deployment are shorter."""

_GROUP_ID_CHARS: Final = 20
"""``sg-`` and 17 digits."""

_NAMES: Final = {
    "AWS::Lambda::Function": ("FunctionName", 64),
    "AWS::IAM::Role": ("RoleName", 64),
    "AWS::StepFunctions::StateMachine": ("StateMachineName", 80),
    "AWS::ECS::Cluster": ("ClusterName", 255),
    "AWS::ECS::TaskDefinition": ("Family", 255),
    "AWS::Events::Rule": ("Name", 64),
    "AWS::S3::Bucket": ("BucketName", 63),
    "AWS::DynamoDB::Table": ("TableName", 255),
    "AWS::CloudWatch::Dashboard": ("DashboardName", 255),
    "AWS::ApiGateway::RestApi": ("Name", 1024),
}


@dataclass(frozen=True)
class Excess:
    """Something beyond a quota, as one sentence."""

    what: str
    amount: int
    quota: int
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} {self.amount:,}, and AWS takes {self.quota:,}: {self.remedy}."


def check(assembly: Path) -> None:
    """Raise :class:`ConfigError` for the first template of a cloud assembly that AWS would refuse."""
    for file in sorted(assembly.glob("*.template.json")):
        template = json.loads(file.read_text())
        excesses = [*in_template(file.name.removesuffix(".template.json"), template), *_code(template, assembly)]
        if excesses:
            raise ConfigError(str(excesses[0]))


def in_template(stack: str, template: Mapping[str, Any]) -> Iterator[Excess]:
    """Every excess of one template."""
    resources = template["Resources"]
    kinds = [resource["Type"] for resource in resources.values()]
    fewer = "leave out memory tiers, zones or usage plans"
    size = len(json.dumps(template, separators=(",", ":")).encode())
    counts = (
        (f"The stack {stack} has resources:", len(resources), RESOURCES_MAX, fewer),
        (f"The template of {stack} has bytes:", size, TEMPLATE_BYTES_MAX, fewer),
        (f"The stack {stack} has outputs:", len(template.get("Outputs", {})), OUTPUTS_MAX, fewer),
        ("The REST API has resources:", kinds.count("AWS::ApiGateway::Resource"), GATEWAY_RESOURCES_MAX, "routes are too many"),
        ("Usage plans:", kinds.count("AWS::ApiGateway::UsagePlan"), USAGE_PLANS_MAX, "put tenants into tiers"),
    )
    yield from (Excess(*count) for count in counts if count[1] > count[2])
    for name, resource in resources.items():
        yield from _of_resource(name, resource["Type"], resource.get("Properties", {}))
    yield from _policies(resources)


def _of_resource(name: str, kind: str, properties: Mapping[str, Any]) -> Iterator[Excess]:
    if kind in _NAMES:
        attribute, longest = _NAMES[kind]
        if (length := _length(properties.get(attribute, ""))) > longest and isinstance(properties[attribute], str):
            yield Excess(f"The name {properties[attribute]} has characters:", length, longest, "choose a shorter 'name'")
    match kind:
        case "AWS::Lambda::Function":
            variables = properties.get("Environment", {}).get("Variables", {})
            size = sum(len(key.encode()) + _length(value) for key, value in variables.items())
            if size > ENVIRONMENT_BYTES_MAX:
                longest_variable = max(variables, key=lambda key: _length(variables[key]))
                remedy = f"the longest is {longest_variable}, so shorten that setting"
                yield Excess(f"The variables of the function {name} have bytes:", size, ENVIRONMENT_BYTES_MAX, remedy)
        case "AWS::StepFunctions::StateMachine":
            yield from _machine(properties.get("DefinitionString", "{}"))
        case "AWS::Events::Rule" if len(properties.get("Targets", [])) > TARGETS_MAX:
            yield Excess(f"The rule {name} has targets:", len(properties["Targets"]), TARGETS_MAX, "a second rule takes the others")
        case "AWS::Route53Resolver::FirewallDomainList" if len(properties["Domains"]) > DOMAINS_MAX:
            yield Excess("The DNS firewall lists names:", len(properties["Domains"]), DOMAINS_MAX, "list fewer")
        case "AWS::ECS::TaskDefinition" if (size := _length(properties)) > TASK_DEFINITION_BYTES_MAX:
            yield Excess(f"The task {name} has bytes:", size, TASK_DEFINITION_BYTES_MAX, "list fewer domains in allowed_egress_domains")
        case "AWS::CloudWatch::Dashboard":
            yield from _expressions(properties["DashboardBody"])


def _machine(definition: Any) -> Iterator[Excess]:
    if not isinstance(definition, str):
        return
    if len(definition.encode()) > DEFINITION_BYTES_MAX:
        yield Excess("The state machine has bytes:", len(definition.encode()), DEFINITION_BYTES_MAX, "split it")
    for state in _states(json.loads(definition)):
        if len(state) > STATE_NAME_CHARS_MAX:
            yield Excess(f"The state {state} has characters:", len(state), STATE_NAME_CHARS_MAX, "name it shorter")


def _states(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value.get("States", {})
        for each in value.values():
            yield from _states(each)
    elif isinstance(value, list):
        for each in value:
            yield from _states(each)


def _expressions(body: Any) -> Iterator[Excess]:
    text = "".join(part if isinstance(part, str) else "x" * _REFERENCE_CHARS for part in _parts(body))
    for piece in text.split('"expression":"')[1:]:
        length = len(piece.split('"')[0])
        if length > EXPRESSION_CHARS_MAX:
            yield Excess("An expression of the dashboard has characters:", length, EXPRESSION_CHARS_MAX, "split it")


def _parts(value: Any) -> list[Any]:
    match value:
        case {"Fn::Join": [_, parts]}:
            return list(parts)
        case _:
            return [value]


def _policies(resources: Mapping[str, Any]) -> Iterator[Excess]:
    sizes: dict[str, int] = {}
    for resource in resources.values():
        if resource["Type"] != "AWS::IAM::Policy":
            continue
        properties = resource["Properties"]
        for role in properties.get("Roles", []):
            name = role["Ref"] if isinstance(role, dict) else role
            sizes[name] = sizes.get(name, 0) + _length(properties["PolicyDocument"])
    for name, size in sizes.items():
        if size > ROLE_POLICY_CHARS_MAX:
            remedy = "name fewer model keys in models.toml, or fewer memory tiers"
            yield Excess(f"The policies of the role {name} have characters:", size, ROLE_POLICY_CHARS_MAX, remedy)


def _code(template: Mapping[str, Any], assembly: Path) -> Iterator[Excess]:
    """Checks packages after their assembly: each function with its layers."""
    resources = template["Resources"]
    for name, resource in resources.items():
        if resource["Type"] != "AWS::Lambda::Function":
            continue
        properties = resource["Properties"]
        own = [resources[layer["Ref"]]["Properties"]["Content"] for layer in properties.get("Layers", []) if "Ref" in layer]
        size = sum(_unzipped(assembly, place) for place in (properties.get("Code", {}), *own))
        if size > CODE_BYTES_MAX:
            yield Excess(f"The function {name} has bytes with its layers:", size, CODE_BYTES_MAX, "requirements/runtime.in is too long")


def _unzipped(assembly: Path, place: Mapping[str, Any]) -> int:
    folder = assembly / f"asset.{str(place.get('S3Key', '')).removesuffix('.zip')}"
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) if folder.is_dir() else 0


def _length(value: Any) -> int:
    """Bytes of a value in AWS's form, without white space; a reference counts with its longest value."""
    match value:
        case str():
            return len(value.encode())
        case {"Fn::GetAtt": [_, "GroupId"]}:
            return _GROUP_ID_CHARS
        case {"Ref": _} | {"Fn::GetAtt": _} | {"Fn::ImportValue": _}:
            return _REFERENCE_CHARS
        case {"Fn::Join": [separator, parts]}:
            return sum(map(_length, parts)) + len(str(separator)) * (len(parts) - 1)
        case {"Fn::Select": _} | {"Fn::Sub": _}:
            return _REFERENCE_CHARS
        case dict():
            return 2 + sum(len(json.dumps(key)) + 2 + _length(each) for key, each in value.items())
        case list():
            return 2 + sum(_length(each) + 3 for each in value)
        case _:
            return len(json.dumps(value))
