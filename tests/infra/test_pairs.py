"""Pairs of templates: a setting off and on, and all that differs between the two. Who does not ask for a setting has nothing of it."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.infra.conftest import (
    COMPANY,
    EVERYTHING,
    GIVEN_GROUPS,
    GIVEN_VPC,
    MICROVM_VPC,
    MICROVMS,
    NAMED,
    PRIVATE,
    Stacks,
    masked,
    shared,
)

Settings = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """Of the service's template, and of the state's, whose names begin with "state "."""

    added: dict[str, int] = field(default_factory=dict)
    """Resources by kind."""
    removed: dict[str, int] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()
    """Places of resources in both, as ``kind path``. Of a list what is more is ``path +``, and what is less ``path -``."""
    outputs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Pair:
    on: Settings
    difference: Difference
    off: Settings = field(default_factory=dict)


def _both(place: str) -> frozenset[str]:
    """Of a list: something else stands in it."""
    return frozenset({f"{place} +", f"{place} -"})


_CIDRS: Final = ("Route Properties/DestinationCidrBlock", "Subnet Properties/CidrBlock", "VPC Properties/CidrBlock")
_OIDC: Final = (
    *("AT_GATEWAY", "AUDIENCE", "CLIENT_ID", "CLIENT_SECRET", "CONSOLE_URL"),
    *("ISSUER", "ROLES", "ROLE_CLAIM", "SCOPES", "TENANTS", "TENANT_CLAIM"),
)
_VARIABLES: Final = "AWS::Lambda::Function Properties/Environment/Variables"
_OIDC_VARIABLES: Final = frozenset({f"{_VARIABLES}/MOORAGE_OIDC_{name}" for name in _OIDC})
_API: Final = "AWS::ApiGateway::RestApi Properties"
_STATEMENTS: Final = "AWS::IAM::Policy Properties/PolicyDocument/Statement"
_ANSWERS: Final = "AWS::ApiGateway::GatewayResponse Properties/ResponseParameters/gatewayresponse.header"

_VPC: Final = {
    "AWS::EC2::RouteTable": 2,
    "AWS::EC2::Subnet": 2,
    "AWS::EC2::SubnetRouteTableAssociation": 2,
    "AWS::EC2::VPC": 1,
}
_NETWORK: Final = {
    **_VPC,
    "AWS::EC2::VPCEndpoint": 4,
    "AWS::Route53Resolver::FirewallDomainList": 2,
    "AWS::Route53Resolver::FirewallRuleGroup": 1,
    "AWS::Route53Resolver::FirewallRuleGroupAssociation": 1,
}
_PLACES: Final = frozenset({*_both("AWS::Lambda::Function Properties/VpcConfig/SubnetIds"), f"{_VARIABLES}/MOORAGE_FARGATE_SUBNETS"})
_TABLES_KEY: Final = ("KMSMasterKeyId", "SSEEnabled", "SSEType")
_GROUP_IN_VPC: Final = "AWS::EC2::SecurityGroup Properties/VpcId"
_VPC_OF_MICROVMS: Final = dict.fromkeys((*_VPC, "AWS::EC2::VPCEndpoint"), 1)
_CONNECTOR: Final = (
    _both("AWS::Lambda::MicrovmImage Properties/EgressNetworkConnectors")
    | {_GROUP_IN_VPC, f"{_VARIABLES}/MOORAGE_MICROVM_EGRESS_CONNECTOR"}
    | _both(_STATEMENTS)
)

_TASK: Final = "AWS::ECS::TaskDefinition Properties"
PAIRS: dict[str, Pair] = {
    "a browser in each sandbox": Pair(
        on={"computer": True},
        difference=Difference(
            added={
                "AWS::CodeBuild::Project": 1,
                "AWS::ECR::Repository": 1,
                "AWS::Events::Rule": 1,
                "AWS::IAM::Policy": 1,
                "AWS::IAM::Role": 1,
                "AWS::Lambda::Permission": 1,
                "AWS::Logs::LogGroup": 1,
                "Custom::ImageBuild": 1,
            },
            changed=_both(f"{_TASK}/ContainerDefinitions")
            | _both(_STATEMENTS)
            | {f"{_TASK}/{name}" for name in ("EphemeralStorage/SizeInGiB", "Memory", "Volumes +")}
            | {f"{_VARIABLES}/MOORAGE_{name}" for name in ("SANDBOX_BROWSER", "SCREENS_FUNCTION")},
        ),
    ),
    "a network of the owner's": Pair(
        on={"vpc": GIVEN_VPC},
        difference=Difference(
            removed={**_NETWORK, "AWS::EC2::SecurityGroup": 1, "AWS::EC2::SecurityGroupIngress": 1},
            changed=_PLACES | {_GROUP_IN_VPC, "AWS::EC2::SecurityGroupEgress Properties/DestinationSecurityGroupId"},
        ),
    ),
    "a network of the owner's with its groups": Pair(
        on={"vpc": {**GIVEN_VPC, "endpoint_group": None, **GIVEN_GROUPS}},
        difference=Difference(
            removed={
                **_NETWORK,
                "AWS::EC2::SecurityGroup": 3,
                "AWS::EC2::SecurityGroupEgress": 5,
                "AWS::EC2::SecurityGroupIngress": 2,
                "Custom::PrefixLists": 1,
            },
            changed=_PLACES
            | {f"{_STATEMENTS} -", f"{_VARIABLES}/MOORAGE_FARGATE_SECURITY_GROUP"}
            | _both("AWS::Lambda::Function Properties/VpcConfig/SecurityGroupIds"),
        ),
    ),
    "other addresses": Pair(
        on={"vpc_cidr": "192.168.0.0/20"},
        difference=Difference(
            added={**_VPC, "AWS::EC2::VPCEndpoint": 2},
            removed={**_VPC, "AWS::EC2::VPCEndpoint": 2},
            changed=_PLACES
            | {_GROUP_IN_VPC, "AWS::EC2::VPCEndpoint Properties/VpcId"}
            | {"AWS::Route53Resolver::FirewallRuleGroupAssociation Properties/VpcId"}
            | _both("AWS::EC2::VPCEndpoint Properties/SubnetIds"),
        ),
    ),
    "other addresses of the proxy": Pair(
        off={"allowed_egress_domains": ["pkg.example.com"]},
        on={"proxy_cidr": "192.168.0.0/26"},
        difference=Difference(
            changed=frozenset({f"AWS::EC2::{kind}" for kind in _CIDRS})
            | _both("AWS::EC2::SecurityGroup Properties/SecurityGroupEgress")
            | _both("AWS::ECS::TaskDefinition Properties/ContainerDefinitions"),
        ),
    ),
    "MicroVMs in a network of the owner's": Pair(
        off=MICROVMS,
        on={"vpc": MICROVM_VPC},
        difference=Difference(
            added={"AWS::Lambda::NetworkConnector": 1},
            removed=dict.fromkeys(
                (*_VPC_OF_MICROVMS, "AWS::Lambda::NetworkConnector", "AWS::EC2::SecurityGroupEgress", "Custom::PrefixLists"), 1
            ),
            changed=_CONNECTOR
            | {f"{_VARIABLES}/MOORAGE_MICROVM_REACHES_BUCKET", "AWS::EC2::SecurityGroup Properties/SecurityGroupEgress +"},
        ),
    ),
    "MicroVMs at other addresses": Pair(
        off=MICROVMS,
        on={"vpc_cidr": "192.168.0.0/20"},
        difference=Difference(
            added={**_VPC_OF_MICROVMS, "AWS::Lambda::NetworkConnector": 1},
            removed={**_VPC_OF_MICROVMS, "AWS::Lambda::NetworkConnector": 1},
            changed=_CONNECTOR,
        ),
    ),
    "TLS 1.3": Pair(
        on={"tls_minimum": "1.3"},
        difference=Difference(changed=frozenset({f"{_API}/SecurityPolicy", f"{_API}/EndpointAccessMode"})),
    ),
    "IPv6": Pair(
        off={"websocket": True},
        on={"dual_stack": True},
        difference=Difference(
            changed=frozenset({f"{_API}/EndpointConfiguration/IpAddressType", "AWS::ApiGatewayV2::Api Properties/IpAddressType"})
        ),
    ),
    "a private API": Pair(
        on={"private_api": ["vpce-0123456789abcdef0"]},
        difference=Difference(
            changed=_both(f"{_API}/EndpointConfiguration/Types")
            | {f"{_API}/EndpointConfiguration/{name}" for name in ("IpAddressType", "VpcEndpointIds +")}
            | {f"{_API}/Policy/Statement +", f"{_API}/Policy/Version"}
        ),
    ),
    "a name of a private API": Pair(
        off=PRIVATE,
        on=NAMED,
        difference=Difference(
            added={
                "AWS::ApiGateway::BasePathMappingV2": 1,
                "AWS::ApiGateway::DomainNameAccessAssociation": 2,
                "AWS::ApiGateway::DomainNameV2": 1,
            },
        ),
    ),
    "a name of the WebSocket API": Pair(
        off={"websocket": True},
        on={
            "websocket_domain_name": EVERYTHING["websocket_domain_name"],
            "websocket_certificate_arn": EVERYTHING["websocket_certificate_arn"],
        },
        difference=Difference(
            added={"AWS::ApiGatewayV2::ApiMapping": 1, "AWS::ApiGatewayV2::DomainName": 1},
            changed=frozenset(
                {"AWS::ApiGatewayV2::Api Properties/DisableExecuteApiEndpoint", f"{_VARIABLES}/MOORAGE_WEBSOCKET_ENDPOINT"}
            ),
            outputs=frozenset({"WebSocketDomainTarget"}),
        ),
    ),
    "pages of named origins": Pair(
        on={"cors_origins": EVERYTHING["cors_origins"]},
        difference=Difference(
            added={"AWS::ApiGateway::Method": 14},
            changed=frozenset(
                {
                    f"{_ANSWERS}.access-control-allow-origin",
                    f"{_ANSWERS}.access-control-expose-headers",
                    f"{_ANSWERS}.vary",
                }
            ),
        ),
    ),
    "the audit trail": Pair(
        on={"audit_retention_days": 365},
        difference=Difference(
            added={"AWS::Logs::LogGroup": 1},
            # One statement names both log groups of a function.
            changed=_both(_STATEMENTS) | {f"{_VARIABLES}/MOORAGE_AUDIT_LOG_GROUP"},
            outputs=frozenset({"AuditLogGroup"}),
        ),
    ),
    "a name of the API": Pair(
        on=NAMED,
        difference=Difference(
            added={"AWS::ApiGateway::BasePathMapping": 1, "AWS::ApiGateway::DomainName": 1},
            changed=frozenset({f"{_API}/DisableExecuteApiEndpoint"}),
            outputs=frozenset({"DomainTarget"}),
        ),
    ),
    "a key of the company's": Pair(
        on={"kms_key_arn": COMPANY["kms_key_arn"]},
        difference=Difference(
            changed=frozenset(f"AWS::DynamoDB::Table Properties/SSESpecification/{each}" for each in _TABLES_KEY)
            | {f"AWS::ECR::Repository Properties/EncryptionConfiguration/{each}" for each in ("EncryptionType", "KmsKey")}
            | {"AWS::Logs::LogGroup Properties/KmsKeyId", "AWS::SecretsManager::Secret Properties/KmsKeyId", f"{_STATEMENTS} +"}
            | _both("AWS::S3::Bucket Properties/BucketEncryption/ServerSideEncryptionConfiguration")
        ),
    ),
    "a topic of the company's": Pair(
        on={"alarm_topic_arn": COMPANY["alarm_topic_arn"]},
        difference=Difference(
            added={"AWS::CloudWatch::Alarm": 6}, changed=frozenset({"AWS::CloudWatch::Alarm Properties/AlarmActions +"})
        ),
    ),
    "a web ACL of the company's": Pair(
        on={"waf_acl_arn": COMPANY["waf_acl_arn"]}, difference=Difference(added={"AWS::WAFv2::WebACLAssociation": 1})
    ),
    "a web ACL": Pair(on={"waf": True}, difference=Difference(added={"AWS::WAFv2::WebACL": 1, "AWS::WAFv2::WebACLAssociation": 1})),
    "another bound of an address": Pair(
        off={"waf": True},
        on={"waf_address_requests": 100},
        difference=Difference(changed=_both("AWS::WAFv2::WebACL Properties/Rules")),
    ),
    "versions of objects": Pair(
        on={"object_versions_days": 30},
        difference=Difference(
            changed=frozenset(
                f"AWS::S3::Bucket Properties/{each}" for each in ("LifecycleConfiguration/Rules +", "VersioningConfiguration/Status")
            )
        ),
    ),
    "tokens of an issuer": Pair(
        on={"oidc": EVERYTHING["oidc"]},
        difference=Difference(changed=_OIDC_VARIABLES),
    ),
    "tokens of an issuer at the WebSocket API": Pair(
        off={"websocket": True},
        on={"oidc": EVERYTHING["oidc"]},
        difference=Difference(changed=_OIDC_VARIABLES | {f"{_STATEMENTS} +"}),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_setting_changes_what_is_its_own_and_nothing_else(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    pair = PAIRS[name]
    off, on = (shared(settings, tmp_path_factory) for settings in (pair.off, {**pair.off, **pair.on}))
    assert on.findings == []
    assert difference(off, on) == pair.difference


def test_own_tags_are_all_that_they_change(stacks: Stacks, tmp_path_factory: pytest.TempPathFactory) -> None:
    changes = difference(stacks, shared({"tags": COMPANY["tags"]}, tmp_path_factory))
    assert (changes.added, changes.removed, changes.outputs) == ({}, {}, frozenset())
    assert {place.partition(" ")[2] for place in changes.changed} == {"Properties/Tags +"}


def difference(off: Stacks, on: Stacks) -> Difference:
    """Without hashes, because those of code change with every setting that lies beside it, and without the order of making."""
    before, after = ({f"{prefix}{name}": each for prefix, name, each in _parts(stacks, "Resources")} for stacks in (off, on))
    outputs = [{f"{prefix}{name}" for prefix, name, _ in _parts(stacks, "Outputs")} for stacks in (off, on)]
    return Difference(
        added=dict(Counter(after[name]["Type"] for name in after.keys() - before.keys())),
        removed=dict(Counter(before[name]["Type"] for name in before.keys() - after.keys())),
        changed=frozenset(
            f"{before[name]['Type']} {place}" for name in before.keys() & after.keys() for place in _places(before[name], after[name])
        ),
        outputs=frozenset(outputs[0] ^ outputs[1]),
    )


def _parts(stacks: Stacks, part: str) -> Iterator[tuple[str, str, Any]]:
    for prefix, template in (("", stacks.service), ("state ", stacks.state)):
        for name, each in json.loads(masked(json.loads(json.dumps(template)))).get(part, {}).items():
            yield prefix, name, {key: value for key, value in each.items() if key != "DependsOn"}


def _places(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Where both differ, as far down as they have names."""
    if any(isinstance(side, dict) and len(side) == 1 and next(iter(side)).startswith(("Ref", "Fn::")) for side in (before, after)):
        yield from [path] if before != after else []
    elif isinstance(before or {}, dict) and isinstance(after or {}, dict) and (before or after):
        old, new = before or {}, after or {}
        for key in old.keys() | new.keys():
            yield from _places(old.get(key), new.get(key), f"{path}/{key}" if path else key)
    elif isinstance(before or [], list) and isinstance(after or [], list) and (before or after):
        old, new = ([json.dumps(each, sort_keys=True) for each in side or []] for side in (before, after))
        yield from ([f"{path} +"] if Counter(new) - Counter(old) else []) + ([f"{path} -"] if Counter(old) - Counter(new) else [])
    elif before != after:
        yield path
