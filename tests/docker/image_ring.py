"""The images, built and run on a real engine (``make test-docker``): that of all of moorage, and the two of a deployment."""

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from openai import OpenAI

from infra.bundling import copy_context
from infra.stacks import PROXY_CONTEXT
from tests.docker.engine import ROOT, Dockerd, base, build, compose, compose_missing, docker
from tests.stack import SHELL, outputs, say, script, shell
from tests.unit.sandbox.test_escapes import ESCAPES

pytestmark = pytest.mark.timeout(3000)
_SECONDS_MAX = 90


@dataclass
class Box:
    """A container of the image, as ``compose.yaml`` runs it."""

    engine: str
    name: str
    port: int

    def run(self, *options: str, words: tuple[str, ...] = ()) -> None:
        where = f"127.0.0.1:{self.port}"
        published = ["--publish", f"{where}:{self.port}", "--env", f"MOORAGE_PUBLISHED={where}"]
        docker(self.engine, "run", "--detach", "--name", self.name, *published, *options, "moorage", *words)

    def exec(self, *words: str) -> str:
        return docker(self.engine, "exec", self.name, *words)

    def until(self, state: str, format_: str = "{{.State.Health.Status}}") -> None:
        deadline = time.monotonic() + _SECONDS_MAX
        while (found := docker(self.engine, "inspect", "--format", format_, self.name)) != state:
            assert time.monotonic() < deadline, f"{found}\n{self.logs()}"
            time.sleep(0.2)

    def logs(self) -> str:
        command = ["docker", "--host", f"unix://{self.engine}", "logs", self.name]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout

    def client(self) -> OpenAI:
        key = self.exec("sh", "-c", '. "$MOORAGE_STATE_DIR/env"; echo "$OPENAI_API_KEY"')
        return OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key=key, max_retries=0, timeout=120)

    def ask(self, *commands: str, **options: Any) -> Any:
        tools: Any = [SHELL]
        return self.client().responses.create(model="demo", input=script(shell(*commands), say("done")), tools=tools, **options)


def walls() -> list[str]:
    """The options of ``compose.yaml``, for docker's own command line."""
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["moorage"]
    options = [word for each in service["security_opt"] for word in ("--security-opt", each)]
    options += [word for each in service["cap_drop"] for word in ("--cap-drop", each)]
    options += [word for each in service["extra_hosts"] for word in ("--add-host", each)]
    return [*options, "--memory", service["mem_limit"], "--pids-limit", str(service["pids_limit"])]


@contextmanager
def running(box: Box, *options: str) -> Iterator[Box]:
    box.run(*options)
    try:
        box.until("healthy")
        yield box
    finally:
        docker(box.engine, "rm", "--force", box.name)


@pytest.fixture(scope="module")
def box(dockerd: Dockerd, image: str) -> Iterator[Box]:
    with running(Box(dockerd.socket, "box", 18230), *walls(), "--volume", "box:/state") as found:
        yield found


def test_the_container_says_how_it_is_reached(box: Box) -> None:
    assert "moorage is up.\n  URL    http://127.0.0.1:18230/v1\n  key    sk-moorage-" in box.logs()
    assert httpx.get("http://127.0.0.1:18230/v1/models").status_code == 401
    assert "http://127.0.0.1:18230/console/#k=" in box.exec("moorage", "console")


def test_the_demonstration_runs_in_it(box: Box) -> None:
    said = box.exec("moorage", "demo")
    assert "5 of 10 products declined" in said
    assert box.exec("ls", "/work") == "chart.png\nreport.xlsx"


def test_its_doctor_finds_nothing_wrong(box: Box) -> None:
    assert ", 0 failed." in box.exec("moorage", "doctor")


def test_commands_find_what_the_page_promises(box: Box) -> None:
    response = box.ask("node --version; npm --version; python3 -c 'import pandas; print(pandas.__name__)'; git --version")
    ((stdout, _, code),) = outputs(response.output)[0]
    assert (re.sub(r"\.\d+", "", stdout), code) == ("v22\n10\npandas\ngit version 2\n", 0)


OTHERWISE = {
    "become root": "no program of the image is set-uid, so that su ends with other words",
    "one huge file": "the quota of a sandbox of the image is 20 GiB, and the attempt expects one of 100 MB",
}
"""Where a sandbox in the image answers otherwise than one of the tests, and why that is no way out."""


def test_no_attempt_gets_out_of_its_sandboxes(box: Box) -> None:
    first = box.ask("echo in")
    failed = {}
    for attempt, (command, expected) in ESCAPES.items():
        ((stdout, stderr, code),) = outputs(box.ask(command, previous_response_id=first.id).output)[0]
        if "DONE" in stdout + stderr or not any(words in stdout + stderr for words in expected.split("|")):
            failed[attempt] = (stdout, stderr, code)
    assert failed.keys() <= OTHERWISE.keys(), failed


def test_a_sandbox_sees_neither_the_stack_nor_its_state_nor_another(box: Box) -> None:
    other = box.ask("echo secret > /mnt/data/theirs; sleep 300 & echo $!")
    dial = "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 18230))\""
    look = f"ls /state /work; cat /proc/*/cmdline | tr '\\0' ' '; ls /mnt/data; {dial}"
    ((stdout, stderr, code),) = outputs(box.ask(look).output)[0]
    assert other.status == "completed"
    assert code == 1
    assert "Connection refused" in stderr
    assert "'/state': No such file" in stderr
    assert not any(word in stdout for word in ("moorage.local", "sleep", "theirs", "sk-moorage"))


