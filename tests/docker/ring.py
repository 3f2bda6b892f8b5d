"""The Docker provisioner on a real engine, from outside: through the API, with the OpenAI SDK (``make test-docker``)."""

import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from moorage.local.disk_guard import DiskWarning
from moorage.sandbox.docker import DockerProvisioner, DockerSettings
from moorage.sandbox.docker_engine import Engine
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.provisioner import SandboxSpec
from openai.types.responses import Response

from tests.docker.conftest import docker_stack
from tests.docker.engine import Dockerd, docker
from tests.processes import until
from tests.scenarios.test_operator_secrets import HOST, a_host
from tests.stack import SHELL, Stack, clean_environment, outputs, say, script, shell
from tests.unit.sandbox.support import TOKEN, run
from tests.unit.sandbox.test_escapes import ESCAPES
from tests.unit.sandbox.test_survival import BOMBS, TOO_MANY


def ask(stack: Stack, *commands: str, **options: Any) -> Response:
    tools: Any = [SHELL]
    asked = script(shell(*commands), say("done"))
    answer: Response = stack.client().responses.create(model="demo", input=asked, tools=tools, **options)
    return answer


def containers(engine: str) -> list[str]:
    return docker(engine, "ps", "--all", "--quiet", "--filter", "label=moorage.container").split()


def named(response: Response) -> str:
    """The id of its container."""
    return str(response.tools[0].environment.container_id)  # type: ignore[union-attr]


def container_of(engine: str, response: Response) -> str:
    return docker(engine, "ps", "--all", "--quiet", "--filter", f"label=moorage.container={named(response)}")


def test_commands_run_as_a_user_with_a_name_and_leave_artifacts(stack: Stack) -> None:
    response = ask(stack, "whoami; pwd; ls /sys/class/net; echo hello > note.txt")
    assert outputs(response.output) == [[("user\n/mnt/data\nlo\n", "", 0)]]
    kept = stack.client().containers.files.list(named(response)).data
    assert [(each.path, each.bytes) for each in kept] == [("/mnt/data/note.txt", 6)]
    again = ask(stack, "cat note.txt", previous_response_id=response.id)
    assert outputs(again.output) == [[("hello\n", "", 0)]]


AGAIN = (
    "[The container has been started again since it was last used: the files in /mnt/data are as they were saved, "
    "processes that ran before are gone.]\n"
)


@pytest.mark.parametrize("blow", [("kill",), ("pause",), ("rm", "--force", "--volumes")], ids=" ".join)
def test_a_container_that_is_gone_is_revived_with_its_files(blow: tuple[str, ...], stack: Stack, engine: str) -> None:
    first = ask(stack, "echo kept > file.txt")
    docker(engine, *blow, container_of(engine, first))
    again = ask(stack, "cat file.txt", previous_response_id=first.id)
    assert outputs(again.output) == [[("kept\n", AGAIN, 0)]]


def test_after_a_restart_of_the_engine_a_container_is_revived_with_its_files(stack: Stack, dockerd: Dockerd) -> None:
    first = ask(stack, "echo kept > file.txt")
    dockerd.stop()
    dockerd.start()
    again = ask(stack, "cat file.txt", previous_response_id=first.id)
    assert outputs(again.output) == [[("kept\n", AGAIN, 0)]]


def test_while_the_engine_is_away_the_model_is_told_so(engine: str, dockerd: Dockerd, tmp_path: Path) -> None:
    with running(docker_stack(engine, tmp_path)) as stack:
        dockerd.stop()
        try:
            (((_, said, code),),) = outputs(ask(stack, "echo never").output)
        finally:
            dockerd.start()
        assert (code != 0, "; is it running?]" in said) == (True, True), said
        assert outputs(ask(stack, "echo again").output) == [[("again\n", "", 0)]]


@pytest.mark.skipif(shutil.which("runsc") is None, reason="gVisor's runsc is not installed (apt-get install runsc)")
def test_gvisor_runs_a_container_where_its_runtime_is_named(dockerd: Dockerd, engine: str, tmp_path: Path) -> None:
    with running(docker_stack(engine, tmp_path, MOORAGE_DOCKER_RUNTIME="runsc")) as stack:
        (((said, _, code),),) = outputs(ask(stack, "dmesg | head -1; whoami; echo hello > note.txt; cat note.txt").output)
        assert (code, "gVisor" in said, said.split()[-2:]) == (0, True, ["user", "hello"])


FETCH = """\
import os, sys, urllib.error, urllib.request
for url in sys.argv[1:]:
    try:
        asked = urllib.request.Request(url, headers={"authorization": "Bearer " + os.environ["API_TOKEN"]})
        print(urllib.request.urlopen(asked).read().decode())
    except urllib.error.URLError as error:
        print(error)
"""


