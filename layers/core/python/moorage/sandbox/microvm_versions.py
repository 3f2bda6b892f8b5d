"""Old versions of MicroVM images. Each deployment of another image makes one, an image has 50 at most, and each costs its storage.

A version is deleted when no machine runs it and no function can start it any more. Functions name the version that they were published
with, and an older function works until its alias has moved and its last execution has ended. So the newest ones stay, the one that this
process names stays, and so does each that was the newest a day ago. What a deletion does to machines of the version is not documented;
so none is deleted under a machine.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import SandboxError
from moorage.sandbox.lost_microvms import RunningMicrovm
from moorage.telemetry import tell_error

_LOOKS_APART_SECONDS: Final = 3_600


@dataclass(frozen=True, slots=True)
class ImageVersion:
    number: str
    """Such as ``3.0``."""
    created_at: float
    """Unix seconds."""
    state: str
    """``PENDING``, ``IN_PROGRESS``, ``SUCCESSFUL``, ``FAILED``, ``DELETING``, ``DELETED`` or ``DELETE_FAILED``."""


class ImageOwner(Protocol):
    async def image_versions(self) -> Mapping[str, Sequence[ImageVersion]]: ...
    async def delete_version(self, image: str, number: str) -> None: ...


class MicrovmVersions:
    def __init__(self, owner: ImageOwner, named: Sequence[str], clock: Callable[[], float]) -> None:
        """``named`` are the versions that this deployment's functions start."""
        self._owner = owner
        self._named = frozenset(named)
        self._clock = clock
        self._due_at = float("-inf")

    async def prune(self, running: Sequence[RunningMicrovm]) -> int:
        """Delete what is old, once an hour, and answer how many that were; ``running`` is what lives. Harmless to run twice.

        One version of an image at a time: meanwhile AWS lets nobody change the image, and a deployment may want to."""
        now = self._clock()
        if now < self._due_at:
            return 0
        self._due_at = now + _LOOKS_APART_SECONDS
        pruned = 0
        for image, versions in (await self._owner.image_versions()).items():
            kept = self._named | {vm.version for vm in running if vm.image == image}
            old = [number for number in old_versions(versions, now) if number not in kept]
            pruned += await self._delete(image, old[0]) if old else 0
        return pruned

    async def _delete(self, image: str, number: str) -> int:
        try:
            await self._owner.delete_version(image, number)
        except SandboxError:
            return 0  # The image is being changed, or AWS asks for patience.
        except (BotoCoreError, ClientError) as error:
            tell_error(error, "an old version of a MicroVM image was not deleted", image=image, version=number)
            return 0
        return 1


def old_versions(versions: Sequence[ImageVersion], now: float) -> list[str]:
    """The numbers of those that were followed by enough newer ones, for long enough; and of builds that failed. The oldest first."""
    by_age = sorted(versions, key=lambda version: version.created_at)
    built = [version for version in by_age if version.state == "SUCCESSFUL"]
    horizon = now - limits.MICROVM_VERSION_SECONDS_MIN
    followed = [
        version
        for version, successor in pairwise(built)
        if successor.created_at <= horizon and version not in built[-limits.MICROVM_VERSIONS_KEPT :]
    ]
    failed = [version for version in by_age if version.state in ("FAILED", "DELETE_FAILED") and version.created_at <= horizon]
    return [version.number for version in sorted([*followed, *failed], key=lambda version: version.created_at)]
