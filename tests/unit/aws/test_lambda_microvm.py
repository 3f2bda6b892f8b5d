"""The MicroVM provisioner against botocore's stubber, whose model is the contract: it was not yet run on AWS."""

import asyncio
import contextlib
import hashlib
import json
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from botocore.stub import Stubber
from moorage import limits
from moorage.errors import SandboxCapacity, SandboxError, SandboxGone, SandboxStarting
from moorage.runtime import build_runtime
from moorage.sandbox.exec_client import ExecClient, SandboxHealth
from moorage.sandbox.fargate import FargateProvisioner
from moorage.sandbox.lambda_microvm import DISK_BYTES, OPEN_FILES, LambdaMicrovmProvisioner, MicrovmSettings
from moorage.sandbox.lost_microvms import LostMicrovms
from moorage.sandbox.microvm_endpoint import MicrovmAuth
from moorage.sandbox.microvm_versions import MicrovmVersions
from moorage.sandbox.provisioner import EgressSpec, Handle, SandboxSpec, SandboxStatus
from moorage.settings import Settings, SettingsError

from tests.unit.resources.web import certificate
from tests.unit.sandbox.support import ROOT

TOKEN = "t" * 64
TOKEN_SHA256 = hashlib.sha256(TOKEN.encode()).hexdigest()
VM = "microvm-0123456789abcdef"
IMAGE = "arn:aws:lambda:us-east-1:000000000000:microvm-image:moorage"
CONNECTOR = "arn:aws:lambda:us-east-1:000000000000:network-connector:closed"
SPEC = SandboxSpec("acme", "cntr_1", TOKEN, 1, {"KEY": "placeholder"})
GET = {"microvmIdentifier": VM}
RANDOM = "".join(hashlib.sha256(str(number).encode()).hexdigest() for number in range(200))
"""That no packing makes shorter than half."""
STARTED_AT = datetime(2026, 1, 2, tzinfo=UTC)
HANDLE = Handle("https://abc.microvm.example.com", TOKEN, VM, int(STARTED_AT.timestamp()) + 28_800)


def run(number: int = 0) -> dict[str, Any]:
    return {
        "clientToken": hashlib.sha256(f"cntr_1/{TOKEN_SHA256}/{number}".encode()).hexdigest(),
        "imageIdentifier": IMAGE,
        "egressNetworkConnectors": [CONNECTOR],
        "idlePolicy": {"maxIdleDurationSeconds": 120, "suspendedDurationSeconds": 1200, "autoResumeEnabled": True},
        "maximumDurationInSeconds": 28_800,
        "logging": {"disabled": {}},
        "runHookPayload": json.dumps(
            {
                "token_sha256": TOKEN_SHA256,
                "listen": "tcp:0.0.0.0:8080",
                "uid": 1000,
                "env": {"KEY": "placeholder"},
                "limits": {
                    "processes": limits.CONTAINER_PROCESSES_MAX,
                    "open_files": 1_024,
                    "disk_bytes": 4 * 1024**3,
                    "spool_bytes": limits.OUTPUT_SPOOL_BYTES_MAX,
                },
            },
            separators=(",", ":"),
        ),
    }


def vm(state: str, **more: Any) -> dict[str, Any]:
    return {
        "microvmId": VM,
        "state": state,
        "endpoint": "abc.microvm.example.com",
        "imageArn": IMAGE,
        "imageVersion": "1",
        "maximumDurationInSeconds": 28_800,
        "startedAt": STARTED_AT,
        "egressNetworkConnectors": [CONNECTOR],
        **more,
    }


class Microvms:
    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.client: Any = boto3.client(
            "lambda-microvms", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
        )
        self.stub = Stubber(self.client)
        self.provisioner = LambdaMicrovmProvisioner(self.client, self.no_core, MicrovmSettings({1: IMAGE}, CONNECTOR), executor)

    def no_core(self) -> Any:
        raise AssertionError("No start was refused for its network.")

    def runs(self, state: str, number: int = 0, **more: Any) -> None:
        self.stub.add_response("run_microvm", vm("PENDING"), run(number))
        self.stub.add_response("get_microvm", vm(state, **more), GET)


@pytest.fixture(scope="module")
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
async def microvms(executor: ThreadPoolExecutor) -> AsyncIterator[Microvms]:
    microvms = Microvms(executor)
    with microvms.stub:
        yield microvms
        microvms.stub.assert_no_pending_responses()
    microvms.client.close()