def test_the_way_out_reaches_the_allowed_host_alone_and_puts_the_secret_in(engine: str, tmp_path: Path) -> None:
    secret, folder = "value-of-the-secret-1234", tmp_path / "host"
    folder.mkdir()
    with a_host(folder) as host:
        with running(docker_stack(engine, tmp_path / "state", **host.environment)) as stack:
            secrets = [{"domain": HOST, "name": "API_TOKEN", "value": secret}]
            policy = {"type": "allowlist", "allowed_domains": [HOST], "domain_secrets": secrets}
            tools: Any = [{"type": "shell", "environment": {"type": "container_auto", "network_policy": policy}}]
            command = f"cat > fetch.py <<'END'\n{FETCH}END\npython3 fetch.py https://{HOST}:{host.port}/ https://other.test/"
            answer = stack.client().responses.create(model="demo", input=script(shell(command), say("done")), tools=tools)
            ((stdout, _, _),) = outputs(answer.output)[0]
        assert host.received == [f"Bearer {secret}"]
        heard, refused = stdout.splitlines()
        assert heard == f"you sent Bearer {'*' * len(secret)}"
        assert "403" in refused


def test_the_programs_of_its_image_are_told_to_the_model(stack: Stack) -> None:
    response = ask(stack, "true")
    (told,) = [record["programs"] for record in stack.records() if record["PK"].endswith(named(response)) and "programs" in record]
    assert told.startswith("perl 5."), "the only one of those that are told of in the ring's image"


BREED = """\
import subprocess, time
while True:
    try:
        subprocess.Popen(["sleep", "60"])
    except OSError:
        time.sleep(60)
"""
FILL = f"cat > breed.py <<'END'\n{BREED}END\nsetsid nohup python3 breed.py >/dev/null 2>&1 & sleep 4; echo full"


def test_a_container_full_of_processes_leaves_its_neighbours_theirs(stack: Stack) -> None:
    """The kernel counts processes by user, over all containers of an engine."""
    ask(stack, FILL)
    neighbour = ask(stack, "for i in $(seq 60); do sleep 2 & done; wait; echo all")
    assert outputs(neighbour.output) == [[("all\n", "", 0)]]


def test_memory_that_runs_out_is_told(stack: Stack) -> None:
    (((_, said, code),),) = outputs(ask(stack, "python3 -c 'bytearray(3 << 30)'").output)
    assert (code, "Out of memory: the container has 1024 MiB" in said) == (137, True)


@pytest.mark.parametrize("bomb", ["one that stays", "one of threads"])
def test_a_fork_bomb_is_ended_and_told(bomb: str, stack: Stack) -> None:
    """The kernel refuses by the user's bound, and the control group counts none of it."""
    first = ask(stack, BOMBS[bomb])
    assert TOO_MANY in str(outputs(first.output))
    assert outputs(ask(stack, "date | wc -l", previous_response_id=first.id).output) == [[("1\n", "", 0)]]


def test_twenty_containers_at_once_all_answer(stack: Stack) -> None:
    with ThreadPoolExecutor(20) as pool:
        answered = list(pool.map(lambda number: outputs(ask(stack, f"echo {number}").output), range(20)))
    assert answered == [[[(f"{number}\n", "", 0)]] for number in range(20)]


def test_a_tenant_has_no_more_than_its_share(engine: str, tmp_path: Path) -> None:
    others = set(containers(engine))
    with running(docker_stack(engine, tmp_path, MOORAGE_DOCKER_TENANT_SANDBOXES_MAX="1")) as bounded:
        first, second = ask(bounded, "echo one > file.txt"), ask(bounded, "echo two")
        assert outputs(second.output) == [[("two\n", "", 0)]], "the idle one gives way"
        assert set(containers(engine)) - others == {container_of(engine, second)[:12]}
        assert outputs(ask(bounded, "cat file.txt", previous_response_id=first.id).output) == [[("one\n", AGAIN, 0)]]


def test_the_containers_of_a_tenant_together_have_a_bound_on_the_disk(engine: str, tmp_path: Path) -> None:
    with running(docker_stack(engine, tmp_path, MOORAGE_DOCKER_TENANT_DISK_BYTES_MAX=str(60 << 20))) as bounded:
        kept = ask(bounded, "head -c 20M /dev/zero > x; sleep 1; echo kept")
        (((said, told, _),),) = outputs(ask(bounded, "head -c 50M /dev/zero > x; sleep 60; echo STILL ALIVE").output)
        assert (said, DiskWarning.TENANT in told) == ("", True), told
        again = ask(bounded, "wc -c < x", previous_response_id=kept.id)
        assert outputs(again.output) == [[(f"{20 << 20}\n", "", 0)]]


def test_a_container_larger_than_its_tenant_may_have_is_told_so(engine: str, tmp_path: Path) -> None:
    with running(docker_stack(engine, tmp_path, MOORAGE_DOCKER_TENANT_MEMORY_GIB_MAX="2")) as bounded:
        tools: Any = [{"type": "shell", "environment": {"type": "container_auto", "memory_limit": "4g"}}]
        asked = script(shell("echo never"), say("done"))
        answer = bounded.client().responses.create(model="demo", input=asked, tools=tools)
        assert "This sandbox would have 4 GiB of memory." in str(outputs(answer.output))


