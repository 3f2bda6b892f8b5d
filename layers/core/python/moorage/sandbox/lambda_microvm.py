"""Sandboxes as Lambda MicroVMs: one Firecracker VM per incarnation of a container. **Not yet run on AWS**; botocore's model is the
contract.

A VM starts in seconds, sleeps with memory and disk when nothing speaks to it, and wakes at the next request, so that a container
costs little between two turns. Its endpoint is public HTTPS and takes, beside the exec server's token, a token of AWS's own that is
bound to this VM and port and lives for an hour at most (``sandbox/microvm_endpoint.py``). The exec server's configuration
comes by the run hook; without an execution role the VM holds no AWS credentials at all.
"""

import asyncio
import base64
import hashlib
import json
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import field
from typing import Any, Final, Self

from botocore.exceptions import ClientError

from moorage import limits
from moorage.dataclass import dataclass
from moorage.egress import trust
from moorage.errors import SandboxCapacity, SandboxError, SandboxGone, SandboxStarting, SandboxUnreachable
from moorage.sandbox.exec_client import ExecClient
from moorage.sandbox.lost_microvms import RunningMicrovm
from moorage.sandbox.microvm_endpoint import EXEC_PORT, MicrovmAuth
from moorage.sandbox.microvm_versions import ImageVersion
from moorage.sandbox.provisioner import Handle, SandboxSpec, SandboxStatus
from moorage.settings import SettingsError
from moorage.telemetry import Metric, tell, tell_error

DEPLOYMENT_TAG: Final = "moorage:deployment"
COMMAND_UID: Final = 1000
"""The image's ``user`` (``functions/sandbox/Dockerfile``)."""

LIFE_SECONDS: Final = 8 * 3600
"""The longest that a VM may live, asleep or awake (``RunMicrovm``)."""

IDLE_SECONDS: Final = 120
"""Without traffic for this long a VM goes to sleep. The exec server's heartbeats keep it awake while somebody reads."""

GIB: Final = 1024**3
DISK_BYTES: Final = {1: 4 * GIB, 4: 4 * GIB, 16: 12 * GIB}
"""What a container may write, by GiB of memory. The disks of the smallest images that have so much memory are of 8, 8 and 16 GB
(https://docs.aws.amazon.com/lambda/latest/dg/microvms-images.html). The container image, about 3 GB, lies on it too."""

OPEN_FILES: Final = 1_024
"""The hard limit in a MicroVM without additional capabilities (reported)."""

HOOK_PAYLOAD_BYTES_MAX: Final = 4_096
TOKEN_MINUTES: Final = 60
_POLL_SECONDS: Final = 1.0
_RUNS_MAX: Final = 3
_AUTHS_MAX: Final = 1_000
"""VMs whose tokens a process remembers; a forgotten one costs a call."""
_GONE: Final = frozenset({"TERMINATING", "TERMINATED"})
_STATUSES: Final = {
    "PENDING": SandboxStatus.STARTING,
    "SUSPENDING": SandboxStatus.ASLEEP,
    "SUSPENDED": SandboxStatus.ASLEEP,
}
_CAPACITY_CODES: Final = frozenset({"InsufficientCapacityException", "ServiceQuotaExceededException"})
_WAITED_CODES: Final = frozenset({"ThrottlingException", "TooManyRequestsException", "InternalServerException", "ServiceException"})
"""They say nothing of a VM: the call is made again. ``ConflictException``, too, where a VM is ended or a token made."""
_RETRY_SECONDS: Final = 5.0
_ACTIVE: Final = "ACTIVE"
_CONFLICT: Final = "ConflictException"


