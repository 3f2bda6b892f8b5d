"""Sandboxes on AWS Fargate: one task per incarnation of a container.

Starting is safe to repeat: ``startedBy`` names container and incarnation (by a hash of its token), so that a second caller finds
the first one's task, and ``clientToken`` makes ECS itself answer two calls at once with one task. Fargate needs 20 to 60 seconds;
:meth:`FargateProvisioner.start` never waits for them. ECS reports a running task to EventBridge, and its receiver notes the address
(:class:`StartedTask`, ``Sandboxes.announce``). So a start is one call, of which Fargate takes 20 a second; asking for each task's state
would be bounded by 20 looks a second for all. So a new task raises :class:`SandboxOrdered`. A task that is not new is looked at,
because its report may be lost. So is every task of the warm pool: it has no container's record to note it in. A process inside the
sandboxes' network finds the exec server there within a second (``sandbox/reach_only.py``).

A throttled call is neither refused nor broken: it raises :class:`SandboxStarting`, and is repeated.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self

from botocore.exceptions import BotoCoreError, ClientError

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import SandboxCapacity, SandboxError, SandboxOrdered, SandboxStarting
from moorage.sandbox.browser_policies import policies_of
from moorage.sandbox.desk_config import LINK_DIRECTORY, LINK_SOCKET, desk_config
from moorage.sandbox.provisioner import CONFIG_VARIABLE, EgressSpec, Handle, SandboxSpec, SandboxStatus
from moorage.settings import SettingsError

if TYPE_CHECKING:
    from mypy_boto3_ecs import ECSClient

CONTAINER_NAME: Final = "sandbox"
DESK_DIRECTORY: Final = "/run/moorage"
"""In the container of the commands: what it has in common with the browser's lies below it, as ``desk`` and ``policies``."""
EXEC_PORT: Final = 8080
COMMAND_UID: Final = 1000
"""The image's unprivileged user: commands run as it, the exec server as root."""

TENANT_TAG: Final = "moorage:tenant"
_GROUP_PREFIX: Final = "moorage:"
CONTAINER_TAG: Final = "moorage:container"

_OVERRIDES_CHARS_MAX: Final = 8_192
"""ECS API reference, ``TaskOverride``: 8,192 characters in all."""

_POLL_SECONDS: Final = 2.0
_RUNS_MAX: Final = 3
"""Tasks that one incarnation may use up before it counts as broken: a task can fail to pull or lose its host."""

_DESCRIBE_MAX: Final = 100
"""DescribeTasks takes 100 tasks (ECS API reference)."""

_NEW_SECONDS: Final = 10.0
"""So long after its order a task cannot run yet, and the answer to the order says all that there is to know. Clocks differ by less."""

_THROTTLED_SECONDS: Final = 5.0
_THROTTLED_CODES: Final = frozenset({"ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded"})
"""Too many calls a second, over all of the account. botocore has tried five times by then."""

_CAPACITY_CODES: Final = frozenset({"LimitExceededException", "ServerException", "BlockedException"})
_CAPACITY_WORDS: Final = ("capacity", "limit", "quota")


