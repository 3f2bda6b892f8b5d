"""What services of AWS do with the roles of a deployment, and what the policies of resources have to let services do.

Recorded calls (``calls.json``) say what functions ask. This table says what Lambda, ECS and others ask in their place, which no
emulator does. Each row has the page of AWS's documentation that says so. A resource of a kind that stands in no row is an error, and so
is a property that nobody has looked at.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from tests.twin import given_key
from tests.twin.iam import Account
from tests.twin.template import ACCOUNT, Template

DOCS: Final = "https://docs.aws.amazon.com"
Properties = Mapping[str, Any]

NETWORK_INTERFACES: Final = (
    *("ec2:CreateNetworkInterface", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets"),
    *("ec2:DeleteNetworkInterface", "ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses"),
)
LOG_LINES: Final = ("logs:CreateLogStream", "logs:PutLogEvents")
SEGMENTS: Final = ("xray:PutTraceSegments", "xray:PutTelemetryRecords")
PULL: Final = ("ecr:BatchCheckLayerAvailability", "ecr:GetDownloadUrlForLayer", "ecr:BatchGetImage")
PUSH: Final = ("ecr:InitiateLayerUpload", "ecr:UploadLayerPart", "ecr:CompleteLayerUpload", "ecr:PutImage")


@dataclass(frozen=True)
class Does:
    """A service takes a role and does something. No action: it only takes the role."""

    principal: str
    role: str
    """Its ARN, as the template's reference."""
    action: str = ""
    on: str = "*"


@dataclass(frozen=True)
class HasManaged:
    """A service's page asks for a policy that AWS manages."""

    principal: str
    role: str
    policy: str
    path: str = "service-role/"


@dataclass(frozen=True)
class IsLet:
    """A service does something by a resource's own policy, on behalf of ``source``."""

    principal: str
    action: str
    on: str
    source: str


@dataclass(frozen=True)
class ComesAfter:
    """A resource that can only be made when another one is there, though nothing in it refers to that one."""

    name: str
    kind: str


Need = Does | HasManaged | IsLet | ComesAfter
Asks = Callable[[Template, str, Properties], Iterator[Need]]


@dataclass(frozen=True)
class Row:
    kind: str
    what: str
    page: str
    asks: Asks


# --- Lambda ---


def _lambda(function: Properties, *actions: str, on: str = "*") -> Iterator[Need]:
    yield from (Does("lambda.amazonaws.com", function["Role"], action, on) for action in actions)


def _runs(_: Template, __: str, function: Properties) -> Iterator[Need]:
    unknown = {"KmsKeyArn", "FileSystemConfigs", "SnapStart", "DurableConfig", "CodeSigningConfigArn"} & function.keys()
    assert not unknown, f"nobody has looked at what {unknown} ask of a role"
    yield Does("lambda.amazonaws.com", function["Role"])


def _is_placed(_: Template, __: str, function: Properties) -> Iterator[Need]:
    if "VpcConfig" in function:
        yield from _lambda(function, *NETWORK_INTERFACES)


def _writes_logs(_: Template, __: str, function: Properties) -> Iterator[Need]:
    group = function["LoggingConfig"]["LogGroup"]
    yield from _lambda(function, *LOG_LINES, on=_arn_of(group))


def _traces(_: Template, __: str, function: Properties) -> Iterator[Need]:
    if function.get("TracingConfig", {}).get("Mode") == "Active":
        yield from _lambda(function, *SEGMENTS)


_SENDS: Final = {
    "sqs": "sqs:SendMessage",
    "sns": "sns:Publish",
    "lambda": "lambda:InvokeFunction",
    "events": "events:PutEvents",
    "s3": "s3:PutObject",
}


def _dead_letters(_: Template, __: str, function: Properties) -> Iterator[Need]:
    if target := function.get("DeadLetterConfig", {}).get("TargetArn"):
        yield from _lambda(function, _SENDS[_service_of(target)], on=target)


def _destinations(template: Template, _: str, config: Properties) -> Iterator[Need]:
    for destination in config.get("DestinationConfig", {}).values():
        target = destination["Destination"]
        yield from _lambda(_function_named(template, config["FunctionName"]), _SENDS[_service_of(target)], on=target)


