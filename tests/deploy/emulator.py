"""ministack whose ECS really runs sandboxes: ``python -m tests.deploy.emulator``.

ministack's ECS speaks to a Docker client object. In its place stands one that starts the exec server of each task as a process of
this machine, inside bubblewrap, on a loopback address of its own, which becomes the task's private address. So ``RunTask``,
``DescribeTasks`` and ``StopTask`` behave, and the same ``FargateProvisioner`` finds the same exec server behind them. The task of the
egress proxy's service is the proxy itself (``wayout.py``).
"""

import contextlib
import itertools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ministack.core import iam_actions, iam_evaluator
from ministack.services import codebuild, ecs, eventbridge

from tests.deploy import recovery, wayout

EXEC_SERVER = Path(__file__).resolve().parents[2] / "functions" / "sandbox"
CONFIG_VARIABLE = "MOORAGE_SANDBOX_CONFIG"


def addresses() -> Iterator[str]:
    """Loopback addresses; two emulators on one machine start in different networks."""
    network = 2 + os.getpid() % 250
    return (f"127.77.{network}.{host}" for host in itertools.count(1))


def of_proxy() -> str:
    """Where the proxy is, in the same network; no task gets that far."""
    return f"127.77.{2 + os.getpid() % 250}.254"


class LocalContainer:
    """One task's process, with what ministack reads of a Docker container."""

    def __init__(self, address: str, process: "subprocess.Popen[bytes]", home: Path | None = None) -> None:
        self.id = secrets.token_hex(32)
        self.attrs = {"NetworkSettings": {"Networks": {"local": {"IPAddress": address}}}}
        self._process, self._home = process, home

    @property
    def status(self) -> str:
        return "running" if self._process.poll() is None else "exited"

    def reload(self) -> None:
        """``status`` is always fresh."""

    def wait(self, **_options: Any) -> dict[str, int]:
        return {"StatusCode": self._process.wait()}

    def stop(self, **_options: Any) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def remove(self, **_options: Any) -> None:
        self.stop()
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)

    def logs(self, **_options: Any) -> bytes:
        return b""