@dataclass(frozen=True, slots=True)
class FargateSettings:
    """The network of tasks, from ``MOORAGE_FARGATE_*``."""

    cluster: str
    subnets: tuple[str, ...]
    security_group: str
    """For sandboxes without a network."""
    egress_security_group: str | None
    """For sandboxes that may reach the egress proxy; None where none is deployed."""
    task_definitions: Mapping[int, str]
    """Family by GiB of memory: ECS starts its latest active revision."""
    image: str = ""
    """What the active revisions run; another one makes sandboxes that wait ready outdated."""
    has_events: bool = False
    """Whether somebody hears of tasks that run."""
    has_desks: bool = False
    """Whether a task has a second container, for a browser."""

    @classmethod
    def from_settings(cls, values: Mapping[str, str], *, has_desks: bool = False) -> Self:
        """Read ``Settings.fargate``; raises :class:`SettingsError`."""
        try:
            return cls(
                cluster=values["cluster"],
                subnets=tuple(values["subnets"].split(",")),
                security_group=values["security_group"],
                egress_security_group=values.get("egress_security_group"),
                image=values.get("image", ""),
                has_events=values.get("events") == "true",
                has_desks=has_desks,
                task_definitions={
                    gib: values[name] for tier, gib in limits.MEMORY_LIMITS.items() if (name := f"task_definition_{tier}") in values
                },
            )
        except KeyError as error:
            raise SettingsError(f"MOORAGE_FARGATE_{error.args[0].upper()} is not set. The CDK app sets it.") from error


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task as the reaper sees it: one without a container record that owns it is an orphan."""

    sandbox_id: str
    tenant_id: str
    container_id: str
    started_by: str

    def belongs_to(self, token: str) -> bool:
        return self.started_by == _started_by(self.container_id, token)


@dataclass(frozen=True, slots=True)
class StartedTask:
    """ECS's event about a sandbox with a changed state (EventBridge, "ECS Task State Change")."""

    sandbox_id: str
    tenant_id: str
    container_id: str
    started_by: str
    endpoint: str | None
    """None: it has stopped."""
    took_ms: int = 0
    """From the order to the first process."""

    @classmethod
    def from_event(cls, detail: Mapping[str, Any]) -> Self | None:
        """None for tasks that are none of ours, and for states on the way."""
        started_by = str(detail.get("startedBy", ""))
        tenant_id = str(detail.get("group", "")).removeprefix(_GROUP_PREFIX)
        if "/" not in started_by or not str(detail.get("group", "")).startswith(_GROUP_PREFIX):
            return None
        container_id, address = started_by.partition("/")[0], _address(detail)
        if _is_stopped(detail):
            return cls(detail["taskArn"], tenant_id, container_id, started_by, None)
        if detail["lastStatus"] != "RUNNING" or address is None:
            return None
        took_ms = _milliseconds(detail.get("createdAt"), detail.get("startedAt"))
        return cls(detail["taskArn"], tenant_id, container_id, started_by, f"http://{address}:{EXEC_PORT}", took_ms)

    def belongs_to(self, token: str) -> bool:
        return self.started_by == _started_by(self.container_id, token)


