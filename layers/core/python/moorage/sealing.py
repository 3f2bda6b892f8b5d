"""AES-256-GCM with its nonce in front: how everything is sealed that lies in the table or in clients' hands."""

import os
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES: Final = 12
"""NIST SP 800-38D, section 8.2.2: random nonces stay far from repeating where a key seals far less than 2^32 texts."""


def seal(text: str, key: bytes, bound_to: bytes) -> bytes:
    """``bound_to`` is authenticated with it: a ciphertext that was moved elsewhere does not open there."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, text.encode(), bound_to)


def unseal(sealed: bytes, key: bytes, bound_to: bytes) -> str:
    """Raises ``cryptography.exceptions.InvalidTag`` for what was changed or moved, ValueError for what can be no ciphertext."""
    return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound_to).decode()
