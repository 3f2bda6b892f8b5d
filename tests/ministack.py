"""One AWS emulator as a child process on 127.0.0.1, for tests that need a real table and a real bucket.

    server = Ministack.start()
    clients = aws_clients(server.endpoint)
    table_name, bucket_name = new_table_and_bucket(clients)

Starting takes about half a second; a session fixture (``tests/conftest.py`` or a suite's own) starts it once and gives every
test its own table and bucket, so that tests never see each other's records.
"""

import contextlib
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from moorage.store.schema import create_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_stepfunctions import SFNClient

REGION = "us-east-1"
ACCESS_KEY_ID = "test"
SECRET_ACCESS_KEY = "test"
_START_SECONDS_MAX = 30
_STOP_SECONDS_MAX = 15
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Ministack:
    endpoint: str
    process: "subprocess.Popen[bytes]"
    log_file: Path

    @classmethod
    def start(cls, state_dir: Path | None = None) -> "Ministack":
        """Start it on a free port and return when it answers; with ``state_dir`` it keeps its state there over a restart."""
        port = _free_port()
        home = state_dir or Path(tempfile.mkdtemp(prefix="ministack-"))
        home.mkdir(parents=True, exist_ok=True)
        log_file = home / "ministack.log"
        environment = dict(os.environ) | {
            "GATEWAY_PORT": str(port),
            "BIND_HOST": "127.0.0.1",
            "STATE_DIR": str(home / "state"),
            "S3_DATA_DIR": str(home / "s3"),
            "PERSIST_STATE": "0" if state_dir is None else "1",
            "S3_PERSIST": "0" if state_dir is None else "1",
            "LOG_LEVEL": "WARNING",
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
        }
        with log_file.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "ministack"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        server = cls(f"http://127.0.0.1:{port}", process, log_file)
        try:
            server._wait_until_healthy()
        except BaseException:
            server.stop()
            raise
        return server

    def stop(self) -> None:
        """End it in good order (it writes its state, if it keeps any), and its Lambda workers with it."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(_STOP_SECONDS_MAX)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.endpoint}/_ministack/health", timeout=2):
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.05)
        raise RuntimeError(f"ministack did not start:\n{self.log_file.read_text(errors='replace')[-4000:]}")


@dataclass(frozen=True, slots=True)
class AwsClients:
    dynamodb: "DynamoDBClient"
    s3: "S3Client"
    stepfunctions: "SFNClient"
    lambda_: "LambdaClient"


def aws_clients(endpoint: str) -> AwsClients:
    """boto3 clients for the emulator, with its credentials and without the machine's configuration."""
    session = boto3.Session(aws_access_key_id=ACCESS_KEY_ID, aws_secret_access_key=SECRET_ACCESS_KEY, region_name=REGION)
    config = Config(max_pool_connections=50)
    # boto3 still presigns with version 2 for some endpoints, and version 2 knows no response headers.
    s3_config = config.merge(Config(signature_version="s3v4", s3={"addressing_style": "path"}))
    return AwsClients(
        dynamodb=session.client("dynamodb", endpoint_url=endpoint, config=config),
        s3=session.client("s3", endpoint_url=endpoint, config=s3_config),
        stepfunctions=session.client("stepfunctions", endpoint_url=endpoint, config=config),
        lambda_=session.client("lambda", endpoint_url=endpoint, config=config),
    )


def new_table_and_bucket(clients: AwsClients) -> tuple[str, str]:
    """A fresh table and a fresh bucket; returns their names."""
    name = f"moorage-{secrets.token_hex(6)}"
    create_table(clients.dynamodb, name)
    clients.s3.create_bucket(Bucket=name)
    return name, name


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _die_with_parent() -> None:
    """A test run that is killed leaves no emulator behind (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