def _reads_streams(template: Template, _: str, mapping: Properties) -> Iterator[Need]:
    actions = {
        "sqs": ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"),
        "dynamodb": ("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator", "dynamodb:ListStreams"),
    }[_service_of(mapping["EventSourceArn"])]
    yield from _lambda(_function_named(template, mapping["FunctionName"]), *actions, on=mapping["EventSourceArn"])


_DEVELOPER_GUIDE: Final = f"{DOCS}/lambda/latest/dg"


def _microvm_build(_: Template, __: str, image: Properties) -> Iterator[Need]:
    role = image["BuildRoleArn"]
    bucket, _, key = image["CodeArtifact"]["Uri"].removeprefix("s3://").partition("/")
    group = _arn_of(image["Logging"]["CloudWatch"]["LogGroup"])
    yield Does("lambda.amazonaws.com", role, "s3:GetObject", f"<{_logical_id(bucket)}.Arn>/{key}")
    yield from (Does("lambda.amazonaws.com", role, action, group) for action in ("logs:CreateLogGroup", *LOG_LINES))


def _microvm_pull(template: Template, _: str, image: Properties) -> Iterator[Need]:
    """What the Dockerfile is made from, which the archive of the image begins with."""
    key = image["CodeArtifact"]["Uri"].partition("/microvm-images/")[2]
    (source,) = [each for _, each in template.of_type("Custom::MicrovmSource") if each["Key"].endswith(key)]
    found = re.match(rf"FROM {ACCOUNT}\.dkr\.ecr\.([\w-]+)\.amazonaws\.com/(.+):[^:\n]+\n", source["Dockerfile"])
    if found:
        repository = f"arn:aws:ecr:{found[1]}:{ACCOUNT}:repository/{found[2]}"
        yield Does("lambda.amazonaws.com", image["BuildRoleArn"], "ecr:GetAuthorizationToken")
        yield from (Does("lambda.amazonaws.com", image["BuildRoleArn"], action, repository) for action in PULL)


def _connects(_: Template, __: str, connector: Properties) -> Iterator[Need]:
    yield HasManaged("lambda.amazonaws.com", connector["OperatorRole"], "AWSLambdaNetworkConnectorOperatorPolicy", path="")


# --- ECS ---


def _ecs(task: Properties, *actions: str, on: str = "*") -> Iterator[Need]:
    yield from (Does("ecs-tasks.amazonaws.com", task["ExecutionRoleArn"], action, on) for action in actions)


def _pulls(_: Template, __: str, task: Properties) -> Iterator[Need]:
    for container in task["ContainerDefinitions"]:
        assert "RepositoryCredentials" not in container, "nobody has looked at registries with a password"
        if found := re.match(rf"{ACCOUNT}\.dkr\.ecr\.([\w-]+)\.amazonaws\.com/(.+):[^:]+$", container["Image"]):
            yield from _ecs(task, "ecr:GetAuthorizationToken")
            yield from _ecs(task, *PULL, on=f"arn:aws:ecr:{found[1]}:{ACCOUNT}:repository/{found[2]}")


def _task_logs(_: Template, __: str, task: Properties) -> Iterator[Need]:
    for container in task["ContainerDefinitions"]:
        if "LogConfiguration" in container:
            assert container["LogConfiguration"]["LogDriver"] == "awslogs"
            options = container["LogConfiguration"]["Options"]
            creates = ("logs:CreateLogGroup",) if options.get("awslogs-create-group") == "true" else ()
            yield from _ecs(task, *LOG_LINES, *creates, on=_arn_of(options["awslogs-group"]))


def _task_secrets(_: Template, __: str, task: Properties) -> Iterator[Need]:
    for container in task["ContainerDefinitions"]:
        for secret in container.get("Secrets", []):
            source = secret["ValueFrom"]
            action = "ssm:GetParameters" if ":ssm:" in source else "secretsmanager:GetSecretValue"
            yield from _ecs(task, action, on=source)


def _task_role(_: Template, __: str, task: Properties) -> Iterator[Need]:
    if "TaskRoleArn" in task:
        yield Does("ecs-tasks.amazonaws.com", task["TaskRoleArn"])


def _ecs_service(_: Template, __: str, service: Properties) -> Iterator[Need]:
    unknown = {"Role", "EnableExecuteCommand", "VolumeConfigurations", "ServiceConnectConfiguration", "LoadBalancers"} & service.keys()
    assert not unknown, f"nobody has looked at what {unknown} ask of a role"
    yield from ()  # Registering with Cloud Map and moving network interfaces is done by ECS's own service-linked role.


