"""What the templates promise about security, read from the templates themselves."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from moorage.knowledge.index import IndexRef
from moorage.knowledge.neighbours import index_of

from infra.prices import ENDPOINTS
from tests.infra.conftest import Stacks, shared
from tests.twin.calls import own_name


def both(stacks: Stacks, everything: Stacks) -> list[Stacks]:
    return [stacks, everything]


def sandbox_groups(stacks: Stacks) -> dict[str, dict[str, Any]]:
    """Security groups that a sandbox can be given."""
    return {name: group for name, group in stacks.of_type("AWS::EC2::SecurityGroup").items() if "SandboxGroup" in name}


def egress_of(stacks: Stacks, group: str) -> list[dict[str, Any]]:
    """Every outbound rule of a group, inline or as a resource of its own."""
    inline = stacks.of_type("AWS::EC2::SecurityGroup")[group].get("SecurityGroupEgress", [])
    separate = [
        rule
        for rule in stacks.of_type("AWS::EC2::SecurityGroupEgress").values()
        if rule["GroupId"] == {"Fn::GetAtt": [group, "GroupId"]}
    ]
    return [*inline, *separate]


def statements(stacks: Stacks) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every statement of every identity policy, with the policy's logical id."""
    for name, policy in stacks.of_type("AWS::IAM::Policy").items():
        for statement in policy["PolicyDocument"]["Statement"]:
            yield name, statement


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_a_sandbox_task_has_no_role(stacks: Stacks, everything: Stacks) -> None:
    for each in both(stacks, everything):
        tasks = {n: t for n, t in each.of_type("AWS::ECS::TaskDefinition").items() if n.startswith("SandboxTask")}
        assert len(tasks) == 4
        assert not any("TaskRoleArn" in task for task in tasks.values())


def test_a_sandbox_task_carries_no_secret_and_cannot_gain_capabilities(stacks: Stacks) -> None:
    for task in stacks.of_type("AWS::ECS::TaskDefinition").values():
        (container,) = task["ContainerDefinitions"]
        assert "Environment" not in container
        assert "Secrets" not in container
        assert not container.get("Privileged", False)
        assert "Add" not in container["LinuxParameters"]["Capabilities"]
        assert "NET_RAW" in container["LinuxParameters"]["Capabilities"]["Drop"]


def test_the_sandboxes_network_has_no_way_to_the_internet(stacks: Stacks, everything: Stacks) -> None:
    assert stacks.of_type("AWS::EC2::InternetGateway") == {}
    for each in both(stacks, everything):
        assert each.of_type("AWS::EC2::NatGateway") == {}
        subnets = {n: s for n, s in each.of_type("AWS::EC2::Subnet").items() if n.startswith("Network")}
        assert subnets
        assert not any(subnet.get("MapPublicIpOnLaunch") for subnet in subnets.values())
        gateways = [a["VpcId"] for a in each.of_type("AWS::EC2::VPCGatewayAttachment").values()]
        assert not any("Network" in json.dumps(vpc) for vpc in gateways)
        defaults = [n for n, r in each.of_type("AWS::EC2::Route").items() if r.get("DestinationCidrBlock") == "0.0.0.0/0"]
        assert not any(name.startswith("Network") for name in defaults)


def test_a_sandbox_without_a_policy_reaches_only_image_endpoints(stacks: Stacks) -> None:
    (group,) = sandbox_groups(stacks)
    rules = egress_of(stacks, group)
    assert not any("CidrIp" in rule and rule["CidrIp"] != "255.255.255.255/32" for rule in rules)
    assert sorted(rule["Description"] for rule in rules) == ["image pull: ECR", "image pull: layers in S3"]


