"""What the templates deploy behind the gateway: functions, the loop, images, sandboxes, alarms."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moorage import limits
from moorage.limits import SANDBOX_CPU_UNITS as CPU_UNITS
from moorage.sandbox import browser_policies
from moorage.sandbox.desk_config import LINK_DIRECTORY
from moorage.sandbox.fargate import DESK_DIRECTORY

from infra.agent_loop import ASL_FILE
from infra.config import Config
from infra.prices import ALARMS, HOURS_A_MONTH, PRICES
from tests.infra.conftest import EVERYTHING, MICROVMS, ROOT, Stacks, load, masked, shared, synthesise

SNAPSHOTS = Path(__file__).parent / "snapshots"


def test_callers_use_an_alias_and_executions_keep_their_versions(stacks: Stacks) -> None:
    """A deployment turns the alias; versions stay, so that what runs goes on with the code that it began with. Those of a deployment
    that is rolled back go, since Lambda does not publish the same again, which the next try would ask for."""
    versions = stacks.of_type("AWS::Lambda::Version")
    policies = {(stacks.resources[name]["DeletionPolicy"], stacks.resources[name]["UpdateReplacePolicy"]) for name in versions}
    assert policies == {("RetainExceptOnCreate", "Retain")}
    aliases = stacks.of_type("AWS::Lambda::Alias")
    assert sorted(name.removeprefix("Functions").split("Live")[0] for name in aliases) == [
        *("Containers", "Files", "Responses", "Sessions")
    ]
    assert all(alias["FunctionVersion"]["Fn::GetAtt"][0] in versions for alias in aliases.values())
    steps = stacks.one("AWS::StepFunctions::StateMachine")["DefinitionSubstitutions"]
    assert all(reference["Ref"] in versions for reference in steps.values())


@pytest.fixture(scope="session")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    settings = {"rollout": "canary", "table_read_units": 10, "table_write_units": 5, "drain": True, "object_versions_days": 30}
    return shared(settings, tmp_path_factory)


@pytest.fixture(scope="session")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Stacks:
    return shared({"rollout": "linear", **MICROVMS}, tmp_path_factory)


_ROLLOUTS = [("canary", "Canary10Percent5Minutes"), ("linear", "Linear10PercentEvery1Minute")]


@pytest.mark.parametrize(("rollout", "configuration"), _ROLLOUTS)
def test_a_new_version_comes_into_use_bit_by_bit_on_request(rollout: str, configuration: str, request: pytest.FixtureRequest) -> None:
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
    variables = found.function("Responses")["Environment"]["Variables"]
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


def test_streams_leave_a_share_of_the_concurrency_to_steps(stacks: Stacks) -> None:
    properties = stacks.one("Custom::Concurrency")
    assert (properties["Percent"], properties["AtLeast"]) == ("50", "0")
    assert "FunctionsResponses" in json.dumps(properties["Function"])


def test_the_share_of_streams_is_taken_anew_each_day_because_quotas_are_raised(stacks: Stacks) -> None:
    share = {name: value for name, value in stacks.one("Custom::Concurrency").items() if not name.startswith("Service")}
    daily = stacks.one("AWS::Events::Rule", "ConcurrencyDaily")
    (target,) = daily["Targets"]
    assert daily["ScheduleExpression"] == "rate(1 day)"
    assert json.dumps(share["Function"]) in json.dumps(target["Input"])
    assert [word in json.dumps(target["Input"]) for word in ("Share", "Percent", "AtLeast")] == [True] * 3


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
    assert stacks.function("ModelStep")["Environment"]["Variables"]["MOORAGE_FARGATE_EVENTS"] == "true"


def test_images_are_built_one_after_the_other_from_a_registry_that_counts_no_pulls(everything: Stacks) -> None:
    builds = {name: r for name, r in everything.resources.items() if r["Type"] == "Custom::ImageBuild"}
    (proxy,), (desk,) = ([name for name in builds if part in name] for part in ("Proxy", "Desk"))
    (first,) = builds.keys() - {proxy, desk}
    assert first in builds[desk]["DependsOn"]
    assert desk in builds[proxy]["DependsOn"]
    for project in everything.of_type("AWS::CodeBuild::Project").values():
        variables = {each["Name"]: each["Value"] for each in project["Environment"]["EnvironmentVariables"]}
        assert re.fullmatch(r"public\.ecr\.aws/docker/library/python:3\.1\d-slim-bookworm@sha256:[0-9a-f]{64}", variables["BASE_IMAGE"])
        assert variables["BASE_IMAGE"].startswith(variables["BASE_IMAGE_BY_NAME"])


@pytest.mark.parametrize("which", ["stacks", "everything", "company"])
def test_a_task_is_defined_after_its_images_are_built(which: str, request: pytest.FixtureRequest) -> None:
    """A service runs its task as soon as the task is defined, and its deployment fails after three that could not pull
    (https://docs.aws.amazon.com/AmazonECS/latest/developerguide/deployment-circuit-breaker.html)."""
    found: Stacks = request.getfixturevalue(which)
    builds = {each["Tag"]: name for name, each in found.of_type("Custom::ImageBuild").items()}
    for name, definition in found.of_type("AWS::ECS::TaskDefinition").items():
        images = [json.dumps(container["Image"]) for container in definition["ContainerDefinitions"]]
        needed = [build for tag, build in builds.items() if any(f":{tag}" in image for image in images)]
        assert len(needed) == len(images)
        assert set(needed) <= set(found.resources[name].get("DependsOn", [])), name


def test_a_browser_has_a_container_of_its_own_and_two_folders_in_common(everything: Stacks) -> None:
    definitions = everything.of_type("AWS::ECS::TaskDefinition").values()
    tasks = {each["Family"]: each for each in definitions if "-sandbox-" in each["Family"]}
    assert {name.rpartition("-")[2]: int(task["Memory"]) // 1024 for name, task in tasks.items()} == {
        "1g": 3,
        "4g": 6,
        "16g": 18,
        "64g": 72,  # With 16 vCPU memory goes in steps of 8 GiB (Amazon ECS developer guide, "Task CPU and memory").
    }
    for tier, memory in limits.MEMORY_LIMITS.items():
        commands, browser = tasks[f"moorage-sandbox-{tier}"]["ContainerDefinitions"]
        assert (commands["Memory"], browser["Memory"]) == (memory * 1024, limits.DESK_MEMORY_GIB * 1024)
        assert {mount["ContainerPath"]: mount["ReadOnly"] for mount in commands["MountPoints"]} == {
            f"{DESK_DIRECTORY}/desk": False,
            f"{DESK_DIRECTORY}/policies": False,
        }
        assert {mount["ContainerPath"]: mount["ReadOnly"] for mount in browser["MountPoints"]} == {
            LINK_DIRECTORY: False,
            str(Path(browser_policies.PATH).parent): True,
        }
        assert (browser["Essential"], browser["LinuxParameters"]["Capabilities"]) == (False, {"Drop": ["ALL"]})
        assert browser["Command"] == ["--config-file", f"{LINK_DIRECTORY}/config.json"]
        assert ("PortMappings" in browser, "TaskRoleArn" in tasks[f"moorage-sandbox-{tier}"]) == (False, False)


def test_who_starts_sandboxes_asks_who_reaches_them_for_a_screen(everything: Stacks) -> None:
    variables = everything.function("Containers")["Environment"]["Variables"]
    (inside,) = [name for name in everything.of_type("AWS::Lambda::Alias") if name.startswith("FunctionsSessions")]
    assert variables["MOORAGE_SCREENS_FUNCTION"] == {"Ref": inside}
    told = [name for name, each in everything.of_type("AWS::Lambda::Function").items() if "SCREENS_FUNCTION" in json.dumps(each)]
    assert [name.startswith("FunctionsContainers") for name in told] == [True]


def test_another_edition_has_the_same_sources_built_anew(stacks: Stacks, everything: Stacks) -> None:
    tags = {each.one("Custom::ImageBuild", "HooksImageBuild")["Tag"] for each in (stacks, everything)}
    assert len(tags) == 2


def test_with_a_recipient_there_are_alarms_on_all_that_costs_when_it_fails(everything: Stacks, stacks: Stacks) -> None:
    def alarms(stacks: Stacks) -> set[str]:
        return {name.removeprefix("Observability")[:-8] for name in stacks.of_type("AWS::CloudWatch::Alarm")}

    always = {"LoopFailed", "LoopTimedOut", "ApiErrors", "ExpiryFailed", "Throttled"}
    assert alarms(stacks) == always
    assert len(always) == ALARMS
    assert alarms(everything) == always | {
        *("RecoveryFailed", "RetirementFailed", "PlacementFailed", "AuthorizerFailed"),
        *("TableReadsThrottled", "TableWritesThrottled", "ProxyDown", "ManySandboxes"),
    }
    assert all(alarm["AlarmActions"] for alarm in everything.of_type("AWS::CloudWatch::Alarm").values())
    budget = everything.one("AWS::Budgets::Budget")
    assert budget["Budget"]["BudgetLimit"] == {"Amount": 200, "Unit": "USD"}
    assert budget["Budget"]["CostFilters"] == {"TagKeyValue": ["user:moorage:deployment$moorage"]}


def test_an_alarm_is_of_this_deployment_and_not_of_all_functions_of_the_account(everything: Stacks, stacks: Stacks) -> None:
    for found in (everything, stacks):
        alarms = found.of_type("AWS::CloudWatch::Alarm")
        assert [name for name, alarm in alarms.items() if not alarm.get("Dimensions") and "Metrics" not in alarm] == []


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
    found = stacks.function("Responses")
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
        assert stacks.function(name)["Timeout"] == 900 > seconds


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


def test_the_log_of_executions_needs_no_room_in_the_accounts_policy(stacks: Stacks) -> None:
    """A policy of CloudWatch Logs holds 5,120 characters, and names each group of Step Functions with another name
    (https://docs.aws.amazon.com/step-functions/latest/dg/bp-cwl.html)."""
    (destination,) = stacks.one("AWS::StepFunctions::StateMachine")["LoggingConfiguration"]["Destinations"]
    group = destination["CloudWatchLogsLogGroup"]["LogGroupArn"]["Fn::GetAtt"][0]
    assert stacks.resources[group]["Properties"]["LogGroupName"] == "/aws/vendedlogs/states/moorage-agent-loop"


def test_an_image_build_is_reported_before_cloudformation_gives_up(everything: Stacks) -> None:
    rules = everything.of_type("AWS::Events::Rule")
    builds = {name: r for name, r in everything.resources.items() if r["Type"] == "Custom::ImageBuild"}
    assert len(builds) == 3
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


def test_traces_are_sent_at_ends_and_no_template_has_their_headers(stacks: Stacks, everything: Stacks) -> None:
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


def test_whoever_begins_responses_is_told_to_drain(canary: Stacks, stacks: Stacks) -> None:
    def told(stacks: Stacks) -> set[str | None]:
        found = [f for name, f in stacks.of_type("AWS::Lambda::Function").items() if name.startswith("FunctionsResponses")]
        return {f["Environment"]["Variables"].get("MOORAGE_DRAIN") for f in found}

    assert (told(stacks), told(canary)) == ({None}, {"true"})


def test_what_was_deleted_from_the_bucket_is_kept_for_some_days_on_request(canary: Stacks, stacks: Stacks) -> None:
    bucket = canary.one("AWS::S3::Bucket")
    rules = [rule for rule in bucket["LifecycleConfiguration"]["Rules"] if "NoncurrentVersionExpiration" in rule]
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    expected = {"NoncurrentVersionExpiration": {"NoncurrentDays": 30}, "ExpiredObjectDeleteMarker": True, "Status": "Enabled"}
    assert rules == [expected]
    assert "VersioningConfiguration" not in stacks.one("AWS::S3::Bucket")


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


def test_a_stack_deletes_starters_then_sandboxes_then_their_network(everything: Stacks) -> None:
    (end,) = (name for name, resource in everything.resources.items() if resource["Type"] == "Custom::Sandboxes")

    def depends(name: str) -> list[str]:
        return list(everything.service["Resources"][name].get("DependsOn", []))

    starters = [name for name in everything.of_type("AWS::Lambda::Function") if name.startswith(_STARTERS)]
    assert [name for name in starters if end not in depends(name)] == []
    kinds = {everything.service["Resources"][name]["Type"] for name in depends(end)}
    assert {"AWS::ECS::Cluster", "AWS::EC2::Subnet", "AWS::EC2::SecurityGroup"} <= kinds
    variables = everything.function("ModelStep")["Environment"]["Variables"]
    groups = [variables[f"MOORAGE_FARGATE_{name}"] for name in ("SECURITY_GROUP", "EGRESS_SECURITY_GROUP")]
    assert {group["Fn::GetAtt"][0] for group in groups} <= set(depends(end))


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
