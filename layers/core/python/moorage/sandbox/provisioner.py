"""The interface that starts and stops sandboxes.

A sandbox runs one container's commands: a bubblewrap sandbox here, a Docker container, a Fargate task on AWS. All of them run the same
exec server (``functions/sandbox``). So all other code talks to a :class:`Handle` through ``sandbox/exec_client.py`` and never knows its
kind. A sandbox serves one container of one tenant, once: a container that is revived gets a new sandbox with an empty workspace, and
its files are staged again.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final, Protocol

from moorage import limits
from moorage.dataclass import dataclass
from moorage.egress import trust

CONFIG_VARIABLE: Final = "MOORAGE_SANDBOX_CONFIG"
"""Where an exec server finds its configuration that cannot be handed a file."""
POOLED: Final = "pool_"
"""How the ids begin under which sandboxes are started for the warm pool (``warm_pool.py``)."""


def is_pooled(container_id: str) -> bool:
    """Whether a sandbox was started for the pool, by the id that it was started under."""
    return container_id.startswith(POOLED)


class SandboxStatus(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    ASLEEP = "asleep"
    """It sleeps with its processes, and the next request wakes it."""
    STOPPED = "stopped"
    """Stopped, dead, or never there: the three are alike to the caller."""


@dataclass(frozen=True, slots=True)
class Handle:
    """The address of a sandbox's exec server, and its token."""

    endpoint: str
    """``unix:/absolute/path`` or ``http://10.0.0.5:8080``."""
    token: str = field(repr=False)
    sandbox_id: str
    ends_at: int = 0
    """When its owner ends it whatever it does (Unix seconds); 0 for never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressSpec:
    """The only way out of a sandbox. Without one it has a loopback interface and nothing else."""

    proxy: str
    """``unix:/path/to/egress.sock`` or ``http://host:3128``. A Unix socket lies in a directory of its own: the whole directory
    is shown to the sandbox (read-only), so that a proxy that is started again under the same name is found. The proxy makes it
    with mode 0666, in a directory that only its user may enter: where the launcher is root, sandboxes are other users."""
    username: str
    password: str = field(repr=False)
    """This container's credentials at the proxy. Commands can read them: they only say whose policy applies."""
    ca_pem: str = ""
    """The proxy's CA certificate as PEM text; it is added to the system's for every tool that runs in the sandbox."""
    place: str = field(default="", repr=False)
    """What a forwarder tells the proxy if sandboxes share an address (``egress/places.py``)."""

    def variables(self, address: str) -> dict[str, str]:
        """The variables of commands that reach proxy or forwarder at ``address`` (``127.0.0.1:3128``)."""
        return trust.environment(trust.proxy_url(address, self.username, self.password), trust.CA_BUNDLE)


USUAL_MEMORY_GIB: Final = 1
"""Of a container whose maker names no other tier."""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    tenant_id: str
    container_id: str
    token: str = field(repr=False)
    """The bearer token of the exec server; at least 32 characters."""
    memory_gib: int = USUAL_MEMORY_GIB
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that every command sees, such as the placeholders of ``domain_secrets``."""
    egress: EgressSpec | None = None
    placed: Handle | None = None
    """Where an earlier start has put it, if that is known."""
    idle_minutes: int = limits.CONTAINER_IDLE_MINUTES_DEFAULT
    """How long the container keeps its processes while nobody uses it."""
    is_unclaimed: bool = False
    """For the warm pool: it serves nobody before it is claimed (``POST /v1/claim``)."""
    is_read_only: bool = False
    """Once its first command has begun, the files of its workspace can only be read."""


class Provisioner(Protocol):
    async def start(self, spec: SandboxSpec) -> Handle:
        """Start the container's sandbox, or find the running one, and return its address.

        Idempotent per ``container_id``, and so also the way to refresh a handle. Raises :class:`SandboxStarting` while it is on its
        way and :class:`SandboxCapacity` when none can be had; :class:`SandboxError` when it is broken.
        """
        ...

    async def find(self, spec: SandboxSpec) -> str | None:
        """The sandbox that a start with this ``container_id`` and ``token`` has begun, for the cleanup after a dead starter; None if
        there is none.

        Starts nothing.
        """
        ...

    async def stop(self, sandbox_id: str) -> None:
        """End the sandbox and all that runs in it. A sandbox that is not there is no error."""
        ...

    async def add_skill(self, handle: Handle, directory: str, archive: bytes) -> bool:
        """Unpack a skill's bundle (a zip with one folder) as ``SKILLS/<directory>``.

        Commands can read it and not change it; an existing one stays as it is. False if the exec server does that itself. Raises
        :class:`SandboxError`.
        """
        ...

    async def desk(self, handle: Handle, *, starts: bool = True) -> Handle:
        """The exec server of this sandbox's desk (``sandbox/desk_client.py``): its own, or another one.

        Starts no browser, and without ``starts`` no server. Raises :class:`DeskUnavailable` if there can be none, or is none.
        """
        ...

    async def describe(self, sandbox_id: str) -> SandboxStatus:
        """The owner's state of the sandbox. Equal to ``"starting"``, ``"running"``, ``"asleep"`` and ``"stopped"``."""
        ...
