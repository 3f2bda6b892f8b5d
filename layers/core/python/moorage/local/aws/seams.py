"""What is used of ministack beyond its address; ``tests/contract/test_ministack.py`` holds each of these.

The keys of the key service are taken out and put back as one document.
"""

import json
from typing import Final

from ministack.core import persistence
from ministack.services import kms

_KMS_READS: Final = frozenset(
    {"Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "GenerateRandom", "ListAliases", "ListKeys", "ReEncrypt"}
)


def changes_keys(operation: str) -> bool:
    """Whether an operation of the key service leaves something that must be kept."""
    return operation not in _KMS_READS


def keys_document() -> str:
    return json.dumps(kms.get_state(), default=persistence._json_default)


def restore_keys(document: str | None) -> None:
    if document is not None:
        kms.load_persisted_state(json.loads(document, object_hook=persistence._json_object_hook))
