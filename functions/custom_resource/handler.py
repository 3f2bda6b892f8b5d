"""Answers CloudFormation for the custom resources of ``infra/custom_resource.py``.

CloudFormation sends a request with a presigned ``ResponseURL`` and waits until something is put there. An image build takes longer
than a function should wait, so it has two invocations: the request starts the build and leaves its address in the build's variables;
the end of the build, however it ended, comes back as an event, and its answer goes to that address.

A day's event has the share of concurrency taken anew, since a quota may have been raised: nobody waits for an answer to that.

All may run twice (Lambda and EventBridge repeat what failed): a build is started once per request, and CloudFormation takes the
first answer.
"""

import hmac
import io
import json
import logging
import time
import urllib.request
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import boto3

Event = Mapping[str, Any]
Clients = Callable[[str], Any]
"""Makes a client of a service by its name, as ``boto3.client`` does."""
Pause = Callable[[float], None]
"""Waits so many seconds."""

REQUEST_VARIABLE: Final = "CLOUDFORMATION_REQUEST"
"""Of a build: whom its end is answered to."""

STOP_ROUNDS_MAX: Final = 5
"""Looks at what runs, while the deployment is deleted: a function that was just at work may start one more sandbox."""

MICROVM_ROUNDS_MAX: Final = 60
_TERMINATE_PAUSE_SECONDS: Final = 0.1
"""Lambda ends ten a second (its quotas)."""

_ROLE_SECONDS: Final = 30
"""IAM shows a new role to all of AWS within seconds; others wait so long before they make a connector (reported)."""

START_TRIES_MAX: Final = 12
_START_PAUSE_SECONDS: Final = 20

UNRESERVED_MIN: Final = 100
"""Of the account's concurrency, Lambda leaves at least so much to functions that reserve none (its quotas)."""

KEY_DELETION_DAYS: Final = 7
"""The shortest that KMS takes."""

_STOPPED_POLL_SECONDS: Final = 3
_STOPPED_POLLS_MAX: Final = 30
_DESCRIBE_MAX: Final = 100
"""DescribeTasks takes 100 tasks (ECS API reference)."""

REASON_CHARS_MAX: Final = 1_000
"""CloudFormation refuses answers of more than 4,096 bytes (its user guide, custom resource response objects)."""

_SECRET: Final = frozenset({"Custom::SandboxKey"})
"""Resources whose attributes CloudFormation shows nobody."""

_ANSWER_SECONDS: Final = 10
_LOG: Final = logging.getLogger(__name__)


def handle(event: Event, _context: object) -> None:
    """Entry point of the function."""
    respond(event, lambda service: boto3.client(service))  # type: ignore[call-overload]


def respond(event: Event, client: Clients, pause: Pause = time.sleep) -> None:
    """Answer a request of CloudFormation or the end of a build. Raises when no answer could be given; Lambda then tries again."""
    if event.get("detail-type") == "CodeBuild Build State Change":
        build_ended(event, client("codebuild"))
    elif "Share" in event:
        share_concurrency(event["Share"], client("lambda"))
    else:
        requested(event, client, pause)


def requested(event: Event, client: Clients, pause: Pause) -> None:
    """Do a custom resource's task. An error is an answer too: without one CloudFormation waits until its timeout."""
    try:
        data = _data(event, client, pause)
    except Exception as error:  # the rim
        _LOG.exception("%s of %s failed", event.get("RequestType"), event["LogicalResourceId"])
        answer(event, "FAILED", f"{type(error).__name__}: {error}")
        return
    if data is not None:
        answer(event, "SUCCESS", "", data)


def _data(event: Event, client: Clients, pause: Pause) -> Mapping[str, str] | None:
    """The attributes of the resource; None when the answer comes later."""
    kind = event["ResourceType"]
    if event["RequestType"] == "Delete":
        if kind in DELETES:
            DELETES[kind](event, client, pause)
        return {}
    if kind not in MAKES:
        raise ValueError(f"there is no custom resource {kind}")
    return MAKES[kind](event, client, pause)


