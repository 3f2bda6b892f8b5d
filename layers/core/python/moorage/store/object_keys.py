"""The names of objects in the bucket: the only place that knows them. The tenant stands in every name.

``R/`` is of responses, ``T/`` of resources; what belongs to one resource shares a prefix, which its delete removes.
"""

from typing import Final

from moorage.dataclass import dataclass

RESPONSE_BLOBS: Final = "R/"
"""What belongs to responses lies apart from all else: DynamoDB drops their records by itself, and then nothing names these objects any
more. The bucket drops them by age, under this prefix."""


@dataclass(frozen=True, slots=True)
class ResourceObjects:
    """Names of the objects of a tenant's resources of one kind: ``agent_objects("t", "agent_1", "v2")`` is ``T/t/A/agent_1/v2``.
    Without a name it is the prefix of all objects of the resource."""

    kind: str

    def __call__(self, tenant_id: str, resource_id: str, name: str = "") -> str:
        return f"T/{tenant_id}/{self.kind}/{resource_id}/{name}"


container_objects: Final = ResourceObjects("C")
"""Everything that a container has in the bucket."""
upload_objects: Final = ResourceObjects("U")
"""An upload's parts."""
environment_template_objects: Final = ResourceObjects("ET")
"""A template's long configurations."""
agent_objects: Final = ResourceObjects("A")
"""An agent's long versions."""
agent_session_objects: Final = ResourceObjects("AS")
"""Content too long for the records of an agent's session."""
automation_objects: Final = ResourceObjects("AM")
"""An automation's long targets."""
conversation_objects: Final = ResourceObjects("V")
"""A conversation's large appends."""
input_objects: Final = ResourceObjects("I")
"""The content of an input item's URLs."""
vector_objects: Final = ResourceObjects("X")
"""The texts of a vector store's files."""
index_objects: Final = ResourceObjects("K")
"""The index of a vector store."""


def response_blob(tenant_id: str, response_id: str, name: str) -> str:
    """S3 key of a part of a response that is too large for the table; all share the prefix that a delete removes."""
    return f"{response_blobs(tenant_id, response_id)}{name}"


def response_blobs(tenant_id: str, response_id: str) -> str:
    """Prefix of all S3 objects of a response."""
    return f"{RESPONSE_BLOBS}{tenant_id}/{response_id}/"


def owner_of_blob(key: str) -> tuple[str, str] | None:
    """Tenant and id back from :func:`response_blob`; None for another object."""
    parts = key.removeprefix(RESPONSE_BLOBS).split("/")
    return (parts[0], parts[1]) if key.startswith(RESPONSE_BLOBS) and len(parts) > 2 else None


def skill_object(tenant_id: str, name: str) -> str:
    return f"T/{tenant_id}/S/{name}"


def file_object(tenant_id: str, file_id: str) -> str:
    return f"T/{tenant_id}/F/{file_id}"


def vector_text(tenant_id: str, store_id: str, file_id: str, token: str) -> str:
    """The text of a file as it was added; ``token`` tells additions of one file from each other."""
    return f"{vector_objects(tenant_id, store_id)}{file_id}/{token}"


def index_stamp(tenant_id: str, store_id: str) -> str:
    """Another one after each change of a store's objects in the bucket."""
    return f"{index_objects(tenant_id, store_id)}stamp"


def index_segments(tenant_id: str, store_id: str, file_id: str | None = None) -> str:
    """Prefix of the compared content of a store's chunks, or of one file's."""
    return f"{index_objects(tenant_id, store_id)}I/" + ("" if file_id is None else f"{file_id}/")


def index_texts(tenant_id: str, store_id: str, file_id: str) -> str:
    """Prefix of a file's text."""
    return f"{index_objects(tenant_id, store_id)}X/{file_id}/"


def index_bundles(tenant_id: str, store_id: str, kind: str) -> str:
    """Prefix of the objects that each hold copies of many of one kind."""
    return f"{index_objects(tenant_id, store_id)}M/{kind}/"


def index_segment(tenant_id: str, store_id: str, file_id: str, version: str) -> str:
    return f"{index_segments(tenant_id, store_id, file_id)}{version}"


def index_text(tenant_id: str, store_id: str, file_id: str, version: str) -> str:
    return f"{index_texts(tenant_id, store_id, file_id)}{version}"


def index_text_of(segment: str) -> str:
    """The text that belongs to a segment."""
    store, _, rest = segment.rpartition("/I/")
    return f"{store}/X/{rest}"


def index_neighbours(tenant_id: str, store_id: str, bucket: str, file_id: str | None = None) -> str:
    """Prefix of the notes about a store's vectors in a vector bucket, or about one of its files."""
    return f"{index_objects(tenant_id, store_id)}V/{bucket}/" + ("" if file_id is None else f"{file_id}/")
