"""``provisioner: lambda_microvm`` alone deploys sandboxes in MicroVMs: images, connector, network and roles."""

import json
import re
from typing import Any

import pytest

from infra.microvms import MINIMUM_MEMORY_MIB
from tests.infra.conftest import GIVEN_GROUPS, MICROVM_VPC, MICROVMS, Stacks, shared


@pytest.fixture(scope="module")
def microvms(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    return shared({"rollout": "linear", **MICROVMS}, tmp_path_factory)


def names(stacks: Stacks, kind: str) -> list[str]:
    return sorted(stacks.of_type(kind))


def test_each_memory_tier_has_an_image_that_is_closed_by_itself(microvms: Stacks) -> None:
    """A VM that is run without a connector inherits its image's; an image without one has the public internet."""
    (connector,) = names(microvms, "AWS::Lambda::NetworkConnector")
    (base,) = names(microvms, "Custom::MicrovmBase")
    (role,) = [name for name in names(microvms, "AWS::IAM::Role") if name.startswith("MicrovmsBuildRole")]
    images = microvms.of_type("AWS::Lambda::MicrovmImage")
    uri = next(iter(images.values()))["CodeArtifact"]["Uri"]
    assert list(images.values()) == [
        {
            "Name": f"moorage-{tier}",
            "Description": f"moorage: sandboxes of {tier}",
            "BaseImageArn": "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1",
            "BaseImageVersion": {"Fn::GetAtt": [base, "Version"]},
            "BuildRoleArn": {"Fn::GetAtt": [role, "Arn"]},
            "CodeArtifact": {"Uri": uri},
            "CpuConfigurations": [{"Architecture": "ARM_64"}],
            "Resources": [{"MinimumMemoryInMiB": MINIMUM_MEMORY_MIB[tier]}],
            "EgressNetworkConnectors": [{"Fn::GetAtt": [connector, "Arn"]}],
            "AdditionalOsCapabilities": [],
            "EnvironmentVariables": [],
            "Hooks": {
                "Port": 9000,
                "MicrovmHooks": {"Run": "ENABLED", "RunTimeoutInSeconds": 60},
                "MicrovmImageHooks": {
                    "Ready": "ENABLED",
                    "ReadyTimeoutInSeconds": 300,
                    "Validate": "ENABLED",
                    "ValidateTimeoutInSeconds": 300,
                },
            },
            "Logging": {"CloudWatch": {"LogGroup": {"Ref": group}}},
            "Tags": [{"Key": "moorage:deployment", "Value": "moorage"}],
        }
        for tier, group in (
            (tier, next(name for name in names(microvms, "AWS::Logs::LogGroup") if name.startswith(f"MicrovmsBuildLogs{tier}")))
            for tier in ("1g", "4g", "16g")
        )
    ]
    assert MINIMUM_MEMORY_MIB == {"1g": 512, "4g": 1024, "16g": 4096}


def test_the_image_is_the_container_image_that_codebuild_makes(microvms: Stacks) -> None:
    (source,) = microvms.of_type("Custom::MicrovmSource").values()
    (build,) = microvms.of_type("Custom::ImageBuild").values()
    dockerfile = "".join(part for part in source["Dockerfile"]["Fn::Join"][1] if isinstance(part, str))
    assert dockerfile.startswith("FROM ")
    assert re.search(rf":{build['Tag']}\nEXPOSE 8080 9000\nENTRYPOINT \[\"/usr/local/bin/python3\", \"-I\", \"-S\", ", dockerfile)
    before = ("HooksImageBuild", "HooksSource", "MicrovmsBuildRole", "MicrovmsBuildRoleDefaultPolicy")
    for image in (r for r in microvms.resources.values() if r["Type"] == "AWS::Lambda::MicrovmImage"):
        assert [each for each in before if not any(name.startswith(each) for name in image["DependsOn"])] == []


def test_there_is_nothing_of_fargate_beside_them(microvms: Stacks) -> None:
    assert microvms.findings == []
    kinds = ("AWS::ECS::Cluster", "AWS::Route53Resolver::FirewallRuleGroup")
    assert [kind for kind in kinds if microvms.of_type(kind)] == []
    assert [name for name, f in microvms.of_type("AWS::Lambda::Function").items() if "VpcConfig" in f] == []


def test_their_network_leads_to_the_deployments_bucket_and_to_nothing_else(microvms: Stacks) -> None:
    """By a gateway endpoint, which is free. Credentials of another account lead nowhere."""
    endpoint = microvms.one("AWS::EC2::VPCEndpoint")
    assert endpoint["VpcEndpointType"] == "Gateway"
    statements = endpoint["PolicyDocument"]["Statement"]
    assert [(each["Action"], each["Resource"]["Fn::Join"][1][1:]) for each in statements] == [
        ("s3:GetObject", ["/T/*"]),
        ("s3:PutObject", ["/T/*/C/*"]),
    ]
    own_account = {"StringEquals": {"aws:PrincipalAccount": {"Ref": "AWS::AccountId"}}}
    assert [each["Condition"] for each in statements] == [own_account] * 2
    assert len(microvms.of_type("AWS::EC2::SecurityGroup")) == 1
    rule = microvms.one("AWS::EC2::SecurityGroupEgress")
    assert (rule["FromPort"], rule["ToPort"], "DestinationPrefixListId" in rule) == (443, 443, True)


def test_a_vm_with_another_network_rings_an_alarm_and_sandboxes_are_on_the_dashboard(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = shared({**MICROVMS, "alarm_email": "ops@example.com"}, tmp_path_factory)
    (alarm,) = [each for name, each in found.of_type("AWS::CloudWatch::Alarm").items() if "WrongNetwork" in name]
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Dimensions"], alarm["Threshold"]) == (
        *("moorage", "WrongNetwork", [{"Name": "service", "Value": "moorage"}]),
        1,
    )
    assert alarm["AlarmActions"]
    body = json.dumps(found.one("AWS::CloudWatch::Dashboard")["DashboardBody"])
    assert all(name in body for name in ("SandboxStart", "SandboxesAlive", "EgressDenied"))


def test_functions_know_images_versions_and_the_connector(microvms: Stacks) -> None:
    variables = microvms.function("ToolStep")["Environment"]["Variables"]
    images = dict(zip(("1G", "4G", "16G"), microvms.of_type("AWS::Lambda::MicrovmImage"), strict=True))
    (connector,) = names(microvms, "AWS::Lambda::NetworkConnector")
    found = {name: value for name, value in variables.items() if "MICROVM" in name or "FARGATE" in name or "PROVISIONER" in name}
    edition = found.pop("MOORAGE_MICROVM_EDITION")
    assert re.fullmatch("[0-9a-f]{16}", edition)
    assert found == {
        "MOORAGE_PROVISIONER": "lambda_microvm",
        "MOORAGE_MICROVM_EGRESS_CONNECTOR": {"Fn::GetAtt": [connector, "Arn"]},
        "MOORAGE_MICROVM_REACHES_BUCKET": "true",
        **{f"MOORAGE_MICROVM_IMAGE_{tier}": {"Fn::GetAtt": [image, "ImageArn"]} for tier, image in images.items()},
        **{f"MOORAGE_MICROVM_VERSION_{tier}": {"Fn::GetAtt": [image, "LatestActiveImageVersion"]} for tier, image in images.items()},
    }


def statements(stacks: Stacks, containing: str) -> dict[str, dict[str, Any]]:
    """What functions and services may, by owner and action."""
    found: dict[str, dict[str, Any]] = {}
    for name, policy in stacks.of_type("AWS::IAM::Policy").items():
        for statement in policy["PolicyDocument"]["Statement"]:
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            mine = {action: statement["Resource"] for action in actions if re.search(containing, action)}
            if mine:
                found.setdefault(name.split("Role")[0].removeprefix("Functions"), {}).update(mine)
    return found


def test_functions_may_pass_no_connector_that_leads_to_the_internet(microvms: Stacks) -> None:
    """Calls about a sleeping VM were judged by its own ARN in one report, and by its image's in another: both stand here."""
    own = [
        {"Fn::Join": ["", ["arn:aws:lambda:us-east-1:", {"Ref": "AWS::AccountId"}, f":{name}"]]}
        for name in (*(f"microvm-image:moorage-{tier}" for tier in ("16g", "1g", "4g")), "microvm:*")
    ]
    (connector,) = names(microvms, "AWS::Lambda::NetworkConnector")
    ingress = "arn:aws:lambda:us-east-1:aws:network-connector:aws-network-connector:HTTP_INGRESS"
    vm = ("RunMicrovm", "GetMicrovm", "CreateMicrovmAuthToken", "TerminateMicrovm")
    arn = {"Fn::GetAtt": [connector, "Arn"]}
    network = {"lambda:PassNetworkConnector": [ingress, arn], "lambda:GetNetworkConnector": arn}
    both = {f"lambda:{action}": own for action in vm} | network
    granted = statements(microvms, "Microvm|Connector|lambda:ListTags")
    hooks = granted.pop("Hooks")
    cleaning = {"lambda:ListTags": own, "lambda:DeleteMicrovmImageVersion": own}
    assert granted.pop("Expiry") == both | cleaning | {"lambda:ListMicrovms": "*", "lambda:ListMicrovmImageVersions": "*"}
    assert granted == dict.fromkeys(("Responses", "ModelStep", "ToolStep", "IndexStep", "ParseStep", "Containers", "Sessions"), both)
    listed = {"lambda:ListMicrovms": "*", "lambda:ListManagedMicrovmImageVersions": "*"}
    assert hooks == listed | {"lambda:TerminateMicrovm": own}


def test_lambda_makes_network_interfaces_in_this_network_alone(microvms: Stacks) -> None:
    (name,) = [name for name in names(microvms, "AWS::IAM::Policy") if name.startswith("MicrovmsNetworkOperatorRole")]
    (statement,) = microvms.of_type("AWS::IAM::Policy")[name]["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Action"]) == ("Deny", "ec2:CreateNetworkInterface")
    kinds = [arn["Fn::Join"][1][2].strip(":").partition("/")[0] for arn in statement["NotResource"]]
    assert kinds == ["subnet", "security-group", "network-interface"]