# --- CodeBuild ---


def _codebuild(project: Properties, *actions: str, on: str = "*") -> Iterator[Need]:
    yield from (Does("codebuild.amazonaws.com", project["ServiceRole"], action, on) for action in actions)


def _builds(_: Template, __: str, project: Properties) -> Iterator[Need]:
    assert "VpcConfig" not in project, "nobody has looked at builds in a VPC"
    assert project["Cache"]["Type"] == "NO_CACHE"
    assert project["Artifacts"]["Type"] == "NO_ARTIFACTS"
    variables = project["Environment"]["EnvironmentVariables"]
    assert {each["Type"] for each in variables} == {"PLAINTEXT"}, "nobody has looked at variables that CodeBuild fetches"
    yield from _codebuild(project, *LOG_LINES, on=_arn_of(project["LogsConfig"]["CloudWatchLogs"]["GroupName"]))
    bucket, _, key = project["Source"]["Location"].partition("/")
    assert project["Source"]["Type"] == "S3"
    yield from _codebuild(project, "s3:GetObject", "s3:GetObjectVersion", on=f"arn:aws:s3:::{bucket}/{key}")
    yield from _codebuild(project, "s3:GetBucketAcl", "s3:GetBucketLocation", on=f"arn:aws:s3:::{bucket}")


def _pushes(template: Template, _: str, project: Properties) -> Iterator[Need]:
    """What the buildspec's own commands ask."""
    variables = {each["Name"]: each["Value"] for each in project["Environment"]["EnvironmentVariables"]}
    assert "docker push" in project["Source"]["BuildSpec"]
    repository = variables["REPOSITORY"].partition("/")[2]
    yield from _codebuild(project, "ecr:GetAuthorizationToken")
    yield from _codebuild(project, *PULL, *PUSH, on=f"arn:aws:ecr:{template.region}:{ACCOUNT}:repository/{repository}")


# --- Step Functions ---

_LOG_DELIVERY: Final = (
    *("logs:CreateLogDelivery", "logs:GetLogDelivery", "logs:UpdateLogDelivery", "logs:DeleteLogDelivery"),
    *("logs:ListLogDeliveries", "logs:PutResourcePolicy", "logs:DescribeResourcePolicies", "logs:DescribeLogGroups"),
)


def _states(machine: Properties, *actions: str, on: str = "*") -> Iterator[Need]:
    yield from (Does("states.amazonaws.com", machine["RoleArn"], action, on) for action in actions)


def _machine_logs(_: Template, __: str, machine: Properties) -> Iterator[Need]:
    if machine.get("LoggingConfiguration", {}).get("Level", "OFF") != "OFF":
        yield from _states(machine, *_LOG_DELIVERY)


def _machine_traces(_: Template, __: str, machine: Properties) -> Iterator[Need]:
    if machine.get("TracingConfiguration", {}).get("Enabled"):
        yield from _states(machine, *SEGMENTS, "xray:GetSamplingRules", "xray:GetSamplingTargets")


def _machine_tasks(template: Template, _: str, machine: Properties) -> Iterator[Need]:
    definition = json.loads(machine["DefinitionString"])
    for task in sorted(_tasks(definition)):
        if placeholder := re.fullmatch(r"\$\{(\w+)\}", task):
            for number in (3, 4):
                # An older version too: an execution goes on with those that it began with.
                function = _function_of_version(template, machine["DefinitionSubstitutions"][placeholder[1]])
                yield from _states(machine, "lambda:InvokeFunction", on=f"{function}:{number}")
        else:
            # A ``.sync`` task needs a rule of EventBridge's, a callback none; nobody has looked at either here.
            raise AssertionError(f"nobody has looked at what the task {task} asks of the state machine's role")


def _tasks(state: Any) -> set[str]:
    if isinstance(state, list):
        return {task for each in state for task in _tasks(each)}
    if not isinstance(state, dict):
        return set()
    own = {state["Resource"]} if state.get("Type") == "Task" else set()
    return own | {task for each in state.values() for task in _tasks(each)}


# --- API Gateway ---


