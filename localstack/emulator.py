"""ministack, the AWS emulator of the embedded mode, as a child process on 127.0.0.1.

It keeps tables, objects and definitions under the state directory when it is stopped gracefully, and it is: the kernel sends it
SIGTERM when its parent dies, however that happens. Only a SIGKILL of the emulator itself loses what came since its last start.
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

REGION = "us-east-1"
_START_SECONDS_MAX = 30
_STOP_SECONDS_MAX = 20
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Emulator:
    endpoint: str
    process: "subprocess.Popen[bytes]"

    @classmethod
    def start(cls, state_dir: Path, environment: dict[str, str]) -> "Emulator":
        """Start it on a free port and return when it answers. ``environment`` is what its function workers inherit."""
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
            preexec_fn=die_with_parent,
        )
        log.close()
        emulator = cls(f"http://127.0.0.1:{port}", process)
        emulator._await_answer(state_dir)
        return emulator

    def stop(self) -> None:
        """End it gracefully, so that its state is kept."""
        stop_process(self.process, _STOP_SECONDS_MAX)

    def _await_answer(self, state_dir: Path) -> None:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(urllib.error.URLError, OSError):
                urllib.request.urlopen(f"{self.endpoint}/_ministack/health", timeout=2).close()
                return
            time.sleep(0.02)
        self.stop()
        raise RuntimeError(f"The AWS emulator did not start; its last words are in {state_dir / 'ministack.log'}.")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def die_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent ends; to be called in a child before exec."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def stop_process(process: "subprocess.Popen[bytes]", seconds_max: int) -> None:
    """SIGTERM, patience, then SIGKILL."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _directory(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def inherited_environment() -> dict[str, str]:
    """This process's environment without AWS credentials: the emulator must never be handed real ones."""
    return {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
