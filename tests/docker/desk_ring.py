"""The browser of a hosted computer in a container of its own, on a real engine (``make test-docker``)."""

import json
import re
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from moorage.sandbox.desk_client import DeskClient
from moorage.sandbox.docker import DockerProvisioner, DockerSettings
from moorage.sandbox.docker_engine import Engine
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.fargate import EXEC_PORT, server_config
from moorage.sandbox.provisioner import CONFIG_VARIABLE, Handle, SandboxSpec

from tests.bench.bench_exec import ready
from tests.docker.conftest import docker_stack
from tests.docker.engine import IMAGE, ROOT, base, build, docker
from tests.docker.image_ring import walls
from tests.docker.ring import running
from tests.scenarios.test_computer import CLICK, OPEN, SERVE, SHOT, TOOLS, TRY, acts, said, shown
from tests.scenarios.test_operator_secrets import HOST, a_host
from tests.stack import Stack, say, script, shell
from tests.unit.sandbox.conftest import until_up
from tests.unit.sandbox.desk_support import GLYPHS, GLYPHS_PAGE, page_server
from tests.unit.sandbox.support import TOKEN, run
from tests.unit.sandbox.test_desk_walls import CANARY, PROBE

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def desks(engine: str) -> str:
    """The engine, with the image of browsers."""
    arguments = {"BASE_IMAGE": base(engine, "moorage-python-3.11")}
    build(engine, "moorage-desk", ROOT / "functions" / "sandbox", arguments, "Dockerfile.desk")
    return engine