def _account_logs(_: Template, __: str, account: Properties) -> Iterator[Need]:
    yield HasManaged("apigateway.amazonaws.com", account["CloudWatchRoleArn"], "AmazonAPIGatewayPushToCloudWatchLogs")


def _stage_logs(_: Template, name: str, __: Properties) -> Iterator[Need]:
    yield ComesAfter(name, "AWS::ApiGateway::Account")


def _method(template: Template, _: str, method: Properties) -> Iterator[Need]:
    assert "Credentials" not in method["Integration"]
    if method["Integration"]["Type"] == "MOCK":
        return  # The gateway answers a preflight itself.
    path = _path(template, method["ResourceId"]).replace("{proxy+}", "x/y")
    verb = "POST" if method["HttpMethod"] == "ANY" else method["HttpMethod"]
    stage, _ = template.one("AWS::ApiGateway::Stage")
    source = f"arn:aws:execute-api:{template.region}:{ACCOUNT}:{method['RestApiId']}/<{stage}>/{verb}{path}"
    yield _invoked("apigateway.amazonaws.com", method["Integration"]["Uri"], source)


def _authorizer(template: Template, name: str, authorizer: Properties) -> Iterator[Need]:
    assert "AuthorizerCredentials" not in authorizer
    api = authorizer.get("RestApiId") or authorizer["ApiId"]
    source = f"arn:aws:execute-api:{template.region}:{ACCOUNT}:{api}/authorizers/<{name}>"
    yield _invoked("apigateway.amazonaws.com", authorizer["AuthorizerUri"], source)


def _route(template: Template, _: str, route: Properties) -> Iterator[Need]:
    integration = re.search(r"<(\w+)>", route["Target"])
    assert integration is not None
    uri = template.resolve(template.resources[integration[1]]["Properties"]["IntegrationUri"])
    stage = template.one("AWS::ApiGatewayV2::Stage")[1]["StageName"]
    source = f"arn:aws:execute-api:{template.region}:{ACCOUNT}:{route['ApiId']}/{stage}/{route['RouteKey']}"
    yield _invoked("apigateway.amazonaws.com", uri, source)


def _path(template: Template, resource_id: str) -> str:
    found = re.fullmatch(r"<(\w+)>", resource_id)
    if found is None or template.resources[found[1]]["Type"] != "AWS::ApiGateway::Resource":
        return ""
    resource = template.resolve(template.resources[found[1]]["Properties"])
    return f"{_path(template, resource['ParentId'])}/{resource['PathPart']}"


def _invoked(principal: str, uri: str, source: str) -> IsLet:
    found = re.search(r"/functions/(.+)/(response-streaming-)?invocations$", uri)
    assert found is not None, uri
    return IsLet(principal, "lambda:InvokeFunction", found[1], source)


# --- Others ---


def _targets(_: Template, name: str, rule: Properties) -> Iterator[Need]:
    for target in rule["Targets"]:
        assert not {"RoleArn", "DeadLetterConfig"} & target.keys(), "nobody has looked at targets other than functions"
        yield IsLet("events.amazonaws.com", "lambda:InvokeFunction", target["Arn"], f"<{name}.Arn>")


def _alarm_actions(template: Template, name: str, alarm: Properties) -> Iterator[Need]:
    actions = [*alarm.get("AlarmActions", []), *alarm.get("OKActions", []), *alarm.get("InsufficientDataActions", [])]
    for action in actions:
        source = f"arn:aws:cloudwatch:{template.region}:{ACCOUNT}:alarm:{name}"
        yield IsLet("cloudwatch.amazonaws.com", "sns:Publish", action, source)


def _encrypted_alarms(template: Template, _: str, topic: Properties) -> Iterator[Need]:
    if key := topic.get("KmsMasterKeyId"):
        for action in ("kms:Decrypt", "kms:GenerateDataKey"):
            yield IsLet("cloudwatch.amazonaws.com", action, key, f"arn:aws:cloudwatch:{template.region}:{ACCOUNT}:alarm:any")


def _subscription(_: Template, __: str, subscription: Properties) -> Iterator[Need]:
    assert subscription["Protocol"] == "email", "nobody has looked at what another subscription needs"
    yield from ()


def _rolls_out(_: Template, __: str, group: Properties) -> Iterator[Need]:
    yield HasManaged("codedeploy.amazonaws.com", group["ServiceRoleArn"], "AWSCodeDeployRoleForLambdaLimited")


