"""The first process of a MicroVM: the hooks as AWS calls them, and the exec server behind the run hook."""

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.provisioner import Handle

from functions.sandbox.microvm import START_SECONDS, TOUCH_SECONDS, TOUCHED
from infra.microvms import HOOKS
from tests.unit.sandbox.support import ROOT, TOKEN, Result, run

RUN = "/aws/lambda-microvms/runtime/v1/run"


@dataclass(frozen=True)
class Microvm:
    hooks: httpx.Client
    process: "subprocess.Popen[str]"
    config: dict[str, Any]

    def run(self, body: Any) -> tuple[int, str]:
        """Call the run hook."""
        answer = self.hooks.post(RUN, content=json.dumps(body))
        return answer.status_code, answer.text

    @property
    def handle(self) -> Handle:
        port = self.config["listen"].rpartition(":")[2]
        return Handle(f"http://127.0.0.1:{port}", TOKEN, "microvm")


@pytest.fixture
def microvm(tmp_path: Path) -> Iterator[Microvm]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {
        "token_sha256": hashlib.sha256(TOKEN.encode()).hexdigest(),
        "listen": f"tcp:127.0.0.1:{port}",
        "workspace": str(tmp_path / "data"),
        "home": str(tmp_path / "home"),
        "spool_dir": str(tmp_path / "spool"),
        "env": {"KEY": "placeholder"},
    }
    command = [sys.executable, "-I", str(ROOT / "functions" / "sandbox" / "microvm.py"), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        with httpx.Client(base_url=f"http://127.0.0.1:{process.stdout.readline().strip()}", timeout=30, trust_env=False) as hooks:
            yield Microvm(hooks, process, config)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_the_image_is_ready_for_its_snapshot_before_it_knows_of_any_container(microvm: Microvm) -> None:
    assert microvm.hooks.post("/aws/lambda-microvms/runtime/v1/ready").status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(microvm.handle.endpoint, trust_env=False)


@pytest.mark.parametrize("is_in_envelope", [True, False])
async def test_the_run_hook_is_answered_when_the_exec_server_serves_its_container(microvm: Microvm, is_in_envelope: bool) -> None:
    body = {"microvmId": "microvm-1", "runHookPayload": json.dumps(microvm.config)} if is_in_envelope else microvm.config
    assert microvm.run(body) == (200, "")
    async with ExecClient(microvm.handle) as client:
        assert await run(client, "echo $KEY; pwd") == Result(f"placeholder\n{microvm.config['workspace']}\n", "", "exit", 0)


async def test_a_repeated_run_hook_changes_nothing_and_another_one_is_refused(microvm: Microvm) -> None:
    body = {"runHookPayload": json.dumps(microvm.config)}
    assert microvm.run(body) == (200, "")
    async with ExecClient(microvm.handle) as client:
        before = await client.health()
        assert microvm.run(body) == (200, "")
        other = {"runHookPayload": json.dumps(microvm.config | {"token_sha256": "0" * 64})}
        assert microvm.run(other) == (409, "The sandbox runs with another configuration.")
        assert await client.health() == before


def test_the_validate_hook_starts_what_containers_start_and_one_is_served_after_it(microvm: Microvm) -> None:
    """AWS fetches before each start what this has read. Another process answers the next hook: validate holds no lock and no port."""
    validate = "/aws/lambda-microvms/runtime/v1/validate"
    assert microvm.hooks.post(validate).status_code == 200
    assert microvm.run(microvm.config) == (200, "")
    assert microvm.hooks.post(validate).status_code == 409


def test_a_connection_that_asks_for_nothing_holds_no_hook_up(microvm: Microvm) -> None:
    """Something of AWS's sends a TLS hello to the plain port (reported)."""
    with socket.create_connection(("127.0.0.1", microvm.hooks.base_url.port or 0)) as silent:
        silent.sendall(b"POST ")
        assert microvm.hooks.post(RUN, content=json.dumps(microvm.config), timeout=8).status_code == 200


def test_the_run_hook_waits_longer_than_a_cold_disk_takes_and_shorter_than_aws() -> None:
    assert 45 < START_SECONDS < HOOKS["run"] <= 60


def test_the_validate_hook_ends_before_its_time_however_slow_each_program_is() -> None:
    """A build whose hook is late fails, and with it the deployment."""
    assert len(TOUCHED) * TOUCH_SECONDS + START_SECONDS < HOOKS["validate"]


WRONG = {
    "no object": "hello",
    "no payload": {"microvmId": "microvm-1"},
    "a payload that is no JSON": {"runHookPayload": "hello"},
    "a socket that nobody outside can reach": {"token_sha256": "0" * 64, "listen": "unix:/tmp/exec.sock"},
    "no token": {"listen": "tcp:0.0.0.0:8080"},
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG.keys())
def test_a_run_hook_is_refused_with(body: Any, microvm: Microvm) -> None:
    assert microvm.run(body)[0] == 400
    assert microvm.run({"runHookPayload": json.dumps(microvm.config)}) == (200, "")


def test_there_is_no_other_hook(microvm: Microvm) -> None:
    assert microvm.hooks.post("/aws/lambda-microvms/runtime/v1/suspend").status_code == 404


def test_a_vm_ends_with_its_exec_server(microvm: Microvm) -> None:
    assert microvm.run(microvm.config) == (200, "")
    # The thread that answered the hook is the parent, as long as it lives.
    tasks = Path(f"/proc/{microvm.process.pid}/task").glob("*/children")
    (child,) = (child for task in tasks for child in task.read_text().split())
    os.kill(int(child), signal.SIGKILL)
    assert microvm.process.wait(60) != 0