async def test_a_vm_that_is_pending_counts_as_starting(microvms: Microvms) -> None:
    microvms.runs("PENDING")
    with pytest.raises(SandboxStarting):
        await microvms.provisioner.start(SPEC)


async def test_a_running_vm_is_reached_by_its_own_endpoint(microvms: Microvms) -> None:
    microvms.runs("RUNNING")
    assert await microvms.provisioner.start(SPEC) == HANDLE


@pytest.mark.parametrize("state", ["SUSPENDING", "SUSPENDED"])
async def test_a_sleeping_vm_is_reached_without_a_call_since_its_first_request_wakes_it(microvms: Microvms, state: str) -> None:
    """Resuming by a call is five a second for the account, and AWS does it by itself."""
    microvms.runs(state)
    assert await microvms.provisioner.start(SPEC) == HANDLE


@pytest.mark.parametrize(("idle_minutes", "seconds"), [(1, 60), (60, 3_600), (24 * 60, 28_800)])
async def test_a_vm_sleeps_as_long_as_its_container_is_kept_and_no_longer_than_a_vm_lives(
    microvms: Microvms, idle_minutes: int, seconds: int
) -> None:
    request = run()
    request["idlePolicy"]["suspendedDurationSeconds"] = seconds
    microvms.stub.add_response("run_microvm", vm("PENDING"), request)
    microvms.stub.add_response("get_microvm", vm("RUNNING"), GET)
    assert (await microvms.provisioner.start(replace(SPEC, idle_minutes=idle_minutes))).sandbox_id == VM


async def test_a_vm_is_run_from_the_image_version_that_the_function_was_published_with(executor: ThreadPoolExecutor) -> None:
    pinned = Microvms(executor)
    settings = MicrovmSettings.from_settings({"image_1g": IMAGE, "version_1g": "3.0", "egress_connector": CONNECTOR})
    pinned.provisioner = LambdaMicrovmProvisioner(pinned.client, pinned.no_core, settings, executor)
    with pinned.stub:
        pinned.stub.add_response("run_microvm", vm("PENDING"), run() | {"imageVersion": "3.0"})
        pinned.stub.add_response("get_microvm", vm("RUNNING"), GET)
        assert (await pinned.provisioner.start(SPEC)).sandbox_id == VM
        pinned.stub.assert_no_pending_responses()


async def test_a_vm_that_ended_makes_way_for_another(microvms: Microvms) -> None:
    microvms.runs("TERMINATED")
    microvms.runs("RUNNING", number=1)
    assert (await microvms.provisioner.start(SPEC)).sandbox_id == VM


async def test_a_container_whose_vms_keep_ending_is_broken(microvms: Microvms) -> None:
    for number in range(3):
        microvms.runs("TERMINATED", number=number, stateReason="HookFailed")
    with pytest.raises(SandboxError, match="HookFailed"):
        await microvms.provisioner.start(SPEC)


@pytest.mark.parametrize("code", ["InsufficientCapacityException", "ServiceQuotaExceededException"])
async def test_want_of_room_is_a_matter_of_capacity(microvms: Microvms, code: str) -> None:
    microvms.stub.add_client_error("run_microvm", code, "no", 429)
    with pytest.raises(SandboxCapacity):
        await microvms.provisioner.start(SPEC)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(SandboxSpec("acme", "cntr_1", TOKEN, 4), "no sandboxes of 4 GiB", id="a size without an image"),
        pytest.param(SandboxSpec("acme", "cntr_1", TOKEN, 1, {"A": RANDOM}), "4,096 bytes", id="too many variables"),
        pytest.param(
            SandboxSpec("acme", "cntr_1", TOKEN, 1, {}, EgressSpec(proxy="http://p:1", username="u", password="p")),
            "no egress proxy",
            id="a network",
        ),
    ],
)
async def test_a_start_is_refused_without_a_call_for(microvms: Microvms, spec: SandboxSpec, message: str) -> None:
    with pytest.raises(SandboxError, match=message):
        await microvms.provisioner.start(spec)


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("PENDING", SandboxStatus.STARTING),
        ("RUNNING", SandboxStatus.RUNNING),
        ("SUSPENDING", SandboxStatus.ASLEEP),
        ("SUSPENDED", SandboxStatus.ASLEEP),
        ("TERMINATING", SandboxStatus.STOPPED),
        ("TERMINATED", SandboxStatus.STOPPED),
    ],
)
async def test_a_vm_is_described_as(microvms: Microvms, state: str, status: SandboxStatus) -> None:
    microvms.stub.add_response("get_microvm", vm(state), GET)
    assert await microvms.provisioner.describe(VM) == status