def _encrypted_logs(template: Template, name: str, group: Properties) -> Iterator[Need]:
    if key := group.get("KmsKeyId"):
        source = f"arn:aws:logs:{template.region}:{ACCOUNT}:log-group:<{name}>"
        for action in ("kms:Encrypt", "kms:Decrypt", "kms:ReEncryptTo", "kms:GenerateDataKey", "kms:DescribeKey"):
            yield IsLet(f"logs.{template.region}.amazonaws.com", action, key, source)


def _indexes_vectors(template: Template, _: str, bucket: Properties) -> Iterator[Need]:
    if key := bucket.get("Key"):
        source = f"arn:aws:s3vectors:{template.region}:{ACCOUNT}:bucket/{bucket['Name']}"
        yield IsLet("indexing.s3vectors.amazonaws.com", "kms:Decrypt", key, source)


def _bucket(_: Template, __: str, bucket: Properties) -> Iterator[Need]:
    features = {"ReplicationConfiguration", "NotificationConfiguration", "InventoryConfigurations", "LoggingConfiguration"}
    features |= {"AnalyticsConfigurations", "MetadataTableConfiguration", "MetadataConfiguration"}
    assert not features & bucket.keys(), "nobody has looked at what replication, notifications and reports of S3 need"
    yield from ()


def _table(_: Template, __: str, table: Properties) -> Iterator[Need]:
    features = {"KinesisStreamSpecification", "ImportSourceSpecification"} & table.keys()
    assert not features, "nobody has looked at what streams to Kinesis and imports need"
    yield from ()  # A customer's key is used with the rights of whoever calls (``key_checks``).


def _secret(_: Template, __: str, secret: Properties) -> Iterator[Need]:
    assert "ReplicaRegions" not in secret
    yield from ()


# --- The table ---

