"""Where an afternoon takes place: an account of AWS's, with the credentials of the shell. ``tests/deploy/afternoon.py`` has an
emulator in its place."""

import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import boto3
from botocore.exceptions import ClientError
from moorage.cli.target import aws_region

ROOT: Final = Path(__file__).resolve().parents[2]
Settings = Mapping[str, Any]

AWS_ONLY: Final = frozenset({"account", "egress", "traces", "websocket", "computer", "throttle"})
"""What no emulator has."""


class GroundError(RuntimeError):
    """A command failed; the message has its last lines."""


class Ground(Protocol):
    name: str
    """Of the deployment."""
    region: str
    features: frozenset[str]
    """Of :data:`AWS_ONLY`, those that are here."""
    settings: Settings
    """Those that the deployment has in each step."""
    another_image: Settings
    """With these, its image is another one."""
    file_bytes: int
    """Of the large file."""
    command_seconds: int
    """Of a command that takes long."""
    responses_at_once: int
    """That run while the deployment is updated."""

    def look_at_account(self) -> str:
        """What the account has and lacks, in lines. Raises :class:`GroundError` if a deployment would fail."""

    def deploy(self, settings: Settings) -> dict[str, str]:
        """Create or update, and the outputs of the service's stack."""

    def url(self, outputs: Mapping[str, str]) -> str:
        """The address that SDKs take."""

    def destroy(self) -> None:
        """All stacks, with all data."""

    def client(self, service: str) -> Any:
        """Of boto3."""


class Aws:
    """``make deploy`` and ``make destroy`` with settings of their own; nothing of another deployment is touched."""

    features = AWS_ONLY
    file_bytes = 500_000_000
    command_seconds = 30
    responses_at_once = 6

    def __init__(self, name: str, folder: Path, egress_host: str) -> None:
        self.name, self._folder = name, folder
        self._session = session_of(os.environ)
        if self._session.region_name is None or self._session.get_credentials() is None:
            raise GroundError("The shell has no credentials or no region of AWS: set AWS_PROFILE and AWS_REGION.")
        self.region = self._session.region_name
        self.settings: Settings = {
            "name": name,
            "retain": False,
            "allowed_egress_domains": [egress_host],
            "sandbox_logs": True,
            "websocket": True,
        }
        self.another_image: Settings = {"image_edition": "afternoon"}

    def look_at_account(self) -> str:
        self._run(["make", "setup-deploy"])
        return self._run([str(ROOT / ".venv" / "bin" / "moorage"), "doctor", "--aws"])

    def deploy(self, settings: Settings) -> dict[str, str]:
        outputs = self._folder / "deployed.json"
        self._run(["make", "deploy", f"DEPLOYED={outputs}", f"OPTIONS=--require-approval never {_context(settings)}"])
        found: dict[str, str] = json.loads(outputs.read_text())[self.name]
        return found

    def url(self, outputs: Mapping[str, str]) -> str:
        return outputs["BaseUrl"]

    def destroy(self) -> None:
        """CloudFormation deletes no bucket with objects (its user guide, "Delete stack fails"), so it is emptied when nobody writes."""
        options = f"OPTIONS=--force {_context(self.settings)}"
        self._run(["make", "destroy", options])
        empty_bucket(self.client("cloudformation"), self.client("s3"), f"{self.name}-state")
        self._run(["make", "destroy", "STACKS=--all", options])

    def client(self, service: str) -> Any:
        return self._session.client(service)  # type: ignore[call-overload]

    def _run(self, command: list[str]) -> str:
        """Its output goes into ``log.txt``, and is returned."""
        with (self._folder / "log.txt").open("a") as log:
            log.write(f"$ {shlex.join(command)}\n")
            log.flush()
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            log.write(done.stdout)
        if done.returncode != 0:
            last = " / ".join(done.stdout.strip().splitlines()[-5:])
            raise GroundError(f"'{shlex.join(command[:2])}' ended with {done.returncode}: {last}")
        return done.stdout


def session_of(environ: Mapping[str, str]) -> boto3.Session:
    """In the region that the CDK takes too."""
    return boto3.Session(region_name=aws_region(environ))


def empty_bucket(cloudformation: Any, s3: Any, stack: str) -> None:
    """Delete all objects in the bucket of a stack, if the stack is there."""
    try:
        found = cloudformation.describe_stack_resources(StackName=stack)["StackResources"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationError":  # CloudFormation's word for a stack that it does not know
            raise
        return
    for bucket in [each["PhysicalResourceId"] for each in found if each["ResourceType"] == "AWS::S3::Bucket"]:
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            objects = [{"Key": each["Key"]} for each in page.get("Contents", [])]
            if objects:
                s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})


def _context(settings: Settings) -> str:
    """As ``cdk`` takes it, quoted for the shell of make's recipe."""
    words = [f"moorage:{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in settings.items()]
    return " ".join(f"-c {shlex.quote(word)}" for word in words)
