"""A VM whose network is not the one that was asked for is ended before anybody uses it."""

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from moorage.errors import SandboxError, SandboxStarting
from moorage.sandbox.lambda_microvm import LambdaMicrovmProvisioner, MicrovmSettings
from moorage.sandbox.provisioner import EgressSpec, SandboxSpec
from moorage.telemetry import open_log

from functions.sandbox.microvm import run_payload
from tests.opened_logs import close_log
from tests.unit.aws.microvm_service import OPEN_INTERNET, FakeMicrovms, Refused

IMAGE = "arn:aws:lambda:us-east-1:000000000000:microvm-image:moorage"
POLICY = "arn:aws:lambda:us-east-1:000000000000:network-connector:policy"
CLOSED = "arn:aws:lambda:us-east-1:000000000000:network-connector:closed"
SPEC = SandboxSpec("acme", "cntr_1", "t" * 64)


@pytest.fixture
def service() -> Iterator[FakeMicrovms]:
    service = FakeMicrovms()
    yield service
    service.close()


@pytest.fixture
def provisioner(service: FakeMicrovms) -> Iterator[LambdaMicrovmProvisioner]:
    with ThreadPoolExecutor(1) as executor:
        yield LambdaMicrovmProvisioner(
            service.client,
            lambda: service.core,
            MicrovmSettings({1: IMAGE}, CLOSED, policy_connector=POLICY, proxy_networks=("10.43.0.0/28",)),
            executor,
        )


async def test_a_vm_with_the_connector_that_was_asked_for_starts(service: FakeMicrovms, provisioner: LambdaMicrovmProvisioner) -> None:
    service.images[IMAGE] = OPEN_INTERNET
    with pytest.raises(SandboxStarting):
        await provisioner.start(SPEC)
    assert [vm["egressNetworkConnectors"] for vm in service.vms.values()] == [[CLOSED]]


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "SUSPENDED"])
async def test_a_vm_that_inherits_the_internet_is_ended(
    service: FakeMicrovms, provisioner: LambdaMicrovmProvisioner, state: str
) -> None:
    service.images[IMAGE], service.ignores_egress = OPEN_INTERNET, True
    service.starts_as = state
    handler = open_log(out := io.StringIO())
    with pytest.raises(SandboxError, match="another network") as refused:
        await provisioner.start(SPEC)
    close_log(handler)
    assert [(line["WrongNetwork"], line["given"]) for line in map(json.loads, out.getvalue().splitlines())] == [([1.0], OPEN_INTERNET)]
    assert (type(refused.value), service.states()) == (SandboxError, ["TERMINATED"])


@pytest.mark.parametrize(
    ("given", "is_well"),
    [
        pytest.param([f"{CLOSED}:3"], True, id="a version of it"),
        pytest.param([f"{CLOSED}-2"], False, id="one of a longer name"),
        pytest.param([CLOSED, OPEN_INTERNET], False, id="it and another"),
        pytest.param([], False, id="none"),
        pytest.param(None, False, id="nothing is said of it"),
    ],
)
async def test_of_the_answers_connectors(
    service: FakeMicrovms, provisioner: LambdaMicrovmProvisioner, given: list[str] | None, is_well: bool
) -> None:
    service.images[IMAGE] = CLOSED
    with pytest.raises(SandboxStarting):
        await provisioner.start(SPEC)
    (vm,) = service.vms.values()
    del vm["egressNetworkConnectors"]
    if given is not None:
        vm["egressNetworkConnectors"] = given
    with pytest.raises(SandboxStarting if is_well else SandboxError):
        await provisioner.start(SPEC)
    assert service.states() == ["PENDING" if is_well else "TERMINATED"]


WAY_OUT = EgressSpec(
    proxy="http://127.0.0.1:3128",
    username="cntr_1",
    password="p" * 64,
    place=f"cntr_1.{'f' * 64}",
    ca_pem="-----BEGIN CERTIFICATE-----",
)


async def test_a_container_with_a_policy_is_run_with_the_connector_to_the_proxy(
    service: FakeMicrovms, provisioner: LambdaMicrovmProvisioner
) -> None:
    service.images[IMAGE] = CLOSED
    with pytest.raises(SandboxStarting):
        await provisioner.start(replace(SPEC, egress=WAY_OUT))
    assert [vm["egressNetworkConnectors"] for vm in service.vms.values()] == [[POLICY]]


async def test_a_container_with_a_policy_that_got_the_closed_connector_is_ended(
    service: FakeMicrovms, provisioner: LambdaMicrovmProvisioner
) -> None:
    service.images[IMAGE], service.ignores_egress = CLOSED, True
    with pytest.raises(SandboxError, match="another network"):
        await provisioner.start(replace(SPEC, egress=WAY_OUT))
    assert service.states() == ["TERMINATED"]