ROWS: Final = (
    Row("AWS::Lambda::Function", "takes its role", f"{DOCS}/lambda/latest/dg/lambda-intro-execution-role.html", _runs),
    Row("AWS::Lambda::Function", "is placed in a VPC", f"{DOCS}/lambda/latest/dg/configuration-vpc.html", _is_placed),
    Row("AWS::Lambda::Function", "writes logs", f"{DOCS}/lambda/latest/dg/monitoring-cloudwatchlogs.html", _writes_logs),
    Row("AWS::Lambda::Function", "writes traces", f"{DOCS}/lambda/latest/dg/services-xray.html", _traces),
    Row("AWS::Lambda::Function", "sends dead letters", f"{DOCS}/lambda/latest/dg/invocation-async-retain-records.html", _dead_letters),
    Row(
        "AWS::Lambda::EventInvokeConfig",
        "sends to destinations",
        f"{DOCS}/lambda/latest/dg/invocation-async-retain-records.html",
        _destinations,
    ),
    Row(
        "AWS::Lambda::EventSourceMapping",
        "reads streams and queues",
        f"{DOCS}/lambda/latest/dg/invocation-eventsourcemapping.html",
        _reads_streams,
    ),
    Row("AWS::Lambda::MicrovmImage", "builds", f"{_DEVELOPER_GUIDE}/microvms-security.html", _microvm_build),
    Row("AWS::Lambda::MicrovmImage", "pulls its container image", f"{_DEVELOPER_GUIDE}/microvms-images.html", _microvm_pull),
    Row("AWS::Lambda::NetworkConnector", "makes network interfaces", f"{_DEVELOPER_GUIDE}/microvms-networking.html", _connects),
    Row(
        "AWS::ECS::TaskDefinition",
        "pulls its image",
        f"{DOCS}/AmazonECS/latest/developerguide/task_execution_IAM_role.html",
        _pulls,
    ),
    Row("AWS::ECS::TaskDefinition", "writes logs", f"{DOCS}/AmazonECS/latest/developerguide/using_awslogs.html", _task_logs),
    Row(
        "AWS::ECS::TaskDefinition",
        "is given secrets",
        f"{DOCS}/AmazonECS/latest/developerguide/task_execution_IAM_role.html#task-execution-secrets",
        _task_secrets,
    ),
    Row("AWS::ECS::TaskDefinition", "takes its role", f"{DOCS}/AmazonECS/latest/developerguide/task-iam-roles.html", _task_role),
    Row(
        "AWS::ECS::Service",
        "runs tasks",
        f"{DOCS}/AmazonECS/latest/developerguide/using-service-linked-roles-for-clusters.html",
        _ecs_service,
    ),
    Row("AWS::CodeBuild::Project", "builds", f"{DOCS}/codebuild/latest/userguide/setting-up-service-role.html", _builds),
    Row("AWS::CodeBuild::Project", "pushes an image", f"{DOCS}/AmazonECR/latest/userguide/image-push-iam.html", _pushes),
    Row("AWS::StepFunctions::StateMachine", "writes logs", f"{DOCS}/step-functions/latest/dg/cw-logs.html", _machine_logs),
    Row(
        "AWS::StepFunctions::StateMachine",
        "writes traces",
        f"{DOCS}/step-functions/latest/dg/concepts-xray-tracing.html",
        _machine_traces,
    ),
    Row("AWS::StepFunctions::StateMachine", "runs tasks", f"{DOCS}/step-functions/latest/dg/lambda-iam.html", _machine_tasks),
    Row(
        "AWS::ApiGateway::Account",
        "writes logs",
        f"{DOCS}/apigateway/latest/developerguide/set-up-logging.html",
        _account_logs,
    ),
    Row("AWS::ApiGateway::Stage", "writes logs", f"{DOCS}/apigateway/latest/developerguide/set-up-logging.html", _stage_logs),
    Row("AWS::ApiGatewayV2::Stage", "writes logs", f"{DOCS}/apigateway/latest/developerguide/websocket-api-logging.html", _stage_logs),
    Row(
        "AWS::ApiGateway::Method",
        "invokes a function",
        f"{DOCS}/apigateway/latest/developerguide/api-gateway-control-access-using-iam-policies-to-invoke-api.html",
        _method,
    ),
    Row(
        "AWS::ApiGateway::Authorizer",
        "invokes the authorizer",
        f"{DOCS}/apigateway/latest/developerguide/configure-api-gateway-lambda-authorization.html",
        _authorizer,
    ),
    Row(
        "AWS::ApiGatewayV2::Authorizer",
        "invokes the authorizer",
        f"{DOCS}/apigateway/latest/developerguide/apigateway-websocket-api-lambda-auth.html",
        _authorizer,
    ),
    Row(
        "AWS::ApiGatewayV2::Route",
        "invokes a function",
        f"{DOCS}/apigateway/latest/developerguide/apigateway-websocket-api-integrations.html",
        _route,
    ),
    Row("AWS::Events::Rule", "invokes targets", f"{DOCS}/eventbridge/latest/userguide/eb-use-resource-based.html", _targets),
    Row(
        "AWS::CloudWatch::Alarm",
        "tells a topic",
        f"{DOCS}/AmazonCloudWatch/latest/monitoring/Notify_Users_Alarm_Changes.html",
        _alarm_actions,
    ),
    Row("AWS::SNS::Topic", "is encrypted", f"{DOCS}/sns/latest/dg/sns-key-management.html", _encrypted_alarms),
    Row("AWS::SNS::Subscription", "delivers", f"{DOCS}/sns/latest/dg/sns-create-subscribe-endpoint-to-topic.html", _subscription),
    Row(
        "AWS::CodeDeploy::DeploymentGroup",
        "turns an alias",
        f"{DOCS}/codedeploy/latest/userguide/getting-started-create-service-role.html",
        _rolls_out,
    ),
    Row("AWS::Logs::LogGroup", "uses a key", f"{DOCS}/AmazonCloudWatch/latest/logs/encrypt-log-data-kms.html", _encrypted_logs),
    Row(
        "Custom::KeptVectorBucket",
        "indexes vectors",
        f"{DOCS}/AmazonS3/latest/userguide/s3-vectors-data-encryption.html",
        _indexes_vectors,
    ),
    Row("AWS::S3::Bucket", "acts by a role", f"{DOCS}/AmazonS3/latest/userguide/replication-config-for-kms-objects.html", _bucket),
    Row("AWS::DynamoDB::Table", "acts by a role", f"{DOCS}/amazondynamodb/latest/developerguide/security-iam.html", _table),
    Row("AWS::SecretsManager::Secret", "acts by a role", f"{DOCS}/secretsmanager/latest/userguide/rotating-secrets.html", _secret),
)

