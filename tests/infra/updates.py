"""What an update does to a deployment that stands: one template, and the one that comes after it, as CloudFormation compares them.

CloudFormation makes what is new before it deletes what is old. It makes a resource anew where a property changes that can only be given
at creation (``created_only.json``, recorded from CloudFormation's schemas), or where such a property refers to a resource that is made
anew. Functions that were published go on with their variables until the last execution that began with them has ended, two days later.
"""

import ipaddress
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from tests.infra.conftest import Stacks
from tests.twin import calls
from tests.twin.calls import Check, checks
from tests.twin.iam import Account
from tests.twin.template import ACCOUNT, REGION, Template

RECORDED: Final = Path(__file__).with_name("created_only.json")
CREATED_ONLY: Final[Mapping[str, list[str]]] = json.loads(RECORDED.read_text())
Resource = Mapping[str, Any]

STATEFUL: Final = frozenset(
    {"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::SecretsManager::Secret", "AWS::KMS::Key", "Custom::KeptKey"}
    | {"Custom::KeptVectorBucket"}
)
LASTING: Final = frozenset(
    {
        *("AWS::StepFunctions::StateMachine", "AWS::Lambda::Function", "AWS::Lambda::Alias", "AWS::IAM::Role"),
        *("AWS::ApiGateway::RestApi", "AWS::ApiGatewayV2::Api", "AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::EC2::SecurityGroup"),
        *("AWS::ECS::Cluster", "AWS::ECS::Service", "AWS::ECR::Repository", "AWS::Lambda::MicrovmImage"),
    }
)
"""What runs, or is known by name outside of the template: executions, addresses, sandboxes, images that tasks are started from."""

NAMES: Final = {
    "AWS::ApiGateway::DomainNameAccessAssociation": ("AccessAssociationSource", "DomainNameArn"),
    "AWS::Budgets::Budget": ("Budget/BudgetName",),
    "AWS::CloudWatch::Dashboard": ("DashboardName",),
    "AWS::ECS::Cluster": ("ClusterName",),
    "AWS::Lambda::Alias": ("FunctionName", "Name"),
    "AWS::Lambda::MicrovmImage": ("Name",),
    "AWS::Lambda::NetworkConnector": ("Name",),
    "AWS::Logs::LogGroup": ("LogGroupName",),
    "AWS::ServiceDiscovery::PrivateDnsNamespace": ("Name", "Vpc"),
    "AWS::ServiceDiscovery::Service": ("Name", "NamespaceId"),
    "AWS::StepFunctions::StateMachine": ("StateMachineName",),
    "AWS::WAFv2::WebACL": ("Name", "Scope"),
}
"""Names that a template gives, of which AWS takes each once."""


@dataclass(frozen=True)
class Update:
    before: Stacks
    after: Stacks

    @cached_property
    def common(self) -> frozenset[str]:
        return frozenset(
            name for name, each in self.before.resources.items() if self.after.resources.get(name, {}).get("Type") == each["Type"]
        )

    @cached_property
    def removed(self) -> frozenset[str]:
        """Also what has the same id and is something else."""
        return frozenset(self.before.resources) - self.common

    @cached_property
    def replaced(self) -> frozenset[str]:
        """Those that are made anew."""
        found: set[str] = set()
        while more := {name for name in self.common - found if self._is_replaced(name, found)}:
            found |= more
        return frozenset(found)

    @cached_property
    def made(self) -> frozenset[str]:
        return (frozenset(self.after.resources) - self.common) | self.replaced

    @cached_property
    def changing(self) -> frozenset[str]:
        """What a reference to may come to another text."""
        return self.replaced | self.answering

    @cached_property
    def answering(self) -> frozenset[str]:
        """Our custom resources that are asked something else: what they answer may be something else too."""
        custom = {name for name in self.common if self.after.resources[name]["Type"].startswith("Custom::")}
        return frozenset(name for name in custom if self._text(name, self.before) != self._text(name, self.after))

    def _text(self, name: str, of: Stacks) -> str:
        return json.dumps(of.resources[name].get("Properties", {}), sort_keys=True)

    def _is_replaced(self, name: str, replaced: Iterable[str]) -> bool:
        old, new = (each.resources[name].get("Properties", {}) for each in (self.before, self.after))
        kind = self.after.resources[name]["Type"]
        if kind.startswith("Custom::"):
            return False  # Ours keep their id (functions/custom_resource).
        moving = self.answering | set(replaced)
        return any(at(old, path) != at(new, path) or moving & set(referred(at(new, path), self.after)) for path in CREATED_ONLY[kind])