class FargateProvisioner:
    def __init__(
        self, client: "ECSClient", settings: FargateSettings, executor: Executor, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        self._settings = settings
        self._executor = executor
        self._clock = clock

    async def start(self, spec: SandboxSpec) -> Handle:
        started_by = _started_by(spec.container_id, spec.token)
        request = self._request(spec, started_by)
        if self._settings.has_events and not spec.is_unclaimed:  # the pool has no container's record to note an event in
            task = await self._ordered(request)
        else:
            task = await self._started(started_by) or await self._run(request)
        address = _address(task)
        if task["lastStatus"] != "RUNNING" or address is None:
            raise SandboxStarting(_POLL_SECONDS)
        return Handle(f"http://{address}:{EXEC_PORT}", spec.token, task["taskArn"])

    async def _ordered(self, request: dict[str, Any]) -> dict[str, Any]:
        """The task of an earlier order; :class:`SandboxOrdered` for one that is new."""
        task = await self._order(request, 0)
        if task is not None and task["lastStatus"] != "RUNNING" and self._clock() - _seconds(task.get("createdAt")) < _NEW_SECONDS:
            raise SandboxOrdered(str(task["taskArn"]))
        return await self._run(request)

    async def find(self, spec: SandboxSpec) -> str | None:
        task = await self._started(_started_by(spec.container_id, spec.token))
        return None if task is None else str(task["taskArn"])

    async def stop(self, sandbox_id: str) -> None:
        try:
            await self._call("stop_task", task=sandbox_id, reason="moorage: the container is idle or deleted")
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in _THROTTLED_CODES:
                raise SandboxStarting(_THROTTLED_SECONDS) from error
            if code != "InvalidParameterException":  # ECS's word for a task it does not know
                raise SandboxError("The container's sandbox could not be stopped.") from error

    async def add_skill(self, handle: Handle, directory: str, archive: bytes) -> bool:
        return False

    async def desk(self, handle: Handle, *, starts: bool = True) -> Handle:
        return handle  # It passes on what is asked of the desk (functions/sandbox/server/desk/beside.py).

    async def describe(self, sandbox_id: str) -> SandboxStatus:
        tasks = await self._describe([sandbox_id])
        if not tasks or _is_stopped(tasks[0]):
            return SandboxStatus.STOPPED
        return SandboxStatus.RUNNING if tasks[0]["lastStatus"] == "RUNNING" else SandboxStatus.STARTING

    @property
    def has_sandboxes(self) -> bool:
        """False if a deployment has none: then there is no cluster to ask either."""
        return bool(self._settings.task_definitions)

    @property
    def revision(self) -> str:
        """Task definitions (an image and a size each) and network, in one word."""
        return hashlib.sha256(repr(self._settings).encode()).hexdigest()[:16]

    async def running(self) -> list[RunningTask]:
        """Every sandbox of the cluster that is not stopped, for the reaper."""
        arns: list[str] = []
        page: dict[str, str] = {}
        while True:
            answer = await self._look("list_tasks", **page)
            arns += answer["taskArns"]
            if not answer.get("nextToken"):
                break
            page = {"nextToken": answer["nextToken"]}
        tasks = [
            task
            for start in range(0, len(arns), _DESCRIBE_MAX)
            for task in await self._describe(arns[start : start + _DESCRIBE_MAX], include=["TAGS"])
        ]
        # Whatever else somebody runs in this cluster is none of ours.
        return [found for task in tasks if not _is_stopped(task) and (found := _running_task(task)).container_id]

    async def _started(self, started_by: str) -> dict[str, Any] | None:
        """The task that an earlier start has run and that is alive."""
        tasks = await self._describe((await self._look("list_tasks", startedBy=started_by))["taskArns"])
        return min((task for task in tasks if not _is_stopped(task)), key=lambda task: str(task["taskArn"]), default=None)

    async def _run(self, request: dict[str, Any]) -> dict[str, Any]:
        """RunTask, or the task that an earlier call with the same token made. A task that died makes way for another."""
        task: dict[str, Any] | None = None
        for number in range(_RUNS_MAX):
            ordered = await self._order(request, number)
            if ordered is None:
                if (task := await self._started(request["startedBy"])) is not None:
                    return task
                continue
            # ECS repeats its first answer for a known token: only a description says how the task is now.
            described = await self._describe([ordered["taskArn"]])
            task = described[0] if described else ordered
            if not _is_stopped(task):
                return task
        raise SandboxError(f"The container's sandbox stopped while it started: {(task or {}).get('stoppedReason', 'no reason given')}.")

    async def _order(self, request: dict[str, Any], number: int) -> dict[str, Any] | None:
        """The task of this order, or of the same one before; None if the earlier order was different: a deployment between the two has
        changed the start of a sandbox.
        """
        token = hashlib.sha256(f"{request['startedBy']}/{number}".encode()).hexdigest()
        try:
            answer = await self._call("run_task", clientToken=token, **request)
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConflictException":
                return None
            raise _refusal(error.response["Error"]["Code"], error.response["Error"]["Message"]) from error
        if answer.get("failures"):
            failure = answer["failures"][0]
            raise _refusal(failure.get("reason", ""), failure.get("detail", failure.get("reason", "")))
        made: dict[str, Any] = answer["tasks"][0]
        return made

    def _request(self, spec: SandboxSpec, started_by: str) -> dict[str, Any]:
        settings = self._settings
        definition = settings.task_definitions.get(spec.memory_gib)
        if definition is None:
            raise SandboxError(f"This deployment has no sandboxes of {spec.memory_gib} GiB (memory_tiers in cdk.json).")
        config = server_config(spec, has_desk=settings.has_desks)
        overrides = {
            "containerOverrides": [
                {
                    "name": CONTAINER_NAME,
                    "environment": [{"name": CONFIG_VARIABLE, "value": json.dumps(config, separators=(",", ":"))}],
                }
            ]
        }
        if len(json.dumps(overrides)) > _OVERRIDES_CHARS_MAX:
            raise SandboxError("The container's variables are too long: ECS takes 8,192 characters of configuration per sandbox.")
        return {
            "taskDefinition": definition,
            "launchType": "FARGATE",
            "count": 1,
            "startedBy": started_by,
            "group": f"{_GROUP_PREFIX}{spec.tenant_id}",  # events have it, and no tags
            "networkConfiguration": {
                "awsvpcConfiguration": {
                    "subnets": list(settings.subnets),
                    "securityGroups": [self._security_group(spec.egress)],
                    "assignPublicIp": "DISABLED",
                }
            },
            "overrides": overrides,
            "tags": [{"key": TENANT_TAG, "value": spec.tenant_id}, {"key": CONTAINER_TAG, "value": spec.container_id}],
        }

    def _security_group(self, egress: EgressSpec | None) -> str:
        if egress is None:
            return self._settings.security_group
        if self._settings.egress_security_group is None:
            raise SandboxError("This deployment has no egress proxy (allowed_egress_domains in cdk.json is empty).")
        return self._settings.egress_security_group

    async def _describe(self, arns: list[str], **more: Any) -> list[dict[str, Any]]:
        return (await self._look("describe_tasks", tasks=arns, **more))["tasks"] if arns else []

    async def _look(self, operation: str, **request: Any) -> Any:
        try:
            return await self._call(operation, **request)
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and error.response["Error"]["Code"] in _THROTTLED_CODES:
                raise SandboxStarting(_THROTTLED_SECONDS) from error
            raise SandboxError("AWS could not be asked about the container's sandbox.") from error

    async def _call(self, operation: str, **request: Any) -> Any:
        method = getattr(self._client, operation)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: method(cluster=self._settings.cluster, **request))


