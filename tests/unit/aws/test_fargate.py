"""The Fargate provisioner against botocore's stubber: what it asks of ECS, and what it makes of the answers."""

import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber
from moorage.egress import trust
from moorage.egress.ca import ensure_ca
from moorage.errors import SandboxCapacity, SandboxError, SandboxOrdered, SandboxStarting
from moorage.runtime import build_runtime
from moorage.sandbox.fargate import FargateProvisioner, FargateSettings, RunningTask, StartedTask, server_config
from moorage.sandbox.provisioner import EgressSpec, Handle, SandboxSpec, SandboxStatus
from moorage.settings import Settings, SettingsError

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "t" * 64
TASK = "arn:aws:ecs:us-east-1:000000000000:task/moorage/0123456789abcdef"
DEFINITION = "arn:aws:ecs:us-east-1:000000000000:task-definition/moorage-sandbox-4g:7"
SETTINGS = FargateSettings(
    cluster="moorage",
    subnets=("subnet-1", "subnet-2"),
    security_group="sg-closed",
    egress_security_group="sg-proxy",
    task_definitions={4: DEFINITION},
)
SPEC = SandboxSpec(tenant_id="acme", container_id="cntr_1", token=TOKEN, memory_gib=4, env={"KEY": "placeholder"})
STARTED_BY = f"cntr_1/{hashlib.sha256(TOKEN.encode()).hexdigest()[:16]}"
LIST = {"cluster": "moorage", "startedBy": STARTED_BY}
DESCRIBE = {"cluster": "moorage", "tasks": [TASK]}
RUN = {
    "cluster": "moorage",
    "clientToken": hashlib.sha256(f"{STARTED_BY}/0".encode()).hexdigest(),
    "taskDefinition": DEFINITION,
    "launchType": "FARGATE",
    "count": 1,
    "startedBy": STARTED_BY,
    "group": "moorage:acme",
    "networkConfiguration": {
        "awsvpcConfiguration": {
            "subnets": ["subnet-1", "subnet-2"],
            "securityGroups": ["sg-closed"],
            "assignPublicIp": "DISABLED",
        }
    },
    "overrides": ANY,
    "tags": [{"key": "moorage:tenant", "value": "acme"}, {"key": "moorage:container", "value": "cntr_1"}],
}


def task(status: str, *, address: str | None = None, desired: str = "RUNNING", arn: str = TASK, **more: Any) -> dict[str, Any]:
    details = [{"name": "privateIPv4Address", "value": address}] if address else []
    return {
        "taskArn": arn,
        "lastStatus": status,
        "desiredStatus": desired,
        "attachments": [{"type": "ElasticNetworkInterface", "details": details}],
        **more,
    }


