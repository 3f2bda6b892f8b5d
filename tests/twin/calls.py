"""What each function asks of AWS: ``calls.json``, noted while the deployed stack is tested (``recording/sitecustomize.py``), and what
of it IAM checks."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

RECORDED: Final = Path(__file__).with_name("calls.json")
RECORDING: Final = Path(__file__).with_name("recording")
PROXY: Final = "EgressProxy"
SOCKETS: Final = ("SocketDoor", "SocketWork")
"""Functions of the WebSocket API, which is an option."""

Asked = dict[str, list[str]]
"""By function: ``operation what`` of each call, as the file has it."""


def recorded() -> Asked:
    asked: Asked = json.loads(RECORDED.read_text())
    return asked


def read(lines: Iterable[str], names: Mapping[str, str]) -> Asked:
    """``names``: the functions' own, such as ``ModelStep``, by those of the deployment. Other processes do not count."""
    asked: dict[str, set[str]] = {}
    for line in lines:
        function, operation, about = json.loads(line)
        if function in names:
            asked.setdefault(names[function], set()).add(" ".join([operation, *_words(about)]))
    return {function: sorted(asked[function]) for function in sorted(asked)}


def _words(about: Mapping[str, Any]) -> list[str]:
    return [*about.get("partitions", []), *(word for word in ("index", "tagged") if about.get(word))]


def own_name(logical_id: str) -> str:
    """``FunctionsModelStep0A1B2C3D`` is ``ModelStep``."""
    return re.sub(r"[0-9A-F]{8}$", "", logical_id).removeprefix("Functions")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that IAM decides about."""

    action: str
    on: str
    """What it is done to: a kind of resource that ``tests/twin/iam.py`` finds in a template."""
    partitions: tuple[str, ...] = ()
    context: tuple[tuple[str, str], ...] = ()


_OBJECTS: Final = {
    "PutObject": ("s3:PutObject",),
    "CreateMultipartUpload": ("s3:PutObject",),
    "UploadPart": ("s3:PutObject",),
    "CompleteMultipartUpload": ("s3:PutObject",),
    "AbortMultipartUpload": ("s3:AbortMultipartUpload",),
    "GetObject": ("s3:GetObject",),
    "CopyObject": ("s3:GetObject", "s3:PutObject"),
    "DeleteObject": ("s3:DeleteObject",),
    "DeleteObjects": ("s3:DeleteObject",),
}
_OTHERS: Final = {
    "s3.ListObjectsV2": Check("s3:ListBucket", "bucket"),
    "stepfunctions.StartExecution": Check("states:StartExecution", "machine"),
    "stepfunctions.StopExecution": Check("states:StopExecution", "execution"),
    "stepfunctions.DescribeExecution": Check("states:DescribeExecution", "execution"),
    "ecs.DescribeTasks": Check("ecs:DescribeTasks", "task", context=(("ecs:cluster", "cluster"),)),
    "ecs.StopTask": Check("ecs:StopTask", "task", context=(("ecs:cluster", "cluster"),)),
    "ecs.ListTasks": Check("ecs:ListTasks", "any", context=(("ecs:cluster", "cluster"),)),
    "ecs.DescribeServices": Check("ecs:DescribeServices", "proxy"),
    "ecs.UpdateService": Check("ecs:UpdateService", "proxy"),
    "lambda.Invoke": Check("lambda:InvokeFunction", "worker"),
    "apigatewaymanagementapi.PostToConnection": Check("execute-api:ManageConnections", "connection"),
    "apigatewaymanagementapi.DeleteConnection": Check("execute-api:ManageConnections", "connection"),
    "s3vectors.CreateIndex": Check("s3vectors:CreateIndex", "vector index"),
    "s3vectors.DeleteIndex": Check("s3vectors:DeleteIndex", "vector index"),
    "s3vectors.PutVectors": Check("s3vectors:PutVectors", "vector index"),
    "s3vectors.DeleteVectors": Check("s3vectors:DeleteVectors", "vector index"),
    "logs.CreateLogStream": Check("logs:CreateLogStream", "audit trail"),
    "logs.PutLogEvents": Check("logs:PutLogEvents", "audit trail"),
    "kms.GenerateDataKey": Check("kms:GenerateDataKey", "secrets key"),
    "kms.Decrypt": Check("kms:Decrypt", "secrets key"),
    "secretsmanager.GetSecretValue": Check("secretsmanager:GetSecretValue", "content key"),
}


def checks(asked: str) -> Iterator[Check]:
    """By AWS's service authorization reference."""
    operation, *words = asked.split()
    service, _, name = operation.partition(".")
    if service == "dynamodb":
        yield Check(f"dynamodb:{name}", "index" if "index" in words else "table", tuple(w for w in words if w != "index"))
    elif service == "s3" and name in _OBJECTS:
        yield from (Check(action, "object") for action in _OBJECTS[name])
    elif operation == "s3vectors.QueryVectors":
        # A filter reads metadata, which is a right of its own (S3 Vectors API reference).
        yield from (Check(action, "vector index") for action in ("s3vectors:QueryVectors", "s3vectors:GetVectors"))
    elif operation == "ecs.RunTask":
        yield Check("ecs:RunTask", "task definition", context=(("ecs:cluster", "cluster"),))
        yield Check("iam:PassRole", "execution role", context=(("iam:PassedToService", "ecs-tasks.amazonaws.com"),))
        if "tagged" in words:
            yield Check("ecs:TagResource", "task", context=(("ecs:CreateAction", "RunTask"),))
    else:
        yield _OTHERS[operation]


def key_checks(check: Check) -> Iterator[Check]:
    """What a customer-managed key asks of whoever reads or writes what it encrypts (developer guides of DynamoDB, S3 and Secrets
    Manager)."""
    if check.on in ("table", "index"):
        yield Check("kms:Decrypt", "data key")
    if check.action in ("s3:GetObject", "secretsmanager:GetSecretValue"):
        yield Check("kms:Decrypt", "data key")
    if check.on == "vector index":
        yield Check("kms:Decrypt", "data key")
    if check.action in ("s3vectors:CreateIndex", "s3vectors:PutVectors"):
        yield Check("kms:GenerateDataKey", "data key")
    if check.action == "s3:PutObject":
        # A part of a multipart upload is decrypted when the upload is completed.
        yield from (Check(action, "data key") for action in ("kms:GenerateDataKey", "kms:Decrypt"))