def _started_by(container_id: str, token: str) -> str:
    """Container and incarnation: every incarnation has a token of its own. ECS takes 128 letters, digits, '-', '_' and '/'."""
    return f"{container_id}/{hashlib.sha256(token.encode()).hexdigest()[:16]}"


def server_config(spec: SandboxSpec, *, has_desk: bool) -> dict[str, Any]:
    """The exec server's configuration (``functions/sandbox/README.md``).

    ECS shows it to everybody with the right to describe tasks, so it bears only the token's hash.
    """
    egress = spec.egress
    return {
        "token_sha256": hashlib.sha256(spec.token.encode()).hexdigest(),
        "unclaimed": spec.is_unclaimed,
        "listen": f"tcp:0.0.0.0:{EXEC_PORT}",
        "uid": COMMAND_UID,
        **({"read_only": True} if spec.is_read_only else {}),
        "env": {**({} if egress is None else egress.variables(egress.proxy.removeprefix("http://"))), **spec.env},
        "egress": None if egress is None else {"ca_pem": egress.ca_pem},
        "limits": {
            "processes": limits.CONTAINER_PROCESSES_MAX,
            "open_files": limits.CONTAINER_OPEN_FILES_MAX,
            "disk_bytes": limits.WORKSPACE_BYTES_MAX,
            "spool_bytes": limits.OUTPUT_SPOOL_BYTES_MAX,
        },
        **(_beside(egress) if has_desk else {}),
    }


def _beside(egress: EgressSpec | None) -> dict[str, Any]:
    """What the exec server hands on to the browser's container: overrides for both would be beyond what ECS takes."""
    upstream, ca_pem = {}, ""
    if egress is not None:
        ca_pem = egress.ca_pem
        upstream = {"proxy": egress.proxy.removeprefix("http://"), "username": egress.username, "password": egress.password}
    return {
        "neighbour_path": f"{DESK_DIRECTORY}/desk/{LINK_SOCKET}",
        "beside": {
            "directory": DESK_DIRECTORY,
            "policies": policies_of(ca_pem),
            "config": desk_config(f"{LINK_DIRECTORY}/run/exec.sock", upstream, ca_pem),
        },
    }


def _is_stopped(task: Mapping[str, Any]) -> bool:
    """ECS stops a task in steps; one that is wanted stopped takes no work any more."""
    return task.get("desiredStatus") == "STOPPED" or task["lastStatus"] in ("STOPPED", "STOPPING", "DEPROVISIONING")


def _address(task: Mapping[str, Any]) -> str | None:
    """The task's private IPv4 address, as soon as its network interface is attached."""
    for attachment in task.get("attachments", []):
        for detail in attachment.get("details", []):
            if detail["name"] == "privateIPv4Address":
                return str(detail["value"])
    return None


def _running_task(task: Mapping[str, Any]) -> RunningTask:
    tags = {tag["key"]: tag["value"] for tag in task.get("tags", [])}
    return RunningTask(task["taskArn"], tags.get(TENANT_TAG, ""), tags.get(CONTAINER_TAG, ""), task.get("startedBy", ""))


def _seconds(moment: Any) -> float:
    """Unix seconds of botocore's datetimes; long ago if there is none."""
    return float(moment.timestamp()) if isinstance(moment, datetime) else 0.0


def _milliseconds(begin: Any, end: Any) -> int:
    """Between two times of an event."""
    if not begin or not end:
        return 0
    return round((datetime.fromisoformat(str(end)) - datetime.fromisoformat(str(begin))).total_seconds() * 1000)


def _refusal(code: str, message: str) -> SandboxError:
    """Throttled calls are repeated at once. A refusal for want of room may work later. Every other one is broken."""
    if code in _THROTTLED_CODES or "rate exceeded" in message.lower() or "throttl" in message.lower():
        return SandboxStarting(_THROTTLED_SECONDS)
    if code in _CAPACITY_CODES or any(word in f"{code} {message}".lower() for word in _CAPACITY_WORDS):
        return SandboxCapacity(
            "AWS has no room for another sandbox now (Fargate capacity or the account's vCPU quota; 'moorage doctor' shows it)."
        )
    return SandboxError("The container's sandbox could not be started.")