def at(properties: Any, path: str) -> Any:
    """``A/B`` within properties; ``*`` stands for each element."""
    for step in path.split("/"):
        if step == "*":
            return properties
        properties = properties.get(step) if isinstance(properties, dict) else None
    return properties


def referred(value: Any, of: Stacks) -> Iterator[str]:
    """Logical ids that a value refers to, through exports too."""
    match value:
        case {"Ref": str(name)} if not name.startswith("AWS::"):
            yield name
        case {"Fn::GetAtt": [name, *_]}:
            yield name
        case {"Fn::Sub": str(text)}:
            yield from (found for found in re.findall(r"\$\{(\w+)[.}]", text) if found in of.resources)
        case {"Fn::ImportValue": str(export)}:
            yield from referred(exports(of)[export], of)
        case dict():
            for each in value.values():
                yield from referred(each, of)
        case list():
            for each in value:
                yield from referred(each, of)


def exports(of: Stacks) -> dict[str, Any]:
    found = of.state.get("Outputs", {}).values()
    return {output["Export"]["Name"]: output["Value"] for output in found if "Export" in output}


def imports(value: Any) -> Iterator[str]:
    match value:
        case {"Fn::ImportValue": str(export)}:
            yield export
        case dict():
            for each in value.values():
                yield from imports(each)
        case list():
            for each in value:
                yield from imports(each)


# --- What must hold ---


def subnets_overlap(update: Update) -> list[str]:
    """EC2 refuses a subnet whose addresses another one of the VPC has (InvalidSubnet.Conflict), also one that is about to go."""
    old, new = (each.of_type("AWS::EC2::Subnet") for each in (update.before, update.after))
    return [
        f"{name} {subnet['CidrBlock']} is made while {other} {standing['CidrBlock']} exists"
        for name, subnet in new.items()
        if name in update.made
        for other, standing in old.items()
        if subnet["VpcId"] == standing["VpcId"]
        and not update.replaced & set(referred(subnet["VpcId"], update.after))
        and ipaddress.ip_network(subnet["CidrBlock"]).overlaps(ipaddress.ip_network(standing["CidrBlock"]))
    ]


def names_taken(update: Update) -> list[str]:
    """A name that the template gives cannot be taken while the resource that has it exists
    (https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-properties-name.html)."""
    standing = {_named(resource): name for name, resource in update.before.resources.items() if _named(resource)}
    # What is named within something that is made anew is another name.
    within = {name for name in update.made if update.replaced & set(referred(_names(update.after.resources[name]), update.after))}
    made = {_named(update.after.resources[name]): name for name in update.made - within}
    return [f"{name} is made while {standing[called]} has its name" for called, name in made.items() if called and called in standing]


def _named(resource: Resource) -> str:
    """The kind and the name that AWS takes once; nothing if it gives the name itself."""
    values = _names(resource)
    return json.dumps([resource["Type"], *values], sort_keys=True) if values and None not in values else ""


def _names(resource: Resource) -> list[Any]:
    return [at(resource.get("Properties", {}), path) for path in NAMES.get(resource["Type"], ())]