class Ecs:
    """A stubbed ECS client, and the provisioner that speaks to it."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.client = boto3.client("ecs", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
        self.stub = Stubber(self.client)
        self.provisioner = FargateProvisioner(self.client, SETTINGS, executor)

    def lists(self, *arns: str) -> None:
        self.stub.add_response("list_tasks", {"taskArns": list(arns)}, LIST)

    def describes(self, *tasks: dict[str, Any]) -> None:
        self.stub.add_response("describe_tasks", {"tasks": list(tasks)}, DESCRIBE)


@pytest.fixture(scope="module")
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
async def ecs(executor: ThreadPoolExecutor) -> AsyncIterator[Ecs]:
    ecs = Ecs(executor)
    with ecs.stub:
        yield ecs
        ecs.stub.assert_no_pending_responses()
    ecs.client.close()


async def test_a_first_start_runs_a_task_and_says_that_it_is_starting(ecs: Ecs) -> None:
    ecs.lists()
    ecs.stub.add_response("run_task", {"tasks": [task("PROVISIONING")], "failures": []}, RUN)
    ecs.describes(task("PROVISIONING"))
    with pytest.raises(SandboxStarting):
        await ecs.provisioner.start(SPEC)


async def test_a_running_task_is_found_again_and_gives_its_address(ecs: Ecs) -> None:
    ecs.lists(TASK)
    ecs.describes(task("RUNNING", address="10.42.0.5"))
    assert await ecs.provisioner.start(SPEC) == Handle("http://10.42.0.5:8080", TOKEN, TASK)


async def test_a_start_is_found_whether_or_not_its_task_can_be_reached(ecs: Ecs) -> None:
    ecs.lists()
    assert await ecs.provisioner.find(SPEC) is None
    ecs.lists(TASK)
    ecs.describes(task("PENDING"))
    assert await ecs.provisioner.find(SPEC) == TASK
    ecs.lists(TASK)
    ecs.describes(task("RUNNING", desired="STOPPED"))
    assert await ecs.provisioner.find(SPEC) is None


def test_a_deployment_that_changes_what_tasks_are_started_from_has_another_revision(executor: ThreadPoolExecutor) -> None:
    def revision(**changes: Any) -> str:
        return FargateProvisioner(None, replace(SETTINGS, **changes), executor).revision  # type: ignore[arg-type]

    changed = [revision(task_definitions={4: f"{DEFINITION}1"}), revision(subnets=("subnet-3",)), revision(security_group="sg-2")]
    changed.append(revision(image="registry.example.com/sandbox:2"))
    assert revision() == revision()
    assert len({revision(), *changed}) == 5


async def test_a_stop_that_ecs_throttles_is_waited_for_and_one_that_it_refuses_is_not(ecs: Ecs) -> None:
    ecs.stub.add_client_error("stop_task", "ThrottlingException")
    with pytest.raises(SandboxStarting):
        await ecs.provisioner.stop(TASK)
    ecs.stub.add_client_error("stop_task", "AccessDeniedException")
    with pytest.raises(SandboxError, match="could not be stopped"):
        await ecs.provisioner.stop(TASK)


async def test_a_deployment_without_sandboxes_asks_ecs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    nowhere = dict.fromkeys(("cluster", "subnets", "security_group"), "none")
    settings = Settings("t", "b", models_file=str(ROOT / "models.toml"), content_key="00" * 32, provisioner="fargate", fargate=nowhere)
    runtime = build_runtime(settings)
    assert (runtime.computers.fleets, runtime.computers.warm_pool) == ((), None)
    await runtime.aclose()


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(task("PENDING", address="10.42.0.5"), id="its container does not run yet"),
        pytest.param(task("RUNNING"), id="it has no address yet"),
    ],
)
async def test_a_task_counts_as_starting_while(ecs: Ecs, found: dict[str, Any]) -> None:
    ecs.lists(TASK)
    ecs.describes(found)
    with pytest.raises(SandboxStarting):
        await ecs.provisioner.start(SPEC)


async def test_a_task_that_died_while_starting_makes_way_for_another(ecs: Ecs) -> None:
    second = RUN | {"clientToken": hashlib.sha256(f"{STARTED_BY}/1".encode()).hexdigest()}
    ecs.lists()
    ecs.stub.add_response("run_task", {"tasks": [task("PROVISIONING")]}, RUN)
    ecs.describes(task("STOPPED", desired="STOPPED", stoppedReason="CannotPullContainerError"))
    ecs.stub.add_response("run_task", {"tasks": [task("PROVISIONING")]}, second)
    ecs.describes(task("PENDING"))
    with pytest.raises(SandboxStarting):
        await ecs.provisioner.start(SPEC)


async def test_a_container_whose_tasks_keep_dying_is_broken_and_says_why(ecs: Ecs) -> None:
    ecs.lists()
    for number in range(3):
        token = hashlib.sha256(f"{STARTED_BY}/{number}".encode()).hexdigest()
        ecs.stub.add_response("run_task", {"tasks": [task("PROVISIONING")]}, RUN | {"clientToken": token})
        ecs.describes(task("STOPPED", desired="STOPPED", stoppedReason="CannotPullContainerError"))
    with pytest.raises(SandboxError, match="CannotPullContainerError"):
        await ecs.provisioner.start(SPEC)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        pytest.param("LimitExceededException", "You've reached the limit", id="a quota of ECS is used up"),
        pytest.param(
            "ClientException",
            "You've reached the limit on the number of vCPUs you can run concurrently",
            id="the account's vCPU quota is used up",
        ),
    ],
)
async def test_a_refusal_for_want_of_room_is_a_matter_of_capacity(ecs: Ecs, code: str, message: str) -> None:
    ecs.lists()
    ecs.stub.add_client_error("run_task", code, message, 400, expected_params=RUN)
    with pytest.raises(SandboxCapacity, match="moorage doctor"):
        await ecs.provisioner.start(SPEC)


async def test_a_failure_in_the_answer_is_read_like_an_error(ecs: Ecs) -> None:
    ecs.lists()
    failure = {"reason": "Capacity is unavailable at this time. Please try again later"}
    ecs.stub.add_response("run_task", {"tasks": [], "failures": [failure]}, RUN)
    with pytest.raises(SandboxCapacity):
        await ecs.provisioner.start(SPEC)


async def test_any_other_refusal_is_an_error_without_aws_internals(ecs: Ecs) -> None:
    ecs.lists()
    ecs.stub.add_client_error(
        "run_task", "AccessDeniedException", "User arn:aws:sts::1:assumed-role/x may not", 400, expected_params=RUN
    )
    with pytest.raises(SandboxError) as refused:
        await ecs.provisioner.start(SPEC)
    assert refused.value.message == "The container's sandbox could not be started."
    assert not isinstance(refused.value, SandboxCapacity)


async def test_the_exec_server_gets_its_tokens_hash_and_only_the_proxys_address(executor: ThreadPoolExecutor) -> None:
    sent: list[dict[str, Any]] = []

    class Recorder:
        def list_tasks(self, **_: Any) -> dict[str, Any]:
            return {"taskArns": []}

        def run_task(self, **request: Any) -> dict[str, Any]:
            sent.append(request)
            return {"tasks": [task("PENDING")]}

        def describe_tasks(self, **_: Any) -> dict[str, Any]:
            return {"tasks": [task("PENDING")]}

    egress = EgressSpec(proxy="http://proxy.moorage.internal:3128", username="cntr_1", password="secret", ca_pem="PEM")
    spec = SandboxSpec("acme", "cntr_1", TOKEN, 4, {"KEY": "placeholder"}, egress)
    with pytest.raises(SandboxStarting):
        await FargateProvisioner(Recorder(), SETTINGS, executor).start(spec)  # type: ignore[arg-type]

    network = sent[0]["networkConfiguration"]["awsvpcConfiguration"]
    (override,) = sent[0]["overrides"]["containerOverrides"]
    (variable,) = override["environment"]
    assert network["securityGroups"] == ["sg-proxy"]
    assert variable["name"] == "MOORAGE_SANDBOX_CONFIG"
    assert json.loads(variable["value"]) == {
        "token_sha256": hashlib.sha256(TOKEN.encode()).hexdigest(),
        "unclaimed": False,
        "listen": "tcp:0.0.0.0:8080",
        "uid": 1000,
        "env": {
            **trust.environment("http://cntr_1:secret@proxy.moorage.internal:3128", "/tmp/.exec/ca-certificates.crt"),
            "KEY": "placeholder",
        },
        "egress": {"ca_pem": "PEM"},
        "limits": {"processes": 512, "open_files": 4096, "disk_bytes": 20 * 1024**3, "spool_bytes": 1024**3},
    }


def test_with_a_browser_the_exec_server_is_told_what_to_hand_to_its_container(tmp_path: Path) -> None:
    egress = EgressSpec(
        proxy="http://proxy.moorage.internal:3128", username="cntr_1", password="secret", ca_pem=ensure_ca(tmp_path).certificate_pem
    )
    spec = SandboxSpec("acme", "cntr_1", TOKEN, 4, {"KEY": "placeholder"}, egress)
    without, with_desk = (server_config(spec, has_desk=has_desk) for has_desk in (False, True))
    beside = with_desk.pop("beside")
    assert (with_desk.pop("neighbour_path"), with_desk) == ("/run/moorage/desk/link.sock", without)
    assert (beside["directory"], len(beside["policies"]["CACertificates"])) == ("/run/moorage", 1)
    config = beside["config"]
    assert (config["listen"], "token" in config, "token_sha256" in config) == ("unix:/run/desk/run/exec.sock", False, False)
    assert config["desk"] == {
        "alone": True,
        "directory": "/var/desk",
        "link": "/run/desk/link.sock",
        "upstream": {"proxy": "proxy.moorage.internal:3128", "username": "cntr_1", "password": "secret"},
        "trusted_keys": ANY,
    }
    overrides = json.dumps(json.dumps(server_config(spec, has_desk=True), separators=(",", ":")))
    assert len(overrides) < 6_000, "ECS takes 8,192 characters, and variables of the container stand among them"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(SandboxSpec("acme", "cntr_1", TOKEN, 64), "no sandboxes of 64 GiB", id="a memory tier that is not deployed"),
        pytest.param(SandboxSpec("acme", "cntr_1", TOKEN, 4, {"A": "x" * 9000}), "8,192 characters", id="variables beyond ECS's limit"),
    ],
)
async def test_a_start_is_refused_before_ecs_is_asked_for(ecs: Ecs, spec: SandboxSpec, message: str) -> None:
    with pytest.raises(SandboxError, match=message):
        await ecs.provisioner.start(spec)


async def test_a_deployment_without_sandboxes_refuses_and_asks_ecs_nothing(executor: ThreadPoolExecutor, ecs: Ecs) -> None:
    settings = FargateSettings.from_settings({"cluster": "none", "subnets": "none", "security_group": "none"})
    with pytest.raises(SandboxError, match="no sandboxes of 4 GiB"):
        await FargateProvisioner(ecs.client, settings, executor).start(SPEC)


async def test_a_network_without_a_deployed_proxy_is_refused(executor: ThreadPoolExecutor, ecs: Ecs) -> None:
    settings = FargateSettings("moorage", ("subnet-1",), "sg-closed", None, {4: DEFINITION})
    spec = SandboxSpec("acme", "cntr_1", TOKEN, 4, {}, EgressSpec(proxy="http://proxy:3128", username="u", password="p"))
    with pytest.raises(SandboxError, match="no egress proxy"):
        await FargateProvisioner(ecs.client, settings, executor).start(spec)


async def test_a_cluster_that_cannot_be_asked_is_an_error_for_the_model_to_read(ecs: Ecs) -> None:
    ecs.stub.add_client_error("list_tasks", "AccessDeniedException", "User arn:aws:sts::1:assumed-role/x may not", 400)
    with pytest.raises(SandboxError) as refused:
        await ecs.provisioner.start(SPEC)
    assert refused.value.message == "AWS could not be asked about the container's sandbox."


async def test_stopping_a_task_that_is_not_there_is_no_error(ecs: Ecs) -> None:
    ecs.stub.add_client_error("stop_task", "InvalidParameterException", "The referenced task was not found.", 400)
    await ecs.provisioner.stop(TASK)


async def test_a_task_that_cannot_be_stopped_is_an_error_that_the_sweep_knows(ecs: Ecs) -> None:
    ecs.stub.add_client_error("stop_task", "ServerException", "no", 500)
    with pytest.raises(SandboxError, match="could not be stopped"):
        await ecs.provisioner.stop(TASK)


@pytest.mark.parametrize(
    ("tasks", "status"),
    [
        pytest.param([], SandboxStatus.STOPPED, id="forgotten by ECS"),
        pytest.param([task("STOPPED", desired="STOPPED")], SandboxStatus.STOPPED, id="stopped"),
        pytest.param([task("RUNNING", desired="STOPPED")], SandboxStatus.STOPPED, id="on its way to stopped"),
        pytest.param([task("PROVISIONING")], SandboxStatus.STARTING, id="provisioning"),
        pytest.param([task("RUNNING", address="10.42.0.5")], SandboxStatus.RUNNING, id="running"),
    ],
)
async def test_a_sandbox_is_described_as(ecs: Ecs, tasks: list[dict[str, Any]], status: SandboxStatus) -> None:
    ecs.describes(*tasks)
    assert await ecs.provisioner.describe(TASK) == status


async def test_the_reaper_sees_every_task_that_is_not_stopped_on_all_pages(ecs: Ecs) -> None:
    other = TASK[:-1] + "0"
    tags = [{"key": "moorage:tenant", "value": "acme"}, {"key": "moorage:container", "value": "cntr_1"}]
    ecs.stub.add_response("list_tasks", {"taskArns": [TASK], "nextToken": "more"}, {"cluster": "moorage"})
    ecs.stub.add_response("list_tasks", {"taskArns": [other]}, {"cluster": "moorage", "nextToken": "more"})
    ecs.stub.add_response(
        "describe_tasks",
        {
            "tasks": [
                task("RUNNING", address="10.42.0.5", tags=tags, startedBy=STARTED_BY),
                task("RUNNING", arn=TASK + "9"),
                task("STOPPED", desired="STOPPED", arn=other, tags=tags),
            ]
        },
        {"cluster": "moorage", "tasks": [TASK, other], "include": ["TAGS"]},
    )
    running = RunningTask(TASK, "acme", "cntr_1", STARTED_BY)
    assert await ecs.provisioner.running() == [running]
    assert [running.belongs_to(TOKEN), running.belongs_to("another" * 8)] == [True, False]


def test_settings_come_from_the_environment_that_the_cdk_app_writes() -> None:
    environment = {
        "cluster": "moorage",
        "subnets": "subnet-1,subnet-2",
        "security_group": "sg-closed",
        "egress_security_group": "sg-proxy",
        "task_definition_4g": DEFINITION,
    }
    assert FargateSettings.from_settings(environment) == SETTINGS
    assert FargateSettings.from_settings(environment, has_desks=True) == replace(SETTINGS, has_desks=True)


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(SettingsError, match="MOORAGE_FARGATE_CLUSTER is not set"):
        FargateSettings.from_settings({})


# --- Throttling, and starts of which EventBridge tells ---


@pytest.mark.parametrize(
    ("operation", "code", "message"),
    [
        ("list_tasks", "ThrottlingException", "Rate exceeded"),
        ("run_task", "ThrottlingException", "Rate exceeded"),
        ("run_task", "ClientException", "Rate exceeded. Request was throttled"),
        ("run_task", "TooManyRequestsException", "slow down"),
    ],
)
async def test_what_ecs_throttles_waits_and_is_no_refusal(ecs: Ecs, operation: str, code: str, message: str) -> None:
    if operation == "run_task":
        ecs.lists()
    ecs.stub.add_client_error(operation, code, message, 400)
    with pytest.raises(SandboxStarting) as waiting:
        await ecs.provisioner.start(SPEC)
    assert waiting.value.retry_after_seconds == 5


async def test_a_look_that_is_throttled_is_no_sign_of_a_broken_sandbox(ecs: Ecs) -> None:
    ecs.lists(TASK)
    ecs.stub.add_client_error("describe_tasks", "ThrottlingException", "Rate exceeded", 400)
    with pytest.raises(SandboxStarting):
        await ecs.provisioner.start(SPEC)


NOW = 1_700_000_000.0


@pytest.fixture
async def told(ecs: Ecs, executor: ThreadPoolExecutor) -> Ecs:
    """A deployment that hears of tasks."""
    ecs.provisioner = FargateProvisioner(ecs.client, replace(SETTINGS, has_events=True), executor, clock=lambda: NOW)
    return ecs


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(NOW + seconds, UTC)


async def test_an_order_is_one_call_where_somebody_hears_of_its_end(told: Ecs) -> None:
    told.stub.add_response("run_task", {"tasks": [task("PROVISIONING", createdAt=at(-1))]}, RUN)
    with pytest.raises(SandboxOrdered) as ordered:
        await told.provisioner.start(SPEC)
    assert ordered.value.sandbox_id == TASK


async def test_a_start_of_which_nobody_has_heard_is_found_by_ordering_it_again(told: Ecs) -> None:
    for _ in range(2):
        told.stub.add_response("run_task", {"tasks": [task("PROVISIONING", createdAt=at(-60))]}, RUN)
    told.describes(task("RUNNING", address="10.42.0.5"))
    assert await told.provisioner.start(SPEC) == Handle("http://10.42.0.5:8080", TOKEN, TASK)


async def test_a_sandbox_for_the_pool_is_looked_for_as_no_container_waits_to_hear_of_it(told: Ecs) -> None:
    waiting = replace(SPEC, is_unclaimed=True)
    told.lists()
    told.stub.add_response("run_task", {"tasks": [task("PROVISIONING", createdAt=at(-1))]}, RUN)
    told.describes(task("PROVISIONING", createdAt=at(-1)))
    with pytest.raises(SandboxStarting) as starting:
        await told.provisioner.start(waiting)
    assert type(starting.value) is SandboxStarting
    told.lists(TASK)
    told.describes(task("RUNNING", address="10.42.0.5", createdAt=at(-1)))
    assert await told.provisioner.start(waiting) == Handle("http://10.42.0.5:8080", TOKEN, TASK)


async def test_an_order_of_an_earlier_deployment_is_found_though_it_was_for_something_else(told: Ecs) -> None:
    for _ in range(2):
        told.stub.add_client_error("run_task", "ConflictException", "idempotent parameter mismatch", 400)
    told.lists(TASK)
    told.describes(task("RUNNING", address="10.42.0.5"))
    assert await told.provisioner.start(SPEC) == Handle("http://10.42.0.5:8080", TOKEN, TASK)


async def test_an_earlier_deployments_order_makes_way_once_its_task_ended(told: Ecs) -> None:
    for _ in range(2):
        told.stub.add_client_error("run_task", "ConflictException", "idempotent parameter mismatch", 400)
    told.lists()
    second = RUN | {"clientToken": hashlib.sha256(f"{STARTED_BY}/1".encode()).hexdigest()}
    told.stub.add_response("run_task", {"tasks": [task("PROVISIONING")]}, second)
    told.describes(task("PENDING"))
    with pytest.raises(SandboxStarting):
        await told.provisioner.start(SPEC)


def state_change(status: str, **more: Any) -> dict[str, Any]:
    """The detail of an event as ECS sends it."""
    return task(status, address="10.42.0.5", startedBy=STARTED_BY, group="moorage:acme") | more


def test_an_event_says_where_a_sandbox_listens_and_how_long_it_took() -> None:
    detail = state_change("RUNNING", createdAt="2026-11-22T10:00:00.5Z", startedAt="2026-11-22T10:00:31Z")
    started = StartedTask.from_event(detail)
    assert started == StartedTask(TASK, "acme", "cntr_1", STARTED_BY, "http://10.42.0.5:8080", 30_500)
    assert [started.belongs_to(TOKEN), started.belongs_to("another" * 8)] == [True, False]


def test_an_event_says_that_a_sandbox_has_stopped() -> None:
    assert StartedTask.from_event(state_change("STOPPED", desiredStatus="STOPPED")) == StartedTask(
        TASK, "acme", "cntr_1", STARTED_BY, None
    )


@pytest.mark.parametrize(
    "detail",
    [
        pytest.param(state_change("PENDING"), id="a state on the way"),
        pytest.param(state_change("RUNNING", attachments=[]), id="no address yet"),
        pytest.param(state_change("RUNNING", group="family:other"), id="somebody else's task"),
        pytest.param(state_change("RUNNING", startedBy="ecs-svc/1", group="service:proxy"), id="a service's task"),
        pytest.param({"taskArn": TASK, "lastStatus": "RUNNING"}, id="a task that nobody says anything about"),
    ],
)
def test_all_other_events_are_none_of_ours(detail: dict[str, Any]) -> None:
    assert StartedTask.from_event(detail) is None
