"""A deployment and what outlives it: the way out is used, the deployment destroyed and made again, the way out turned off and on.

The template is the default one with a host that containers may reach, and keeps its data, as ``make destroy`` does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest

from localstack.deploy import Deployer
from tests.deploy import wayout
from tests.deploy.conftest import REGION, make_key, running_emulator, synthesise
from tests.deploy.test_ring import ended, script, shell
from tests.twin.serve import serving

pytestmark = [
    pytest.mark.skipif(not wayout.PYTHON.exists(), reason="the egress proxy has an environment of its own: make setup"),
    pytest.mark.timeout(900),
]

HOST = "api.example.com"
OFF: dict[str, Any] = {"bundle_for": "host", "sandbox_image": "local/sandbox"}
ON = OFF | {"allowed_egress_domains": [HOST]}
SECRET = "the value of the secret"


class Account:
    """An emulator, an operator's commands, and a tenant's."""

    def __init__(self, deployer: Deployer) -> None:
        self.deployer = deployer
        self.key = ""

    @contextmanager
    def deployed(self, assembly: Path) -> Iterator[httpx.Client]:
        outputs = self.deployer.deploy(assembly)["moorage"]
        self.key = self.key or make_key(self.deployer, outputs["TableName"])
        headers = {"authorization": f"Bearer {self.key}"}
        with (
            serving(self.deployer, assembly, has_roles=False) as origin,
            httpx.Client(base_url=f"{origin}/api/v1", headers=headers, timeout=120, trust_env=False) as api,
        ):
            yield api

    def destroy(self, assembly: Path) -> None:
        """As ``make destroy`` does."""
        self.deployer.destroy(assembly, spared=("moorage-state",))

    def kept(self) -> dict[str, list[str]]:
        """What may cost something at rest, and what nobody could do without again."""
        aliases = self.deployer.client("kms").list_aliases()["Aliases"]
        return {
            "stacks": [each["StackName"] for each in self.deployer.client("cloudformation").describe_stacks()["Stacks"]],
            "functions": [each["FunctionName"] for each in self.deployer.client("lambda").list_functions()["Functions"]],
            "clusters": self.deployer.client("ecs").list_clusters()["clusterArns"],
            "keys": [each["AliasName"] for each in aliases if not each["AliasName"].startswith("alias/aws/")],
        }


@pytest.fixture
def internet(tmp_path: Path) -> Iterator[wayout.Internet]:
    found = wayout.Internet.of(tmp_path, HOST)
    yield found
    found.end()


@pytest.fixture
def account(internet: wayout.Internet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    variables = {wayout.VARIABLE: str(internet.folder)}
    with running_emulator(tmp_path_factory.mktemp("emulator"), variables) as endpoint:
        deployer = Deployer(boto3.Session("test", "test", region_name=REGION), endpoint)
        yield Account(deployer)
        deployer.close()


def allowing() -> dict[str, Any]:
    secrets = [{"domain": HOST, "name": "API_KEY", "value": SECRET}]
    return {"type": "allowlist", "allowed_domains": [HOST], "domain_secrets": secrets}


def run(api: httpx.Client, command: str, environment: dict[str, Any]) -> tuple[str, tuple[str, str, int]]:
    """The container, and what the command said there."""
    request = {"model": "demo", "input": script(shell(command), {"say": "ok"}), "background": True}
    tools = [{"type": "shell", "environment": environment}]
    created = api.post("responses", json=request | {"tools": tools}).raise_for_status().json()
    call, output, _ = ended(api, created["id"])["output"]
    (said,) = output["output"]
    return call["environment"]["container_id"], (said["stdout"], said["stderr"], said["outcome"]["exit_code"])


def calling(internet: wayout.Internet) -> str:
    """The host, by a client that waits for a proxy which starts from nothing."""
    return (
        'n=0; until curl -sSf -m 10 -o /tmp/said -H "authorization: Bearer $API_KEY" '
        f"https://{HOST}:{internet.port}/ || [ $((n+=1)) -ge 40 ]; do sleep 0.5; done 2>/tmp/why; cat /tmp/said"
    )


def test_the_way_out_is_there_again_after_destroy_and_deploy_and_after_off_and_on(
    account: Account, internet: wayout.Internet, tmp_path_factory: pytest.TempPathFactory
) -> None:
    on, off = (synthesise(tmp_path_factory.mktemp("assembly"), settings) for settings in (ON, OFF))
    kept = {"stacks": ["moorage-state"], "functions": [], "clusters": [], "keys": ["alias/moorage-egress"]}
    mine = {"type": "container_auto", "network_policy": allowing()}
    fetch, heard, answered = calling(internet), [f"Bearer {SECRET}"], wayout.ANSWER.decode()

    with account.deployed(on) as api:
        container, said = run(api, f"echo mine > /mnt/data/note; {fetch}", mine)
        assert (said[0], internet.heard) == (answered, heard)
    again = {"type": "container_reference", "container_id": container}

    account.destroy(on)
    assert account.kept() == kept

    with account.deployed(on) as api:
        _, said = run(api, f"cat /mnt/data/note; {fetch}", again)
        assert (said[0], internet.heard) == (f"mine\n{answered}", heard * 2)
        run(api, fetch, mine)
        assert internet.heard == heard * 3

    with account.deployed(off) as api:
        refused = api.post("responses", json={"model": "demo", "input": "x", "tools": [{"type": "shell", "environment": mine}]})
        assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
        _, said = run(api, f"cat /mnt/data/note; curl -sS -m 5 https://{HOST}:{internet.port}/", again)
        assert (said[0], said[2] != 0, internet.heard) == ("mine\n", True, heard * 3)

    with account.deployed(on) as api:
        _, said = run(api, f"cat /mnt/data/note; {fetch}", again)
        assert (said[0], internet.heard) == (f"mine\n{answered}", heard * 4)