def lost(update: Update) -> list[str]:
    """Data that would be made anew, or deleted; and what runs, that would be made anew."""
    anew = [f"{name} is made anew" for name in update.replaced if _kind(update, name) in STATEFUL | LASTING]
    gone = [
        f"{name} is deleted"
        for name in update.removed
        if _kind(update, name) in STATEFUL and not _is_kept(update.before.resources[name])
    ]
    return sorted(anew + gone)


def _kind(update: Update, name: str) -> str:
    kind: str = update.before.resources[name]["Type"]
    return kind


def _is_kept(resource: Resource) -> bool:
    return (
        resource.get("DeletionPolicy") in ("Retain", "RetainExceptOnCreate") or resource.get("Properties", {}).get("IsKept") == "true"
    )


def exports_in_use(update: Update) -> list[str]:
    """The state's stack is updated first, while the other one still imports from it: what it imports may neither go nor change."""
    used = set(imports(update.before.service))
    old, new = exports(update.before), exports(update.after)
    return sorted(f"{export} is in use" for export in used if old[export] != new.get(export))


def versions_broken(update: Update) -> list[str]:
    """What published versions name, and an update makes anew or deletes: a task definition is deregistered with its resource."""
    found = []
    families = {
        update.before.resources[name]["Properties"]["Family"]: name
        for name in update.removed
        if _kind(update, name) == "AWS::ECS::TaskDefinition"
    }
    for name, function in published(update.before).items():
        for variable, value in function.get("Environment", {}).get("Variables", {}).items():
            going = (update.replaced | update.removed) & set(referred(value, update.before))
            going |= {families[value]} if isinstance(value, str) and value in families else set()
            found += [f"{calls.own_name(name)}: {variable} names {each}" for each in sorted(going)]
    return found


def versions_deleted(update: Update) -> list[str]:
    """Executions go on with the versions that they began with."""
    return [
        f"{name} is deleted"
        for name in sorted(update.removed)
        if _kind(update, name) == "AWS::Lambda::Version" and not _is_kept(update.before.resources[name])
    ]


def versions_stale(update: Update) -> list[str]:
    """Functions that are published no more, although what they refer to comes to another text: the alias goes on with the old one."""
    found = []
    for name, function in published(update.after).items():
        is_another = set(versions(update.before, name)) != set(versions(update.after, name))
        stale = sorted(update.changing & set(referred(function, update.after)))
        if name in update.common and stale and not is_another:
            found.append(f"{calls.own_name(name)} is not published anew, and refers to {', '.join(stale)}")
    return found


def versions_denied(update: Update) -> list[str]:
    """What published versions ask, of what they know, by the policies that come after."""
    old, new = (_account(each, dict.fromkeys(update.replaced, n)) for n, each in enumerate((update.before, update.after), 1))
    roles = new.roles()
    found = []
    for name in published(update.before):
        function = calls.own_name(name)
        asked = [check for operation in calls.recorded().get(function, []) for check in checks(operation)]
        for check in asked if function in roles else []:
            if all(_knows(account, check) for account in (old, new)):
                context = {key: old.arn(value) if value == "cluster" else value for key, value in check.context}
                if not new.decides(roles[function], check.action, old.arn(check.on), context, check.partitions):
                    found.append(f"{function} may not {check.action} on {old.arn(check.on)}")
    return found


def _knows(account: Account, check: Check) -> bool:
    """Without a proxy, or without sandboxes, nobody asks for them."""
    if check.on in ("proxy", "secrets key"):
        return account.has_proxy
    is_of_ecs = check.on == "execution role" or check.action.startswith("ecs:")
    return not is_of_ecs or any("SandboxTask" in name for name, _ in account.template.of_type("AWS::ECS::TaskDefinition"))


def _account(stacks: Stacks, numbers: Mapping[str, int]) -> Account:
    """What is made anew has another ARN before and after: ``numbers`` by logical id."""
    resources = stacks.resources
    revisions = {
        name: f"arn:aws:ecs:{REGION}:{ACCOUNT}:task-definition/{each['Properties']['Family']}:{numbers.get(name, 0)}"
        for name, each in resources.items()
        if each["Type"] == "AWS::ECS::TaskDefinition"
    }
    template = Template.of(stacks.state, stacks.service)
    return Account(Template(template.resources, template.exports, revisions))