@pytest.fixture(scope="module")
def stack(desks: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    running = docker_stack(desks, Path(tmp_path_factory.mktemp("stack"))).start()
    yield running
    assert running.stop() == 0
    assert docker(desks, "ps", "--all", "--quiet", "--filter", "label=moorage.uid") == ""


def ask(stack: Stack, *steps: dict[str, Any], **fields: Any) -> Any:
    return stack.client().responses.create(**{"model": "demo", "input": script(*steps), "tools": TOOLS, **fields})


def test_a_page_that_a_command_serves_is_seen_and_used(stack: Stack) -> None:
    report = {"type": "click", "x": 20, "y": 310}
    typing: list[dict[str, Any]] = [{"type": "click", "x": 100, "y": 150}, {"type": "type", "text": CANARY}]
    response = ask(
        stack,
        shell(SERVE),
        acts(OPEN, CLICK, SHOT),
        acts(report, {"type": "wait"}),
        acts(*typing, CLICK),
        shell("sort /tmp/said; cat downloads/*", PROBE, timeout_ms=60_000),
        say("end"),
    )
    first, downloaded, typed = shown(response)
    assert [each.status for each in (first, downloaded, typed)] == ["completed"] * 3, response.output
    assert (first.page["title"], downloaded.page["downloads"][0]["path"]) == ("Shop", "/mnt/data/downloads/report.txt")
    assert said(response)[:3] == ["click", "click", f'typed "{CANARY}"']
    assert "the report" in said(response)[3]
    probed = [item for item in response.output if item.type == "shell_call_output"][-1].output[1]
    assert probed.stdout == "[]\n"


def test_the_image_draws_chinese_japanese_korean_and_emoji(stack: Stack) -> None:
    write = f"mkdir pages && cd pages && cat > index.html <<'END'\n{GLYPHS_PAGE}\nEND"
    serve = f"{write}\nsetsid nohup python3 -m http.server 3000 >/dev/null 2>&1 & {TRY}"
    (output,) = shown(ask(stack, shell(serve), acts(OPEN), say("end")))
    assert output.page["title"] == GLYPHS


def test_a_page_elsewhere_is_refused_in_words(stack: Stack) -> None:
    response = ask(stack, acts({"type": "navigate", "url": "https://refused.example/"}), say("end"))
    (output,) = shown(response)
    assert "this container has no network" in output.actions[-1]["error"]


def test_pages_come_by_the_containers_way_out_and_its_certificates(desks: str, tmp_path: Path) -> None:
    """A host with a secret is opened by the proxy, so that the browser sees a certificate of the deployment's own CA."""
    folder = tmp_path / "host"
    folder.mkdir()
    with a_host(folder) as host:
        policy = {
            "type": "allowlist",
            "allowed_domains": [HOST],
            "domain_secrets": [{"domain": HOST, "name": "API_TOKEN", "value": "value-of-the-secret-1234"}],
        }
        tools = [{"type": "computer", "container": {"type": "container_auto", "network_policy": policy}}]
        visits = [acts({"type": "navigate", "url": url}) for url in (f"https://{HOST}:{host.port}/", "https://other.test/")]
        with running(docker_stack(desks, tmp_path / "state", **host.environment)) as stack:
            shop, other = shown(ask(stack, *visits, say("end"), tools=tools))
        assert (shop.actions[-1], shop.page["url"]) == ({"ok": True}, f"https://{HOST}:{host.port}/")
        assert "Network access to 'other.test' was refused" in other.actions[-1]["error"]
        assert set(host.received) == {""}, "the page was asked for, and no secret was sent"


@pytest.fixture
async def provisioner(desks: str) -> AsyncIterator[DockerProvisioner]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a short path, for sockets
        async with DockerProvisioner(DockerSettings(Path(folder), "walls"), Engine(desks)) as provisioner:
            yield provisioner
            await provisioner.stop_all()


async def test_the_browser_has_chromiums_own_sandbox_behind_walls_of_its_own(provisioner: DockerProvisioner, desks: str) -> None:
    handle = await ready(provisioner, SandboxSpec("acme", "cntr_1", TOKEN))
    async with ExecClient(await provisioner.desk(handle)) as beside, ExecClient(handle) as client:
        desk = await DeskClient(beside).start()
        assert (desk.is_whole, desk.has_own_sandbox) == (True, True)
        assert (await run(client, "ps -e -o args")).stdout.count("chromium") == 0
    found = docker(desks, "ps", "--quiet", "--filter", f"label=moorage.desk-of={handle.sandbox_id}")
    sandbox, beside_it = (json.loads(docker(desks, "inspect", name))[0] for name in (handle.sandbox_id, found))
    assert beside_it["Config"]["User"].split(":")[0] != sandbox["Config"]["Labels"]["moorage.uid"]
    kinds = ("pid", "mnt", "net", "ipc", "uts")
    spaces = [[Path(f"/proc/{each['State']['Pid']}/ns/{kind}").readlink() for kind in kinds] for each in (sandbox, beside_it)]
    assert all(ours != theirs for ours, theirs in zip(*spaces, strict=True))


def of_task(engine: str, container: dict[str, Any], image: str, *more: str) -> str:
    """A container of a task definition, as this engine runs it; its id."""
    words = [word for each in container["LinuxParameters"]["Capabilities"]["Drop"] for word in ("--cap-drop", each)]
    for mount in container["MountPoints"]:
        words += ["--volume", f"{mount['SourceVolume']}:{mount['ContainerPath']}{':ro' if mount['ReadOnly'] else ''}"]
    for limit in container["Ulimits"]:
        words += ["--ulimit", f"{limit['Name']}={limit['SoftLimit']}:{limit['HardLimit']}"]
    return docker(engine, "run", "--detach", "--memory", f"{container['Memory']}m", *words, *more, image, *container.get("Command", ()))


async def test_a_task_of_fargates_has_the_same_walls(desks: str) -> None:
    """Its definition is the template's; the two containers have the task's network in common, as there."""
    template = json.loads((ROOT / "tests" / "infra" / "snapshots" / "everything-service.json").read_text())
    definitions = [each["Properties"] for each in template["Resources"].values() if each["Type"] == "AWS::ECS::TaskDefinition"]
    definition = next(each for each in definitions if each["Family"] == "moorage-sandbox-1g")
    commands, browser = definition["ContainerDefinitions"]
    config = json.dumps(server_config(SandboxSpec("acme", "cntr_1", TOKEN), has_desk=True))
    first = of_task(desks, commands, IMAGE, "--env", f"{CONFIG_VARIABLE}={config}")
    try:
        address = docker(desks, "inspect", "--format", "{{.NetworkSettings.IPAddress}}", first)
        second = of_task(desks, browser, "moorage-desk", "--network", f"container:{first}")
        async with ExecClient(Handle(f"http://{address}:{EXEC_PORT}", TOKEN, first)) as client:
            await until_up(client)
            desk = DeskClient(client)
            state = await desk.start()
            port = await page_server(client)
            shown = await desk.run("one", [{"type": "navigate", "url": f"localhost:{port}"}, {"type": "screenshot"}])
            other = await desk.run("two", [{"type": "navigate", "url": "file:///etc/passwd"}])
            probed = await run(client, PROBE, timeout_ms=60_000)
            listed = await run(client, "ls /run/moorage; ls /run/moorage/desk/run; ps -e -o args | grep -c chromiu[m]; id -u")
        changes = "touch /etc/chromium/policies/managed/x 2>/dev/null || echo unchangeable"
        beside = docker(desks, "exec", second, "sh", "-c", f"id -u; grep CapEff /proc/self/status; {changes}; ls /run/desk")
    finally:
        for container in docker(desks, "ps", "--all", "--quiet").split():
            docker(desks, "rm", "--force", container)
        docker(desks, "volume", "rm", *(each["Name"] for each in definition["Volumes"]))
    assert (state.is_whole, shown.page.title, other.actions[0].ok) == (True, "Mine", False)
    assert (probed.stdout, listed.stdout) == ("[]\n", "0\n1000\n")
    assert beside.split() == ["65534", "CapEff:", "0" * 16, "unchangeable", "link.sock", "run"]


@pytest.fixture(scope="module")
def whole_image(engine: str) -> str:
    """The image of all of moorage, with a browser."""
    arguments = {"BASE_IMAGE": base(engine, "moorage-debian"), "COMPUTER": "1"}
    build(engine, "moorage-computer", ROOT, arguments, "docker/Dockerfile")
    return "moorage-computer"


@pytest.mark.timeout(3000)
def test_the_image_of_all_of_moorage_shows_the_demonstration_of_a_computer(engine: str, whole_image: str) -> None:
    run_image = ("run", "--rm", *walls(), whole_image)
    assert re.search("a hosted computer can run here: Chrome/[^ ]+, with Chromium's own sandbox", docker(engine, *run_image, "doctor"))
    assert "after two presses the title is 'Cart: 2'" in docker(engine, *run_image, "demo", "computer", "--no-keep")