def sandbox(address: str, config: dict[str, Any], hosts: Path) -> LocalContainer:
    """A task with an exec server."""
    home = Path(tempfile.mkdtemp(prefix="moorage-task-"))
    config = config | {"listen": config["listen"].replace("0.0.0.0", address)}
    for name in ("workspace", "user"):
        (home / name).mkdir()
    if os.geteuid() == 0:
        for path in (home, *home.iterdir()):
            os.chown(path, config["uid"], config["uid"])
    else:
        del config["uid"]  # bubblewrap gives the process one user
    process = subprocess.Popen(
        _sandboxed(home, hosts),
        env={"PATH": f"/mnt/server/bin:{os.defpath}", CONFIG_VARIABLE: json.dumps(config)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    return LocalContainer(address, process, home)


_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
"""Those of a container's root that the exec server uses (Docker's default set has them)."""


def _sandboxed(home: Path, hosts: Path) -> list[str]:
    as_root = [word for name in _CAPABILITIES for word in ("--cap-add", f"CAP_{name}")] if os.geteuid() == 0 else []
    return [
        *("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--as-pid-1", "--die-with-parent"),
        *as_root,
        *("--ro-bind", str(hosts), "/etc/hosts"),
        *("--perms", "1777", "--tmpfs", "/tmp", "--tmpfs", "/home", "--bind", str(home / "user"), "/home/user"),
        *("--tmpfs", "/mnt", "--bind", str(home / "workspace"), "/mnt/data", "--chdir", "/mnt/data"),
        *("--ro-bind", str(EXEC_SERVER), "/mnt/server", "python3", "-I", "/mnt/server/server"),
    ]


class Image:
    """Of any name; a registry has it."""

    id = f"sha256:{'0' * 64}"

    def tag(self, _repository: str, **_options: Any) -> bool:
        return True


class Images:
    def pull(self, _name: str, **_options: Any) -> Image:
        return Image()

    get = get_registry_data = pull


class LocalContainers:
    """``docker.from_env()`` as far as ministack's ECS uses it."""

    def __init__(self) -> None:
        self.images = Images()
        self._by_id: dict[str, LocalContainer] = {}
        self._addresses, self._hosts = addresses(), wayout.hosts_of_sandboxes(of_proxy())
        # --die-with-parent means the thread that started the process, so this one has to stay.
        self._starter = ThreadPoolExecutor(1)

    @property
    def containers(self) -> "LocalContainers":
        return self

    def run(self, image: str, *, environment: dict[str, str], **_options: Any) -> LocalContainer:
        container = self._starter.submit(self._started, environment).result()
        self._by_id[container.id] = container
        return container

    def _started(self, environment: dict[str, str]) -> LocalContainer:
        if CONFIG_VARIABLE in environment:
            return sandbox(next(self._addresses), json.loads(environment[CONFIG_VARIABLE]), self._hosts)
        told = {name: value for name, value in environment.items() if name.startswith("MOORAGE_")}
        return LocalContainer(of_proxy(), wayout.started(of_proxy(), told, f"http://127.0.0.1:{os.environ['GATEWAY_PORT']}"))

    def get(self, container_id: str) -> LocalContainer:
        return self._by_id[container_id]

    def list(self, **_options: Any) -> list[LocalContainer]:
        return list(self._by_id.values())

    def stop_all(self) -> None:
        for container in self._by_id.values():
            container.remove()
        self._hosts.unlink()


_cluster: ContextVar[str | None] = ContextVar("cluster", default=None)


def check_as_aws_does() -> None:
    """Differences from AWS that would hide what ``AUTH=true`` is to show.

    ministack 1.5.33 takes the cluster for the resource of every ECS call and does not know ``ecs:cluster``.

    AWS checks RunTask against the revision that it starts, also where a family is named (aws-cdk issue 30390). It checks
    DescribeTasks and StopTask against the task, ListTasks against ``*``, and all of them with the condition key ``ecs:cluster``
    (service authorization reference). And it speaks plain HTTP, which our bucket refuses: here every call counts as TLS.

    A ``Ref`` to a secret is its name there, and its ARN on AWS: a call is checked against the word by which it names the secret.
    """
    resource_of, key_of = iam_actions.extract_resource_arn, iam_evaluator._resolve_condition_key

    def resource(service: str, method: str, path: str, *more: Any, **named: Any) -> str:
        if service not in ("ecs", "secretsmanager"):
            return str(resource_of(service, method, path, *more, **named))
        body = json.loads(next(value for value in (*more, *named.values()) if isinstance(value, bytes)) or b"{}")
        if service == "secretsmanager":
            return str(body.get("SecretId", "*"))
        _cluster.set(resource_of(service, method, path, *more, **named))
        task = body.get("task") or next(iter(body.get("tasks", [])), None)
        if task or "taskDefinition" not in body:
            return str(task or "*")
        revision = ecs._task_defs.get(ecs._resolve_td_key(body["taskDefinition"]))
        return str(revision["taskDefinitionArn"] if revision else body["taskDefinition"])

    def key(name: str, context: Any) -> Any:
        match name.lower():
            case "ecs:cluster":
                return _cluster.get()
            case "aws:securetransport":
                return "true"
        return key_of(name, context)

    iam_actions.extract_resource_arn, iam_evaluator._resolve_condition_key = resource, key


def tell_of_tasks() -> None:
    """EventBridge hears of a task that runs or has stopped, as on AWS ("ECS Task State Change"); ministack 1.5.33 says nothing."""
    watch, stop = ecs._watch_task_lifecycle, ecs._mark_task_stopped

    def tell(task: dict[str, Any]) -> None:
        named = ("taskArn", "clusterArn", "group", "startedBy", "lastStatus", "desiredStatus", "attachments")
        detail = {name: task.get(name) for name in named}
        detail["createdAt"] = detail["startedAt"] = datetime.now(UTC).isoformat()
        entry = {"Source": "aws.ecs", "DetailType": "ECS Task State Change", "Detail": json.dumps(detail)}
        eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True)

    def runs(task: dict[str, Any], *more: Any) -> None:
        tell(task)
        watch(task, *more)

    def stopped(arn: str, task: dict[str, Any], *more: Any, **named: Any) -> bool:
        has_stopped: bool = stop(arn, task, *more, **named)
        if has_stopped:
            tell(task)
        return has_stopped

    ecs._watch_task_lifecycle, ecs._mark_task_stopped = runs, stopped


def know_orders() -> None:
    """An order whose token was there before starts nothing. It is answered as the first one was, or refused if it is for something else
    (ECS API reference, "RunTask", ``clientToken``); ministack 1.5.33 starts another task."""
    order, known, one_by_one = ecs._ACTION_MAP["RunTask"], dict[str, Any](), threading.Lock()

    def ordered(request: dict[str, Any]) -> Any:
        token = str(request.get("clientToken", ""))
        with one_by_one:
            earlier, answer = known.get(token, (request, None))
            if earlier != request:
                return ecs.error_response_json("ConflictException", "The token is in use with another request.", 400)
            answer = answer or order(request)
            if token and json.loads(answer[2]).get("tasks"):
                known[token] = request, answer
        return answer

    ecs._ACTION_MAP["RunTask"] = ordered


def tell_of_builds() -> None:
    """A build knows the variables that it was started with, and EventBridge hears of its end ("CodeBuild Build State Change"), as on
    AWS. Each ends well at once: no image is built here."""
    start = codebuild._start_build

    def started(request: dict[str, Any]) -> Any:
        answer = start(request)
        build = json.loads(answer[2])["build"]
        kept = codebuild._builds[build["id"]]
        given = request.get("environmentVariablesOverride", [])
        kept["environment"] = {**kept["environment"], "environmentVariables": given}
        detail = {"build-status": kept["buildStatus"], "project-name": kept["projectName"], "build-id": kept["arn"]}
        entry = {"Source": "aws.codebuild", "DetailType": "CodeBuild Build State Change", "Detail": json.dumps(detail)}
        eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True)
        return answer

    codebuild._start_build = started


def main() -> None:
    """Run the emulator until it is told to stop."""
    containers = LocalContainers()
    ecs._docker = containers
    check_as_aws_does()
    tell_of_tasks()
    know_orders()
    tell_of_builds()
    recovery.recover_as_aws_does()
    from ministack.app import main as serve

    sys.argv[1:] = []
    try:
        serve()
    finally:
        containers.stop_all()


if __name__ == "__main__":
    main()