def published(of: Stacks) -> dict[str, dict[str, Any]]:
    """Functions of which there are versions."""
    named = {each for version in of.of_type("AWS::Lambda::Version").values() for each in referred(version["FunctionName"], of)}
    return {name: function for name, function in of.of_type("AWS::Lambda::Function").items() if name in named}


def versions(of: Stacks, function: str) -> list[str]:
    found = of.of_type("AWS::Lambda::Version").items()
    return [name for name, version in found if function in referred(version["FunctionName"], of)]


# --- All of it ---

RULES: Final = (
    *(subnets_overlap, names_taken, lost, exports_in_use),
    *(versions_broken, versions_deleted, versions_stale, versions_denied),
)

_GROUPS_ANEW: Final = tuple(
    f"{group} is made anew"
    for group in (
        "NetworkFunctionGroup72F05A9A",
        "NetworkSandboxGroup9FCEF66A",
        "EgressSandboxGroupCF44A45B",
        "EgressProxyGroupB46CB22C",
    )
)
_NETWORK: Final = (
    *_GROUPS_ANEW,
    *(f": MOORAGE_FARGATE_{name} names" for name in ("SUBNETS", "SECURITY_GROUP", "EGRESS_SECURITY_GROUP")),
)
_MICROVM_NETWORK: Final = ("MicrovmsNetworkClosedGroup33E541D7 is made anew", ": MOORAGE_MICROVM_EGRESS_CONNECTOR names")

GOES_WITH: Final = {
    "provisioner": ("names Network", "names Sandbox", "names Hooks", "names Microvms"),
    "allowed_egress_domains": (": MOORAGE_EGRESS_", ": MOORAGE_FARGATE_EGRESS_SECURITY_GROUP names"),
    "audit_retention_days": (": MOORAGE_AUDIT_LOG_GROUP names",),
    "availability_zones": (": MOORAGE_FARGATE_SUBNETS names", ": MOORAGE_MICROVM_EGRESS_CONNECTOR names"),
    "kms_key_arn": ("ImageRepository",),
    "customer_managed_key": ("moorage-state:ExportsOutputFnGetAttStateKey",),
    "memory_tiers": (
        *(": MOORAGE_FARGATE_TASK_DEFINITION_", ": MOORAGE_MICROVM_IMAGE_", ": MOORAGE_MICROVM_VERSION_"),
        ":task-definition/moorage-sandbox-1g:",
    ),
    "table_name": (" on <State", " on arn:aws:dynamodb", " on arn:aws:s3"),
    "proxy_cidr": (_GROUPS_ANEW[3], "EgressVpc43239058 is made anew", "EgressVpcproxySubnet1Subnet06CD71E2 is made anew"),
    "vpc": (*_NETWORK, *_MICROVM_NETWORK),
    "vpc_cidr": (*_NETWORK, *_MICROVM_NETWORK, "NetworkImageEndpointGroup029B37CC is made anew"),
    "microvm_cidr": (*_MICROVM_NETWORK, "EgressMicrovmSandboxGroup"),
    "vector_bucket": (": MOORAGE_VECTOR_BUCKET names",),
    "websocket": (": MOORAGE_WEBSOCKET_",),
}
"""What ends when a setting is turned off, by words of the fault: those who use it have no other. docs/aws.md ("Settings of a deployment
that stands") says so, and that a customer's key cannot be turned off."""


def faults(update: Update) -> list[str]:
    """What must not be, in words; nothing for a good update."""
    return [fault for rule in RULES for fault in rule(update)]


def beyond(found: list[str], off: Iterable[str]) -> list[str]:
    """Without what ends with these settings."""
    words = [each for setting in off for each in GOES_WITH.get(setting, ())]
    return [fault for fault in found if not any(each in fault for each in words)]
