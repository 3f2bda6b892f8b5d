"""The same from the container that users get: the launcher's own sandbox, its exec server and its forwarder, and the real proxy."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.launcher_client import LauncherProvisioner
from moorage.sandbox.provisioner import EgressSpec, SandboxSpec

from tests.egress.conftest import ArenaClient, Opened
from tests.unit.sandbox.support import TOKEN, launcher, run

VALUE = "sk-sandbox-0123456789abcdef"
SECRET = {"domain": "echo.example", "name": "API_KEY", "value": VALUE}


@pytest.fixture(scope="module")
def launcher_socket(arena: ArenaClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with launcher(tmp_path_factory.mktemp("launcher")) as socket:
        yield socket


@pytest.fixture(scope="module")
def box(arena: ArenaClient) -> Opened:
    return arena.open("allowed.example", "echo.example", secrets=[SECRET])


@dataclass
class Container:
    client: ExecClient

    async def says(self, command: str) -> str:
        return (await run(self.client, command)).text


@pytest.fixture(scope="module")
async def container(arena: ArenaClient, launcher_socket: Path, box: Opened) -> AsyncIterator[Container]:
    ca = (arena.directory / "egress-ca.pem").read_text() + (arena.directory / "upstream-ca.pem").read_text()
    egress = EgressSpec(
        proxy=f"unix:{arena.directory / 'proxy' / 'egress.sock'}", username=box.username, password=box.password, ca_pem=ca
    )
    spec = SandboxSpec("tenant-1", box.container_id, TOKEN, env=box.placeholders, egress=egress)
    async with LauncherProvisioner(str(launcher_socket)) as provisioner:
        handle = await provisioner.start(spec)
        async with ExecClient(handle) as client:
            yield Container(client)
        await provisioner.stop(handle.sandbox_id)


COMMANDS = {
    "a tunnelled host": ("curl -sS https://allowed.example/", "hello from allowed.example"),
    "an opened host": ("curl -sS https://echo.example/", "hello from echo.example"),
    "plain HTTP": ("curl -sS http://allowed.example/", "hello from allowed.example"),
    "a secret that is echoed": ('curl -sS -H "Authorization: Bearer $API_KEY" https://echo.example/echo', "Bearer ****"),
    "git": ("git ls-remote https://echo.example/git/repo.git", "refs/heads/main"),
    "python": (
        "python3 -c 'import urllib.request as r; print(r.urlopen(\"https://echo.example/\").read())'",
        "hello from echo.example",
    ),
    "wget": ("wget -qO- https://echo.example/", "hello from echo.example"),
    "a forbidden host": ("curl -sS https://forbidden.example/", "403"),
    "ssh": ("timeout 5 bash -c 'exec 3<>/dev/tcp/93.184.216.34/22'", "Network is unreachable"),
    "the metadata service": ("curl -sS --noproxy '*' -m 5 http://169.254.169.254/", "curl: (7)"),
    "the metadata service by the proxy": ("curl -sS http://169.254.169.254/", "it is an address"),
}


@pytest.mark.parametrize("what", COMMANDS)
async def test_a_command_meets(what: str, container: Container) -> None:
    command, says = COMMANDS[what]
    assert says in await container.says(command)


async def test_the_value_arrives_at_its_host(arena: ArenaClient, container: Container) -> None:
    arena("clear")
    await container.says('curl -sS -H "X-Key: $API_KEY" https://echo.example/')
    assert [f"X-Key: {VALUE}" in note["raw"] for note in arena("seen")] == [True]


async def test_the_value_is_nowhere_in_the_container(container: Container) -> None:
    await container.says('curl -sS -H "X-Key: $API_KEY" https://echo.example/echo > /mnt/data/out')
    needle = f"[{VALUE[0]}]{VALUE[1:]}"  # The search must not find itself.
    found = await container.says(
        f'cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | grep -c "{needle}"; '
        f'grep -rl "{needle}" /mnt /tmp /home /run /etc 2>/dev/null; env | grep -c MOORAGE_SECRET_API_KEY'
    )
    assert found.split() == ["0", "1"]
