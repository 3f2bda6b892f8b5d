"""The AWS emulator: ministack, as a child process (DynamoDB, S3, Lambda and Step Functions)."""

import contextlib
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from moorage.local.processes import die_with_parent, free_port, stop_process

REGION = "us-east-1"
_START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 20


@dataclass(frozen=True, slots=True)
class Emulator:
    """ministack, as a child process on 127.0.0.1.

    It keeps tables, objects and definitions under the state directory when it is stopped gracefully, and it is: the kernel sends it
    SIGTERM when its parent dies, however that happens. Only a SIGKILL of the emulator itself loses what came since its last start.
    """

    endpoint: str
    process: "subprocess.Popen[bytes]"

    @classmethod
    def start(cls, state_dir: Path, environment: dict[str, str], lock: IO[str]) -> "Emulator":
        """Start it on a free port and return when it answers. ``environment`` is what its function workers inherit; it keeps ``lock``
        open until it ends."""
        state_dir.mkdir(parents=True, exist_ok=True)
        port = free_port()
        log = (state_dir / "ministack.log").open("ab")
        process = subprocess.Popen(
            [sys.executable, "-m", "ministack"],
            env=environment
            | {
                "GATEWAY_PORT": str(port),
                "BIND_HOST": "127.0.0.1",
                "MINISTACK_HOST": "127.0.0.1",
                "PERSIST_STATE": "1",
                "S3_PERSIST": "1",
                "STATE_DIR": str(state_dir / "state"),
                "S3_DATA_DIR": str(state_dir / "s3"),
                "TMPDIR": str(_directory(state_dir / "tmp")),
                "LOG_LEVEL": "WARNING",
                # Listeners for services that are not used here; they would bind every interface.
                "IOT_MTLS_ENABLED": "0",
                "SFTP_ENABLED": "0",
                "SERVICES": "dynamodb,s3,stepfunctions,lambda,iam,sts,logs,kms",
            },
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the parent, which stops its children in order
            pass_fds=(lock.fileno(),),
            preexec_fn=die_with_parent,
        )
        log.close()
        emulator = cls(f"http://127.0.0.1:{port}", process)
        try:
            emulator._await_answer(state_dir)
        except (SystemExit, KeyboardInterrupt):
            emulator.stop()
            raise
        return emulator

    def stop(self) -> None:
        """End it gracefully, so that its state is kept."""
        stop_process(self.process, STOP_SECONDS_MAX)

    def _await_answer(self, state_dir: Path) -> None:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(urllib.error.URLError, OSError):
                urllib.request.urlopen(f"{self.endpoint}/_ministack/health", timeout=2).close()
                return
            time.sleep(0.02)
        raise SystemExit(f"moorage: The AWS emulator did not start; its last words are in {state_dir / 'ministack.log'}.")


def _directory(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def aws_environment(endpoint: str) -> dict[str, str]:
    """How boto3 finds the emulator."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