MAKES: Final[Mapping[str, Callable[[Event, Clients, Pause], Mapping[str, str] | None]]] = {
    "Custom::Concurrency": lambda event, client, _: share_concurrency(event["ResourceProperties"], client("lambda")),
    "Custom::ImageBuild": lambda event, client, pause: image_build(event, client("codebuild"), pause),
    "Custom::KeptKey": lambda event, client, _: kept_key(event, client("kms")),
    "Custom::KeptVectorBucket": lambda event, client, _: kept_vector_bucket(event, client("s3vectors")),
    "Custom::MicrovmBase": lambda event, client, pause: microvm_base(event, client, pause),
    "Custom::MicrovmSource": lambda event, client, _: microvm_source(event, client("s3")),
    "Custom::Microvms": lambda *_: {},
    "Custom::PrefixLists": lambda event, client, _: prefix_lists(event, client("ec2")),
    "Custom::SandboxKey": lambda event, client, _: sandbox_key(event, client("secretsmanager")),
    "Custom::Sandboxes": lambda *_: {},
    "Custom::StageLogs": lambda event, client, _: stage_logs(event, client("logs")),
}
"""Creates or updates a resource of each kind."""

DELETES: Final[Mapping[str, Callable[[Event, Clients, Pause], None]]] = {
    "Custom::KeptKey": lambda event, client, _: let_go_of_key(event, client("kms")),
    "Custom::KeptVectorBucket": lambda event, client, _: let_go_of_vector_bucket(event, client("s3vectors")),
    "Custom::MicrovmSource": lambda event, client, _: drop_microvm_source(event, client("s3")),
    "Custom::Microvms": lambda event, client, pause: stop_microvms(event, client("lambda-microvms"), pause),
    "Custom::Sandboxes": lambda event, client, _: stop_sandboxes(event, client("ecs")),
    "Custom::StageLogs": lambda event, client, _: drop_stage_logs(event, client("logs")),
}
"""Of the kinds that leave something behind."""


def prefix_lists(event: Event, ec2: Any) -> Mapping[str, str]:
    """Ids of the region's prefix lists, by the service that each is of."""
    names: Mapping[str, str] = event["ResourceProperties"]["Names"]
    filters = [{"Name": "prefix-list-name", "Values": list(names.values())}]
    found = {each["PrefixListName"]: each["PrefixListId"] for each in ec2.describe_managed_prefix_lists(Filters=filters)["PrefixLists"]}
    missing = sorted(set(names.values()) - set(found))
    if missing:
        raise LookupError(f"the region has no prefix list {', '.join(missing)}")
    return {service: found[name] for service, name in names.items()}


def stop_sandboxes(event: Event, ecs: Any) -> None:
    """Stop every task of the sandboxes' families, and return when they are gone: neither a cluster that has tasks nor a network that
    has their interfaces can be deleted."""
    cluster, families = (event["ResourceProperties"][name] for name in ("Cluster", "Families"))
    for _ in range(STOP_ROUNDS_MAX):
        pages = (page for family in families for page in ecs.get_paginator("list_tasks").paginate(cluster=cluster, family=family))
        tasks = [arn for page in pages for arn in page["taskArns"]]
        if not tasks:
            return
        for arn in tasks:
            ecs.stop_task(cluster=cluster, task=arn, reason="moorage: the deployment is deleted")
        patience = {"Delay": _STOPPED_POLL_SECONDS, "MaxAttempts": _STOPPED_POLLS_MAX}
        for start in range(0, len(tasks), _DESCRIBE_MAX):
            ecs.get_waiter("tasks_stopped").wait(cluster=cluster, tasks=tasks[start : start + _DESCRIBE_MAX], WaiterConfig=patience)
    raise RuntimeError("something starts sandboxes as fast as they are stopped; delete the stack again")


def stop_microvms(event: Event, microvms: Any, pause: Pause) -> None:
    """End every VM of the images, and return when none lives. What time does not suffice for, Lambda's next tries go on with."""
    for _ in range(MICROVM_ROUNDS_MAX):
        alive = [vm for image in event["ResourceProperties"]["Images"] for vm in _alive(microvms, image)]
        if not alive:
            return
        for vm in alive:
            with suppress(microvms.exceptions.ResourceNotFoundException, microvms.exceptions.ConflictException):
                if vm["state"] != "TERMINATING":
                    microvms.terminate_microvm(microvmIdentifier=vm["microvmId"])
                    pause(_TERMINATE_PAUSE_SECONDS)
        pause(_STOPPED_POLL_SECONDS)
    raise RuntimeError("something starts MicroVMs as fast as they are ended; delete the stack again")


