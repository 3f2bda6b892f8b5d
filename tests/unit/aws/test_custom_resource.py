"""The life of an image build as CloudFormation sees it: botocore's stubber stands for CodeBuild, a local server takes the answers."""

import contextlib
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from botocore.stub import Stubber
from moorage.store.deployment_keys import sandbox_key

from functions.custom_resource.handler import (
    KEY_DELETION_DAYS,
    REASON_CHARS_MAX,
    REQUEST_VARIABLE,
    START_TRIES_MAX,
    STOP_ROUNDS_MAX,
    respond,
)

PROJECT, TAG = "moorage-image", "0123456789abcdef"
BUILD = f"{PROJECT}:11111111-2222-3333-4444-555555555555"
LOG = "https://console.example.com/logs/stream"
STACK = "arn:aws:cloudformation:us-east-1:000000000000:stack/moorage/1"
PREFIX_LISTS = {"s3": "com.amazonaws.us-east-1.s3", "dynamodb": "com.amazonaws.us-east-1.dynamodb"}


class ResponseUrl:
    """What CloudFormation's presigned URL leads to: it takes ``PUT`` with an empty content type, which is signed with it."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []
        self.status = 200
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.headers["content-type"] == ""
                assert len(body) <= 4_096
                if owner.status == 200:
                    owner.answers.append(json.loads(body))
                self.send_response(owner.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/answer?signature=s"


class Account:
    """The clients that the function asks for."""

    def __init__(self) -> None:
        options: Any = {"region_name": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}
        self.clients: dict[str, Any] = {
            name: boto3.client(name, **options) for name in ("codebuild", "ec2", "ecs", "kms", "lambda", "s3vectors", "secretsmanager")
        }
        stubs = (Stubber(client) for client in self.clients.values())
        self.codebuild, self.ec2, self.ecs, self.kms, self.functions, self.vectors, self.secrets = stubs

    def client(self, service: str) -> Any:
        return self.clients[service]

    def starts(self, request: dict[str, Any], tag: str = TAG) -> None:
        """Expect the start of a build that answers ``request``."""
        expected = {
            "projectName": PROJECT,
            "environmentVariablesOverride": variables(request, tag),
            "idempotencyToken": request["RequestId"],
        }
        self.codebuild.add_response("start_build", {"build": {"id": BUILD}}, expected)

    def ends(self, status: str, build_variables: list[dict[str, str]], *phases: dict[str, Any]) -> None:
        """Let a look at the build find it like this."""
        environment = {
            "type": "ARM_CONTAINER",
            "image": "image",
            "computeType": "BUILD_GENERAL1_SMALL",
            "environmentVariables": build_variables,
        }
        build = {
            "id": BUILD,
            "buildStatus": status,
            "phases": [{"phaseType": "SUBMITTED", "phaseStatus": "SUCCEEDED"}, *phases, {"phaseType": "COMPLETED"}],
            "logs": {"deepLink": LOG},
            "environment": environment,
        }
        self.codebuild.add_response("batch_get_builds", {"builds": [build]}, {"ids": [BUILD]})


@pytest.fixture
def url() -> Iterator[ResponseUrl]:
    server = ResponseUrl()
    thread = threading.Thread(target=server.server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.server.shutdown()
    thread.join()
    server.server.server_close()


@pytest.fixture
def account() -> Iterator[Account]:
    account = Account()
    clients = (account.codebuild, account.ec2, account.ecs, account.kms)
    stubs = (*clients, account.functions, account.vectors, account.secrets)
    with contextlib.ExitStack() as stack:
        for stub in stubs:
            stack.enter_context(stub)
        yield account
        for stub in stubs:
            stub.assert_no_pending_responses()
    for client in account.clients.values():
        client.close()


def request(url: ResponseUrl, kind: str, **more: Any) -> dict[str, Any]:
    return {
        "RequestType": kind,
        "ResponseURL": url.url,
        "StackId": STACK,
        "RequestId": f"request-{kind}",
        "ResourceType": "Custom::ImageBuild",
        "LogicalResourceId": "ImageBuild",
        "ResourceProperties": {"ServiceToken": "arn", "Project": PROJECT, "Tag": TAG},
        **more,
    }


def update(url: ResponseUrl, **old: str) -> dict[str, Any]:
    had = {"ServiceToken": "arn", "ServiceTimeout": "1", "Project": PROJECT, "Tag": TAG, **old}
    return request(url, "Update", PhysicalResourceId="ImageBuild", OldResourceProperties=had)


def variables(request: dict[str, Any], tag: str = TAG) -> list[dict[str, str]]:
    """What a build is told."""
    address = {key: request[key] for key in ("ResponseURL", "StackId", "RequestId", "LogicalResourceId")}
    address["PhysicalResourceId"] = "ImageBuild"
    return [
        {"name": "IMAGE_TAG", "value": tag, "type": "PLAINTEXT"},
        {"name": REQUEST_VARIABLE, "value": json.dumps(address), "type": "PLAINTEXT"},
    ]


def end(status: str) -> dict[str, Any]:
    """The event of a build's end, as EventBridge delivers it."""
    return {
        "version": "0",
        "detail-type": "CodeBuild Build State Change",
        "source": "aws.codebuild",
        "detail": {
            "build-status": status,
            "project-name": PROJECT,
            "build-id": f"arn:aws:codebuild:us-east-1:000000000000:build/{BUILD}",
        },
    }


def answered(request: dict[str, Any], status: str, reason: str = "", **data: str) -> dict[str, Any]:
    return {
        "Status": status,
        "Reason": reason,
        "PhysicalResourceId": "ImageBuild",
        "StackId": STACK,
        "RequestId": request["RequestId"],
        "LogicalResourceId": request["LogicalResourceId"],
        "Data": data,
    }


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


def prefix_lists(url: ResponseUrl, account: Account, *found: str) -> dict[str, Any]:
    """Ask for the prefix lists of a region that has those of ``found``."""
    names = {"Names": PREFIX_LISTS}
    create = request(url, "Create", ResourceType="Custom::PrefixLists", LogicalResourceId="ImageBuild", ResourceProperties=names)
    lists = [{"PrefixListName": PREFIX_LISTS[service], "PrefixListId": f"pl-{service}"} for service in found]
    filters = [{"Name": "prefix-list-name", "Values": list(PREFIX_LISTS.values())}]
    account.ec2.add_response("describe_managed_prefix_lists", {"PrefixLists": lists}, {"Filters": filters})
    respond(create, account.client)
    return create


def test_prefix_lists_are_attributes_of_their_resource(url: ResponseUrl, account: Account) -> None:
    create = prefix_lists(url, account, "s3", "dynamodb")
    assert url.answers == [answered(create, "SUCCESS", s3="pl-s3", dynamodb="pl-dynamodb")]


def test_a_prefix_list_that_the_region_lacks_is_named(url: ResponseUrl, account: Account) -> None:
    create = prefix_lists(url, account, "s3")
    reason = "LookupError: the region has no prefix list com.amazonaws.us-east-1.dynamodb"
    assert url.answers == [answered(create, "FAILED", reason)]


FAMILIES = ["moorage-sandbox-1g", "moorage-sandbox-4g"]
TASKS = [f"arn:aws:ecs:us-east-1:000000000000:task/moorage/{number}" for number in range(3)]


def sandboxes(url: ResponseUrl, kind: str) -> dict[str, Any]:
    properties = {"Cluster": "moorage", "Families": FAMILIES}
    return request(url, kind, ResourceType="Custom::Sandboxes", LogicalResourceId="ImageBuild", ResourceProperties=properties)


def finds(ecs: Stubber, *tasks: list[str]) -> None:
    """Tasks of each family."""
    for family, arns in zip(FAMILIES, tasks, strict=True):
        ecs.add_response("list_tasks", {"taskArns": arns}, {"cluster": "moorage", "family": family})


def stops(ecs: Stubber, *tasks: str) -> None:
    for arn in tasks:
        expected = {"cluster": "moorage", "task": arn, "reason": "moorage: the deployment is deleted"}
        ecs.add_response("stop_task", {"task": {"taskArn": arn}}, expected)
    described = [{"taskArn": arn, "lastStatus": "STOPPED"} for arn in tasks]
    ecs.add_response("describe_tasks", {"tasks": described}, {"cluster": "moorage", "tasks": list(tasks)})


def test_sandboxes_are_stopped_before_their_cluster_is_deleted(url: ResponseUrl, account: Account) -> None:
    delete = sandboxes(url, "Delete")
    finds(account.ecs, TASKS[:2], [])
    stops(account.ecs, *TASKS[:2])
    finds(account.ecs, [], TASKS[2:])  # a function that was at work has started one more
    stops(account.ecs, *TASKS[2:])
    finds(account.ecs, [], [])
    respond(delete, account.client)
    assert url.answers == [answered(delete, "SUCCESS")]


def test_a_deployment_whose_sandboxes_do_not_end_is_not_deleted(url: ResponseUrl, account: Account) -> None:
    delete = sandboxes(url, "Delete")
    for _ in range(STOP_ROUNDS_MAX):
        finds(account.ecs, TASKS[:1], [])
        stops(account.ecs, *TASKS[:1])
    respond(delete, account.client)
    reason = "RuntimeError: something starts sandboxes as fast as they are stopped; delete the stack again"
    assert url.answers == [answered(delete, "FAILED", reason)]


@pytest.mark.parametrize("kind", ["Create", "Update"])
def test_sandboxes_are_left_alone_while_the_deployment_stands(kind: str, url: ResponseUrl, account: Account) -> None:
    asked = sandboxes(url, kind)
    respond(asked, account.client)
    assert url.answers == [answered(asked, "SUCCESS")]


KEY = {"KeyId": "11111111-2222-3333-4444-555555555555", "Arn": "arn:aws:kms:us-east-1:000000000000:key/1", "KeyState": "Enabled"}
ALIAS = "alias/moorage-egress"


def key_request(url: ResponseUrl, kind: str, *, is_kept: bool = True) -> dict[str, Any]:
    properties = {"ServiceToken": "arn", "Alias": ALIAS, "Deployment": "moorage", "Description": "secrets"}
    return request(
        url,
        kind,
        ResourceType="Custom::KeptKey",
        LogicalResourceId="ImageBuild",
        ResourceProperties=properties | {"IsKept": str(is_kept).lower()},
    )


def has_key(account: Account, state: str | None) -> None:
    """Expect the look for the key, which finds it in this state, or none."""
    # As KMS does: pages, and the services' own aliases without a key as long as nobody uses them.
    others = [{"AliasName": "alias/aws/s3"}, {"AliasName": "alias/other", "TargetKeyId": "other"}]
    own = [] if state is None else [{"AliasName": ALIAS, "TargetKeyId": KEY["KeyId"]}]
    account.kms.add_response("list_aliases", {"Aliases": others, "Truncated": True, "NextMarker": "next"}, {})
    account.kms.add_response("list_aliases", {"Aliases": own, "Truncated": False}, {"Marker": "next"})
    if state is not None:
        account.kms.add_response("describe_key", {"KeyMetadata": KEY | {"KeyState": state}}, {"KeyId": KEY["KeyId"]})


def test_the_first_deployment_makes_the_key_of_its_secrets(url: ResponseUrl, account: Account) -> None:
    create = key_request(url, "Create")
    has_key(account, None)
    tags = [{"TagKey": "moorage", "TagValue": "moorage"}]
    account.kms.add_response("create_key", {"KeyMetadata": KEY}, {"Description": "secrets", "Tags": tags})
    account.kms.add_response("create_alias", {}, {"AliasName": ALIAS, "TargetKeyId": KEY["KeyId"]})
    account.kms.add_response("enable_key_rotation", {}, {"KeyId": KEY["KeyId"]})
    respond(create, account.client)
    assert url.answers == [answered(create, "SUCCESS", Arn=KEY["Arn"])]


@pytest.mark.parametrize(
    ("state", "calls"),
    [("Enabled", ()), ("Disabled", ("enable_key",)), ("PendingDeletion", ("cancel_key_deletion", "enable_key"))],
)
def test_the_next_deployment_finds_the_key_whatever_has_become_of_it(
    state: str, calls: tuple[str, ...], url: ResponseUrl, account: Account
) -> None:
    create = key_request(url, "Create")
    has_key(account, state)
    for call in (*calls, "enable_key_rotation"):
        account.kms.add_response(call, {}, {"KeyId": KEY["KeyId"]})
    respond(create, account.client)
    assert url.answers == [answered(create, "SUCCESS", Arn=KEY["Arn"])]


def test_the_key_outlives_its_deployment(url: ResponseUrl, account: Account) -> None:
    delete = key_request(url, "Delete")
    has_key(account, "Enabled")
    respond(delete, account.client)
    assert url.answers == [answered(delete, "SUCCESS")]


def test_a_deployment_that_keeps_nothing_does_not_keep_the_key(url: ResponseUrl, account: Account) -> None:
    delete = key_request(url, "Delete", is_kept=False)
    has_key(account, "Enabled")
    account.kms.add_response("delete_alias", {}, {"AliasName": ALIAS})
    deleted = {"KeyId": KEY["KeyId"], "PendingWindowInDays": KEY_DELETION_DAYS}
    account.kms.add_response("schedule_key_deletion", {}, deleted)
    respond(delete, account.client)
    assert url.answers == [answered(delete, "SUCCESS")]


VECTORS = "arn:aws:s3vectors:us-east-1:000000000000:bucket/moorage-vectors"
VECTORS_KEY = "arn:aws:kms:us-east-1:000000000000:key/12345678-1234-1234-1234-123456789012"
AES: dict[str, str] = {"sseType": "AES256"}


def vectors_request(url: ResponseUrl, kind: str, *, is_kept: bool = True, key: str | None = None) -> dict[str, Any]:
    properties = {"ServiceToken": "arn", "Name": "moorage-vectors", "Deployment": "moorage", "Tag": "moorage:deployment"}
    properties |= {"Prefix": "vs-", "IsKept": str(is_kept).lower()} | ({"Key": key} if key else {})
    return request(url, kind, ResourceType="Custom::KeptVectorBucket", LogicalResourceId="ImageBuild", ResourceProperties=properties)


def has_vector_bucket(account: Account, encryption: dict[str, str]) -> None:
    made = {
        "vectorBucketName": "moorage-vectors",
        "vectorBucketArn": VECTORS,
        "creationTime": 1.8e9,
        "encryptionConfiguration": encryption,
    }
    account.vectors.add_response("get_vector_bucket", {"vectorBucket": made}, {"vectorBucketName": "moorage-vectors"})


@pytest.mark.parametrize(("key", "encryption"), [(None, AES), (VECTORS_KEY, {"sseType": "aws:kms", "kmsKeyArn": VECTORS_KEY})])
def test_a_vector_bucket_is_made_once_and_found_again(
    key: str | None, encryption: dict[str, str], url: ResponseUrl, account: Account
) -> None:
    create = vectors_request(url, "Create", key=key)
    expected = {"vectorBucketName": "moorage-vectors", "encryptionConfiguration": encryption, "tags": {"moorage:deployment": "moorage"}}
    account.vectors.add_response("create_vector_bucket", {"vectorBucketArn": VECTORS}, expected)
    has_vector_bucket(account, encryption)
    account.vectors.add_client_error("create_vector_bucket", "ConflictException", "there is one of this name", 409)
    has_vector_bucket(account, encryption)
    for _ in range(2):
        respond(create, account.client)
    assert url.answers == [answered(create, "SUCCESS", Arn=VECTORS)] * 2


def test_a_vector_bucket_that_is_encrypted_otherwise_is_told_and_left_alone(url: ResponseUrl, account: Account) -> None:
    account.vectors.add_client_error("create_vector_bucket", "ConflictException", "there is one of this name", 409)
    has_vector_bucket(account, AES)
    respond(vectors_request(url, "Update", key=VECTORS_KEY), account.client)
    assert url.answers[0]["Status"] == "FAILED"
    assert "encrypted otherwise, which cannot be changed" in url.answers[0]["Reason"]


def test_a_region_without_s3_vectors_fails_the_deployment_and_says_why(url: ResponseUrl, account: Account) -> None:
    def client(service: str) -> Any:
        raise EndpointConnectionError(endpoint_url="https://s3vectors.mx-central-1.api.aws")

    respond(vectors_request(url, "Create"), client)
    assert (url.answers[0]["Status"], "s3vectors.mx-central-1" in url.answers[0]["Reason"]) == ("FAILED", True)


def test_a_vector_bucket_outlives_its_deployment(url: ResponseUrl, account: Account) -> None:
    delete = vectors_request(url, "Delete")
    respond(delete, account.client)
    assert url.answers == [answered(delete, "SUCCESS")]


