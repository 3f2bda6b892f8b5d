"""The emulator's process, as the stack sees it (``local/aws``)."""

import http.client
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from moorage.local.aws.gate import Credentials
from moorage.local.processes import dying_with, identity, stop_process, uninterrupted, write_private

REGION = "us-east-1"
NOTE = "process"
"""Who it is, for a stack that comes after this one was killed."""
_START_SECONDS_MAX = 30
STOP_SECONDS_MAX = 10


@dataclass(slots=True)
class Emulator:
    """A child process on an address of the loopback that this process keeps: where the child dies and is started again, requests
    wait in the address's queue instead of being refused, and nobody else can take the address."""

    state_dir: Path
    environment: dict[str, str] = field(repr=False)
    lock: IO[str]
    """Held open by it until it ends, however that happens."""
    credentials: Credentials = field(default_factory=Credentials.new, repr=False)
    listener: socket.socket = field(init=False)
    process: "subprocess.Popen[bytes] | None" = None

    def __post_init__(self) -> None:
        self.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.state_dir.chmod(0o700)  # Whoever made the folder: the table lies in it in clear.
        self.listener = socket.socket(proto=socket.IPPROTO_TCP)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(1024)

    @property
    def endpoint(self) -> str:
        host, port = self.listener.getsockname()
        return f"http://{host}:{port}"

    @property
    def log_file(self) -> Path:
        return self.state_dir / "emulator.log"

    @property
    def aws(self) -> dict[str, str]:
        """How boto3 finds it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.credentials.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.credentials.secret_access_key,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> "subprocess.Popen[bytes]":
        """Start it and return when it answers."""
        temporary = emptied(self.state_dir / "tmp")
        environment = self.environment | self.aws | {"TMPDIR": str(temporary)}
        with self.log_file.open("ab") as log, uninterrupted():
            self.process = subprocess.Popen(
                [sys.executable, "-m", "moorage.local.aws.server", str(self.state_dir), str(self.listener.fileno())],
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the parent, which stops its children in order
                pass_fds=(self.lock.fileno(), self.listener.fileno()),
                preexec_fn=dying_with(os.getpid()),
            )
        write_private(self.state_dir / NOTE, identity(self.process.pid))
        self._await_answer(self.process)
        return self.process

    def stop(self) -> int:
        """End it; the exit code says whether it could store what it was last asked to."""
        self.listener.close()
        if self.process is None:
            return 0
        stop_process(self.process, STOP_SECONDS_MAX)
        return self.process.returncode

    def _await_answer(self, process: "subprocess.Popen[bytes]") -> None:
        """It has begun to serve when it answers at all: without a signature, with a refusal."""
        host, port = self.listener.getsockname()
        deadline = time.monotonic() + _START_SECONDS_MAX
        while time.monotonic() < deadline and process.poll() is None:
            connection = http.client.HTTPConnection(host, port, timeout=0.25)
            try:
                connection.request("GET", "/")
                connection.getresponse().read()
            except OSError:
                continue  # It waited in the queue; the child may have died meanwhile.
            finally:
                connection.close()
            return
        raise SystemExit(f"moorage: The AWS emulator did not start; its last words are in {self.log_file}.")


def emptied(folder: Path) -> Path:
    """A folder without what an earlier start left in it."""
    subprocess.run(["/bin/rm", "-rf", "--", str(folder)], check=True)
    folder.mkdir(mode=0o700, parents=True)
    return folder