def test_vms_are_ended_before_what_they_run_from(microvms: Stacks) -> None:
    """CloudFormation deletes in the other direction: functions, the VMs, images and connector, the network."""
    (end,) = names(microvms, "Custom::Microvms")
    waits = microvms.resources[end]["DependsOn"]
    for kind in ("AWS::Lambda::MicrovmImage", "AWS::Lambda::NetworkConnector"):
        assert set(microvms.of_type(kind)) <= set(waits)
    starters = [name for name, function in microvms.of_type("AWS::Lambda::Function").items() if name.startswith("FunctionsToolStep")]
    assert [end in microvms.resources[name]["DependsOn"] for name in starters] == [True]


def test_another_image_makes_another_version_of_functions_and_of_the_microvm_image(
    microvms: Stacks, tmp_path_factory: pytest.TempPathFactory
) -> None:
    after = shared({"rollout": "linear", **MICROVMS, "microvm_base_version": "1"}, tmp_path_factory)
    uris = [next(iter(each.of_type("AWS::Lambda::MicrovmImage").values()))["CodeArtifact"]["Uri"] for each in (microvms, after)]
    assert uris[0] != uris[1]
    versions = [{name for name in names(each, "AWS::Lambda::Version") if "ModelStep" in name} for each in (microvms, after)]
    assert versions[0].isdisjoint(versions[1])
    assert after.one("Custom::MicrovmBase")["Version"] == "1"
    assert json.dumps(statements(after, "ListManaged")) == "{}"


