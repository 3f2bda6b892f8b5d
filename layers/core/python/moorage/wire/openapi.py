"""This service's own OpenAPI 3.1 document, served at ``/openapi.json``.

Bodies and answers come from the types that check and describe them (``create.py``, ``resources.py``, ``answers.py``), so the document
cannot promise what is refused; a test compares the routes (``routes.py``) with those of the application.
"""

from functools import cache
from typing import Any, Final

from moorage.wire import chat_schemas, container_sessions, create, embeddings, resources, tool_shapes, vector_stores, webhooks
from moorage.wire.answers import ANSWERS
from moorage.wire.route import JSON, ref
from moorage.wire.routes import ROUTES
from moorage.wire.schema import JsonSchema, components
from moorage.wire.validation import JsonValidator

_BODIES: Final = {
    "CreateResponse": create.CREATE,
    "ForkResponse": create.FORK,
    "CountInputTokens": create.COUNT,
    "CompactResponse": create.COMPACT,
    "CreateEmbedding": embeddings.EMBEDDING,
    "CreateConversation": create.CONVERSATION_CREATE,
    "UpdateConversation": create.CONVERSATION_UPDATE,
    "CreateConversationItems": create.CONVERSATION_ITEMS,
    "Verdict": create.VERDICT,
    "ApprovalLink": create.APPROVAL_LINK,
    "CreateContainer": JsonValidator[Any](resources.CreateContainer),
    "AddContainerFile": JsonValidator[Any](resources.AddContainerFile),
    "OpenSession": JsonValidator[Any](container_sessions.OpenSession),
    "SessionInput": JsonValidator[Any](container_sessions.SessionInput),
    "ResizeSession": JsonValidator[Any](container_sessions.ResizeSession),
    "CreateUpload": JsonValidator[Any](resources.CreateUpload),
    "CompleteUpload": JsonValidator[Any](resources.CompleteUpload),
    "UpdateSkill": JsonValidator[Any](resources.UpdateSkill),
    **{
        kind.__name__: JsonValidator[Any](kind)
        for kind in (
            vector_stores.CreateVectorStore,
            vector_stores.UpdateVectorStore,
            vector_stores.AddVectorStoreFile,
            vector_stores.UpdateVectorStoreFile,
            vector_stores.CreateFileBatch,
            vector_stores.SearchVectorStore,
        )
    },
    "CreateWebhookEndpoint": JsonValidator[Any](webhooks.CreateWebhookEndpoint),
    "UpdateWebhookEndpoint": JsonValidator[Any](webhooks.UpdateWebhookEndpoint),
    "RotateWebhookSecret": JsonValidator[Any](webhooks.RotateWebhookSecret),
    "SendTestEvent": JsonValidator[Any](webhooks.SendTestEvent),
}


@cache
def document(version: str) -> JsonSchema:
    """The OpenAPI document; ``version`` is the package's. Made once: anybody may ask for it, without a key."""
    assert tool_shapes.TOOLS, "no room has declared its tool yet: import moorage.tools.registry first"
    paths: dict[str, JsonSchema] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method] = route.to_json()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "moorage",
            "version": version,
            "description": "A self-hosted Responses API with a computer.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"key": []}],
        "paths": paths,
        "webhooks": webhooks.RECEIVED,
        "components": {
            "schemas": components(_BODIES | ANSWERS) | chat_schemas.SCHEMAS | vector_stores.VECTOR_STORE_ANSWERS,
            "responses": {
                "Error": {
                    "description": "Refused or failed; the error names the field where there is one.",
                    "headers": {"x-request-id": {"schema": {"type": "string"}}},
                    "content": {JSON: {"schema": ref("Error")}},
                }
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }
