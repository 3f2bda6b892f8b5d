"""What a deployment finds, makes and leaves in its account through the custom resource: sandboxes, keys, vector buckets."""

import json
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError
from botocore.stub import Stubber
from moorage.egress.places import places_key
from moorage.store.deployment_keys import sandbox_key

from functions.custom_resource.handler import (
    KEY_DELETION_DAYS,
    STOP_ROUNDS_MAX,
    respond,
)
from tests.unit.aws.custom_resources import PREFIX_LISTS, Account, ResponseUrl, answered, request


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


GROUP = "API-Gateway-Execution-Logs_a1b2c3/api"


def stage_logs(url: ResponseUrl, kind: str, days: str = "30") -> dict[str, Any]:
    properties = {"Name": GROUP, "Days": days}
    return request(url, kind, ResourceType="Custom::StageLogs", LogicalResourceId="ImageBuild", ResourceProperties=properties)


def test_the_log_that_the_gateway_makes_forgets_as_others_do(url: ResponseUrl, account: Account) -> None:
    create, update = stage_logs(url, "Create"), stage_logs(url, "Update", "7")
    account.logs.add_response("create_log_group", {}, {"logGroupName": GROUP})
    account.logs.add_response("put_retention_policy", {}, {"logGroupName": GROUP, "retentionInDays": 30})
    account.logs.add_client_error("create_log_group", "ResourceAlreadyExistsException", expected_params={"logGroupName": GROUP})
    account.logs.add_response("put_retention_policy", {}, {"logGroupName": GROUP, "retentionInDays": 7})
    respond(create, account.client)
    respond(update, account.client)
    assert url.answers == [answered(create, "SUCCESS"), answered(update, "SUCCESS")]


def test_the_log_that_the_gateway_makes_goes_with_the_deployment(url: ResponseUrl, account: Account) -> None:
    delete = stage_logs(url, "Delete")
    account.logs.add_response("delete_log_group", {}, {"logGroupName": GROUP})
    account.logs.add_client_error("delete_log_group", "ResourceNotFoundException", expected_params={"logGroupName": GROUP})
    for _ in range(2):
        respond(delete, account.client)
    assert url.answers == [answered(delete, "SUCCESS")] * 2


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


def test_a_deployment_that_keeps_nothing_deletes_indexes_then_the_bucket(url: ResponseUrl, account: Account) -> None:
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


@pytest.mark.parametrize(
    ("quota", "others", "own", "percent", "at_least", "reserved"),
    [
        (1_000, 0, 0, 60, 0, 600),
        (1_000, 0, 0, 90, 0, 900),
        (250, 0, 0, 60, 0, 150),
        (200, 0, 0, 90, 0, 100),  # at least 100 stay for all other functions of the account
        (1_000, 401, 0, 50, 0, 499),  # other functions have reserved some of it
        (1_000, 401, 499, 50, 0, 499),  # and what is reserved for this one is its own
        (10_000, 0, 500, 50, 0, 5_000),  # the quota was raised
        (1_000, 850, 0, 50, 0, None),  # others have left less than is worth a share
        (10, 0, 0, 60, 0, None),  # a new account
        (150, 0, 0, 60, 0, None),
        (300, 0, 0, 60, 250, None),  # less than what is kept started
    ],
)
@pytest.mark.parametrize("is_daily", [False, True])
def test_streams_get_their_share_of_what_the_account_has(
    quota: int,
    others: int,
    own: int,
    percent: int,
    at_least: int,
    reserved: int | None,
    is_daily: bool,
    url: ResponseUrl,
    account: Account,
) -> None:
    share = {"Function": "responses", "Percent": str(percent), "AtLeast": str(at_least)}
    properties = {"ServiceToken": "arn", **share}
    create = request(url, "Create", ResourceType="Custom::Concurrency", LogicalResourceId="ImageBuild", ResourceProperties=properties)
    limits = {"ConcurrentExecutions": quota, "UnreservedConcurrentExecutions": quota - others - own}
    account.functions.add_response("get_account_settings", {"AccountLimit": limits}, {})
    had = {"ReservedConcurrentExecutions": own} if own else {}
    account.functions.add_response("get_function_concurrency", had, {"FunctionName": "responses"})
    if reserved is None:
        account.functions.add_response("delete_function_concurrency", {}, {"FunctionName": "responses"})
    elif reserved != own:
        expected = {"FunctionName": "responses", "ReservedConcurrentExecutions": reserved}
        account.functions.add_response("put_function_concurrency", {}, expected)
    respond({"Share": share} if is_daily else create, account.client)
    account.functions.assert_no_pending_responses()
    assert url.answers == ([] if is_daily else [answered(create, "SUCCESS", Reserved=str(reserved or "none"))])


def test_the_sandboxes_key_follows_from_the_content_key_and_is_shown_to_nobody(url: ResponseUrl, account: Account) -> None:
    secret = "arn:aws:secretsmanager:us-east-1:000000000000:secret:moorage-AbCdEf"
    create = request(
        url, "Create", ResourceType="Custom::SandboxKey", LogicalResourceId="ImageBuild", ResourceProperties={"Secret": secret}
    )
    found = {"ARN": secret, "Name": "moorage", "SecretString": f"{'ab' * 32} {'cd' * 32}"}  # the second one opens only
    account.secrets.add_response("get_secret_value", found, {"SecretId": secret})
    respond(create, account.client)
    key = sandbox_key(bytes.fromhex("ab" * 32))
    assert url.answers == [answered(create, "SUCCESS", Hex=key.hex(), Places=places_key(key).hex()) | {"NoEcho": True}]


def test_a_content_key_that_is_none_stops_the_deployment_and_is_not_told(url: ResponseUrl, account: Account) -> None:
    create = request(
        url, "Create", ResourceType="Custom::SandboxKey", LogicalResourceId="ImageBuild", ResourceProperties={"Secret": "s" * 20}
    )
    account.secrets.add_response("get_secret_value", {"SecretString": "opensesame"}, {"SecretId": "s" * 20})
    respond(create, account.client)
    (answer,) = url.answers
    assert answer["Status"] == "FAILED"
    assert "opensesame" not in json.dumps(answer)