ASKS_NOTHING: Final = frozenset(
    {
        *("AWS::ApiGateway::ApiKey", "AWS::ApiGateway::BasePathMapping", "AWS::ApiGateway::Deployment", "AWS::ApiGateway::DomainName"),
        *("AWS::ApiGateway::GatewayResponse", "AWS::ApiGateway::Resource", "AWS::ApiGateway::RestApi", "AWS::ApiGateway::UsagePlan"),
        *("AWS::ApiGateway::UsagePlanKey", "AWS::ApiGatewayV2::Api", "AWS::ApiGatewayV2::ApiMapping"),
        *("AWS::ApiGatewayV2::DomainName", "AWS::ApiGatewayV2::Integration", "AWS::Budgets::Budget"),
        *("AWS::CloudWatch::Dashboard", "AWS::CodeDeploy::Application", "AWS::EC2::InternetGateway", "AWS::EC2::Route"),
        *("AWS::EC2::RouteTable", "AWS::EC2::SecurityGroup", "AWS::EC2::SecurityGroupEgress", "AWS::EC2::SecurityGroupIngress"),
        *("AWS::EC2::Subnet", "AWS::EC2::SubnetRouteTableAssociation", "AWS::EC2::VPC", "AWS::EC2::VPCEndpoint"),
        *("AWS::EC2::VPCGatewayAttachment", "AWS::EC2::VPCPeeringConnection", "AWS::ECR::Repository", "AWS::ECS::Cluster"),
        *("AWS::IAM::Policy", "AWS::IAM::Role", "AWS::KMS::Key", "AWS::Lambda::Alias", "AWS::Lambda::LayerVersion"),
        *("AWS::Lambda::Permission", "AWS::Lambda::Version", "AWS::Route53Resolver::FirewallDomainList"),
        *("AWS::Route53Resolver::FirewallRuleGroup", "AWS::Route53Resolver::FirewallRuleGroupAssociation", "AWS::S3::BucketPolicy"),
        *("AWS::SNS::TopicPolicy", "AWS::ServiceDiscovery::PrivateDnsNamespace", "AWS::ServiceDiscovery::Service"),
        *("AWS::WAFv2::WebACL", "AWS::WAFv2::WebACLAssociation", "Custom::Concurrency", "Custom::ImageBuild", "Custom::KeptKey"),
        *("Custom::PrefixLists", "Custom::SandboxKey", "Custom::Sandboxes", "Custom::Microvms", "Custom::MicrovmBase"),
        *("Custom::MicrovmSource", "Custom::StageLogs"),
    }
)
"""Kinds of resources that take no role and are told by nobody. Peering within one account, budgets that write mails, and custom
resources, which the deploying role invokes, are among them."""


def needs(template: Template) -> Iterator[tuple[str, Need]]:
    """Everything that services ask, with who asks it."""
    kinds = {resource["Type"] for resource in template.resources.values()}
    unseen = kinds - {row.kind for row in ROWS} - ASKS_NOTHING
    assert not unseen, f"nobody has looked at what {sorted(unseen)} ask of roles"
    for row in ROWS:
        for name, properties in template.of_type(row.kind):
            for need in row.asks(template, name, properties):
                yield f"{name} {row.what}", need


def unmet(template: Template) -> list[str]:
    """What services ask and may not, with the reason in words."""
    account = Account(template)
    return [f"{who}: {reason}" for who, need in needs(template) for reason in _missing(template, account, need)]


def unused_roles(template: Template) -> set[str]:
    """Roles that no row takes: either nobody needs them, or the table is not whole."""
    taken = {_logical_id(need.role) for _, need in needs(template) if isinstance(need, Does | HasManaged)}
    return {name for name, _ in template.of_type("AWS::IAM::Role")} - taken


def _missing(template: Template, account: Account, need: Need) -> Iterator[str]:
    match need:
        case Does(principal=principal, role=role, action=action, on=on):
            if not _trusts(template, role, principal):
                yield f"{role} is not for {principal}"
            elif action and not account.decides(_logical_id(role), action, on, {}):
                yield f"{role} may not {action} on {on}"
        case HasManaged(principal=principal, role=role, policy=policy, path=path):
            managed = template.resolve(template.resources[_logical_id(role)]["Properties"].get("ManagedPolicyArns", []))
            if not _trusts(template, role, principal) or not any(arn.endswith(f":policy/{path}{policy}") for arn in managed):
                yield f"{role} has not {policy}, or is not for {principal}"
        case IsLet():
            if not _is_let(template, need):
                yield f"the policy of {need.on} does not let {need.principal} {need.action} for {need.source}"
        case ComesAfter(name=name, kind=kind):
            waits = template.resources[name].get("DependsOn", [])
            if not any(template.resources[each]["Type"] == kind for each in ([waits] if isinstance(waits, str) else waits)):
                yield f"{name} does not wait for {kind}"


