"""The life of an image build as CloudFormation sees it: botocore's stubber stands for CodeBuild, a local server takes the answers."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from functions.custom_resource.handler import (
    DELETES,
    MAKES,
    REASON_CHARS_MAX,
    START_TRIES_MAX,
    respond,
)
from tests.unit.aws.custom_resources import BUILD, LOG, TAG, Account, ResponseUrl, answered, end, request, update, variables


def test_each_kind_that_the_cdk_app_makes_has_its_task() -> None:
    infra = Path(__file__).parents[3] / "infra"
    assert {kind for path in infra.glob("*.py") for kind in re.findall(r"Custom::\w+", path.read_text())} == MAKES.keys()
    assert MAKES.keys() >= DELETES.keys()


def test_a_new_image_is_there_when_its_build_has_ended_and_not_before(url: ResponseUrl, account: Account) -> None:
    create = request(url, "Create")
    account.starts(create)
    respond(create, account.client)
    assert url.answers == []
    account.ends("SUCCEEDED", variables(create))
    respond(end("SUCCEEDED"), account.client)
    assert url.answers == [answered(create, "SUCCESS")]


def test_an_update_that_leaves_the_sources_alone_builds_nothing(url: ResponseUrl, account: Account) -> None:
    same = update(url)
    respond(same, account.client)
    assert url.answers == [answered(same, "SUCCESS")]


@pytest.mark.parametrize("old", [{"Tag": "fedcba9876543210"}, {"Project": "an-earlier-project"}], ids=["sources", "project"])
def test_an_update_builds_when_it_changes(old: dict[str, str], url: ResponseUrl, account: Account) -> None:
    new = update(url, **old)
    account.starts(new)
    respond(new, account.client)
    account.ends("SUCCEEDED", variables(new))
    respond(end("SUCCEEDED"), account.client)
    assert url.answers == [answered(new, "SUCCESS")]


FAILURES = {
    "a command failed": (
        "FAILED",
        {
            "phaseType": "BUILD",
            "phaseStatus": "FAILED",
            "contexts": [{"statusCode": "COMMAND_EXECUTION_ERROR", "message": "exit status 1 of docker build"}],
        },
        "BUILD FAILED: COMMAND_EXECUTION_ERROR exit status 1 of docker build",
    ),
    "the sources were not there": (
        "FAILED",
        {"phaseType": "DOWNLOAD_SOURCE", "phaseStatus": "FAILED", "contexts": [{"message": "no such key"}]},
        "DOWNLOAD_SOURCE FAILED: no such key",
    ),
    "time ran out": ("TIMED_OUT", {"phaseType": "BUILD", "phaseStatus": "TIMED_OUT", "contexts": [{}]}, "BUILD TIMED_OUT"),
    "no machine was free": ("TIMED_OUT", {"phaseType": "QUEUED", "phaseStatus": "TIMED_OUT"}, "QUEUED TIMED_OUT"),
    "somebody stopped it": ("STOPPED", {"phaseType": "BUILD", "phaseStatus": "STOPPED"}, "BUILD STOPPED"),
}


@pytest.mark.parametrize(("status", "phase", "why"), FAILURES.values(), ids=FAILURES.keys())
def test_a_build_that_ends_badly_says_why_and_where_its_log_is(
    status: str, phase: dict[str, Any], why: str, url: ResponseUrl, account: Account
) -> None:
    create = request(url, "Create")
    account.ends(status, variables(create), phase)
    respond(end(status), account.client)
    assert url.answers == [answered(create, "FAILED", f"Image build {BUILD}: {status}. Log: {LOG} {why}")]


def test_a_reason_is_cut_before_cloudformation_refuses_it(url: ResponseUrl, account: Account) -> None:
    create = request(url, "Create")
    talk = {"phaseType": "BUILD", "phaseStatus": "FAILED", "contexts": [{"statusCode": "E", "message": "x" * 5_000}]}
    account.ends("FAILED", variables(create), talk)
    respond(end("FAILED"), account.client)
    (answer,) = url.answers
    assert len(answer["Reason"]) == REASON_CHARS_MAX
    assert LOG in answer["Reason"]


def test_a_build_that_somebody_started_by_hand_is_nobodys_answer(url: ResponseUrl, account: Account) -> None:
    account.ends("SUCCEEDED", [{"name": "IMAGE_TAG", "value": TAG}])
    respond(end("SUCCEEDED"), account.client)
    assert url.answers == []


def test_a_deletion_is_answered_at_once(url: ResponseUrl, account: Account) -> None:
    delete = request(url, "Delete", PhysicalResourceId="ImageBuild")
    respond(delete, account.client)
    assert url.answers == [answered(delete, "SUCCESS")]


def test_a_build_that_cannot_start_fails_the_resource_with_the_reason(
    url: ResponseUrl, account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    create = request(url, "Create")
    account.codebuild.add_client_error("start_build", "ResourceNotFoundException", "Project cannot be found")
    with caplog.at_level(logging.CRITICAL):
        respond(create, account.client)
    (answer,) = url.answers
    assert answer == answered(create, "FAILED", answer["Reason"])
    assert answer["Reason"].endswith("Project cannot be found")


CRASHES = {
    "a property is missing": ({"ResourceProperties": {}}, "KeyError: 'Project'"),
    "the kind is unknown": ({"ResourceType": "Custom::Moon"}, "ValueError: there is no custom resource Custom::Moon"),
}


@pytest.mark.parametrize(("more", "reason"), CRASHES.values(), ids=CRASHES.keys())
def test_a_crash_of_the_function_is_an_answer_too(more: dict[str, Any], reason: str, url: ResponseUrl, account: Account) -> None:
    broken = request(url, "Create", **more)
    respond(broken, account.client)
    assert url.answers == [answered(broken, "FAILED", reason)]


def test_an_answer_that_is_not_taken_is_given_again_by_lambdas_next_try(url: ResponseUrl, account: Account) -> None:
    create = request(url, "Create")
    url.status = 503
    account.ends("SUCCEEDED", variables(create))
    with pytest.raises(OSError, match="503"):
        respond(end("SUCCEEDED"), account.client)
    url.status = 200
    account.ends("SUCCEEDED", variables(create))
    respond(end("SUCCEEDED"), account.client)
    assert url.answers == [answered(create, "SUCCESS")]


def test_a_new_account_without_room_for_a_build_is_asked_again(url: ResponseUrl, account: Account) -> None:
    waited: list[float] = []
    create = request(url, "Create")
    for _ in range(3):
        account.codebuild.add_client_error("start_build", "AccountLimitExceededException", "more than 0 builds in queue")
    account.starts(create)
    respond(create, account.client, waited.append)
    assert (url.answers, len(waited)) == ([], 3)


def test_an_account_that_never_has_room_is_told_why(url: ResponseUrl, account: Account) -> None:
    create = request(url, "Create")
    for _ in range(START_TRIES_MAX):
        account.codebuild.add_client_error("start_build", "AccountLimitExceededException", "more than 0 builds in queue")
    respond(create, account.client, lambda _: None)
    assert "more than 0 builds in queue" in url.answers[0]["Reason"]
    assert url.answers[0]["Status"] == "FAILED"