async def test_a_vm_that_is_not_there_is_stopped_already(microvms: Microvms) -> None:
    microvms.stub.add_client_error("get_microvm", "ResourceNotFoundException", "no", 404)
    microvms.stub.add_client_error("terminate_microvm", "ResourceNotFoundException", "no", 404)
    assert await microvms.provisioner.describe(VM) == SandboxStatus.STOPPED
    await microvms.provisioner.stop(VM)


async def test_requests_bear_a_token_that_is_renewed_before_it_ends(microvms: Microvms) -> None:
    for token in ("first", "second"):
        microvms.stub.add_response(
            "create_microvm_auth_token",
            {"authToken": {"X-aws-proxy-auth": token}},
            {"microvmIdentifier": VM, "expirationInMinutes": 60, "allowedPorts": [{"port": 8080}]},
        )
    seen: list[tuple[str, str, str]] = []
    now = 0.0

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(tuple(request.headers[name] for name in ("x-aws-proxy-auth", "x-aws-proxy-port", "authorization")))  # type: ignore[arg-type]
        return httpx.Response(200)

    auth = MicrovmAuth(microvms.provisioner, VM, lambda: now, asyncio.sleep)
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), auth=auth, headers=headers) as client:
        for now in (0.0, 2_999.0, 3_001.0):  # noqa: B007 - the clock reads it
            await client.get("https://abc.microvm.example.com/v1/health")
    bearer = f"Bearer {TOKEN}"
    assert seen == [("first", "8080", bearer), ("first", "8080", bearer), ("second", "8080", bearer)]


def test_settings_refuse_a_vm_on_the_open_internet() -> None:
    with pytest.raises(SettingsError, match="EGRESS_CONNECTOR"):
        MicrovmSettings.from_settings({"image_1g": IMAGE})


def test_settings_refuse_an_image_larger_than_any_vm() -> None:
    with pytest.raises(SettingsError, match="32 GB"):
        MicrovmSettings.from_settings({"image_64g": IMAGE, "egress_connector": CONNECTOR})


@pytest.mark.parametrize(("memory_gib", "disk_gb"), [(1, 8), (4, 8), (16, 16)])
def test_the_disk_quota_acts_before_the_disk_is_full(memory_gib: int, disk_gb: int) -> None:
    image_bytes, reserve_bytes = 3 * 1024**3, 1024**3
    assert DISK_BYTES[memory_gib] + image_bytes + reserve_bytes <= disk_gb * 1024**3


def test_a_vm_is_asked_for_no_more_open_files_than_it_has() -> None:
    """A higher limit would be lowered in silence."""
    hard_limit = 1_024
    assert run()["runHookPayload"].count(f'"open_files":{OPEN_FILES},') == 1
    assert hard_limit >= OPEN_FILES
    assert f"{OPEN_FILES:,} files open at once" in (ROOT / "docs" / "aws.md").read_text()


def test_settings_name_an_image_for_each_size() -> None:
    values = {"image_1g": IMAGE, "egress_connector": CONNECTOR}
    assert MicrovmSettings.from_settings(values) == MicrovmSettings({1: IMAGE}, CONNECTOR)


def test_the_environment_names_images_and_connector() -> None:
    environment = {
        "MOORAGE_TABLE": "t",
        "MOORAGE_BUCKET": "b",
        "MOORAGE_CONTENT_KEY": "00" * 32,
        "MOORAGE_PROVISIONER": "lambda_microvm",
        "MOORAGE_MICROVM_IMAGE_1G": IMAGE,
        "MOORAGE_MICROVM_EGRESS_CONNECTOR": CONNECTOR,
    }
    assert Settings.from_environment(environment).microvm == {"image_1g": IMAGE, "egress_connector": CONNECTOR}


async def test_clients_of_one_vm_share_its_token(microvms: Microvms) -> None:
    handle = Handle("https://abc.microvm.example.com", TOKEN, VM)
    async with microvms.provisioner.connect(handle) as one, microvms.provisioner.connect(handle) as two:
        assert one.auth is two.auth
        assert isinstance(one.auth, MicrovmAuth)
    async with microvms.provisioner.connect(replace(handle, sandbox_id="another")) as other:
        assert other.auth is not one.auth


