"""``make afternoon`` itself, with steps of its own: what is noted, what is done again, and what is taken down.

``make test-deploy`` runs the real steps on an emulator (``tests/deploy/afternoon.py``).
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from tests.afternoon.__main__ import afternoon
from tests.afternoon.ground import Settings, _context, empty_bucket, session_of
from tests.afternoon.record import Came, Record
from tests.afternoon.steps import Afternoon, NotProved, Step

NAME = "afternoon-abc123"


class Nowhere:
    """A :class:`tests.afternoon.ground.Ground` that nothing is asked of."""

    name, region, features = NAME, "us-east-1", frozenset({"egress"})
    file_bytes, command_seconds, responses_at_once = 1, 1, 1

    def __init__(self) -> None:
        self.settings: Settings = {"retain": False}
        self.another_image: Settings = {}

    def look_at_account(self) -> str:
        return ""

    def deploy(self, settings: Settings) -> dict[str, str]:
        return {"TableName": "table"}

    def url(self, outputs: Mapping[str, str]) -> str:
        return ""

    def destroy(self) -> None:
        pass

    def client(self, service: str) -> Any:
        raise AssertionError(service)


class Log:
    """Steps that note that they were taken."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.raises: dict[str, BaseException] = {}

    def step(self, name: str, needs: str = "") -> Step:
        def run(a: Afternoon) -> str:
            self.taken.append(name)
            if name in self.raises:
                raise self.raises[name]
            if name == "deploy":
                a.deploy()
            return f"{name} was seen"

        return Step(name, run, f"that {name} works", needs, is_of_deployment=name not in ("deploy", "destroy"))

    @property
    def steps(self) -> list[Step]:
        needs = {"deploy": "", "edge": "", "traces": "traces", "egress": "egress", "destroy": ""}
        return [self.step(name, need) for name, need in needs.items()]


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def go(log: Log, tmp_path: Path) -> Callable[[], tuple[int, Record]]:
    """One run of the program, with what the runs before it have left."""

    def run() -> tuple[int, Record]:
        record = Record.read(tmp_path / "state.json") or Record(NAME, "us-east-1", 0.0)
        return afternoon(Afternoon(Nowhere(), record), tmp_path, log.steps), record

    return run


def outcomes(record: Record) -> dict[str, str]:
    return {name: came.outcome for name, came in record.came.items()}


def test_all_is_proved_and_nothing_is_left(log: Log, go: Callable[[], tuple[int, Record]], tmp_path: Path) -> None:
    failed, record = go()
    wanted = {"deploy": "proved", "edge": "proved", "traces": "skipped", "egress": "proved", "destroy": "proved"}
    assert (failed, outcomes(record)) == (0, wanted)
    assert not (tmp_path / "state.json").exists()
    report = (tmp_path / "report.md").read_text()
    assert "| edge | yes | 0 | edge was seen | that edge works |" in report
    assert "0 sandboxes came to about $" in report


def test_a_step_that_fails_holds_up_no_other_and_the_deployment_goes(log: Log, go: Callable[[], tuple[int, Record]]) -> None:
    log.raises["edge"] = NotProved("all came at once")
    failed, record = go()
    assert (failed, log.taken) == (1, ["deploy", "edge", "egress", "destroy"])
    assert record.came["edge"] == Came("failed", "all came at once", record.came["edge"].seconds)


def test_after_a_deploy_that_failed_the_rest_is_not_tried_and_what_is_there_goes(
    log: Log, go: Callable[[], tuple[int, Record]]
) -> None:
    log.raises["deploy"] = RuntimeError("ROLLBACK_COMPLETE")
    failed, record = go()
    assert (failed, log.taken) == (3, ["deploy", "destroy"])
    assert record.came["edge"].said == "there is no deployment"


def test_after_an_interrupt_it_goes_on_where_it_stopped(log: Log, go: Callable[[], tuple[int, Record]]) -> None:
    log.raises["egress"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        go()
    log.raises.clear()
    failed, record = go()
    assert (failed, log.taken) == (0, ["deploy", "edge", "egress", "egress", "destroy"])
    assert record.outputs == {"TableName": "table"}


def test_what_could_not_be_taken_down_is_tried_again(log: Log, go: Callable[[], tuple[int, Record]], tmp_path: Path) -> None:
    log.raises["destroy"] = RuntimeError("DELETE_FAILED")
    assert go()[0] == 1
    assert (tmp_path / "state.json").exists()
    log.raises.clear()
    assert go()[0] == 0
    assert log.taken[-2:] == ["destroy", "destroy"]
    assert not (tmp_path / "state.json").exists()


def test_settings_come_through_makes_shell_as_they_are() -> None:
    said = _context({"name": NAME, "retain": False, "allowed_egress_domains": ["a.example.com"], "availability_zones": 2})
    assert said == (
        f"-c moorage:name={NAME} -c moorage:retain=false -c 'moorage:allowed_egress_domains=[\"a.example.com\"]' "
        "-c moorage:availability_zones=2"
    )


def test_the_region_is_the_one_that_the_cdk_takes() -> None:
    """boto3 itself reads ``AWS_DEFAULT_REGION`` alone."""
    assert session_of({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-2"}).region_name == "eu-west-1"
    assert session_of({"AWS_DEFAULT_REGION": "eu-west-2"}).region_name == "eu-west-2"


def clients() -> tuple[Any, Any]:
    options: Any = {"region_name": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}
    return boto3.client("cloudformation", **options), boto3.client("s3", **options)


def test_a_bucket_is_emptied_before_its_stack_goes() -> None:
    cloudformation, s3 = clients()
    made = {"LogicalResourceId": "x", "Timestamp": datetime.now(UTC), "ResourceStatus": "CREATE_COMPLETE"}
    kinds = (("table", "AWS::DynamoDB::Table"), ("bucket", "AWS::S3::Bucket"))
    resources = [{**made, "PhysicalResourceId": name, "ResourceType": kind} for name, kind in kinds]
    with Stubber(cloudformation) as stacks, Stubber(s3) as objects:
        stacks.add_response("describe_stack_resources", {"StackResources": resources}, {"StackName": f"{NAME}-state"})
        pages: list[tuple[str, dict[str, str], dict[str, str]]] = [
            ("a", {"NextContinuationToken": "2"}, {}),
            ("b", {}, {"ContinuationToken": "2"}),
        ]
        for name, answered, asked in pages:
            page = {"Contents": [{"Key": name}], "IsTruncated": bool(answered), **answered}
            objects.add_response("list_objects_v2", page, {"Bucket": "bucket", **asked})
            objects.add_response("delete_objects", {}, {"Bucket": "bucket", "Delete": {"Objects": [{"Key": name}], "Quiet": True}})
        empty_bucket(cloudformation, s3, f"{NAME}-state")
        stacks.assert_no_pending_responses()
        objects.assert_no_pending_responses()


def test_what_was_never_made_needs_no_emptying() -> None:
    cloudformation, s3 = clients()
    with Stubber(cloudformation) as stacks:
        stacks.add_client_error("describe_stack_resources", "ValidationError", f"Stack with id {NAME}-state does not exist")
        empty_bucket(cloudformation, s3, f"{NAME}-state")
