"""Text that only this deployment can read again, for ``encrypted_content``: clients carry it, and cannot look into it.

AES-256-GCM with a key derived from the deployment's content key. The tenant is authenticated with it, so that one tenant's token
means nothing for another, and the token names its key, so that a later one can be told from it.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from moorage import sealing

_VERSION: Final = "mrg1"


@dataclass(frozen=True, slots=True)
class Sealer:
    content_key: Callable[[], bytes] = field(repr=False)
    """32 bytes, asked for when something is sealed or opened."""

    def seal(self, tenant_id: str, text: str) -> str:
        key, known_as = _derived(self.content_key())
        sealed = sealing.seal(text, key, tenant_id.encode())
        return f"{_VERSION}.{known_as}.{base64.urlsafe_b64encode(sealed).decode()}"

    def open(self, tenant_id: str, token: str) -> str | None:
        """The text; None for what another deployment or tenant sealed, and for what is no token at all."""
        version, _, rest = token.partition(".")
        name, _, body = rest.partition(".")
        key, known_as = _derived(self.content_key())
        if version != _VERSION or name != known_as:
            return None
        try:
            data = base64.b64decode(body, altchars=b"-_", validate=True)
            return sealing.unseal(data, key, tenant_id.encode())
        except (InvalidTag, ValueError, binascii.Error):
            return None


@lru_cache(maxsize=1)
def _derived(content_key: bytes) -> tuple[bytes, str]:
    """The key that is sealed with, and a name for it that does not give it away."""
    key = HKDF(SHA256(), 32, salt=None, info=b"moorage encrypted_content").derive(content_key)
    return key, hashlib.sha256(b"name of " + key).hexdigest()[:8]
