"""CloudFormation's side of a custom resource, and the account that the function finds: botocore's stubber stands for the services."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
from botocore.stub import Stubber

from functions.custom_resource.handler import (
    REQUEST_VARIABLE,
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
            name: boto3.client(name, **options)
            for name in ("codebuild", "ec2", "ecs", "kms", "lambda", "s3vectors", "secretsmanager", "s3", "lambda-microvms", "logs")
        }
        stubs = (Stubber(client) for client in self.clients.values())
        self.codebuild, self.ec2, self.ecs, self.kms, self.functions, self.vectors, self.secrets, self.s3, *others = stubs
        self.microvms, self.logs = others

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
