"""AES-256-GCM with its nonce in front: how everything is sealed that lies in the table or in clients' hands.

The library is imported with the first use. Most processes of one machine seal nothing, and hold 5 MiB less without it.
"""

import os
from typing import Final

_NONCE_BYTES: Final = 12
"""NIST SP 800-38D, section 8.2.2: random nonces stay far from repeating where a key seals far less than 2^32 texts."""
_KEY_BYTES: Final = 32


class SealBroken(Exception):
    """The ciphertext was changed or moved, or another key sealed it."""


def derived_key(secret: bytes, purpose: bytes) -> bytes:
    """32 bytes for one purpose alone (HKDF with SHA-256, RFC 5869)."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), _KEY_BYTES, salt=None, info=purpose).derive(secret)


def seal(text: str, key: bytes, bound_to: bytes) -> bytes:
    """``bound_to`` is authenticated with it: a ciphertext that was moved elsewhere does not open there."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, text.encode(), bound_to)


def unseal(sealed: bytes, key: bytes, bound_to: bytes) -> str:
    """Raises :class:`SealBroken`, and ValueError for what can be no ciphertext."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound_to).decode()
    except InvalidTag as error:
        raise SealBroken from error
