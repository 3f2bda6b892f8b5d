"""Text that only this deployment can read again, for ``encrypted_content``: clients carry it, and cannot look into it.

AES-256-GCM with a key derived from the deployment's content key. The tenant is authenticated with it, so that one tenant's token
means nothing for another, and the token names its key, so that a later one is told from it: an older one may open what it has sealed.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from dataclasses import field
from functools import lru_cache
from typing import Final

from moorage import sealing
from moorage.dataclass import dataclass

_VERSION: Final = "mrg1"
_NAME: Final = re.compile(r"[0-9a-f]{8}")
_KEYS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class Sealer:
    content_key: Callable[[], bytes] = field(repr=False)
    """32 bytes, asked for when something is sealed or opened."""
    others: Callable[[], tuple[bytes, ...]] = field(default=tuple, repr=False)
    """Those that open too, read anew: asked for where the first does not."""

    def seal(self, tenant_id: str, text: str) -> str:
        key, known_as = _derived(self.content_key())
        sealed = sealing.seal(text, key, tenant_id.encode())
        return f"{_VERSION}.{known_as}.{base64.urlsafe_b64encode(sealed).decode()}"

    def open(self, tenant_id: str, token: str) -> str | None:
        """The text; None for a token of another deployment or tenant, and for other text."""
        version, _, rest = token.partition(".")
        name, _, body = rest.partition(".")
        key = self._named(name) if version == _VERSION else None
        if key is None:
            return None
        try:
            data = base64.b64decode(body, altchars=b"-_", validate=True)
            return sealing.unseal(data, key, tenant_id.encode())
        except (sealing.SealBroken, ValueError, binascii.Error):
            return None

    def _named(self, name: str) -> bytes | None:
        key, known_as = _derived(self.content_key())
        if name == known_as:
            return key
        others = (_derived(other) for other in self.others()) if _NAME.fullmatch(name) else ()
        return next((other for other, known_as in others if name == known_as), None)


@lru_cache(maxsize=_KEYS_MAX)
def _derived(content_key: bytes) -> tuple[bytes, str]:
    """The key that is sealed with, and a name for it that does not give it away."""
    key = sealing.derived_key(content_key, b"moorage encrypted_content")
    return key, hashlib.sha256(b"name of " + key).hexdigest()[:8]