def test_a_container_that_waits_is_taken_and_another_takes_its_place(engine: str, tmp_path: Path) -> None:
    others = set(containers(engine))
    with running(docker_stack(engine, tmp_path, MOORAGE_WARM_POOL="1g:1")) as stack:
        until(lambda: len(waiting(stack)) == 1, 60)
        (first,) = waiting(stack)
        assert outputs(ask(stack, "echo warm").output) == [[("warm\n", "", 0)]]
        assert [record["sandbox_id"] for record in pool(stack, "CLAIM#")] == [first]
        until(lambda: len(waiting(stack)) == 1, 60)
        assert {each[:12] for each in (first, *waiting(stack))} == set(containers(engine)) - others
    assert set(containers(engine)) == others


def pool(stack: Stack, prefix: str) -> list[dict[str, Any]]:
    return [record for record in stack.records() if record["PK"] == "POOL" and record["SK"].startswith(prefix)]


def waiting(stack: Stack) -> list[str]:
    return [record["sandbox_id"] for record in pool(stack, "SLOT#") if record["sandbox_id"] is not None]


def test_a_stack_that_was_killed_leaves_nothing_for_long(engine: str, tmp_path: Path) -> None:
    others = set(containers(engine))
    stack = docker_stack(engine, tmp_path).start()
    first = ask(stack, "echo kept > file.txt")
    assert len(set(containers(engine)) - others) == 1
    stack.stop(signal.SIGKILL)
    until(lambda: not runs(tmp_path), 30)
    with running(stack):
        assert set(containers(engine)) == others, "the next start ends what it finds"
        assert outputs(ask(stack, "cat file.txt", previous_response_id=first.id).output) == [[("kept\n", AGAIN, 0)]]
    assert set(containers(engine)) == others, "a stop ends all"


def runs(state_dir: Path) -> bool:
    """Whether a child of a stack that was killed still holds its state."""
    return subprocess.run(["pgrep", "--full", str(state_dir)], capture_output=True, check=False).returncode == 0


class running:
    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    def __enter__(self) -> Stack:
        return self._stack.start()

    def __exit__(self, *problem: object) -> None:
        assert self._stack.stop() == 0


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"MOORAGE_DOCKER_IMAGE": "nobodys"}, "The container engine has no image 'nobodys': '"),
        ({"MOORAGE_DOCKER_RUNTIME": "unknown"}, "MOORAGE_DOCKER_RUNTIME is 'unknown'. The engine has "),
        ({"DOCKER_HOST": "unix:///nowhere.sock"}, "The container engine does not answer at /nowhere.sock; is it running?"),
        ({"MOORAGE_PROVISIONER": "fargate"}, "MOORAGE_PROVISIONER is 'fargate'. On one machine it is 'launcher' (bubblewrap) or "),
    ],
    ids=lambda value: next(iter(value.values())) if isinstance(value, dict) else "",
)
def test_a_stack_that_could_start_no_sandbox_does_not_start(
    environment: dict[str, str], said: str, engine: str, tmp_path: Path
) -> None:
    started = subprocess.run(
        [sys.executable, "-m", "moorage.local.stack"],
        env=clean_environment()
        | {"MOORAGE_STATE_DIR": str(tmp_path), "MOORAGE_PORT": "0", "MOORAGE_PROVISIONER": "docker", "DOCKER_HOST": f"unix://{engine}"}
        | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (started.returncode, f"moorage: {said}" in started.stderr) == (1, True), started.stderr


# --- walls ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runtime_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(tmp_path_factory.mktemp("d"))


OTHERWISE = {
    "calls of the 32-bit interface": "libseccomp ends the process in place of refusing the call",
    "slow all of its user": "no process here has the user that the attempt names",
    "a capability": "commands have none and can get none; the exec server's six stay in the bound, which it may not change",
    "one huge file": "the quota of an engine's container is 20 GiB, and the file has 100 MB",
}
"""Where an engine's container answers otherwise than a sandbox of bubblewrap, and why that is no way out."""


async def test_the_escapes_that_bubblewrap_refuses_are_refused_here_too(engine: str, runtime_dir: Path) -> None:
    async with DockerProvisioner(DockerSettings(runtime_dir, "escapes"), Engine(engine)) as sandboxes:
        handle = await sandboxes.start(SandboxSpec("acme", "cntr_1", TOKEN))
        failed = {}
        async with ExecClient(handle) as sandbox:
            for attempt, (command, expected) in ESCAPES.items():
                result = await run(sandbox, command, timeout_ms=20_000)
                if "DONE" in result.text or not any(words in result.text for words in expected.split("|")):
                    failed[attempt] = result
            assert (await run(sandbox, "echo alive")).stdout == "alive\n"
        await sandboxes.stop_all()
    assert failed.keys() == OTHERWISE.keys(), failed