def test_state_survives_a_stop_and_a_stop_is_clean(dockerd: Dockerd, image: str) -> None:
    box = Box(dockerd.socket, "again", 18231)
    with running(box, *walls(), "--volume", "again:/state"):
        first = box.ask("echo kept > file.txt")
        docker(box.engine, "stop", "--time", "60", "again")
        assert docker(box.engine, "inspect", "--format", "{{.State.ExitCode}}", "again") == "0"
    with running(Box(dockerd.socket, "again", 18231), *walls(), "--volume", "again:/state") as box:
        again = box.ask("cat file.txt", previous_response_id=first.id)
        assert outputs(again.output)[0][0][0] == "kept\n"


def test_compose_serves_what_make_up_serves(dockerd: Dockerd, image: str) -> None:
    """The commands of docs/docker.md, one after the other."""
    if why := compose_missing():
        pytest.skip(why)
    engine = dockerd.socket
    box = Box(engine, "moorage-moorage-1", 18233)

    def up() -> None:
        compose(engine, "up", "--detach", "--no-build", "--wait", MOORAGE_PORT="18233")

    try:
        up()
        said = compose(engine, "exec", "moorage", "moorage", "demo")
        assert "5 of 10 products declined" in said
        assert compose(engine, "exec", "moorage", "moorage", "console").startswith("http://127.0.0.1:18233/console/#k=")
        assert ", 0 failed." in compose(engine, "exec", "moorage", "moorage", "doctor")
        first = box.ask("echo kept > file.txt")
        compose(engine, "down")
        own = "label=com.docker.compose.project=moorage"  # The container of the tests before runs beside it.
        assert docker(engine, "ps", "--all", "--quiet", "--filter", own) == ""
        up()
        again = box.ask("cat file.txt", previous_response_id=first.id)
        assert outputs(again.output)[0][0][0] == "kept\n"
    finally:
        compose(engine, "down", "--volumes")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "bubblewrap can make no namespaces on this machine"),
        (["--security-opt", "seccomp=unconfined"], "bubblewrap can make no namespaces on this machine"),
        ([*walls(), "--network", "host"], "MOORAGE_PUBLISHED is for a container with a network of its own"),
        ([*walls(), "--env", "MOORAGE_PUBLISHED=0.0.0.0:8080"], "takes TLS"),
    ],
    ids=["without the walls' options", "with a masked /proc", "with the machine's network", "for everybody in clear"],
)
def test_what_cannot_work_is_said_in_a_sentence(options: list[str], said: str, dockerd: Dockerd, image: str) -> None:
    docker(dockerd.socket, "run", "--detach", "--name", "wrong", *options, "moorage")
    try:
        box = Box(dockerd.socket, "wrong", 0)
        box.until("1 false", "{{.State.ExitCode}} {{.State.Running}}")
        logs = box.logs()
        assert (said in logs, "Traceback" in logs) == (True, False), logs
    finally:
        docker(dockerd.socket, "rm", "--force", "wrong")


def test_it_starts_siblings_on_the_engine_that_runs_it(engine: str, image: str) -> None:
    """As docs/docker.md says: the state's volume is mounted at the path that the engine has it at."""
    docker(engine, "volume", "create", "state")
    state = docker(engine, "volume", "inspect", "--format", "{{.Mountpoint}}", "state")
    options = ["--volume", f"state:{state}", "--env", f"MOORAGE_STATE_DIR={state}", "--user", "0"]
    options += ["--volume", f"{engine}:/var/run/docker.sock", "--env", "MOORAGE_PROVISIONER=docker"]
    options += ["--env", "MOORAGE_ALLOWED_EGRESS_DOMAINS=example.com"]
    with running(Box(engine, "parent", 18232), *options) as parent:
        response = parent.ask("whoami; ls /sys/class/net; ls /run/moorage; cat /proc/1/cmdline | tr '\\0' ' '")
        ((stdout, _, code),) = outputs(response.output)[0]
        assert (stdout.split()[:2], code) == (["user", "lo"], 0)
        siblings = docker(engine, "ps", "--quiet", "--filter", "label=moorage.container").split()
        assert len(siblings) == 1
        docker(engine, "stop", "--time", "60", "parent")
        assert docker(engine, "ps", "--all", "--quiet", "--filter", "label=moorage.container") == "", "a stop ends them"


def test_the_sandboxes_image_builds_without_a_set_uid_program(dockerd: Dockerd) -> None:
    python = base(dockerd.socket, "moorage-python-3.11")
    build(dockerd.socket, "sandbox-slim", ROOT / "functions" / "sandbox", {"BASE_IMAGE": python, "RUNTIMES": "slim"})
    look = "node --version; npm --version; find / -xdev -type f -perm /6000"
    said = docker(dockerd.socket, "run", "--rm", "--network", "none", "--entrypoint", "sh", "sandbox-slim", "-c", look).split()
    assert [each.rpartition(".")[0] for each in said] == ["v22.20", "10.9"]


def test_the_egress_proxys_image_builds(dockerd: Dockerd, tmp_path: Path) -> None:
    copy_context(PROXY_CONTEXT, tmp_path)
    build(dockerd.socket, "egress", tmp_path, {"BASE_IMAGE": base(dockerd.socket, "moorage-python-3.13")})
    look = ["--entrypoint", "python", "egress", "-m", "functions.egress_proxy.main", "--help"]
    assert "--listen" in docker(dockerd.socket, "run", "--rm", "--network", "none", *look)