def _alive(microvms: Any, image: str) -> list[Mapping[str, Any]]:
    try:
        pages = list(microvms.get_paginator("list_microvms").paginate(imageIdentifier=image))
    except microvms.exceptions.ResourceNotFoundException:
        return []
    # AWS lists a VM that has ended for some twenty minutes.
    return [vm for page in pages for vm in page["items"] if vm["state"] != "TERMINATED"]


def microvm_base(event: Event, client: Clients, pause: Pause) -> Mapping[str, str]:
    """The version of the base image that is to be built on: the newest available one, unless one is given."""
    wanted = event["ResourceProperties"]
    if event["RequestType"] == "Create":
        pause(_ROLE_SECONDS)  # What is made after this resource is judged by a role that was made just before it.
    if version := wanted.get("Version"):
        return {"Version": version}
    pages = client("lambda-microvms").get_paginator("list_managed_microvm_image_versions").paginate(imageIdentifier=wanted["Image"])
    found = [each for page in pages for each in page["items"] if each.get("status", "AVAILABLE") == "AVAILABLE"]
    if not found:
        raise LookupError(f"the region has no version of {wanted['Image']} to build on")
    newest: str = max(found, key=lambda each: each["createdAt"])["imageVersion"]
    # AWS writes a version as 1 or as 1.0, and CloudFormation's resource takes the first form alone (reported).
    return {"Version": newest.partition(".")[0]}


def microvm_source(event: Event, s3: Any) -> Mapping[str, str]:
    """Put an archive with nothing but a Dockerfile into the place that an image's build reads."""
    wanted = event["ResourceProperties"]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        writer.writestr("Dockerfile", wanted["Dockerfile"])
    s3.put_object(Bucket=wanted["Bucket"], Key=wanted["Key"], Body=archive.getvalue())
    return {}


def drop_microvm_source(event: Event, s3: Any) -> None:
    wanted = event["ResourceProperties"]
    s3.delete_object(Bucket=wanted["Bucket"], Key=wanted["Key"])


def kept_key(event: Event, kms: Any) -> Mapping[str, str]:
    """The key that bears the alias, made if there is none. One that somebody has begun to delete or has disabled is taken back: what
    the table keeps can be opened with no other."""
    wanted = event["ResourceProperties"]
    key = _key_of(wanted["Alias"], kms)
    if key is None:
        tags = [{"TagKey": "moorage", "TagValue": wanted["Deployment"]}]
        key = kms.create_key(Description=wanted["Description"], Tags=tags)["KeyMetadata"]
        kms.create_alias(AliasName=wanted["Alias"], TargetKeyId=key["KeyId"])
    if key["KeyState"] == "PendingDeletion":
        kms.cancel_key_deletion(KeyId=key["KeyId"])
    if key["KeyState"] in ("PendingDeletion", "Disabled"):
        kms.enable_key(KeyId=key["KeyId"])
    kms.enable_key_rotation(KeyId=key["KeyId"])
    return {"Arn": key["Arn"]}


def let_go_of_key(event: Event, kms: Any) -> None:
    """Leave it to the next deployment, unless this one keeps nothing."""
    wanted = event["ResourceProperties"]
    key = _key_of(wanted["Alias"], kms)
    if wanted["IsKept"] == "true" or key is None:
        return
    kms.delete_alias(AliasName=wanted["Alias"])
    kms.schedule_key_deletion(KeyId=key["KeyId"], PendingWindowInDays=KEY_DELETION_DAYS)


