"""This service's own OpenAPI 3.1 document, served at ``/openapi.json``.

Bodies and answers come from the types that check and describe them (``create.py``, ``resources.py``, ``answers.py``), so the document
cannot promise what is refused; a test compares the routes (``routes.py``) with those of the application.
"""

from functools import cache
from typing import Any, Final

from moorage.wire import admitted, chat_schemas, container_sessions, create, embeddings, resources, vector_stores, webhooks
from moorage.wire.answers import ANSWERS
from moorage.wire.route import JSON, ref
from moorage.wire.routes import ROUTES
from moorage.wire.schema import JsonSchema, components
from moorage.wire.validation import Parser

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
    "CreateContainer": Parser[Any](resources.CreateContainer),
    "AddContainerFile": Parser[Any](resources.AddContainerFile),
    "OpenSession": Parser[Any](container_sessions.OpenSession),
    "SessionInput": Parser[Any](container_sessions.SessionInput),
    "ResizeSession": Parser[Any](container_sessions.ResizeSession),
    "CreateUpload": Parser[Any](resources.CreateUpload),
    "CompleteUpload": Parser[Any](resources.CompleteUpload),
    "UpdateSkill": Parser[Any](resources.UpdateSkill),
    **{
        kind.__name__: Parser[Any](kind)
        for kind in (
            vector_stores.CreateVectorStore,
            vector_stores.UpdateVectorStore,
            vector_stores.AddVectorStoreFile,
            vector_stores.UpdateVectorStoreFile,
            vector_stores.CreateFileBatch,
            vector_stores.SearchVectorStore,
        )
    },
    "CreateWebhookEndpoint": Parser[Any](webhooks.CreateWebhookEndpoint),
    "UpdateWebhookEndpoint": Parser[Any](webhooks.UpdateWebhookEndpoint),
    "RotateWebhookSecret": Parser[Any](webhooks.RotateWebhookSecret),
    "SendTestEvent": Parser[Any](webhooks.SendTestEvent),
}


@cache
def document(version: str) -> JsonSchema:
    """The OpenAPI document; ``version`` is the package's. Made once: anybody may ask for it, without a key."""
    assert admitted.TOOLS, "no room has declared its tool yet: import moorage.tools.registry first"
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
