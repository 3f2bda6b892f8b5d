"""The state stack and the state machine, as they are synthesised, deployed onto LocalStack without Docker, and turns that run on them;
``make test-localstack`` runs this.

LocalStack gets its DynamoDB from Maven (``host.py``). Its Lambda needs Docker, so the machine's tasks come to the steps' own code in
this process, and the API's is here too. Everything is in a network namespace of its own: nothing listens outside of it, and nothing
that LocalStack would tell or fetch gets out.
"""

import asyncio
import contextlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import boto3
import httpx
from moorage.settings import Settings

from localstack.deploy import Deployer, StackArtifact, stacks_of
from tests.deploy.conftest import make_key
from tests.infra.synthesis import REGION, context_of, program

ROOT: Final = Path(__file__).resolve().parents[2]
JARS: Final = ROOT / ".build/judges/dynamodb"
PYTHON: Final = ROOT / ".venv-localstack/bin/python"
ENDPOINT: Final = "http://127.0.0.1:4566"
MACHINE: Final = ("AWS::StepFunctions::StateMachine", "AWS::Logs::LogGroup", "AWS::IAM::Role")
START_SECONDS_MAX: Final = 300
TURN_SECONDS_MAX: Final = 300
STEPS: Final = {"ModelStep": "model_step", "ContinueStep": "continue_step", "FailResponse": "fail_response"}


def reason_without() -> str | None:
    if shutil.which("java") is None or not (JARS / ".done").exists():
        return "LocalStack's tables need Java 17, and DynamoDB Local from Maven"
    if shutil.which("node") is None:
        return "the templates are made by the CDK, which needs Node"
    walls = subprocess.run([*WALLS, "true"], capture_output=True, check=False)
    return None if walls.returncode == 0 else "there are no network namespaces here"


WALLS: Final = ("unshare", "--user", "--map-root-user", "--net")


def main() -> int:
    """Outside of the walls: the templates."""
    if (reason := reason_without()) is not None:
        print(f"Skipped: {reason}.")
        return 0
    with tempfile.TemporaryDirectory(prefix="localstack-") as folder:
        settings = {"provisioner": "none", "authorizer": False}
        done = program(context_of(settings, **{"aws:cdk:bundling-stacks": []}), Path(folder) / "cdk.out")
        assert done.returncode == 0, done.stderr[-2000:]
        inside = 'ip link set lo up && exec "$0" -m tests.localstack_asl.ring "$1"'
        return subprocess.run([*WALLS, "sh", "-c", inside, sys.executable, folder], cwd=ROOT, check=False).returncode