def test_a_connector_is_made_anew_and_never_edited_with_its_subnets(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Changing a connector can cut the VMs that run through it (Lambda developer guide)."""
    two = shared({**MICROVMS, "availability_zones": 2}, tmp_path_factory)
    one = shared({"rollout": "linear", **MICROVMS}, tmp_path_factory)
    first, second = (each.one("AWS::Lambda::NetworkConnector") for each in (one, two))
    subnets = [len(each["Configuration"]["VpcEgressConfiguration"]["SubnetIds"]) for each in (first, second)]
    assert subnets == [1, 2]
    assert first["Name"] != second["Name"]


def test_a_connector_that_is_made_anew_is_told_to_the_functions(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A function's version keeps its variables, and the older connector goes."""
    one, two = (shared({**MICROVMS, "availability_zones": zones}, tmp_path_factory) for zones in (1, 2))
    versions = [{name for name in names(each, "AWS::Lambda::Version") if "ModelStep" in name} for each in (one, two)]
    assert versions[0].isdisjoint(versions[1])


# --- network policies ---


@pytest.fixture(scope="module")
def let_out(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    return shared({**MICROVMS, "allowed_egress_domains": ["pkg.example.com"]}, tmp_path_factory)


def test_a_second_connector_leads_to_the_proxy(let_out: Stacks) -> None:
    assert let_out.findings == []
    closed, policy = names(let_out, "AWS::Lambda::NetworkConnector")
    (closed_group, policy_group) = (
        let_out.resources[name]["Properties"]["Configuration"]["VpcEgressConfiguration"]["SecurityGroupIds"][0]["Fn::GetAtt"][0]
        for name in (closed, policy)
    )
    assert closed_group != policy_group
    (rule,) = let_out.resources[policy_group]["Properties"]["SecurityGroupEgress"]
    assert {name: rule[name] for name in ("CidrIp", "FromPort", "ToPort", "IpProtocol")} == {
        "CidrIp": "10.43.0.0/24",
        "FromPort": 3128,
        "ToPort": 3128,
        "IpProtocol": "tcp",
    }
    for image in let_out.of_type("AWS::Lambda::MicrovmImage").values():
        assert image["EgressNetworkConnectors"] == [{"Fn::GetAtt": [closed, "Arn"]}], "a VM that is run without one is closed"
    (end,) = names(let_out, "Custom::Microvms")
    assert {closed, policy} <= set(let_out.resources[end]["DependsOn"])


def test_functions_may_pass_both_connectors_and_know_where_the_proxy_is(let_out: Stacks) -> None:
    closed, policy = names(let_out, "AWS::Lambda::NetworkConnector")
    passed = statements(let_out, "lambda:PassNetworkConnector")["ToolStep"]["lambda:PassNetworkConnector"]
    assert passed[1:] == [{"Fn::GetAtt": [closed, "Arn"]}, {"Fn::GetAtt": [policy, "Arn"]}]
    variables = let_out.function("ToolStep")["Environment"]["Variables"]
    (subnet,) = [p["CidrBlock"] for name, p in let_out.of_type("AWS::EC2::Subnet").items() if name.startswith("EgressVpcproxy")]
    assert {name: value for name, value in variables.items() if name.endswith(("_PROXY", "_PROXY_NETWORKS", "_POLICY_CONNECTOR"))} == {
        "MOORAGE_EGRESS_PROXY": "http://127.0.0.1:3128",
        "MOORAGE_MICROVM_PROXY_NETWORKS": subnet,
        "MOORAGE_MICROVM_POLICY_CONNECTOR": {"Fn::GetAtt": [policy, "Arn"]},
    }


def test_lambda_makes_interfaces_of_both_groups_and_of_no_other(let_out: Stacks) -> None:
    (name,) = [name for name in names(let_out, "AWS::IAM::Policy") if name.startswith("MicrovmsNetworkOperatorRole")]
    (statement,) = let_out.of_type("AWS::IAM::Policy")[name]["PolicyDocument"]["Statement"]
    groups = [json.dumps(arn) for arn in statement["NotResource"] if ":security-group/" in json.dumps(arn)]
    assert ["ClosedGroup" in groups[0], "EgressSandboxGroup" in groups[1]] == [True, True]


def test_the_proxy_tells_containers_apart_that_share_an_address(let_out: Stacks) -> None:
    """MicroVMs leave by their connector's address. The sandboxes' own key stays away from the proxy."""
    (key,) = names(let_out, "Custom::SandboxKey")
    task = let_out.one("AWS::ECS::TaskDefinition")["ContainerDefinitions"][0]
    told = {each["Name"]: each["Value"] for each in task["Environment"]}
    assert told["MOORAGE_EGRESS_PLACES_KEY"] == {"Fn::GetAtt": [key, "Places"]}
    assert json.dumps({"Fn::GetAtt": [key, "Hex"]}) not in json.dumps(task)
    assert let_out.of_type("AWS::ServiceDiscovery::PrivateDnsNamespace") == {}, "no name leads to it: there is no resolver"


# --- an owner's VPC ---


def network_kinds(stacks: Stacks) -> set[str]:
    return {each["Type"] for each in stacks.resources.values() if each["Type"].startswith("AWS::EC2::")}


def test_in_an_owners_vpc_only_a_group_without_rules_is_made(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The group that CloudFormation makes without rules lets out everything, so a rule to nowhere stands in it."""
    own = shared({**MICROVMS, "vpc": MICROVM_VPC}, tmp_path_factory)
    assert (network_kinds(own), own.findings) == ({"AWS::EC2::SecurityGroup"}, [])
    group = own.one("AWS::EC2::SecurityGroup")
    assert (group["VpcId"], "SecurityGroupIngress" in group) == (MICROVM_VPC["id"], False)
    assert [rule["CidrIp"] for rule in group["SecurityGroupEgress"]] == ["255.255.255.255/32"]
    assert [name for name, f in own.of_type("AWS::Lambda::Function").items() if "VpcConfig" in f] == []


def test_the_connector_leads_into_the_owners_subnets_with_the_owners_group(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The subnets may be another account's, which shares them."""
    given = shared({**MICROVMS, "vpc": {**MICROVM_VPC, "sandbox_group": GIVEN_GROUPS["sandbox_group"]}}, tmp_path_factory)
    assert (network_kinds(given), given.findings) == (set(), [])
    connector = given.one("AWS::Lambda::NetworkConnector")["Configuration"]["VpcEgressConfiguration"]
    assert (connector["SubnetIds"], connector["SecurityGroupIds"]) == (MICROVM_VPC["sandbox_subnets"], [GIVEN_GROUPS["sandbox_group"]])
    (name,) = [name for name in names(given, "AWS::IAM::Policy") if name.startswith("MicrovmsNetworkOperatorRole")]
    (statement,) = given.of_type("AWS::IAM::Policy")[name]["PolicyDocument"]["Statement"]
    assert statement["Effect"] == "Deny"
    assert statement["NotResource"] == [
        *(f"arn:aws:ec2:us-east-1:*:subnet/{each}" for each in MICROVM_VPC["sandbox_subnets"]),
        *(
            {"Fn::Join": ["", ["arn:aws:ec2:us-east-1:", {"Ref": "AWS::AccountId"}, f":{each}"]]}
            for each in (f"security-group/{GIVEN_GROUPS['sandbox_group']}", "network-interface/*")
        ),
    ]


def test_an_update_asks_for_the_places_that_an_older_answer_lacked(let_out: Stacks) -> None:
    """CloudFormation keeps the attributes of a custom resource as long as its properties stay the same."""
    assert let_out.one("Custom::SandboxKey")["Answers"] == ["Hex", "Places"]