@asynccontextmanager
async def endpoint(directory: Path) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A MicroVM's endpoint: HTTPS with a certificate of a test CA, and the exec server's health behind it. Yields its URL."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        body = b'{"protocol":1,"boot_id":"b","running":0}'
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n")
        writer.write(b"content-length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            await writer.wait_closed()

    tls, trusting = certificate(directory, "localhost")
    (directory / "ca.pem").write_text("".join(map(ssl.DER_cert_to_PEM_cert, trusting.get_ca_certs(binary_form=True))))
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield f"https://localhost:{server.sockets[0].getsockname()[1]}", seen


ASK_HEALTH = """
import asyncio, sys
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.provisioner import Handle

async def main():
    async with ExecClient(Handle(sys.argv[1], sys.argv[2], "microvm")) as client:
        print(await client.health())

asyncio.run(main())
"""


async def test_a_vms_endpoint_is_trusted_with_a_known_certificate_authority(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as (url, seen):
        # A process of its own: the authorities are read once, from where OpenSSL's variable says.
        environment = {"SSL_CERT_FILE": str(tmp_path / "ca.pem"), "PYTHONPATH": str(ROOT / "layers" / "core" / "python")}
        asking = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ASK_HEALTH, url, TOKEN, env=environment, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await asking.communicate()
    assert output.decode().strip() == str(SandboxHealth(1, "b", 0))
    assert [f"authorization: bearer {TOKEN}".encode() in request.lower() for request in seen] == [True]


async def test_an_endpoint_with_an_unknown_certificate_gets_no_token(tmp_path: Path) -> None:
    async with endpoint(tmp_path) as (url, seen), ExecClient(Handle(url, TOKEN, VM)) as client:
        with pytest.raises(SandboxGone):
            await client.health()
    assert seen == []


SETTINGS = Settings("t", "b", models_file=str(ROOT / "models.toml"), content_key="00" * 32, provisioner="lambda_microvm")


async def test_a_process_is_put_together_with_this_provisioner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    runtime = build_runtime(replace(SETTINGS, microvm={"image_1g": IMAGE, "egress_connector": CONNECTOR}))
    (fleet,) = runtime.computers.fleets
    assert (runtime.settings.provisioner, type(fleet.owner)) == ("lambda_microvm", LambdaMicrovmProvisioner)
    assert isinstance(fleet.orphans, LostMicrovms)
    assert isinstance(fleet.image_versions, MicrovmVersions)
    await runtime.aclose()


async def test_a_process_may_be_put_together_with_fargate_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fargate = dict.fromkeys(("cluster", "subnets", "security_group", "task_definition_16g"), "x")
    microvm = {"image_1g": IMAGE, "egress_connector": CONNECTOR, "unpriced": "true"}
    settings = replace(SETTINGS, microvm=microvm, fargate=fargate, warm_pool={"16g": 1}, sandbox_price=(0.03, 0.004))
    runtime = build_runtime(replace(settings, provisioner="by_tier"))
    assert [type(fleet.owner) for fleet in runtime.computers.fleets] == [FargateProvisioner, LambdaMicrovmProvisioner]
    outside, price = runtime.computers.containers.sandboxes, runtime.stores.sandbox_usage.price
    inside = build_runtime(replace(settings, provisioner="elsewhere")).computers.containers.sandboxes
    assert [[place.reaches_new(tier) for tier in ("1g", "16g")] for place in (outside, inside)] == [[True, False], [False, True]]
    assert price is not None
    assert [price.nanodollars(tier) > 0 for tier in ("1g", "16g")] == [False, True]
    assert runtime.computers.warm_pool is not None
    await runtime.aclose()


def test_a_process_without_images_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with pytest.raises(SettingsError, match="MOORAGE_MICROVM_IMAGE_1G"):
        build_runtime(SETTINGS)


@pytest.mark.parametrize(("hours", "seconds"), [(0, 4 * 3600), (5, 3 * 3600 - 120), (7.9, 240), (8, 0.001)])
async def test_a_command_ends_two_minutes_before_aws_ends_its_vm(hours: float, seconds: float) -> None:
    """So that what it has printed and written is kept."""
    asked: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content)["timeout_ms"] / 1000)
        return httpx.Response(200, content=b"")

    began = STARTED_AT.timestamp()
    transport = httpx.MockTransport(answer)
    async with ExecClient(HANDLE, transport=transport, clock=lambda: began + hours * 3600) as client:
        for run in (client.exec, client.python, client.javascript):
            assert [event async for event in run("id", "x", timeout_ms=4 * 3600 * 1000, max_output_length=1)] == []
    assert asked == [pytest.approx(seconds)] * 3
