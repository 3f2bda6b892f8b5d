"""What the templates deploy: streaming, times, the loop, configuration."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moorage import limits
from moorage.model import embedding_models
from moorage.settings import GROUPS, VARIABLES, usage_key

from infra.agent_loop import ASL_FILE
from infra.app import check_region
from infra.config import Config, ConfigError, Models
from infra.prices import ALARMS, HOURS_A_MONTH, PRICES
from infra.sandbox import CPU_UNITS
from infra.stacks import TITAN
from tests.infra.conftest import EVERYTHING, ROOT, Stacks, load, masked, shared, synthesise
from tests.infra.synthesis import context_of, program

SNAPSHOTS = Path(__file__).parent / "snapshots"


def methods(stacks: Stacks) -> dict[str, dict[str, Any]]:
    """API methods by path."""
    resources = stacks.of_type("AWS::ApiGateway::Resource")

    def path(reference: dict[str, Any]) -> str:
        resource = resources.get(reference.get("Ref", ""))
        return f"{path(resource['ParentId'])}/{resource['PathPart']}" if resource else ""

    return {path(m["ResourceId"]): m for m in stacks.of_type("AWS::ApiGateway::Method").values()}


def function(stacks: Stacks, name: str) -> dict[str, Any]:
    (found,) = [f for key, f in stacks.of_type("AWS::Lambda::Function").items() if key.startswith(f"Functions{name}")]
    return found


def test_responses_are_streamed_for_as_long_as_lambda_lives(stacks: Stacks) -> None:
    integration = methods(stacks)["/v1/{proxy+}"]["Integration"]
    assert integration["ResponseTransferMode"] == "STREAM"
    assert integration["TimeoutInMillis"] == 900_000
    assert "/response-streaming-invocations" in json.dumps(integration["Uri"])
    streaming = function(stacks, "Responses")
    assert int(streaming["Environment"]["Variables"]["MOORAGE_STREAM_SECONDS_MAX"]) + 20 < streaming["Timeout"] == 900


@pytest.mark.parametrize("path", ["containers", "sessions", "processes", "files", "uploads", "skills"])
def test_resources_are_answered_in_one_piece(stacks: Stacks, path: str) -> None:
    for method in (methods(stacks)[f"/v1/{path}"], methods(stacks)[f"/v1/{path}/{{proxy+}}"]):
        assert "ResponseTransferMode" not in method["Integration"]
        assert method["Integration"]["TimeoutInMillis"] == 29_000


def test_uploads_reach_their_function_as_they_are_and_json_as_text(stacks: Stacks) -> None:
    """API Gateway reads a body as UTF-8 unless its type is named here, and what is none is lost without a word."""
    assert stacks.one("AWS::ApiGateway::RestApi")["BinaryMediaTypes"] == ["multipart/form-data", "application/octet-stream"]


def test_every_method_asks_the_authorizer(stacks: Stacks) -> None:
    without = {path: method["HttpMethod"] for path, method in methods(stacks).items() if method["AuthorizationType"] != "CUSTOM"}
    assert without == {"/console": "GET", "/console/{proxy+}": "GET", "/approve/{proxy+}": "ANY"}  # files, and what bears its key
    authorizer = stacks.one("AWS::ApiGateway::Authorizer")
    assert (authorizer["Type"], authorizer["IdentitySource"]) == ("REQUEST", "method.request.header.Authorization")
    assert authorizer["AuthorizerResultTtlInSeconds"] == 300


def test_the_api_is_regional_because_edge_cuts_silent_streams(stacks: Stacks) -> None:
    assert stacks.one("AWS::ApiGateway::RestApi")["EndpointConfiguration"] == {"Types": ["REGIONAL"]}


def test_the_gateways_own_errors_look_like_openais(stacks: Stacks) -> None:
    for answer in stacks.of_type("AWS::ApiGateway::GatewayResponse").values():
        template = answer["ResponseTemplates"]["application/json"]
        error = json.loads(template.replace("$context.error.messageString", '"..."'))["error"]
        assert set(error) == {"message", "type", "param", "code"}


def test_the_gateway_answers_for_what_never_reaches_a_function_and_says_when_to_come_back(stacks: Stacks) -> None:
    answers = {a["ResponseType"]: a for a in stacks.of_type("AWS::ApiGateway::GatewayResponse").values()}
    codes = {
        kind: (a.get("StatusCode"), json.loads(a["ResponseTemplates"]["application/json"])["error"]["code"])
        for kind, a in answers.items()
        if kind != "DEFAULT_4XX"
    }
    assert codes == {
        "ACCESS_DENIED": ("401", "invalid_api_key"),
        "DEFAULT_5XX": ("500", "server_error"),
        "MISSING_AUTHENTICATION_TOKEN": ("404", "unknown_url"),
        "QUOTA_EXCEEDED": ("429", "insufficient_quota"),
        "REQUEST_TOO_LARGE": ("413", "request_too_large"),
        "RESOURCE_NOT_FOUND": ("404", "unknown_url"),
        "THROTTLED": ("429", "rate_limit_exceeded"),
        "UNAUTHORIZED": ("401", "invalid_api_key"),
        "WAF_FILTERED": ("403", None),
    }
    assert answers["THROTTLED"]["ResponseParameters"] == {"gatewayresponse.header.retry-after": "'1'"}
    assert answers["QUOTA_EXCEEDED"]["ResponseParameters"] == {"gatewayresponse.header.x-should-retry": "'false'"}
    assert "StatusCode" not in answers["DEFAULT_4XX"]
    assert '"message": $context.error.messageString' in answers["DEFAULT_4XX"]["ResponseTemplates"]["application/json"]


def test_tenants_of_a_tier_are_counted_apart_from_all_others(everything: Stacks) -> None:
    plans = everything.of_type("AWS::ApiGateway::UsagePlan")
    keys = everything.of_type("AWS::ApiGateway::ApiKey")
    held = {
        plans[tie["UsagePlanId"]["Ref"]]["UsagePlanName"]: keys[tie["KeyId"]["Ref"]]["Value"]
        for tie in everything.of_type("AWS::ApiGateway::UsagePlanKey").values()
    }
    limits = {plan["UsagePlanName"]: (plan.get("Throttle"), plan.get("Quota")) for plan in plans.values()}
    assert limits == {
        "moorage-others": (None, None),
        "moorage-research": ({"RateLimit": 5, "BurstLimit": 10}, {"Limit": 1000, "Period": "DAY"}),
    }
    assert held == {"moorage-others": usage_key("moorage", "*")}  # the others' are made by 'moorage keys create --tier'
    assert everything.one("AWS::ApiGateway::RestApi")["ApiKeySourceType"] == "AUTHORIZER"
    assert {m["ApiKeyRequired"] for path, m in methods(everything).items() if not path.startswith(("/console", "/approve"))} == {True}
    assert function(everything, "Authorizer")["Environment"]["Variables"]["MOORAGE_USAGE_PLANS"] == "*,research"


def test_without_usage_plans_no_method_wants_a_key_of_the_gateways(stacks: Stacks) -> None:
    assert stacks.of_type("AWS::ApiGateway::UsagePlan") == {}
    assert not any(method.get("ApiKeyRequired") for method in methods(stacks).values())


def test_started_environments_wait_behind_the_streaming_route(everything: Stacks, stacks: Stacks) -> None:
    def kept(stacks: Stacks) -> Any:
        return stacks.one("AWS::Lambda::Alias", "Responses").get("ProvisionedConcurrencyConfig")

    uri = json.dumps(methods(everything)["/v1/{proxy+}"]["Integration"]["Uri"])
    assert kept(everything) == {"ProvisionedConcurrentExecutions": 2}
    assert "FunctionsResponsesLive" in uri
    assert "/response-streaming-invocations" in uri
    assert kept(stacks) is None


def test_callers_are_sent_to_an_alias_and_executions_keep_the_versions_that_they_began_with(stacks: Stacks) -> None:
    """A deployment turns the alias; versions stay, so that what runs goes on with the code that it began with."""
    versions = stacks.of_type("AWS::Lambda::Version")
    assert {stacks.resources[name]["DeletionPolicy"] for name in versions} == {"Retain"}
    aliases = stacks.of_type("AWS::Lambda::Alias")
    assert sorted(name.removeprefix("Functions").split("Live")[0] for name in aliases) == [
        *("Containers", "Files", "Responses", "Sessions")
    ]
    assert all(alias["FunctionVersion"]["Fn::GetAtt"][0] in versions for alias in aliases.values())
    steps = stacks.one("AWS::StepFunctions::StateMachine")["DefinitionSubstitutions"]
    assert all(reference["Ref"] in versions for reference in steps.values())


@pytest.fixture(scope="session")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    return shared({"rollout": "canary", "table_read_units": 10, "table_write_units": 5}, tmp_path_factory)


@pytest.fixture(scope="session")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    return shared({"rollout": "linear", **MICROVMS}, tmp_path_factory)


_ROLLOUTS = [("canary", "Canary10Percent5Minutes"), ("linear", "Linear10PercentEvery1Minute")]


@pytest.mark.parametrize(("rollout", "configuration"), _ROLLOUTS)
def test_a_new_version_comes_into_use_bit_by_bit_on_request(
    rollout: str, configuration: str, request: pytest.FixtureRequest
) -> None:
    found: Stacks = request.getfixturevalue(rollout)
    group = found.one("AWS::CodeDeploy::DeploymentGroup")
    assert configuration in json.dumps(group["DeploymentConfigName"])
    assert group["AutoRollbackConfiguration"]["Enabled"] is True
    assert group["AlarmConfiguration"]["Enabled"] is True
    (alias,) = [r for name, r in found.resources.items() if "ResponsesLive" in name and r["Type"] == "AWS::Lambda::Alias"]
    assert "CodeDeployLambdaAliasUpdate" in alias["UpdatePolicy"]


ADOPTED = {
    "table_name": "moorage-restored",
    "bucket_name": "moorage-restored-objects",
    "content_key_arn": "arn:aws:secretsmanager:us-east-1:000000000000:secret:moorage-AbCdEf",
}


def test_a_table_and_a_bucket_that_are_there_are_adopted(tmp_path: Path, stacks: Stacks) -> None:
    """Functions work on them, with rights to them alone; the stack keeps its own and every export, whichever is deployed first."""
    assert synthesise(ADOPTED, tmp_path).returncode == 0
    found = load(tmp_path)
    variables = function(found, "Responses")["Environment"]["Variables"]
    assert (variables["MOORAGE_TABLE"], variables["MOORAGE_BUCKET"]) == (ADOPTED["table_name"], ADOPTED["bucket_name"])
    assert variables["MOORAGE_CONTENT_KEY_SECRET"] == ADOPTED["content_key_arn"]
    assert found.one("Custom::SandboxKey")["Secret"] == ADOPTED["content_key_arn"]
    rights = json.dumps([policy["PolicyDocument"] for policy in found.of_type("AWS::IAM::Policy").values()])
    assert "table/moorage-restored" in rights
    assert "moorage-restored-objects/*" in rights
    assert "Fn::ImportValue" not in rights
    assert found.findings == []

    def exports(stacks: Stacks) -> set[str]:
        return {output["Export"]["Name"] for output in stacks.state["Outputs"].values() if "Export" in output}

    assert exports(stacks) <= exports(found)
    assert {n: r["Type"] for n, r in found.state["Resources"].items()} == {n: r["Type"] for n, r in stacks.state["Resources"].items()}


def test_streams_have_a_share_of_the_accounts_concurrency_so_that_their_steps_have_the_rest(stacks: Stacks) -> None:
    properties = stacks.one("Custom::Concurrency")
    assert (properties["Percent"], properties["AtLeast"]) == ("50", "0")
    assert "FunctionsResponses" in json.dumps(properties["Function"])


def test_a_throttled_step_is_tried_for_minutes_and_a_failing_one_for_seconds() -> None:
    def tasks(states: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for state in states.values():
            if state["Type"] == "Task":
                yield state
            if "ItemProcessor" in state:
                yield from tasks(state["ItemProcessor"]["States"])

    machine = json.loads(ASL_FILE.read_text())
    for state in tasks(machine["States"]):
        throttled, others = state["Retry"]
        assert "Lambda.TooManyRequestsException" in throttled["ErrorEquals"]
        assert others["ErrorEquals"] == ["States.ALL"]
        # With full jitter half of each pause is what is waited in the mean.
        pauses = [min(throttled["IntervalSeconds"] * 2**n, throttled["MaxDelaySeconds"]) / 2 for n in range(throttled["MaxAttempts"])]
        assert sum(pauses) > 10 * 60


def test_ecs_tells_of_sandboxes_and_nobody_asks(stacks: Stacks) -> None:
    (rule,) = [r for r in stacks.of_type("AWS::Events::Rule").values() if r.get("EventPattern", {}).get("source") == ["aws.ecs"]]
    (cluster,) = stacks.of_type("AWS::ECS::Cluster")
    assert rule["EventPattern"] == {
        "source": ["aws.ecs"],
        "detail-type": ["ECS Task State Change"],
        "detail": {"clusterArn": [{"Fn::GetAtt": [cluster, "Arn"]}], "lastStatus": ["RUNNING", "STOPPED"]},
    }
    assert "FunctionsPlacement" in json.dumps(rule["Targets"])
    assert function(stacks, "ModelStep")["Environment"]["Variables"]["MOORAGE_FARGATE_EVENTS"] == "true"


def test_images_are_built_one_after_the_other_from_a_registry_that_counts_no_pulls(everything: Stacks) -> None:
    builds = {name: r for name, r in everything.resources.items() if r["Type"] == "Custom::ImageBuild"}
    (second,) = [name for name in builds if "Proxy" in name]
    (first,) = builds.keys() - {second}
    assert first in builds[second]["DependsOn"]
    for project in everything.of_type("AWS::CodeBuild::Project").values():
        variables = {each["Name"]: each["Value"] for each in project["Environment"]["EnvironmentVariables"]}
        assert re.fullmatch(r"public\.ecr\.aws/docker/library/python:3\.1\d-slim-bookworm@sha256:[0-9a-f]{64}", variables["BASE_IMAGE"])
        assert variables["BASE_IMAGE"].startswith(variables["BASE_IMAGE_BY_NAME"])


def test_another_edition_has_the_same_sources_built_anew(stacks: Stacks, everything: Stacks) -> None:
    tags = {each.one("Custom::ImageBuild", "HooksImageBuild")["Tag"] for each in (stacks, everything)}
    assert len(tags) == 2


def test_with_a_recipient_there_are_alarms_on_all_that_costs_when_it_fails(everything: Stacks, stacks: Stacks) -> None:
    def alarms(stacks: Stacks) -> set[str]:
        return {name.removeprefix("Observability")[:-8] for name in stacks.of_type("AWS::CloudWatch::Alarm")}

    always = {"LoopFailed", "LoopTimedOut", "ApiErrors", "FunctionErrors", "Throttled"}
    assert alarms(stacks) == always
    assert len(always) == ALARMS
    assert alarms(everything) == always | {
        *("RecoveryFailed", "ExpiryFailed", "RetirementFailed", "PlacementFailed", "AuthorizerFailed"),
        *("TableReadsThrottled", "TableWritesThrottled", "ProxyDown", "ManySandboxes"),
    }
    assert all(alarm["AlarmActions"] for alarm in everything.of_type("AWS::CloudWatch::Alarm").values())
    budget = everything.one("AWS::Budgets::Budget")
    assert budget["Budget"]["BudgetLimit"] == {"Amount": 200, "Unit": "USD"}
    assert budget["Budget"]["CostFilters"] == {"TagKeyValue": ["user:moorage:deployment$moorage"]}


def test_everything_bears_the_deployments_name(stacks: Stacks) -> None:
    for name, properties in stacks.of_type("AWS::Lambda::Function").items():
        assert {"Key": "moorage:deployment", "Value": "moorage"} in properties["Tags"], name


def test_two_regions_have_a_dashboard_each(stacks: Stacks) -> None:
    assert stacks.one("AWS::CloudWatch::Dashboard")["DashboardName"] == "moorage-us-east-1"


def test_the_dashboard_estimates_what_is_paid_by_the_hour(stacks: Stacks) -> None:
    body = json.dumps(stacks.one("AWS::CloudWatch::Dashboard")["DashboardBody"])
    assert "Estimated cost ($ an hour, list prices of us-east-1)" in body
    for part in ("At rest", "API Gateway", "Lambda", "Step Functions", "DynamoDB", "Sandboxes"):
        assert f'\\"label\\":\\"{part}' in body, part
    month = PRICES["us-east-1"].at_rest(Config())
    assert f"TIME_SERIES({month / 730:.6f})" in body
    functions = [f for name, f in stacks.of_type("AWS::Lambda::Function").items() if name.startswith("Functions")]
    assert body.count("/ 1000 *") == len(functions)


def test_everything_is_traced(stacks: Stacks) -> None:
    functions = {n: f for n, f in stacks.of_type("AWS::Lambda::Function").items() if n.startswith("Functions")}
    assert {f["TracingConfig"]["Mode"] for f in functions.values()} == {"Active"}
    assert stacks.one("AWS::StepFunctions::StateMachine")["TracingConfiguration"] == {"Enabled": True}
    assert stacks.one("AWS::ApiGateway::Stage")["TracingEnabled"] is True


def test_the_responses_function_is_a_server_behind_the_web_adapter(stacks: Stacks) -> None:
    found = function(stacks, "Responses")
    variables = found["Environment"]["Variables"]
    assert found["Handler"] == "run.sh"
    assert (ROOT / "functions" / "responses" / "run.sh").stat().st_mode & 0o111
    assert {name: value for name, value in variables.items() if name.startswith("AWS_L")} == {
        "AWS_LAMBDA_EXEC_WRAPPER": "/opt/bootstrap",
        "AWS_LWA_INVOKE_MODE": "response_stream",
        "AWS_LWA_PORT": "8080",
        "AWS_LWA_READINESS_CHECK_PATH": "/healthz",
        "AWS_LWA_ASYNC_INIT": "true",
    }
    assert "LambdaAdapterLayerArm64" in json.dumps(found["Layers"])


def test_every_function_is_python_3_13_on_arm64_and_outlives_its_step(stacks: Stacks) -> None:
    functions = stacks.of_type("AWS::Lambda::Function")
    assert {(f["Runtime"], *f["Architectures"]) for f in functions.values()} == {("python3.13", "arm64")}
    tool_seconds = limits.TOOL_STEP_SECONDS_MAX
    for name, seconds in (("ModelStep", limits.MODEL_STEP_SECONDS_MAX), ("ToolStep", tool_seconds), ("ServiceStep", tool_seconds)):
        assert function(stacks, name)["Timeout"] == 900 > seconds


def test_only_what_speaks_to_sandboxes_lives_in_their_network(stacks: Stacks) -> None:
    inside = {name for name, f in stacks.of_type("AWS::Lambda::Function").items() if "VpcConfig" in f}
    assert sorted(name.removeprefix("Functions")[:-8] for name in inside) == ["ParseStep", "Retirement", "Sessions", "ToolStep"]


def test_the_loop_is_the_asl_file_with_functions_in_its_placeholders(stacks: Stacks) -> None:
    machine = json.loads((ROOT / "layers" / "core" / "python" / "moorage" / "loop" / "agent_loop.asl.json").read_text())
    deployed = stacks.one("AWS::StepFunctions::StateMachine")
    assert json.loads(deployed["DefinitionString"]) == machine
    placeholders = {name.split("${")[1].split("}")[0] for name in json.dumps(machine).split('"') if "${" in name}
    assert set(deployed["DefinitionSubstitutions"]) == placeholders
    assert deployed["StateMachineType"] == "STANDARD"


def test_an_image_build_is_heard_of_however_it_ends_and_before_cloudformation_gives_up(everything: Stacks) -> None:
    rules = everything.of_type("AWS::Events::Rule")
    builds = {name: r for name, r in everything.resources.items() if r["Type"] == "Custom::ImageBuild"}
    assert len(builds) == 2
    for build in builds.values():
        project = build["Properties"]["Project"]
        (ended,) = [name for name in build["DependsOn"] if name in rules]
        assert rules[ended]["EventPattern"] == {
            "source": ["aws.codebuild"],
            "detail-type": ["CodeBuild Build State Change"],
            "detail": {"project-name": [project], "build-status": [{"anything-but": ["IN_PROGRESS"]}]},
        }
        assert rules[ended]["Targets"][0]["Arn"] == build["Properties"]["ServiceToken"]
        permissions = {everything.resources[name]["Type"] for name in build["DependsOn"] if "AllowEventRule" in name}
        assert permissions == {"AWS::Lambda::Permission"}
        minutes = everything.of_type("AWS::CodeBuild::Project")[project["Ref"]]
        assert (minutes["QueuedTimeoutInMinutes"] + minutes["TimeoutInMinutes"]) * 60 < int(build["Properties"]["ServiceTimeout"])


def test_a_failed_execution_raises_an_alarm(everything: Stacks) -> None:
    alarms = everything.of_type("AWS::CloudWatch::Alarm")
    (failed,) = [alarm for alarm in alarms.values() if alarm["MetricName"] == "ExecutionsFailed"]
    assert failed["Threshold"] == 1
    assert all(alarm["AlarmActions"] for alarm in alarms.values())


@pytest.mark.parametrize("which", ["stacks", "everything"])
@pytest.mark.parametrize("stack", ["state", "service"])
def test_the_template_is_the_recorded_one(which: str, stack: str, request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> None:
    """``pytest tests/infra --record-templates`` records anew; the difference then shows in review."""
    found: Stacks = request.getfixturevalue(which)
    text = masked(json.loads(json.dumps(getattr(found, stack)))) + "\n"
    file = SNAPSHOTS / f"{'default' if which == 'stacks' else 'everything'}-{stack}.json"
    if pytestconfig.getoption("record_templates", default=False):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text(), f"{file.name} differs; 'pytest tests/infra --record-templates' records it anew."


MICROVM_IMAGES = {tier: f"arn:aws:lambda:us-east-1:000000000000:microvm-image:moorage-{tier}" for tier in ("1g", "4g")}
MICROVMS: dict[str, Any] = {
    "provisioner": "lambda_microvm",
    "microvm_images": MICROVM_IMAGES,
    "microvm_egress_connector": "arn:aws:lambda:us-east-1:000000000000:network-connector:closed",
}


def test_microvms_are_chosen_by_configuration(linear: Stacks) -> None:
    found = linear
    assert found.findings == []
    assert [kind for kind in ("AWS::EC2::VPC", "AWS::ECS::Cluster", "AWS::CodeBuild::Project") if found.of_type(kind)] == []
    variables = function(found, "ToolStep")["Environment"]["Variables"]
    assert {name: value for name, value in variables.items() if "MICROVM" in name or "FARGATE" in name or "PROVISIONER" in name} == {
        "MOORAGE_PROVISIONER": "lambda_microvm",
        "MOORAGE_MICROVM_IMAGE_1G": MICROVM_IMAGES["1g"],
        "MOORAGE_MICROVM_IMAGE_4G": MICROVM_IMAGES["4g"],
        "MOORAGE_MICROVM_EGRESS_CONNECTOR": MICROVMS["microvm_egress_connector"],
    }
    reach = {"GetMicrovm", "CreateMicrovmAuthToken"}
    start, stop = reach | {"RunMicrovm", "ResumeMicrovm", "PassNetworkConnector"}, reach | {"TerminateMicrovm"}
    granted: dict[str, set[str]] = {}
    for name, policy in found.of_type("AWS::IAM::Policy").items():
        owner = name.split("Role")[0].removeprefix("Functions")
        for statement in policy["PolicyDocument"]["Statement"]:
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            mine = {action.removeprefix("lambda:") for action in actions if re.search("Microvm|Connector", action)}
            if mine:
                granted[owner] = granted.get(owner, set()) | mine
                assert statement["Resource"] == ("*" if "PassNetworkConnector" in mine else list(MICROVM_IMAGES.values()))
    both = start | stop
    assert granted == dict.fromkeys(
        ("Responses", "ModelStep", "ToolStep", "IndexStep", "ParseStep", "Expiry", "Containers", "Sessions"), both
    )


WRONG = {
    "an unknown setting": ({"provisoner": "fargate"}, "there is no setting 'provisoner'"),
    "a value outside a closed set": ({"provisioner": "ec2"}, "'provisioner'"),
    "a memory tier that does not exist": ({"memory_tiers": ["2g"]}, "'memory_tiers': takes one or more of 1g, 4g, 16g, 64g"),
    "a collector that is no address": ({"otlp_endpoint": "collector:4318"}, "'otlp_endpoint'"),
    "headers in clear": ({"otlp_endpoint": "https://x", "otlp_headers_secret": "authorization=x"}, "'otlp_headers_secret'"),
    "headers of no collector": (
        {"otlp_headers_secret": "arn:aws:secretsmanager:us-east-1:000000000000:secret:otlp-Ab12Cd"},
        "otlp_headers_secret needs otlp_endpoint",
    ),
    "a URL where a domain is wanted": ({"allowed_egress_domains": ["https://pkg.example.com"]}, "takes lower-case domain names"),
    "a domain without its certificate": ({"domain_name": "api.example.com"}, "belong together"),
    "a proxy without Fargate": ({"provisioner": "none", "allowed_egress_domains": ["pkg.example.com"]}, "needs provisioner 'fargate'"),
    "MicroVMs without images": ({"provisioner": "lambda_microvm"}, "microvm_images and microvm_egress_connector belong together"),
    "MicroVMs without a connector": ({**MICROVMS, "microvm_egress_connector": None}, "belong together"),
    "MicroVM images for Fargate": ({**MICROVMS, "provisioner": "fargate"}, "belong together"),
    "MicroVM images by name": ({**MICROVMS, "microvm_images": {"1g": "moorage"}}, "takes ARNs of MicroVM images by memory tier"),
    "AWS's own connector, which leads to the internet": (
        {
            **MICROVMS,
            "microvm_egress_connector": "arn:aws:lambda:us-east-1:aws:network-connector:aws-network-connector:INTERNET_EGRESS",
        },
        "'microvm_egress_connector'",
    ),
    "a proxy for MicroVMs": ({**MICROVMS, "allowed_egress_domains": ["pkg.example.com"]}, "needs provisioner 'fargate'"),
    "a warm pool of no memory tier": ({"warm_pool": ["2g:1"]}, "'warm_pool': takes a memory tier (1g, 4g, 16g, 64g)"),
    "a warm pool of a tier that is not deployed": ({"memory_tiers": ["1g"], "warm_pool": "4g:1"}, "which memory_tiers leaves out"),
    "a warm pool without Fargate": ({"provisioner": "none", "warm_pool": "1g:1"}, "warm_pool needs provisioner 'fargate'"),
    "a warm pool of MicroVMs": ({**MICROVMS, "warm_pool": "1g:1"}, "warm_pool needs provisioner 'fargate'"),
    "a usage plan without the function that names tenants": ({"authorizer": False, "usage_plans": {"a": {}}}, "needs authorizer"),
    "a usage plan of somebody who cannot be": ({"usage_plans": {"A B": {}}}, "takes plans by tier (a-z, 0-9 and '-')"),
    "a plan for each tenant": ({"usage_plans": {f"t{n}": {} for n in range(51)}}, "takes up to 50 tiers"),
    "a rate without a burst": ({"usage_plans": {"a": {"requests_per_second": 1}}}, "request_burst belong together"),
    "a quota that is none": ({"usage_plans": {"a": {"requests_per_month": 1}}}, "usage_plans.a.requests_per_month"),
    "started environments beyond any quota": ({"provisioned_concurrency": 5000}, "'provisioned_concurrency'"),
    "a size of no proxy": ({"proxy_memory_mib": 1024}, "proxy_memory_mib needs allowed_egress_domains"),
    "a bucket without its table": ({"bucket_name": "restored"}, "table_name and bucket_name belong together"),
    "a budget that nobody hears of": ({"monthly_budget": 100}, "need alarm_email"),
    "half a capacity": ({"table_read_units": 10}, "table_read_units and table_write_units belong together"),
    "a retention of no days": ({"retention_days": 0}, "'retention_days'"),
}


@pytest.mark.parametrize(("settings", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_setting_is_refused_with_one_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Config.from_context({"moorage": settings})
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


NOT_ON_AWS = {
    "MOORAGE_RUNNING_RESPONSES_MAX": "the concurrency of the functions bounds them",
    "MOORAGE_CONTENT_KEY": "functions read it from Secrets Manager",
    "MOORAGE_DOCKER_": "sandboxes are Fargate tasks",
    "MOORAGE_EGRESS_ALLOWED_NETWORKS": "no route leads from the proxy's network to a private one",
    "MOORAGE_EGRESS_CA": "the CA is kept in the table, sealed",
    "MOORAGE_EGRESS_PORTS": "the security groups open 80 and 443",
    "MOORAGE_FETCH_ALLOWED_NETWORKS": "the API's functions have no route to a private network",
    "MOORAGE_JSON_SILENCE_SECONDS": "API Gateway waits five minutes for the next byte",
    "MOORAGE_LAUNCHER_SOCKET": "there is no launcher",
    "MOORAGE_LOG_FILE": "CloudWatch keeps what functions print",
    "MOORAGE_MICROVM_": "sandboxes are Fargate tasks; with provisioner 'lambda_microvm' they are set",
    "MOORAGE_MODELS_FILE": "models.toml lies beside each function",
    "OTEL_SERVICE_NAME": "the traces bear the deployment's name",
}
"""Settings that the deployment leaves alone, and why."""


def test_every_setting_is_set_by_the_deployment_or_left_alone_for_a_reason(everything: Stacks) -> None:
    """What is left to its default is not rendered: such a setting is one that the CDK app passes on."""
    source = ast.parse((ROOT / "infra" / "stacks.py").read_text())
    calls = [node for node in ast.walk(source) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Settings"]
    passed_on = {keyword.arg for call in calls for keyword in call.keywords}
    read = {name for name, variable in VARIABLES.items() if variable.field not in passed_on} | set(GROUPS.values())
    functions = everything.of_type("AWS::Lambda::Function").values()
    told = {name for f in functions for name in f.get("Environment", {}).get("Variables", {})}
    told |= {"MOORAGE_FARGATE_" for name in told if name.startswith("MOORAGE_FARGATE_")}
    told |= {
        variable["Name"]
        for task in everything.of_type("AWS::ECS::TaskDefinition").values()
        for container in task["ContainerDefinitions"]
        for variable in container.get("Environment", [])
    }
    assert read - told == set(NOT_ON_AWS)


def test_traces_are_sent_by_what_ends_responses_and_their_headers_stand_in_no_template(stacks: Stacks, everything: Stacks) -> None:
    def told(stacks: Stacks) -> dict[str, tuple[Any, Any]]:
        functions = stacks.of_type("AWS::Lambda::Function").items()
        variables = {name.removeprefix("Functions")[:-8]: f.get("Environment", {}).get("Variables", {}) for name, f in functions}
        names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS")
        return {name: (found[names[0]], found[names[1]]) for name, found in variables.items() if names[0] in found}

    assert told(stacks) == {}
    reference = f"{{{{resolve:secretsmanager:{EVERYTHING['otlp_headers_secret']}:SecretString:::}}}}"
    enders = ("Responses", "SocketWork", "ModelStep", "ContinueStep", "FailResponse", "Recovery")
    assert told(everything) == dict.fromkeys(enders, (EVERYTHING["otlp_endpoint"], reference))
    inside = [name for name, f in everything.of_type("AWS::Lambda::Function").items() if "VpcConfig" in f]
    assert not {name.removeprefix("Functions")[:-8] for name in inside} & set(enders), "no way leads from there to a collector"


def test_capacity_of_the_table_is_provisioned_on_request(canary: Stacks) -> None:
    table = canary.one("AWS::DynamoDB::Table")
    units = {"ReadCapacityUnits": 10, "WriteCapacityUnits": 5}
    assert table["ProvisionedThroughput"] == units
    assert [index["ProvisionedThroughput"] for index in table["GlobalSecondaryIndexes"]] == [units]
    assert "BillingMode" not in table


def test_the_warm_pool_is_told_to_who_starts_sandboxes_and_to_who_refills_it(everything: Stacks, stacks: Stacks) -> None:
    def told(stacks: Stacks) -> dict[str, str | None]:
        functions = stacks.of_type("AWS::Lambda::Function").items()
        return {
            start: function["Environment"]["Variables"].get("MOORAGE_WARM_POOL")
            for start in _WITH_POOL
            for name, function in functions
            if name.startswith(start)
        }

    assert told(everything) == dict.fromkeys(_WITH_POOL, "1g:2")
    assert told(stacks) == dict.fromkeys(_WITH_POOL)


_STARTERS = ("FunctionsResponses", "FunctionsModelStep", "FunctionsIndexStep", "FunctionsExpiry")
_WITH_POOL = (*_STARTERS, "FunctionsToolStep")


def test_what_starts_sandboxes_is_deleted_before_them_and_they_before_what_they_run_in(everything: Stacks) -> None:
    (end,) = (name for name, resource in everything.resources.items() if resource["Type"] == "Custom::Sandboxes")

    def depends(name: str) -> list[str]:
        return list(everything.service["Resources"][name].get("DependsOn", []))

    starters = [name for name in everything.of_type("AWS::Lambda::Function") if name.startswith(_STARTERS)]
    assert [name for name in starters if end not in depends(name)] == []
    kinds = {everything.service["Resources"][name]["Type"] for name in depends(end)}
    assert {"AWS::ECS::Cluster", "AWS::EC2::Subnet", "AWS::EC2::SecurityGroup"} <= kinds


def test_the_price_of_a_sandbox_that_waits_is_the_documented_one() -> None:
    prices = PRICES["us-east-1"]
    second = CPU_UNITS["1g"] / 1024 * prices.fargate_vcpu_second + limits.MEMORY_LIMITS["1g"] * prices.fargate_gb_second
    (row,) = (line for line in (ROOT / "docs" / "aws.md").read_text().splitlines() if line.startswith("| `warm_pool`: each `1g`"))
    assert row.endswith(f"| {second * 3600 * HOURS_A_MONTH:.2f} |")


def test_the_reaper_may_start_and_stop_what_waits(everything: Stacks) -> None:
    allowed = {
        action
        for name, policy in everything.of_type("AWS::IAM::Policy").items()
        if name.startswith("FunctionsExpiryRole")
        for statement in policy["PolicyDocument"]["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert {"ecs:RunTask", "ecs:StopTask", "ecs:ListTasks", "ecs:DescribeTasks", "iam:PassRole"} <= allowed


def test_the_command_line_overrides_cdk_json() -> None:
    context = {
        "moorage": {"retention_days": 7, "memory_tiers": ["1g"]},
        "moorage:retention_days": "90",
        "moorage:memory_tiers": "4g,1g",
        "moorage:waf": "true",
    }
    config = Config.from_context(context)
    assert (config.retention_days, config.memory_tiers, config.waf) == (90, ("1g", "4g"), True)


def test_synthesis_stops_at_a_wrong_setting_with_a_sentence_and_no_trace(tmp_path: Path) -> None:
    done = program(context_of({"provisioner": "ec2"}), tmp_path)
    assert done.returncode == 1
    assert "cdk.json: 'provisioner': Input should be 'none', 'fargate' or 'lambda_microvm'." in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("region", ["cn-north-1", "us-gov-west-1", "us-iso-east-1"])
def test_a_region_of_another_partition_is_refused_with_one_sentence(region: str) -> None:
    with pytest.raises(ConfigError, match=f"^The region {region} is outside of AWS's commercial partition, [^\n]+$"):
        check_region(region)


def test_a_region_of_the_commercial_partition_and_none_at_all_are_taken() -> None:
    check_region("eu-central-1")
    check_region(None)


def test_model_keys_of_the_environment_become_parameters_on_aws(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(
        '[[models]]\nkey = "env:OPENAI_API_KEY"\n[[models]]\nkey = "ssm:/elsewhere/key"\n[[models]]\nprovider = "bedrock_converse"\n'
    )
    models = Models.from_file(file, Config(name="mine"))
    assert models.parameters == ("/elsewhere/key", "/mine/OPENAI_API_KEY")
    assert '"ssm:/mine/OPENAI_API_KEY"' in models.text
    assert "env:" not in models.text
    assert models.uses_bedrock
    assert not models.has_upstream_shell


def test_titan_embeds_where_it_is_named_and_where_no_other_model_is(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text("")
    assert Models.from_file(file, Config()).titan_regions == (None,)
    file.write_text('[[embedding]]\nname = "small"\nprovider = "openai"\nkey = "env:EMBEDDING_KEY"\n[[models]]\nkey = "ssm:/other"\n')
    models = Models.from_file(file, Config(name="mine"))
    assert (models.titan_regions, models.embedding_parameters) == ((), ("/mine/EMBEDDING_KEY",))
    file.write_text('[[embedding]]\nprovider = "bedrock_titan"\n[[embedding]]\nprovider = "bedrock_titan"\nregion = "eu-west-1"\n')
    assert Models.from_file(file, Config()).titan_regions == (None, "eu-west-1")
    assert embedding_models.TITAN == TITAN


def test_those_who_search_and_those_who_index_may_ask_titan_and_no_other_model(everything: Stacks) -> None:
    statements = [
        statement
        for policy in everything.of_type("AWS::IAM::Policy").values()
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Action"] == "bedrock:InvokeModel"
    ]
    assert len(statements) >= 3
    assert {json.dumps(statement["Resource"]) for statement in statements} == {
        json.dumps(f"arn:aws:bedrock:us-east-1::foundation-model/{TITAN}")
    }


def test_the_function_of_containers_reads_model_keys_only_where_they_live_at_an_upstream(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text('[[models]]\nkey = "ssm:/elsewhere/key"\nshell = "upstream"\n')
    assert Models.from_file(file, Config()).has_upstream_shell


def test_the_image_model_of_bedrock_is_the_one_that_may_be_asked(tmp_path: Path) -> None:
    """By the function of service calls, and by none that asks models: those get no right by it."""
    file = tmp_path / "models.toml"
    table = '[image_generation]\nkind = "bedrock"\nmodel = "stability.stable-image-ultra-v1:1"\nkey = "env:BEDROCK_KEY"\n'
    file.write_text(table)
    models = Models.from_file(file, Config(name="mine"))
    arn = "bedrock:${AWS::Region}::foundation-model/stability.stable-image-ultra-v1:1"
    assert (models.draws_by, models.uses_bedrock, models.parameters) == ((arn,), False, ("/mine/BEDROCK_KEY",))
    file.write_text(f'{table}region = "us-west-2"\nmodels = ["stability.sd3-5-large-v1:0"]\n')
    assert Models.from_file(file, Config()).draws_by == (
        "bedrock:us-west-2::foundation-model/stability.stable-image-ultra-v1:1",
        "bedrock:us-west-2::foundation-model/stability.sd3-5-large-v1:0",
    )
    file.write_text('[image_generation]\nkind = "openai"\nmodel = "gpt-image-1.5"\nkey = "env:OPENAI_API_KEY"\n')
    assert Models.from_file(file, Config()).draws_by == ()


def test_a_model_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text("[[models]\n")
    with pytest.raises(ConfigError, match=r"models\.toml cannot be read"):
        Models.from_file(file, Config())
