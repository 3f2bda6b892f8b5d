"""Text that only this deployment can read again, for ``encrypted_content``: clients carry it, and cannot look into it.

AES-256-GCM with a key derived from the deployment's content key. The tenant is authenticated with it, so that one tenant's token
means nothing for another, and the token names its key, so that a later one can be told from it.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
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
        key = self._key()
        sealed = sealing.seal(text, key, tenant_id.encode())
        return f"{_VERSION}.{_name(key)}.{base64.urlsafe_b64encode(sealed).decode()}"

    def open(self, tenant_id: str, token: str) -> str | None:
        """The text; None for what another deployment or tenant sealed, and for what is no token at all."""
        version, _, rest = token.partition(".")
        name, _, body = rest.partition(".")
        key = self._key()
        if version != _VERSION or name != _name(key):
            return None
        try:
            data = base64.b64decode(body, altchars=b"-_", validate=True)
            return sealing.unseal(data, key, tenant_id.encode())
        except (InvalidTag, ValueError, binascii.Error):
            return None

    def _key(self) -> bytes:
        return HKDF(SHA256(), 32, salt=None, info=b"moorage encrypted_content").derive(self.content_key())


def _name(key: bytes) -> str:
    """A name for the key that does not give it away."""
    return hashlib.sha256(b"name of " + key).hexdigest()[:8]