def test_a_sandbox_with_a_policy_reaches_the_proxys_port_besides(everything: Stacks) -> None:
    (group,) = [name for name in sandbox_groups(everything) if name.startswith("Egress")]
    ways = {(rule.get("CidrIp"), rule["FromPort"], rule["ToPort"], rule["Description"]) for rule in egress_of(everything, group)}
    assert ways == {
        ("10.43.0.0/24", 3128, 3128, "the egress proxy"),
        (None, 443, 443, "image pull: ECR"),
        (None, 443, 443, "image pull: layers in S3"),
    }


def test_no_sandbox_may_speak_to_the_whole_world(stacks: Stacks, everything: Stacks) -> None:
    for each in both(stacks, everything):
        for group in sandbox_groups(each):
            assert "0.0.0.0/0" not in json.dumps(egress_of(each, group))
            assert "::/0" not in json.dumps(egress_of(each, group))


def test_only_the_tool_steps_group_may_open_a_connection_to_a_sandbox(everything: Stacks) -> None:
    for group in sandbox_groups(everything):
        incoming = [
            rule
            for rule in everything.of_type("AWS::EC2::SecurityGroupIngress").values()
            if rule["GroupId"] == {"Fn::GetAtt": [group, "GroupId"]}
        ]
        assert "SecurityGroupIngress" not in everything.of_type("AWS::EC2::SecurityGroup")[group]
        assert [(rule["FromPort"], rule["ToPort"]) for rule in incoming] == [(8080, 8080)]
        assert "NetworkFunctionGroup" in json.dumps(incoming[0]["SourceSecurityGroupId"])