@dataclass(frozen=True, slots=True)
class MicrovmSettings:
    """The images and the connectors of VMs, from ``MOORAGE_MICROVM_*``."""

    images: Mapping[int, str]
    """ARN by GiB of memory: a VM's size is its image's."""
    egress_connector: str
    """A network connector into isolated subnets. AWS's default is the public internet, so there is none here."""
    deployment: str = ""
    """An image with this as its tag ``moorage:deployment`` runs VMs of this deployment only, so that a lost one can be told."""
    versions: Mapping[int, str] = field(default_factory=dict)
    """The image's version by GiB of memory. Without one it is the newest that is active."""
    policy_connector: str = ""
    """Another connector, from which the egress proxy alone is reached; empty where there is no proxy."""
    reaches_bucket: bool = False
    """Whether a VM's network leads to the bucket, so that large files need not pass its endpoint of 1 MB/s."""
    proxy_networks: tuple[str, ...] = ()
    """Where the proxy is: no name leads to it (``functions/sandbox/server/forwarder.py``)."""

    @classmethod
    def from_settings(cls, values: Mapping[str, str], deployment: str = "") -> Self:
        """Read ``image_1g``, ``version_1g`` ... and ``egress_connector``; raises :class:`SettingsError`."""
        images, versions = (
            {gib: values[f"{kind}_{tier}"] for tier, gib in limits.MEMORY_LIMITS.items() if f"{kind}_{tier}" in values}
            for kind in ("image", "version")
        )
        if not images.keys() <= DISK_BYTES.keys():
            raise SettingsError("MOORAGE_MICROVM_IMAGE_64G cannot be set: the largest MicroVM has 32 GB of memory.")
        if not images or "egress_connector" not in values:
            raise SettingsError("MOORAGE_MICROVM_IMAGE_1G (or another tier) and MOORAGE_MICROVM_EGRESS_CONNECTOR must be set.")
        networks = tuple(values.get("proxy_networks", "").split(",")) if values.get("proxy_networks") else ()
        if bool(networks) != ("policy_connector" in values):
            raise SettingsError("MOORAGE_MICROVM_POLICY_CONNECTOR and MOORAGE_MICROVM_PROXY_NETWORKS belong together.")
        return cls(
            images,
            values["egress_connector"],
            deployment,
            versions,
            values.get("policy_connector", ""),
            reaches_bucket=values.get("reaches_bucket") == "true",
            proxy_networks=networks,
        )