def _trusts(template: Template, role: str, principal: str) -> bool:
    statements = template.resolve(template.resources[_logical_id(role)]["Properties"]["AssumeRolePolicyDocument"]["Statement"])
    principals = [statement["Principal"]["Service"] for statement in statements if "sts:AssumeRole" in _many(statement["Action"])]
    return principals == [principal]


def _is_let(template: Template, need: IsLet) -> bool:
    if need.action == "lambda:InvokeFunction":
        return any(
            (permission["FunctionName"], permission["Principal"], permission["Action"]) == (need.on, need.principal, need.action)
            and fnmatchcase(need.source, _literal(permission["SourceArn"]))
            for _, permission in template.of_type("AWS::Lambda::Permission")
        )
    statements = [statement for document in _documents(template, need.on) for statement in document["Statement"]]
    if need.action == "sns:Publish" and not statements:
        return True  # The policy that SNS gives a topic lets the account's own services publish.
    return {each["Effect"] for each in statements if _speaks_of(each, need)} == {"Allow"}


def _documents(template: Template, resource: str) -> list[Properties]:
    """Policies of a topic or a key."""
    topics = [p["PolicyDocument"] for _, p in template.of_type("AWS::SNS::TopicPolicy") if resource in p["Topics"]]
    given = [given_key.policy()] if resource == given_key.ARN else []
    return [*topics, *given, *(key["KeyPolicy"] for name, key in template.of_type("AWS::KMS::Key") if resource == f"<{name}.Arn>")]


def _speaks_of(statement: Properties, need: IsLet) -> bool:
    principal = statement["Principal"]
    is_meant = principal == "*" or need.principal in _many(principal.get("Service", []))
    acts = any(fnmatchcase(need.action.lower(), action.lower()) for action in _many(statement["Action"]))
    return is_meant and acts and all(_holds(operator, keys, need) for operator, keys in statement.get("Condition", {}).items())


def _holds(operator: str, keys: Mapping[str, Any], need: IsLet) -> bool:
    assert operator in ("Bool", "StringEquals", "ArnLike", "ArnEquals", "StringLike"), operator
    context = {"aws:SecureTransport": "true", "aws:SourceAccount": ACCOUNT, "aws:SourceArn": need.source}
    context["kms:EncryptionContext:aws:logs:arn"] = need.source
    return all(any(fnmatchcase(context[key], _literal(each)) for each in _many(wanted)) for key, wanted in keys.items())


def _function_named(template: Template, reference: str) -> Properties:
    """By its own reference or by that of its alias."""
    name = _logical_id(reference.partition("[")[0])
    if template.resources[name]["Type"] == "AWS::Lambda::Alias":
        name = _logical_id(template.resolve(template.resources[name]["Properties"]["FunctionName"]))
    properties: Properties = template.resolve(template.resources[name]["Properties"])
    return properties


def _function_of_version(template: Template, version: str) -> str:
    """The function's ARN, by the reference to one of its versions."""
    name = template.resolve(template.resources[_logical_id(version)]["Properties"]["FunctionName"])
    return str(template.resolve({"Fn::GetAtt": [_logical_id(name), "Arn"]}))


def _logical_id(reference: str) -> str:
    found = re.search(r"<(\w+)", reference)
    assert found is not None, reference
    return found[1]


def _arn_of(group: str) -> str:
    """Of a log group that is referred to by its name."""
    return f"<{_logical_id(group)}.Arn>"


def _service_of(arn: str) -> str:
    service = arn.split(":")[2] if arn.startswith("arn:") else ""
    assert service in ("sqs", "sns", "lambda", "events", "s3", "dynamodb"), f"nobody has looked at {arn}"
    return service


def _many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _literal(pattern: str) -> str:
    """Wildcards are ``*`` and ``?`` alone."""
    return pattern.replace("[", "[[]")