def test_endpoints_refuse_credentials_of_other_accounts(stacks: Stacks) -> None:
    own = {"StringEquals": {"aws:PrincipalAccount": {"Ref": "AWS::AccountId"}}}
    layers = {"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, ":s3:::prod-us-east-1-starport-layer-bucket/*"]]}
    endpoints = stacks.of_type("AWS::EC2::VPCEndpoint")
    assert len(endpoints) == 4
    for name, endpoint in endpoints.items():
        for statement in endpoint["PolicyDocument"]["Statement"]:
            is_layers = json.dumps(statement["Resource"]).endswith('starport-layer-bucket/*"]]}') or (
                statement["Resource"] in (layers, "arn:aws:s3:::prod-us-east-1-starport-layer-bucket/*")
            )
            assert statement.get("Condition") == own or (is_layers and statement["Action"] == "s3:GetObject"), name


def test_the_resolver_answers_for_named_services_only(stacks: Stacks) -> None:
    group = stacks.one("AWS::Route53Resolver::FirewallRuleGroup")
    rules = sorted(group["FirewallRules"], key=lambda rule: rule["Priority"])
    lists = stacks.of_type("AWS::Route53Resolver::FirewallDomainList")
    domains = [lists[rule["FirewallDomainListId"]["Fn::GetAtt"][0]]["Domains"] for rule in rules]
    assert [rule["Action"] for rule in rules] == ["ALLOW", "BLOCK"]
    assert domains[1] == ["*"]
    assert "*" not in domains[0]
    # The names of AWS's are CNAMEs of names that nobody lists.
    assert rules[0]["FirewallDomainRedirectionAction"] == "TRUST_REDIRECTION_DOMAIN"
    assert len(stacks.of_type("AWS::Route53Resolver::FirewallRuleGroupAssociation")) == 1


def test_the_table_is_encrypted_recoverable_and_kept(stacks: Stacks) -> None:
    (name,) = stacks.of_type("AWS::DynamoDB::Table")
    table = stacks.resources[name]
    assert table["DeletionPolicy"] == table["UpdateReplacePolicy"] == "Retain"
    assert {key: table["Properties"][key] for key in _TABLE} == _TABLE


_TABLE = {
    "BillingMode": "PAY_PER_REQUEST",
    "DeletionProtectionEnabled": True,
    "GlobalSecondaryIndexes": [
        {
            "IndexName": "GSI1",
            "KeySchema": [
                {"AttributeName": "GSI1PK", "KeyType": "HASH"},
                {"AttributeName": "GSI1SK", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
    ],
    "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
    "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
    "SSESpecification": {"SSEEnabled": False},  # by DynamoDB's own key, which is free; no table is unencrypted
    "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": True},
}


def test_the_bucket_is_private_encrypted_and_kept(stacks: Stacks) -> None:
    (name,) = stacks.of_type("AWS::S3::Bucket")
    bucket = stacks.resources[name]
    policy = json.dumps(stacks.one("AWS::S3::BucketPolicy"))
    assert bucket["DeletionPolicy"] == "Retain"
    assert bucket["Properties"] == {
        "BucketEncryption": {"ServerSideEncryptionConfiguration": [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]},
        "Tags": [{"Key": "moorage:deployment", "Value": "moorage"}],
        "LifecycleConfiguration": {
            "Rules": [
                {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}, "Status": "Enabled"},
                {"ExpirationInDays": 32, "Prefix": "R/", "Status": "Enabled"},
            ]
        },
        "OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
        "PublicAccessBlockConfiguration": {
            "BlockPublicAcls": True,
            "BlockPublicPolicy": True,
            "IgnorePublicAcls": True,
            "RestrictPublicBuckets": True,
        },
    }
    assert '"aws:SecureTransport": "false"' in policy


def test_a_customer_key_encrypts_table_bucket_and_secret(everything: Stacks) -> None:
    rule = everything.one("AWS::S3::Bucket")["BucketEncryption"]["ServerSideEncryptionConfiguration"][0]
    assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    assert everything.one("AWS::DynamoDB::Table")["SSESpecification"]["SSEType"] == "KMS"
    assert "KmsKeyId" in everything.one("AWS::SecretsManager::Secret")
    assert all(key["EnableKeyRotation"] for key in everything.of_type("AWS::KMS::Key").values())


def test_a_vector_bucket_is_made_on_request_and_told_to_those_who_work_in_it(stacks: Stacks, everything: Stacks) -> None:
    def told(stacks: Stacks) -> set[str]:
        functions = stacks.of_type("AWS::Lambda::Function").items()
        return {n[:-8] for n, f in functions if "MOORAGE_VECTOR_BUCKET" in f.get("Environment", {}).get("Variables", {})}

    assert (told(stacks), stacks.of_type("Custom::KeptVectorBucket")) == (set(), {})
    assert told(everything) == {f"Functions{name}" for name in ("IndexStep", "ServiceStep", "Responses", "Files", "Expiry")}
    made = everything.one("Custom::KeptVectorBucket")
    assert {name: made[name] for name in ("Name", "Prefix", "Deployment", "Tag", "IsKept")} == {
        "Name": "moorage-vectors",
        "Prefix": index_of(IndexRef("acme", "vs_1", "small", 256))[:3],
        "Deployment": "moorage",
        "Tag": "moorage:deployment",
        "IsKept": "true",
    }
    (key,) = everything.of_type("AWS::KMS::Key").values()
    (indexing,) = [s for s in key["KeyPolicy"]["Statement"] if "Service" in s["Principal"] and "indexing" in str(s["Principal"])]
    assert (indexing["Action"], sorted(indexing["Condition"])) == ("kms:Decrypt", ["ArnLike", "StringEquals"])
    assert "Fn::ImportValue" in json.dumps(made["Key"])
    own = [s for name, s in statements(everything) if name.startswith("HooksRole") and "s3vectors:" in json.dumps(s["Action"])]
    assert [action for s in own for action in listed(s["Action"]) if "Vectors" in action] == [], "who makes it reads nothing of it"


def test_only_the_egress_proxy_may_decrypt_domain_secrets(everything: Stacks) -> None:
    (secrets_key,) = everything.of_type("Custom::KeptKey")
    may_decrypt = [
        name
        for name, statement in statements(everything)
        if secrets_key in json.dumps(statement["Resource"]) and any("Decrypt" in a for a in listed(statement["Action"]))
    ]
    may_encrypt = {
        name
        for name, statement in statements(everything)
        if secrets_key in json.dumps(statement["Resource"]) and "kms:GenerateDataKey" in listed(statement["Action"])
    }
    assert [name.startswith("EgressTaskTaskRole") for name in may_decrypt] == [True]
    assert {name[:26] for name in may_encrypt} == {
        "FunctionsResponsesRoleDefa",
        "FunctionsSocketWorkRoleDef",
        "FunctionsContainersRoleDef",
        "FunctionsRecoveryRoleDefau",
        "EgressTaskTaskRoleDefaultP",
    }


def test_whoever_reads_or_writes_the_table_may_use_its_key(everything: Stacks) -> None:
    table, key = _names(everything, "AWS::DynamoDB::Table", "AWS::KMS::Key")
    users: dict[str, set[str]] = {}
    for name, statement in statements(everything):
        resources = json.dumps(statement["Resource"])
        actions = listed(statement["Action"])
        if key in resources:
            users.setdefault(name, set()).update(actions)
        elif table in resources and any(action.startswith("dynamodb:") for action in actions):
            users.setdefault(name, set())
    assert len(users) > 10
    assert any(name.startswith("EgressTaskTaskRole") for name in users)
    assert {name: actions for name, actions in users.items() if "kms:Decrypt" not in actions} == {}


def _names(stacks: Stacks, *kinds: str) -> list[str]:
    """Logical ids of the only resource of each kind."""
    found = [list(stacks.of_type(kind)) for kind in kinds]
    assert [len(names) for names in found] == [1] * len(kinds)
    return [name for (name,) in found]


def test_the_key_of_the_secrets_is_found_again_by_the_next_deployment(everything: Stacks) -> None:
    """What it sealed stays in the table, so CloudFormation must neither make nor delete it."""
    properties = everything.one("Custom::KeptKey")
    assert {name: value for name, value in properties.items() if name not in ("ServiceToken", "ServiceTimeout")} == {
        "Alias": "alias/moorage-egress",
        "Deployment": "moorage",
        "Description": "moorage: domain secrets; only the egress proxy decrypts",
        "IsKept": "true",
    }


SEALERS = {"Responses", "ModelStep", "ServiceStep", "FailResponse", "Recovery"}
"""Who seals or opens what clients carry, or secrets that lie in the table."""
WATCHERS = {"Containers", "Sessions", "ToolStep", "IndexStep", "ParseStep", "Expiry", "Retirement", "Placement"}
"""Who starts sandboxes, hears of them or reaches them, and opens nothing."""


def holders(stacks: Stacks, variable: str) -> dict[str, Any]:
    """What functions have it for, by their names."""
    return {
        own_name(name): function["Environment"]["Variables"][variable]
        for name, function in stacks.of_type("AWS::Lambda::Function").items()
        if variable in function.get("Environment", {}).get("Variables", {})
    }


@pytest.fixture(params=["default", "everything", "no sandboxes"])
def keyed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Stacks, set[str], set[str]]:
    """Stacks, with those that seal and those that only watch sandboxes."""
    if request.param == "no sandboxes":
        return shared({"provisioner": "none"}, tmp_path_factory), SEALERS, WATCHERS - {"Retirement", "Placement"}
    sockets = {"SocketWork"} if request.param == "everything" else set()
    return request.getfixturevalue("stacks" if request.param == "default" else "everything"), SEALERS | sockets, WATCHERS


def test_the_content_key_is_in_no_variable_and_read_by_those_that_seal(keyed: tuple[Stacks, set[str], set[str]]) -> None:
    each, sealers, _ = keyed
    assert holders(each, "MOORAGE_CONTENT_KEY") == {}
    assert holders(each, "MOORAGE_CONTENT_KEY_SECRET").keys() == sealers
    readers = {name.split("Role")[0] for name, one in statements(each) if "secretsmanager:GetSecretValue" in listed(one["Action"])}
    # The custom resource derives the sandboxes' key from it.
    assert readers == {f"Functions{name}" for name in sealers} | {"Hooks"}


def test_who_watches_sandboxes_is_told_their_key_alone(keyed: tuple[Stacks, set[str], set[str]]) -> None:
    each, sealers, watchers = keyed
    starters = sealers & {"Responses", "SocketWork", "ModelStep"}
    (derived,) = each.of_type("Custom::SandboxKey")
    told = holders(each, "MOORAGE_SANDBOX_KEY")
    assert told == {name: {"Fn::GetAtt": [derived, "Hex"]} for name in watchers | starters}
    inside = {own_name(name) for name, function in each.of_type("AWS::Lambda::Function").items() if "VpcConfig" in function}
    # From there is no way to Secrets Manager.
    assert inside & sealers == set()
    neither = {own_name(name) for name in each.of_type("AWS::Lambda::Function") if name.startswith("Functions")} - told.keys() - sealers
    assert neither - {"SocketDoor"} == {"Files", "ContinueStep", "Authorizer"}


def test_the_authorizer_reads_key_records_and_nothing_else(stacks: Stacks) -> None:
    mine = [statement for name, statement in statements(stacks) if "AuthorizerRole" in name]
    actions = {action for statement in mine for action in listed(statement["Action"])}
    (lookup,) = [statement for statement in mine if "dynamodb:GetItem" in listed(statement["Action"])]
    assert actions == {
        "dynamodb:GetItem",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
        "xray:PutTelemetryRecords",
        "xray:PutTraceSegments",
    }
    assert lookup["Condition"] == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["K#*"]}}


WRITES = {"dynamodb:BatchWriteItem", "dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}
OPERATORS = ["K#*", "EGRESS#SECRETS"]


def table_statements(stacks: Stacks) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, statement in statements(stacks):
        if any(action.startswith("dynamodb:") for action in listed(statement["Action"])):
            yield name, statement


def test_no_role_of_a_deployment_writes_api_keys_or_the_operators_secrets(stacks: Stacks, everything: Stacks) -> None:
    """A break-in into the API or a step could otherwise make itself a key of any tenant."""
    refused = {"ForAnyValue:StringLike": {"dynamodb:LeadingKeys": OPERATORS}}
    for each in both(stacks, everything):
        writers = {name for name, one in table_statements(each) if one["Effect"] == "Allow" and WRITES & set(listed(one["Action"]))}
        # Both write partitions of their own only.
        apart = {name for name in writers if name.startswith(("EgressTask", "FunctionsSocketDoorRole"))}
        held = {
            name
            for name, one in table_statements(each)
            if one["Effect"] == "Deny" and set(one["Action"]) == WRITES and one["Condition"] == refused
        }
        assert writers - apart
        assert writers - apart == held


def test_the_proxy_reads_and_writes_its_own_partitions_only(everything: Stacks) -> None:
    rights = {
        tuple(listed(one["Action"])): one["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]
        for name, one in table_statements(everything)
        if name.startswith("EgressTask")
    }
    assert rights == {
        ("dynamodb:GetItem",): ["P#*", "EGRESS#SECRETS", "EGRESS#CA"],
        ("dynamodb:BatchWriteItem", "dynamodb:Query"): ["T#*#C#*"],
        ("dynamodb:PutItem", "dynamodb:UpdateItem"): ["EGRESS#CA"],
    }


def test_only_the_api_and_the_model_step_read_model_keys(everything: Stacks, stacks: Stacks) -> None:
    for each in both(stacks, everything):
        readers = {name for name, statement in statements(each) if "ssm:GetParameter" in listed(statement["Action"])}
        assert all(any(f"{function}Role" in name for function in ("Responses", "ModelStep", "SocketWork")) for name in readers)


_WITHOUT_RESOURCE = {
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeManagedPrefixLists",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
    "ecr-public:GetAuthorizationToken",
    "ecr:GetAuthorizationToken",
    "kms:CreateKey",
    "lambda:GetAccountSettings",
    "kms:ListAliases",
    "logs:CreateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:DescribeLogGroups",
    "logs:DescribeResourcePolicies",
    "logs:GetLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:UpdateLogDelivery",
    "sts:GetServiceBearerToken",
    "xray:GetSamplingRules",
    "xray:GetSamplingTargets",
    "xray:PutTelemetryRecords",
    "xray:PutTraceSegments",
}
"""Actions that take no resource (service authorization reference)."""


def test_a_star_for_a_resource_stands_only_where_the_action_takes_none(stacks: Stacks, everything: Stacks) -> None:
    for each in both(stacks, everything):
        for name, statement in statements(each):
            if "*" not in listed(statement["Resource"]) or statement["Effect"] == "Deny":
                continue
            actions = set(listed(statement["Action"]))
            is_bound = actions == {"ecs:ListTasks"} and "ecs:cluster" in json.dumps(statement["Condition"])
            assert is_bound or actions <= _WITHOUT_RESOURCE, (name, actions - _WITHOUT_RESOURCE)


def test_no_role_may_do_everything_in_a_service(stacks: Stacks, everything: Stacks) -> None:
    for each in both(stacks, everything):
        for name, statement in statements(each):
            wide = [a for a in listed(statement["Action"]) if a == "*" or a.endswith(":*")]
            assert wide == [], name


def test_functions_may_run_only_the_task_definitions_of_this_deployment(stacks: Stacks) -> None:
    runs = [statement for _, statement in statements(stacks) if "ecs:RunTask" in listed(statement["Action"])]
    families = {p["Family"] for name, p in stacks.of_type("AWS::ECS::TaskDefinition").items() if name.startswith("SandboxTask")}
    assert runs
    for statement in runs:
        names = [json.dumps(resource) for resource in statement["Resource"]]
        assert {name.split(":task-definition/")[1].split('"')[0] for name in names} == {f"{family}:*" for family in families}
        assert "ecs:cluster" in json.dumps(statement["Condition"])


def test_sandboxes_are_started_and_stopped_from_outside_their_network_only(stacks: Stacks, everything: Stacks) -> None:
    def may(stacks: Stacks, action: str) -> set[str]:
        return {
            name.split("Role")[0].removeprefix("Functions")
            for name, statement in statements(stacks)
            if action in listed(statement["Action"])
        }

    for each, more in zip(both(stacks, everything), (set(), {"SocketWork"}), strict=True):
        assert may(each, "ecs:RunTask") == {"Responses", "Containers", "ModelStep", "IndexStep", "Expiry"} | more
        # "Hooks" stops them all, when the deployment is deleted.
        assert may(each, "ecs:StopTask") == {"Responses", "ModelStep", "IndexStep", "Expiry", "Containers", "Hooks"} | more


def test_no_function_in_the_sandboxes_network_has_a_right_to_ecs_or_a_way_there(stacks: Stacks, everything: Stacks) -> None:
    for each in both(stacks, everything):
        inside = {name[:-8] for name, f in each.of_type("AWS::Lambda::Function").items() if "VpcConfig" in f}
        rights = {
            action
            for name, statement in statements(each)
            for action in listed(statement["Action"])
            if any(name.startswith(f"{function}Role") for function in inside)
        }
        names = {json.dumps(endpoint["ServiceName"]) for endpoint in each.of_type("AWS::EC2::VPCEndpoint").values()}
        assert len(inside) == 4
        assert {right.split(":")[0] for right in rights} <= {"dynamodb", "ec2", "kms", "logs", "s3", "xray"}
        assert not any("ecs" in name for name in names)


def test_the_only_interface_endpoints_are_those_fargate_needs(stacks: Stacks, everything: Stacks) -> None:
    def services(stacks: Stacks) -> list[str]:
        endpoints = stacks.of_type("AWS::EC2::VPCEndpoint").values()
        return sorted(e["ServiceName"].split(".", 3)[3] for e in endpoints if e["VpcEndpointType"] == "Interface")

    assert services(stacks) == sorted(ENDPOINTS)
    assert services(everything) == sorted([*ENDPOINTS, "logs"])


def test_logs_hold_no_content(stacks: Stacks) -> None:
    machine = stacks.one("AWS::StepFunctions::StateMachine")
    stage = stacks.one("AWS::ApiGateway::Stage")
    assert machine["LoggingConfiguration"]["IncludeExecutionData"] is False
    assert {setting["DataTraceEnabled"] for setting in stage["MethodSettings"]} == {False}
    assert not any(word in stage["AccessLogSetting"]["Format"] for word in ("Authorization", "requestBody", "querystring"))


def test_every_log_group_forgets(stacks: Stacks, everything: Stacks) -> None:
    for each in both(stacks, everything):
        groups = each.of_type("AWS::Logs::LogGroup").items()
        assert all(group["RetentionInDays"] == 30 for name, group in groups if not name.startswith("Audit"))
        # API Gateway makes one itself (https://docs.aws.amazon.com/apigateway/latest/developerguide/rest-api-execution-logging.html).
        (bound,) = each.of_type("Custom::StageLogs")
        (stage,) = each.of_type("AWS::ApiGateway::Stage")
        logs = each.resources[bound]["Properties"]
        api = each.resources[stage]["Properties"]["RestApiId"]
        name = {"Fn::Join": ["", ["API-Gateway-Execution-Logs_", api, "/api"]]}
        assert (logs["Name"], logs["Days"]) == (name, "30")
        assert bound in each.resources[stage]["DependsOn"]


def test_those_who_answer_people_add_to_the_audit_trail_and_nobody_reads_it(everything: Stacks, stacks: Stacks) -> None:
    assert not any(name.startswith("Audit") for name in stacks.of_type("AWS::Logs::LogGroup"))
    ((group, properties),) = [each for each in everything.of_type("AWS::Logs::LogGroup").items() if each[0].startswith("Audit")]
    writers = {
        own_name(name)
        for name, function in everything.of_type("AWS::Lambda::Function").items()
        if function.get("Environment", {}).get("Variables", {}).get("MOORAGE_AUDIT_LOG_GROUP") == {"Ref": group}
    }
    allowed = [(name, statement) for name, statement in statements(everything) if group in json.dumps(statement["Resource"])]
    assert {name.removeprefix("Functions").partition("RoleDefaultPolicy")[0] for name, _ in allowed} == writers
    assert writers == {"Responses", "Recovery", "SocketWork"}
    assert all(set(statement["Action"]) == {"logs:CreateLogStream", "logs:PutLogEvents"} for _, statement in allowed)
    assert (properties["RetentionInDays"], everything.resources[group]["DeletionPolicy"]) == (365, "Retain")


def test_cdk_nag_has_no_finding_without_a_reason(stacks: Stacks, everything: Stacks, company: Stacks) -> None:
    assert (stacks.findings, everything.findings, company.findings) == ([], [], [])


@pytest.mark.parametrize("kind", ["AWS::ECS::Service"])
def test_without_egress_no_proxy_is_deployed(stacks: Stacks, kind: str) -> None:
    assert stacks.of_type(kind) == {}


def test_an_update_does_not_stop_the_proxy_that_runs(everything: Stacks) -> None:
    """The reaper sets how many are wanted; a number in the template would be set again by every update of the service."""
    assert "DesiredCount" not in everything.one("AWS::ECS::Service")


def test_the_authorizers_word_for_a_token_counts_only_where_no_issuer_is_reached(everything: Stacks) -> None:
    functions = everything.of_type("AWS::Lambda::Function").items()
    told = {own_name(name) for name, f in functions if "MOORAGE_OIDC_AT_GATEWAY" in f.get("Environment", {}).get("Variables", {})}
    assert told == {"Sessions"}
    assert "VpcConfig" in everything.function("Sessions")
