"""What wraps data keys: AWS KMS, or on one machine a file of keys.

Whoever seals asks for a data key under a context, and keeps it wrapped beside what it has sealed. A wrapped key opens under the same
context alone: KMS calls it the encryption context, the file authenticates it with AES-256-GCM.
"""

import base64
import hashlib
import json
import os
import stat
import uuid
from asyncio import get_running_loop
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from moorage import sealing
from moorage.dataclass import dataclass
from moorage.errors import SettingsConflict

if TYPE_CHECKING:
    from mypy_boto3_kms import KMSClient

FILE_PREFIX: Final = "file:"
"""How ``MOORAGE_EGRESS_KEY`` begins where it names a file and no key of KMS."""
_KEY_BYTES: Final = 32
_ID_CHARACTERS: Final = 36
"""Of a UUID, which a wrapped key begins with: it names what wrapped it."""


@dataclass(frozen=True, slots=True)
class DataKey:
    plaintext: bytes = field(repr=False)
    wrapped: bytes = field(repr=False)


class KeyLost(Exception):
    """The secret was wrapped with another key, and the deployment no longer has it."""


class KeyService(Protocol):
    @property
    def key_id(self) -> str:
        """Of the key that wraps now."""
        ...

    def has(self, key_id: str) -> bool:
        """Whether it can unwrap that key's secrets."""
        ...

    async def generate(self, context: Mapping[str, str]) -> DataKey:
        """A new key of 32 bytes."""
        ...

    async def unwrap(self, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        """Raises :class:`KeyLost`."""


def key_service(named: str, executor: Executor, kms: Callable[[], "KMSClient"]) -> KeyService:
    """The one that ``MOORAGE_EGRESS_KEY`` names; nothing is contacted yet. ``kms`` makes boto3's client on first use."""
    if named.startswith(FILE_PREFIX):
        return KeyFile(Path(named.removeprefix(FILE_PREFIX)))
    return KmsKeys(kms(), named, executor)


class KmsKeys:
    """KMS as the key service; boto3 is synchronous, so that each call runs on the given pool."""

    def __init__(self, client: "KMSClient", key_id: str, executor: Executor) -> None:
        self._client = client
        self.key_id = key_id
        self._executor = executor

    def has(self, key_id: str) -> bool:
        return key_id == self.key_id

    async def generate(self, context: Mapping[str, str]) -> DataKey:
        answer = await get_running_loop().run_in_executor(
            self._executor,
            lambda: self._client.generate_data_key(KeyId=self.key_id, KeySpec="AES_256", EncryptionContext=context),
        )
        return DataKey(answer["Plaintext"], answer["CiphertextBlob"])

    async def unwrap(self, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        return await get_running_loop().run_in_executor(self._executor, self._unwrapped, wrapped, context)

    def _unwrapped(self, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        refused = self._client.exceptions
        try:
            answer = self._client.decrypt(KeyId=self.key_id, CiphertextBlob=wrapped, EncryptionContext=context)
        except (refused.IncorrectKeyException, refused.InvalidCiphertextException) as error:
            raise KeyLost(f"{self.key_id} did not wrap this") from error
        return answer["Plaintext"]


@dataclass(frozen=True, slots=True)
class Keys:
    """The content of a key file: keys of 32 bytes by their ids."""

    current: str
    """The id of the key that wraps."""
    keys: Mapping[str, bytes] = field(repr=False)
    emulated: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Of the emulated KMS that older versions had: what they wrapped is still unwrapped."""

    @classmethod
    def new(cls, emulated: Mapping[str, bytes]) -> "Keys":
        made = str(uuid.uuid4())
        return cls(made, {made: os.urandom(_KEY_BYTES)}, emulated)

    def text(self) -> str:
        every = {"keys": self.keys, "emulated": self.emulated}
        shown = {kind: {name: base64.b64encode(key).decode() for name, key in keys.items()} for kind, keys in every.items()}
        return json.dumps({"current": self.current, **shown})

    @classmethod
    def of(cls, text: str) -> "Keys":
        """Raises KeyError, TypeError, ValueError or AttributeError for another text."""
        said = json.loads(text)
        keys, emulated = (
            {str(name): base64.b64decode(key, validate=True) for name, key in said[kind].items()} for kind in ("keys", "emulated")
        )
        if any(len(key) != _KEY_BYTES for key in (*keys.values(), *emulated.values())):
            raise ValueError("a key of another length")
        return cls(next(name for name in keys if name == said["current"]), keys, emulated)


class KeyFile:
    """Keys in a file of this user's alone (``local/key_file.py``). It is read for each use: once for each container with secrets."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def key_id(self) -> str:
        return self.read().current

    def has(self, key_id: str) -> bool:
        held = self.read()
        return key_id in held.keys or key_id in held.emulated

    async def generate(self, context: Mapping[str, str]) -> DataKey:
        held = self.read()
        key = os.urandom(_KEY_BYTES)
        return DataKey(key, held.current.encode() + sealing.seal(key.hex(), held.keys[held.current], _canonical(context)))

    async def unwrap(self, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        held = self.read()
        name, sealed = wrapped[:_ID_CHARACTERS].decode(errors="replace"), wrapped[_ID_CHARACTERS:]
        if name in held.emulated:
            return _unwrapped_as_emulated(sealed, held.emulated[name], context)
        if name not in held.keys:
            raise KeyLost(f"{self._path} does not hold the key that wrapped this. A backup of the time in which it was sealed does.")
        try:
            return bytes.fromhex(sealing.unseal(sealed, held.keys[name], _canonical(context)))
        except (sealing.SealBroken, ValueError) as error:
            raise KeyLost(f"The key in {self._path} did not wrap this, or not for what it is used for now.") from error

    def read(self) -> Keys:
        """Raises :class:`SettingsConflict` if it is missing, no key file, or open to others."""
        try:
            with self._path.open() as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                text = file.read()
        except FileNotFoundError as error:
            raise SettingsConflict(
                f"The key of the secrets is missing: {self._path}. Put it back from a backup; a stack that starts without it makes a "
                "new one, and what was sealed with the old one stays closed."
            ) from error
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsConflict(f"The key of the secrets cannot be read: {self._path}: {error}.") from error
        if mode & 0o077:
            raise SettingsConflict(f"Others could read the key of the secrets: 'chmod 600 {self._path}', and change the secrets.")
        try:
            return Keys.of(text)
        except (AttributeError, KeyError, TypeError, ValueError, StopIteration) as error:
            raise SettingsConflict(f"{self._path} holds no key of secrets any more. Put it back from a backup.") from error


def _canonical(context: Mapping[str, str]) -> bytes:
    return json.dumps(context, sort_keys=True).encode()


def _unwrapped_as_emulated(sealed: bytes, key: bytes, context: Mapping[str, str]) -> bytes:
    """As ministack 1.5 did: a hash of the context, a nonce of 16 bytes, and the data key under a pad that is made of SHA-256."""
    bound_to, nonce, hidden = sealed[:32], sealed[32:48], sealed[48:]
    if bound_to != hashlib.sha256(_canonical(context)).digest() or len(hidden) != _KEY_BYTES:
        raise KeyLost("The emulated KMS did not wrap this, or not for what it is used for now.")
    derived = hashlib.sha256(key + _canonical(context) + nonce).digest()
    pad = hashlib.sha256(derived + bytes(4)).digest()
    return bytes(one ^ other for one, other in zip(hidden, pad, strict=True))