@pytest.mark.parametrize("placeholders", [0, 60])
async def test_the_vm_is_told_the_way_out_however_many_secrets_it_has(
    service: FakeMicrovms, provisioner: LambdaMicrovmProvisioner, placeholders: int
) -> None:
    """AWS takes 4,096 bytes, and the variables alone have half of that."""
    service.images[IMAGE] = CLOSED
    secrets = {f"SECRET_{number}": "moorage-secret-placeholder-0123456789abcdef" for number in range(placeholders)}
    with pytest.raises(SandboxStarting):
        await provisioner.start(replace(SPEC, egress=WAY_OUT, env=secrets))
    (payload,) = service.payloads
    config = json.loads(run_payload(json.dumps({"runHookPayload": payload}).encode()))
    assert config["egress"] == {"networks": ["10.43.0.0/28"], "place": WAY_OUT.place, "ca_pem": WAY_OUT.ca_pem}
    assert config["env"] == WAY_OUT.variables("127.0.0.1:3128") | secrets
    assert config["env"]["HTTPS_PROXY"] == f"http://cntr_1:{'p' * 64}@127.0.0.1:3128"


@pytest.mark.parametrize("code", ["ConflictException", "ValidationException", "ResourceNotFoundException"])
async def test_a_connector_on_its_way_is_waited_for(service: FakeMicrovms, provisioner: LambdaMicrovmProvisioner, code: str) -> None:
    service.images[IMAGE], service.connectors[CLOSED], service.refusal_of_connectors = CLOSED, "PENDING", code
    with pytest.raises(SandboxStarting) as waiting:
        await provisioner.start(SPEC)
    assert (waiting.value.retry_after_seconds, service.calls) == (5, ["RunMicrovm", "GetNetworkConnector"])
    service.connectors[CLOSED] = "ACTIVE"
    with pytest.raises(SandboxStarting):
        await provisioner.start(SPEC)
    assert service.states() == ["PENDING"]


@pytest.mark.parametrize("state", ["INACTIVE", "FAILED", "DELETING", "DELETE_FAILED"])
async def test_a_connector_that_does_not_come_is_told_by_its_state(
    service: FakeMicrovms, provisioner: LambdaMicrovmProvisioner, state: str
) -> None:
    service.images[IMAGE], service.connectors[CLOSED] = CLOSED, state
    handler = open_log(out := io.StringIO())
    with pytest.raises(SandboxError, match=f"its network connector is {state}") as refused:
        await provisioner.start(SPEC)
    close_log(handler)
    (line,) = map(json.loads, out.getvalue().splitlines())
    assert (type(refused.value), line["connector"], line["connector_state"]) == (SandboxError, CLOSED, state)
    assert service.vms == {}


@pytest.mark.parametrize("code", ["AccessDeniedException", "ValidationException"])
async def test_a_refusal_has_its_code_in_the_log(service: FakeMicrovms, provisioner: LambdaMicrovmProvisioner, code: str) -> None:
    service.faults.append(("RunMicrovm", Refused(code)))
    handler = open_log(out := io.StringIO())
    with pytest.raises(SandboxError, match="could not be started"):
        await provisioner.start(SPEC)
    close_log(handler)
    assert [json.loads(line)["code"] for line in out.getvalue().splitlines()] == [code]


async def test_a_right_that_is_missing_hides_no_refusal(service: FakeMicrovms, provisioner: LambdaMicrovmProvisioner) -> None:
    service.images[IMAGE], service.connectors[CLOSED] = CLOSED, "FAILED"
    service.faults.append(("GetNetworkConnector", Refused("ResourceNotFoundException")))
    with pytest.raises(SandboxError, match="could not be started"):
        await provisioner.start(SPEC)


async def test_a_start_that_another_version_of_a_function_began_is_begun_anew(
    service: FakeMicrovms, provisioner: LambdaMicrovmProvisioner
) -> None:
    """The client token names container and incarnation. With another image version AWS takes it for a conflict, for good."""
    service.images[IMAGE] = CLOSED
    for number in ("1.0", "2.0"):
        service.builds(IMAGE, number, 0)
    with ThreadPoolExecutor(1) as executor:
        older = LambdaMicrovmProvisioner(
            service.client, lambda: service.core, MicrovmSettings({1: IMAGE}, CLOSED, versions={1: "1.0"}), executor
        )
        for each in (older, provisioner):
            with pytest.raises(SandboxStarting):
                await each.start(SPEC)
    assert [vm["imageVersion"] for vm in service.vms.values()] == ["1.0", "2.0"]


async def test_an_image_in_change_is_waited_for(service: FakeMicrovms, provisioner: LambdaMicrovmProvisioner) -> None:
    service.images[IMAGE] = CLOSED
    service.faults.extend([("RunMicrovm", Refused("ConflictException"))] * 3)
    with pytest.raises(SandboxStarting):
        await provisioner.start(SPEC)
    assert service.vms == {}