def sandbox_key(event: Event, secrets: Any) -> Mapping[str, str]:
    """A key that follows from the content key that seals. ``moorage.store.deployment_keys`` makes the one for tokens of sandboxes, and
    ``moorage.egress.places`` the one for their places."""
    newest = secrets.get_secret_value(SecretId=event["ResourceProperties"]["Secret"])["SecretString"].split()[0]
    content_key = bytes.fromhex(newest)
    sandboxes = hmac.digest(content_key, b"moorage sandboxes", "sha256")
    return {"Hex": sandboxes.hex(), "Places": hmac.digest(sandboxes, b"moorage egress places", "sha256").hex()}


def _key_of(alias: str, kms: Any) -> Mapping[str, Any] | None:
    pages = kms.get_paginator("list_aliases").paginate()
    found = [each.get("TargetKeyId") for page in pages for each in page["Aliases"] if each["AliasName"] == alias]
    return kms.describe_key(KeyId=found[0])["KeyMetadata"] if found else None


def kept_vector_bucket(event: Event, vectors: Any) -> Mapping[str, str]:
    """The vector bucket of this name, made if there is none. One that is encrypted otherwise cannot be changed."""
    wanted = event["ResourceProperties"]
    name, key = wanted["Name"], wanted.get("Key")
    encryption = {"sseType": "aws:kms", "kmsKeyArn": key} if key else {"sseType": "AES256"}
    try:
        tags = {wanted["Tag"]: wanted["Deployment"]}
        vectors.create_vector_bucket(vectorBucketName=name, encryptionConfiguration=encryption, tags=tags)
    except vectors.exceptions.ConflictException:
        pass  # An earlier deployment, or a first try of this request, has made it.
    made = vectors.get_vector_bucket(vectorBucketName=name)["vectorBucket"]
    if made.get("encryptionConfiguration", {"sseType": "AES256"}) != encryption:
        raise ValueError(
            f"the vector bucket {name} is there and encrypted otherwise, which cannot be changed: deploy with vector_bucket off, "
            "delete it with its indexes, and turn it on again"
        )
    return {"Arn": made["vectorBucketArn"]}


def let_go_of_vector_bucket(event: Event, vectors: Any) -> None:
    """Leave it to the next deployment, unless this one keeps nothing. Only an empty one can be deleted. What time does not suffice for,
    Lambda's next tries go on with."""
    wanted = event["ResourceProperties"]
    name = wanted["Name"]
    if wanted["IsKept"] == "true":
        return
    try:
        for page in vectors.get_paginator("list_indexes").paginate(vectorBucketName=name, prefix=wanted["Prefix"]):
            for index in page["indexes"]:
                with suppress(vectors.exceptions.NotFoundException):
                    vectors.delete_index(vectorBucketName=name, indexName=index["indexName"])
        vectors.delete_vector_bucket(vectorBucketName=name)
    except vectors.exceptions.NotFoundException:
        return  # An earlier try has deleted it.


def stage_logs(event: Event, logs: Any) -> Mapping[str, str]:
    """Bound the age of the lines in a log group that API Gateway makes itself, if it has not been made here before."""
    wanted = event["ResourceProperties"]
    with suppress(logs.exceptions.ResourceAlreadyExistsException):
        logs.create_log_group(logGroupName=wanted["Name"])
    logs.put_retention_policy(logGroupName=wanted["Name"], retentionInDays=int(wanted["Days"]))
    return {}


def drop_stage_logs(event: Event, logs: Any) -> None:
    with suppress(logs.exceptions.ResourceNotFoundException):
        logs.delete_log_group(logGroupName=event["ResourceProperties"]["Name"])


def image_build(event: Event, codebuild: Any, pause: Pause) -> Mapping[str, str] | None:
    """Start the build, unless an update leaves project and tag as they were: its image is there then."""
    wanted, had = (event.get(key, {}) for key in ("ResourceProperties", "OldResourceProperties"))
    if all(wanted[name] == had.get(name) for name in ("Project", "Tag")):
        return {}
    request = {key: event[key] for key in ("ResponseURL", "StackId", "RequestId", "LogicalResourceId")}
    variables = {
        "IMAGE_TAG": wanted["Tag"],
        REQUEST_VARIABLE: json.dumps(request | {"PhysicalResourceId": _physical_id(event)}),
    }
    _start_build(
        codebuild,
        pause,
        projectName=wanted["Project"],
        environmentVariablesOverride=[{"name": k, "value": v, "type": "PLAINTEXT"} for k, v in variables.items()],
        idempotencyToken=event["RequestId"],
    )
    return None


