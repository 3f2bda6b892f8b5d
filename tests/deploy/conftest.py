"""One deployed stack per session, on an emulator that holds every call against our policies: what passes there passes without, too.

The template is the default one with the WebSocket API beside it. Two settings differ from a real deployment: packages are bundled for
this machine's Python, and the sandbox image is a name, whose tasks are processes (``emulator.py``). Requests go through the gateway
twin (``tests/twin``), which streams as API Gateway does; the emulator's own gateway does not.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from moorage.store.api_keys import ApiKeys
from moorage.store.dynamodb import DynamoTable

from localstack.deploy import Deployer
from tests.infra.synthesis import context_of, program
from tests.twin.calls import RECORDING
from tests.twin.serve import serving

ROOT = Path(__file__).resolve().parents[2]
REGION = "us-east-1"
SETTINGS: dict[str, Any] = {
    "bundle_for": "host",
    "sandbox_image": "local/sandbox",
    "memory_tiers": ["1g", "4g"],
    "retain": False,
    "websocket": True,
}
BUFFERED = SETTINGS | {"streaming": False}
"""For the emulator's own gateway, through which ``make cost`` counts."""

_START_SECONDS_MAX = 30


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-calls", action="store_true", help="write tests/twin/calls.json: what the functions ask of AWS")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say why nothing runs where something is missing."""
    missing = [program for program in ("node", "bwrap") if shutil.which(program) is None]
    for item in items:
        if missing and "tests/deploy" in str(item.path):
            item.add_marker(pytest.mark.skip(reason=f"the deployment ring needs {' and '.join(missing)}"))


@dataclass(frozen=True)
class Deployment:
    """A deployed stack and how to call it."""

    deployer: Deployer
    outputs: dict[str, str]
    api_key: str
    base_url: str
    notes: Path = Path(os.devnull)
    """What its functions have asked of AWS (``tests/twin/recording``)."""

    def client(self, service: str) -> Any:
        return self.deployer.client(service)


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``cdk synth``, with bundling."""
    return synthesise(tmp_path_factory.mktemp("assembly"), SETTINGS)


def synthesise(output: Path, settings: dict[str, Any]) -> Path:
    """With bundling."""
    done = program(context_of(settings), output)
    assert done.returncode == 0, done.stderr[-4000:]
    return output


@pytest.fixture(scope="session")
def deployment(assembly: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The stack on an emulator of its own, which checks every call against our policies."""
    notes = tmp_path_factory.mktemp("notes") / "calls.jsonl"
    noting = {"TWIN_CALLS": str(notes), "PYTHONPATH": str(RECORDING)}
    with running_emulator(tmp_path_factory.mktemp("emulator"), noting, enforce_iam=True) as endpoint:
        deployer = Deployer(boto3.Session("test", "test", region_name=REGION), endpoint)
        outputs = deployer.deploy(assembly)["moorage"]
        with serving(deployer, assembly, noting, has_roles=True) as origin:
            api_key = make_key(deployer, outputs["TableName"])
            yield Deployment(deployer, outputs, api_key, f"{origin}/api/v1", notes)
        deployer.close()


def emulated_url(deployer: Deployer, outputs: dict[str, str]) -> str:
    """The REST API by the emulator's own address; AWS's host name does not lead here."""
    return f"{deployer.endpoint}/_aws/execute-api/{outputs['ApiId']}/api/v1"


def make_key(deployer: Deployer, table_name: str) -> str:
    with ThreadPoolExecutor(1) as executor:
        table = DynamoTable(deployer.client("dynamodb"), table_name, executor)
        _, secret = asyncio.run(ApiKeys(table, clock=time.time).create("acme", name="deploy"))
        return secret


@contextlib.contextmanager
def running_emulator(
    home: Path, variables: Mapping[str, str] | None = None, *, enforce_iam: bool = False, seen_by_functions: str | None = None
) -> Iterator[str]:
    """ministack with the ECS stand-in, on a free port of 127.0.0.1; its functions may be given another address of it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_", "MOORAGE_"))}
    environment |= {
        "GATEWAY_PORT": str(port),
        "BIND_HOST": "127.0.0.1",
        "MINISTACK_HOST": "127.0.0.1",
        "AUTH": str(enforce_iam).lower(),
        "LOG_LEVEL": "WARNING",
        "TMPDIR": str(home),
        "MINISTACK_INSTANCE": secrets.token_hex(4),
        **(variables or {}),
    }
    if seen_by_functions is not None:
        environment["AWS_ENDPOINT_URL"] = seen_by_functions
    log = home / "emulator.log"
    with log.open("wb") as words:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.deploy.emulator"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            start_new_session=True,
        )
    endpoint = f"http://127.0.0.1:{port}"
    try:
        _await_answer(endpoint, process, log)
        yield endpoint
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _await_answer(endpoint: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{endpoint}/_ministack/health", timeout=2):
            return
        time.sleep(0.05)
    raise RuntimeError(f"The emulator did not start:\n{log.read_text(errors='replace')[-4000:]}")
