"""What ends by itself: files and vector stores with ``expires_after``, uploads, skills' unused bundles, fetched inputs.

(Containers have ``Sweep.expire_due``.)
"""

from typing import Protocol

from moorage.files.store import FileStore
from moorage.files.upload_store import Uploads
from moorage.inputs import Resources, purge_inputs
from moorage.skills.store import SkillStore
from moorage.vector_stores.vector_stores import VectorStores


class ExpiringResources(Resources, Protocol):
    """The needed part of the runtime."""

    @property
    def uploads(self) -> Uploads: ...

    @property
    def skills(self) -> SkillStore: ...

    @property
    def vector_stores(self) -> VectorStores: ...


async def purge_expired(resources: ExpiringResources, now: float) -> int:
    """Erase everything whose time has come, with its bytes; answers how much that was. Harmless to run twice, or twice at once.

    DynamoDB's own TTL would drop the records and leave the bytes in S3. To be called about once a minute.
    """
    files: FileStore = resources.files
    ended = await files.purge_due(now) + await resources.uploads.purge_due(now) + await resources.skills.purge_due(now)
    ended += await resources.vector_stores.sweep.purge_due(now)
    return ended + await purge_inputs(resources, now)