class LambdaMicrovmProvisioner:
    def __init__(self, client: Any, core: Callable[[], Any], settings: MicrovmSettings, executor: Executor) -> None:
        """``client`` is boto3's ``lambda-microvms``, and ``core`` makes its ``lambda-core``, which is asked only after a refusal."""
        self._client = client
        self._core = core
        self._settings = settings
        self._executor = executor
        self._own_images: set[str] = set()
        self._auths: OrderedDict[str, MicrovmAuth] = OrderedDict()

    def connect(self, handle: Handle) -> ExecClient:
        """A client of the VM's exec server that passes AWS's gate before it; clients of one VM share its token."""
        auth = self._auths.pop(handle.sandbox_id, None) or MicrovmAuth(self, handle.sandbox_id, time.monotonic, asyncio.sleep)
        self._auths[handle.sandbox_id] = auth
        if len(self._auths) > _AUTHS_MAX:
            self._auths.popitem(last=False)
        return ExecClient(handle, auth=auth, reaches_bucket=self._settings.reaches_bucket)

    async def start(self, spec: SandboxSpec) -> Handle:
        """Idempotent by the client token: it names container and incarnation. The first request wakes a VM that sleeps."""
        vm = await self._run(spec)
        if vm["state"] == "PENDING":
            raise SandboxStarting(_POLL_SECONDS)
        ends_at = int(vm["startedAt"].timestamp()) + vm["maximumDurationInSeconds"]
        return Handle(_url(vm["endpoint"]), spec.token, vm["microvmId"], ends_at)

    async def find(self, spec: SandboxSpec) -> str | None:
        """Never found: no call of AWS tells a VM by its client token. One that nobody names is ended by its id (:meth:`running`)."""
        return None

    async def stop(self, sandbox_id: str) -> None:
        try:
            await self._call("terminate_microvm", microvmIdentifier=sandbox_id)
        except ClientError as error:
            match error.response["Error"]["Code"]:
                case "ResourceNotFoundException":
                    return
                case "ConflictException":  # It is being changed: it can be ended a moment later.
                    raise SandboxStarting(_RETRY_SECONDS) from error
                case _:
                    raise

    async def running(self) -> list[RunningMicrovm]:
        """The VMs that live, for the reaper: of the images that carry this deployment's name. Those of an image without it may be
        another's."""
        return [vm for image in await self._own() for vm in await self._running(image)]

    async def image_versions(self) -> dict[str, list[ImageVersion]]:
        """All versions of each image that carries this deployment's name, by its ARN."""
        return {image: await self._versions(image) for image in await self._own()}

    async def delete_version(self, image: str, number: str) -> None:
        """Raises :class:`SandboxStarting` while the image is being changed. A version that is not there is no error."""
        try:
            await self._call("delete_microvm_image_version", imageIdentifier=image, imageVersion=number)
        except ClientError as error:
            match error.response["Error"]["Code"]:
                case "ResourceNotFoundException":
                    return
                case "ConflictException":
                    raise SandboxStarting(_RETRY_SECONDS) from error
                case _:
                    raise

    async def add_skill(self, handle: Handle, directory: str, archive: bytes) -> bool:
        return False

    async def desk(self, handle: Handle, *, starts: bool = True) -> Handle:
        return handle

    async def describe(self, sandbox_id: str) -> SandboxStatus:
        try:
            vm = await self._call("get_microvm", microvmIdentifier=sandbox_id)
        except ClientError as error:
            if error.response["Error"]["Code"] == "ResourceNotFoundException":
                return SandboxStatus.STOPPED
            raise
        if vm["state"] in _GONE:
            return SandboxStatus.STOPPED
        return _STATUSES.get(vm["state"], SandboxStatus.RUNNING)

    async def proxy_token(self, sandbox_id: str) -> str:
        """A token for the VM's endpoint and the exec server's port, good for an hour. Raises :class:`SandboxGone`."""
        try:
            answer = await self._call(
                "create_microvm_auth_token",
                microvmIdentifier=sandbox_id,
                expirationInMinutes=TOKEN_MINUTES,
                allowedPorts=[{"port": EXEC_PORT}],
            )
        except ClientError as error:
            match error.response["Error"]["Code"]:
                case "ResourceNotFoundException":
                    raise SandboxGone("The container's sandbox has ended.") from error
                case "ConflictException":
                    raise SandboxUnreachable from error
                case _:
                    raise
        token: str = answer["authToken"]["X-aws-proxy-auth"]
        return token

    async def _own(self) -> list[str]:
        return [image for image in dict.fromkeys(self._settings.images.values()) if await self._is_own(image)]

    async def _is_own(self, image: str) -> bool:
        if image not in self._own_images:
            tags = (await self._call("list_tags", Resource=image)).get("Tags", {})
            if not self._settings.deployment or tags.get(DEPLOYMENT_TAG) != self._settings.deployment:
                return False
            self._own_images.add(image)
        return True

    async def _running(self, image: str) -> list[RunningMicrovm]:
        return [
            RunningMicrovm(vm["microvmId"], vm["startedAt"].timestamp(), image, vm["imageVersion"])
            for vm in await self._items("list_microvms", image)
            if vm["state"] not in _GONE
        ]

    async def _versions(self, image: str) -> list[ImageVersion]:
        return [
            ImageVersion(version["imageVersion"], version["createdAt"].timestamp(), version["state"])
            for version in await self._items("list_microvm_image_versions", image)
        ]

    async def _items(self, operation: str, image: str) -> list[dict[str, Any]]:
        """All pages. An empty one need not be the last: AWS filters after it has cut one."""
        found: list[dict[str, Any]] = []
        page: dict[str, str] = {}
        while True:
            answer = await self._call(operation, imageIdentifier=image, **page)
            found += answer["items"]
            if not answer.get("nextToken"):
                return found
            page = {"nextToken": answer["nextToken"]}

    async def _run(self, spec: SandboxSpec) -> dict[str, Any]:
        request = self._request(spec)
        name = f"{spec.container_id}/{hashlib.sha256(spec.token.encode()).hexdigest()}"
        reason = ""
        for number in range(_RUNS_MAX):
            token = hashlib.sha256(f"{name}/{number}".encode()).hexdigest()
            try:
                started = await self._call("run_microvm", clientToken=token, **request)
            except ClientError as error:
                await self._check_refusal(error, self._connector(spec))
                reason = ""
                continue
            # A repeated call may be answered with what was true at the first one.
            vm: dict[str, Any] = await self._call("get_microvm", microvmIdentifier=started["microvmId"])
            if vm["state"] not in _GONE:
                await self._check_way_out(vm, self._connector(spec))
                return vm
            reason = vm.get("stateReason", "no reason given")
        if not reason:  # The image may be in change.
            raise SandboxStarting(_RETRY_SECONDS)
        raise SandboxError(f"The container's sandbox ended while it started: {reason}.")

    async def _check_refusal(self, error: ClientError, connector: str) -> None:
        """Raise what a refused start means; return if the next client token may be had.

        A VM takes no connector that is not active (Lambda developer guide). The refusal of one has no code of its own, so AWS is asked.
        With an active one, a conflict is the client token's: an earlier start asked for another image version, or for another proxy.
        """
        code = error.response["Error"]["Code"]
        if code in _CAPACITY_CODES:
            raise SandboxCapacity("AWS has no room for another sandbox now (the account's MicroVM quota; 'moorage doctor' shows it).")
        state = await self._state_of(connector)
        if state == "PENDING":
            raise SandboxStarting(_RETRY_SECONDS) from error
        if code == _CONFLICT and state == _ACTIVE:
            return
        tell_error(error, "a MicroVM was not started", code=code, connector=connector, connector_state=state)
        if state in (_ACTIVE, ""):
            raise SandboxError("The container's sandbox could not be started.") from error
        raise SandboxError(f"The container's sandbox could not be started: its network connector is {state}.") from error

    async def _state_of(self, connector: str) -> str:
        """Empty if AWS does not say."""
        try:
            answer = await self._call("get_network_connector", client=self._core(), Identifier=connector)
        except ClientError:
            return ""
        state: str = answer.get("State", "")
        return state

    def _connector(self, spec: SandboxSpec) -> str:
        if spec.egress is None:
            return self._settings.egress_connector
        if not self._settings.policy_connector:
            raise SandboxError("This deployment has no egress proxy for MicroVMs (allowed_egress_domains in cdk.json is empty).")
        return self._settings.policy_connector

    async def _check_way_out(self, vm: Mapping[str, Any], asked: str) -> None:
        """End a VM whose only connector is not the one that was asked for. An image's own takes the place of one that got lost, and
        AWS's default is the public internet."""
        given = vm.get("egressNetworkConnectors", [])
        if len(given) == 1 and (given[0] == asked or given[0].startswith(f"{asked}:")):  # A version may follow.
            return
        await self.stop(vm["microvmId"])
        ended = {"sandbox_id": vm["microvmId"], "given": ",".join(given)}
        tell("a MicroVM was given another network than was asked for", ended, {Metric.WRONG_NETWORK: 1})
        raise SandboxError("The container's sandbox had another network than was asked for, and was ended.")

    def _request(self, spec: SandboxSpec) -> dict[str, Any]:
        image = self._settings.images.get(spec.memory_gib)
        if image is None:
            raise SandboxError(f"This deployment has no sandboxes of {spec.memory_gib} GiB.")
        connector = self._connector(spec)
        payload = _packed(_server_config(spec, self._settings.proxy_networks))
        if len(payload) > HOOK_PAYLOAD_BYTES_MAX:
            raise SandboxError("The container's variables are too long: a MicroVM takes 4,096 bytes of configuration.")
        version = self._settings.versions.get(spec.memory_gib)
        return {
            "imageIdentifier": image,
            **({"imageVersion": version} if version else {}),
            "egressNetworkConnectors": [connector],
            "idlePolicy": {
                "maxIdleDurationSeconds": IDLE_SECONDS,
                "suspendedDurationSeconds": min(spec.idle_minutes * 60, LIFE_SECONDS),
                "autoResumeEnabled": True,
            },
            "maximumDurationInSeconds": LIFE_SECONDS,
            "logging": {"disabled": {}},
            "runHookPayload": payload,
        }

    async def _call(self, operation: str, *, client: Any = None, **request: Any) -> Any:
        """Raises :class:`SandboxStarting` if AWS asks for patience, and ``ClientError``."""
        method = getattr(client or self._client, operation)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: method(**request))
        except ClientError as error:
            if error.response["Error"]["Code"] in _WAITED_CODES:
                raise SandboxStarting(_retry_seconds(error)) from error
            raise