class _Functions(BaseHTTPRequestHandler):
    """Lambda's Invoke, for tasks of the machine: one at a time, as an environment takes them."""

    protocol_version = "HTTP/1.1"
    lock = threading.Lock()
    is_broken = False
    asked: Final[list[str]] = []

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["content-length"])))
        name = unquote(self.path).split("/")[3].rpartition(":")[2]
        failed = {}
        with self.lock:
            self.asked.append(name)
            if self.is_broken and name == "ModelStep":
                failed, answer = {"x-amz-function-error": "Unhandled"}, {"errorType": "RuntimeError", "errorMessage": "broken"}
            else:
                answer = getattr(importlib.import_module("functions.steps.handler"), STEPS[name])(event, None)
        body = json.dumps(answer).encode()
        self.send_response(200)
        for header, value in {"content-length": str(len(body)), **failed}.items():
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@contextlib.contextmanager
def running(folder: Path, functions: str) -> Iterator[None]:
    """LocalStack, which tells and fetches nothing."""
    variables = {
        "FILESYSTEM_ROOT": str(folder / "files"),
        "GATEWAY_LISTEN": ENDPOINT.removeprefix("http://"),
        "DISABLE_EVENTS": "1",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "FUNCTIONS_URL": functions,
        **{name: os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")},
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [PYTHON, str(Path(__file__).parent / "host.py"), str(JARS)],
            env={"PATH": os.environ["PATH"], "HOME": str(folder), **variables},
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{ENDPOINT}/_localstack/health", timeout=5):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"LocalStack did not start:\n{(folder / 'log').read_text(errors='replace')[-3000:]}")
            time.sleep(0.5)
        yield
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()


def machine_alone(service: StackArtifact) -> StackArtifact:
    """The service stack's state machine with its role and log; its functions are named and not there."""
    found = {
        name: resource
        for name, resource in service.template["Resources"].items()
        if name.startswith("AgentLoop") and resource["Type"] in MACHINE
    }
    for resource in found.values():
        resource.pop("DependsOn", None)
        for name in resource["Properties"].get("DefinitionSubstitutions", ()):
            arn = f"arn:aws:lambda:{REGION}:000000000000:function:{name.removesuffix('Arn')}"
            resource["Properties"]["DefinitionSubstitutions"][name] = arn
    (machine,) = (name for name, resource in found.items() if resource["Type"] == MACHINE[0])
    outputs = {"StateMachineArn": {"Value": {"Ref": machine}}}
    return StackArtifact("machine", {"Resources": found, "Outputs": outputs}, {}, ())


async def turns(api_key: str) -> list[tuple[str, list[str]]]:
    """How two background responses ended, and which steps ran for each; of the second, every model step fails."""
    app = importlib.import_module("functions.responses.app").make_app()
    found = []
    headers = {"authorization": f"Bearer {api_key}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api/v1", headers=headers, timeout=120) as api:
        for _Functions.is_broken in (False, True):
            _Functions.asked.clear()
            asked = {"model": "demo", "input": "hello", "background": True}
            response = (await api.post("/responses", json=asked)).raise_for_status().json()
            async with asyncio.timeout(TURN_SECONDS_MAX):
                while response["status"] in ("queued", "in_progress"):
                    await asyncio.sleep(0.5)
                    response = (await api.get(f"/responses/{response['id']}")).raise_for_status().json()
            found.append((response["status"], list(_Functions.asked)))
    return found


def inside(folder: Path) -> int:
    os.environ |= {"AWS_ENDPOINT_URL": ENDPOINT, "AWS_DEFAULT_REGION": REGION, "AWS_REGION": REGION}
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    functions = ThreadingHTTPServer(("127.0.0.1", 0), _Functions)
    threading.Thread(target=functions.serve_forever, daemon=True).start()
    with running(folder, f"http://127.0.0.1:{functions.server_address[1]}"):
        deployer = Deployer(boto3.Session("test", "test", region_name=REGION), ENDPOINT)
        stacks = [machine_alone(each) if each.name == "moorage" else each for each in stacks_of(folder / "cdk.out")]
        deployer.put_bootstrap_version()
        outputs = {stack.name: deployer.apply(stack) for stack in stacks}
        print("ok    the state stack and the state machine are deployed")
        physical = {
            each["ResourceType"]: each["PhysicalResourceId"]
            for each in deployer.client("cloudformation").describe_stack_resources(StackName="moorage-state")["StackResources"]
        }
        table = physical["AWS::DynamoDB::Table"]
        settings = Settings(
            table,
            physical["AWS::S3::Bucket"],
            content_key_secret=physical["AWS::SecretsManager::Secret"],
            state_machine_arn=outputs["machine"]["StateMachineArn"],
            provisioner="elsewhere",
            log_level="ERROR",
        )
        os.environ |= settings.to_environment()
        ended = asyncio.run(turns(make_key(deployer, table)))
    expected = [("completed", ["ModelStep"]), ("failed", ["ModelStep"] * 5 + ["FailResponse"])]
    for name, one, wanted in zip(("a background turn", "a turn whose model steps fail"), ended, expected, strict=True):
        print(f"{'ok   ' if one == wanted else 'WRONG'} {name}: {one[0]} after {', '.join(one[1])}")
    return int(ended != expected)


if __name__ == "__main__":
    sys.exit(inside(Path(sys.argv[1])) if sys.argv[1:] else main())