def test_a_deployment_that_keeps_nothing_deletes_its_indexes_and_then_the_vector_bucket(url: ResponseUrl, account: Account) -> None:
    delete = vectors_request(url, "Delete", is_kept=False)
    asked = {"vectorBucketName": "moorage-vectors", "prefix": "vs-"}
    for token, names in (({}, ["vs-1", "vs-2"]), ({"nextToken": "more"}, ["vs-3"])):
        indexes = [
            {"vectorBucketName": "moorage-vectors", "indexName": name, "indexArn": f"{VECTORS}/index/{name}", "creationTime": 1.8e9}
            for name in names
        ]
        more = {} if token else {"nextToken": "more"}
        account.vectors.add_response("list_indexes", {"indexes": indexes, **more}, asked | token)
        for name in names:
            if name == "vs-2":
                account.vectors.add_client_error("delete_index", "NotFoundException", "somebody has deleted it", 404)
            else:
                account.vectors.add_response("delete_index", {}, {"vectorBucketName": "moorage-vectors", "indexName": name})
    account.vectors.add_response("delete_vector_bucket", {}, {"vectorBucketName": "moorage-vectors"})
    respond(delete, account.client)
    account.vectors.add_client_error("list_indexes", "NotFoundException", "there is no such bucket", 404)
    respond(delete, account.client)
    assert url.answers == [answered(delete, "SUCCESS")] * 2


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


@pytest.mark.parametrize(
    ("quota", "percent", "at_least", "reserved"),
    [
        (1_000, 60, 0, 600),
        (1_000, 90, 0, 900),
        (250, 60, 0, 150),
        (200, 90, 0, 100),  # at least 100 stay for all other functions of the account
        (10, 60, 0, None),  # a new account
        (150, 60, 0, None),
        (300, 60, 250, None),  # less than what is kept started
    ],
)
def test_streams_get_their_share_of_what_the_account_has(
    quota: int, percent: int, at_least: int, reserved: int | None, url: ResponseUrl, account: Account
) -> None:
    properties = {"ServiceToken": "arn", "Function": "responses", "Percent": str(percent), "AtLeast": str(at_least)}
    create = request(url, "Create", ResourceType="Custom::Concurrency", LogicalResourceId="ImageBuild", ResourceProperties=properties)
    account.functions.add_response("get_account_settings", {"AccountLimit": {"ConcurrentExecutions": quota}}, {})
    if reserved is None:
        account.functions.add_response("delete_function_concurrency", {}, {"FunctionName": "responses"})
    else:
        expected = {"FunctionName": "responses", "ReservedConcurrentExecutions": reserved}
        account.functions.add_response("put_function_concurrency", {}, expected)
    respond(create, account.client)
    assert url.answers == [answered(create, "SUCCESS", Reserved=str(reserved or "none"))]


def test_the_sandboxes_key_follows_from_the_content_key_and_is_shown_to_nobody(url: ResponseUrl, account: Account) -> None:
    secret = "arn:aws:secretsmanager:us-east-1:000000000000:secret:moorage-AbCdEf"
    create = request(
        url, "Create", ResourceType="Custom::SandboxKey", LogicalResourceId="ImageBuild", ResourceProperties={"Secret": secret}
    )
    found = {"ARN": secret, "Name": "moorage", "SecretString": "ab" * 32}
    account.secrets.add_response("get_secret_value", found, {"SecretId": secret})
    respond(create, account.client)
    assert url.answers == [answered(create, "SUCCESS", Hex=sandbox_key(bytes.fromhex("ab" * 32)).hex()) | {"NoEcho": True}]


def test_a_content_key_that_is_none_stops_the_deployment_and_is_not_told(url: ResponseUrl, account: Account) -> None:
    create = request(
        url, "Create", ResourceType="Custom::SandboxKey", LogicalResourceId="ImageBuild", ResourceProperties={"Secret": "s" * 20}
    )
    account.secrets.add_response("get_secret_value", {"SecretString": "opensesame"}, {"SecretId": "s" * 20})
    respond(create, account.client)
    (answer,) = url.answers
    assert answer["Status"] == "FAILED"
    assert "opensesame" not in json.dumps(answer)