def _packed(config: Mapping[str, Any]) -> str:
    """For the image's run hook (``functions/sandbox/microvm.py``), in less space where that is needed: variables repeat the proxy's
    address."""
    plain = json.dumps(config, separators=(",", ":"))
    if len(plain) <= HOOK_PAYLOAD_BYTES_MAX:
        return plain
    return json.dumps({"zlib": base64.b64encode(zlib.compress(plain.encode(), 9)).decode()}, separators=(",", ":"))


def _server_config(spec: SandboxSpec, proxy_networks: Sequence[str]) -> dict[str, Any]:
    """The exec server's configuration; the image's run hook hands it on."""
    egress = spec.egress
    return {
        **({} if egress is None else {"egress": {"networks": list(proxy_networks), "place": egress.place, "ca_pem": egress.ca_pem}}),
        "token_sha256": hashlib.sha256(spec.token.encode()).hexdigest(),
        "listen": f"tcp:0.0.0.0:{EXEC_PORT}",
        "uid": COMMAND_UID,
        **({"read_only": True} if spec.is_read_only else {}),
        "env": {**({} if egress is None else egress.variables(trust.FORWARDER)), **spec.env},
        "limits": {
            "processes": limits.CONTAINER_PROCESSES_MAX,
            "open_files": OPEN_FILES,
            "disk_bytes": DISK_BYTES[spec.memory_gib],
            "spool_bytes": limits.OUTPUT_SPOOL_BYTES_MAX,
        },
    }


def _url(endpoint: str) -> str:
    return endpoint if "://" in endpoint else f"https://{endpoint}"


def _retry_seconds(error: ClientError) -> float:
    """``Retry-After``, a field of both models of these errors."""
    told = error.response["ResponseMetadata"].get("HTTPHeaders", {}).get("retry-after", "")
    return float(told) if told.isdecimal() else _RETRY_SECONDS
