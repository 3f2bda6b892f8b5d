"""The names of objects in the bucket: the only place that knows them. The tenant stands in every name.

``R/`` is of responses, ``T/`` of resources; what belongs to one resource shares a prefix, which its delete removes.
"""

from typing import Final

RESPONSE_BLOBS: Final = "R/"
"""What belongs to responses lies apart from all else: DynamoDB drops their records by itself, and then nothing names these objects any
more. The bucket drops them by age, under this prefix."""


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


def container_objects(tenant_id: str, container_id: str) -> str:
    """Prefix of everything that a container has in the bucket."""
    return f"T/{tenant_id}/C/{container_id}/"


def container_object(tenant_id: str, container_id: str, name: str) -> str:
    return f"{container_objects(tenant_id, container_id)}{name}"


def upload_objects(tenant_id: str, upload_id: str) -> str:
    """Prefix of an upload's parts."""
    return f"T/{tenant_id}/U/{upload_id}/"


def upload_object(tenant_id: str, upload_id: str, part_id: str) -> str:
    return f"{upload_objects(tenant_id, upload_id)}{part_id}"


def environment_template_objects(tenant_id: str, template_id: str) -> str:
    """Prefix of a template's long configurations."""
    return f"T/{tenant_id}/ET/{template_id}/"


def environment_template_object(tenant_id: str, template_id: str, name: str) -> str:
    return f"{environment_template_objects(tenant_id, template_id)}{name}"


def agent_objects(tenant_id: str, agent_id: str) -> str:
    """Prefix of an agent's long versions."""
    return f"T/{tenant_id}/A/{agent_id}/"


def agent_object(tenant_id: str, agent_id: str, name: str) -> str:
    return f"{agent_objects(tenant_id, agent_id)}{name}"


def agent_session_objects(tenant_id: str, session_id: str) -> str:
    """Prefix of content too long for the records of an agent's session."""
    return f"T/{tenant_id}/AS/{session_id}/"


def automation_objects(tenant_id: str, automation_id: str) -> str:
    """Prefix of an automation's long targets."""
    return f"T/{tenant_id}/AM/{automation_id}/"


def conversation_objects(tenant_id: str, conversation_id: str) -> str:
    """Prefix of a conversation's large appends."""
    return f"T/{tenant_id}/V/{conversation_id}/"


def conversation_object(tenant_id: str, conversation_id: str, name: str) -> str:
    return f"{conversation_objects(tenant_id, conversation_id)}{name}"


def input_objects(tenant_id: str, item_id: str) -> str:
    """Prefix of the content of an input item's URLs."""
    return f"T/{tenant_id}/I/{item_id}/"


def vector_objects(tenant_id: str, store_id: str) -> str:
    """Prefix of the texts of a store's files."""
    return f"T/{tenant_id}/X/{store_id}/"


def vector_text(tenant_id: str, store_id: str, file_id: str, token: str) -> str:
    """The text of a file as it was added; ``token`` tells additions of one file from each other."""
    return f"{vector_objects(tenant_id, store_id)}{file_id}/{token}"


def index_objects(tenant_id: str, store_id: str) -> str:
    """Prefix of all that a vector store has in the bucket."""
    return f"T/{tenant_id}/K/{store_id}/"


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