def _start_build(codebuild: Any, pause: Pause, **request: Any) -> None:
    """New accounts have a queue of one build, or of none for a while: then it is tried again for some minutes."""
    for _ in range(START_TRIES_MAX - 1):
        try:
            codebuild.start_build(**request)
        except codebuild.exceptions.AccountLimitExceededException:
            pause(_START_PAUSE_SECONDS)
        else:
            return
    codebuild.start_build(**request)


def share_concurrency(wanted: Mapping[str, str], functions: Any) -> Mapping[str, str]:
    """Reserve a share of the account's concurrency for a function; none if the account has too little to share.

    What others have reserved is theirs: Lambda refuses a reservation that leaves less than ``UNRESERVED_MIN`` unreserved.
    """
    account = functions.get_account_settings()["AccountLimit"]
    own = functions.get_function_concurrency(FunctionName=wanted["Function"]).get("ReservedConcurrentExecutions", 0)
    room = account["UnreservedConcurrentExecutions"] + own - UNRESERVED_MIN
    share = min(account["ConcurrentExecutions"] * int(wanted["Percent"]) // 100, room)
    if share < max(UNRESERVED_MIN, int(wanted["AtLeast"])):
        functions.delete_function_concurrency(FunctionName=wanted["Function"])
        return {"Reserved": "none"}
    if share != own:
        functions.put_function_concurrency(FunctionName=wanted["Function"], ReservedConcurrentExecutions=share)
    return {"Reserved": str(share)}


def build_ended(event: Event, codebuild: Any) -> None:
    """Tell CloudFormation the end of a build, and for a failure the reason and the place of its log."""
    build_id = event["detail"]["build-id"].rpartition("/")[2]
    (build,) = codebuild.batch_get_builds(ids=[build_id])["builds"]
    variables = {each["name"]: each["value"] for each in build["environment"]["environmentVariables"]}
    if REQUEST_VARIABLE not in variables:
        return  # somebody started it by hand
    request = json.loads(variables[REQUEST_VARIABLE])
    if build["buildStatus"] == "SUCCEEDED":
        answer(request, "SUCCESS", "")
    else:
        answer(request, "FAILED", _why(build))


def _why(build: Mapping[str, Any]) -> str:
    """The log's address first: the rest may be cut."""
    phases = [text for phase in build.get("phases", []) if (text := _complaint(phase))]
    log = build.get("logs", {}).get("deepLink", "none was written")
    return f"Image build {build['id']}: {build['buildStatus']}. Log: {log} {'; '.join(phases)}".strip()


def _complaint(phase: Mapping[str, Any]) -> str:
    """``BUILD TIMED_OUT: message`` of a phase that did not succeed; nothing of one that did, or that never ended."""
    status = phase.get("phaseStatus", "SUCCEEDED")
    if status == "SUCCEEDED":
        return ""
    contexts: Sequence[Mapping[str, str]] = phase.get("contexts", [])
    messages = [text for each in contexts if (text := f"{each.get('statusCode', '')} {each.get('message', '')}".strip())]
    return ": ".join([f"{phase['phaseType']} {status}", *messages])


def _physical_id(event: Event) -> str:
    physical_id: str = event.get("PhysicalResourceId", event["LogicalResourceId"])
    return physical_id


def answer(event: Event, status: str, reason: str, data: Mapping[str, str] | None = None) -> None:
    """Put the answer to the address that came with the request. Raises OSError when it was not taken."""
    body = {
        "Status": status,
        "Reason": reason[:REASON_CHARS_MAX],
        "PhysicalResourceId": _physical_id(event),
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
        "Data": dict(data or {}),
    }
    if event.get("ResourceType") in _SECRET:
        body["NoEcho"] = True
    request = urllib.request.Request(event["ResponseURL"], json.dumps(body).encode(), {"content-type": ""}, method="PUT")  # noqa: S310
    with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS):  # noqa: S310 - CloudFormation's own presigned URL
        pass
