"""The key of a deployment, and the key of its sandboxes, derived from the first.

The first opens all that the deployment has sealed: what clients carry as ``encrypted_content``, secrets of webhooks and of remote
servers. So on AWS it is in no variable: whoever seals or opens reads it from Secrets Manager, once in a process and not before it is
needed. The second is what tokens of sandboxes are derived from, and leads nowhere but to them, from inside their network. It is a
variable, because there is no way to Secrets Manager from there; an endpoint would cost $7.30 a month and zone.

After a leak the secret holds two keys, the newer first: it seals, and both open, until nothing is left that the older one has sealed.
"""

import hmac
import time
from collections.abc import Callable
from typing import Final

from moorage import limits
from moorage.settings import Settings, SettingsError

_BYTES: Final = 32


def sandbox_key(content_key: bytes) -> bytes:
    """``functions/custom_resource`` does the same at deployment."""
    return hmac.digest(content_key, b"moorage sandboxes", "sha256")


class DeploymentKeys:
    def __init__(self, settings: Settings, read_secret: Callable[[str], str], clock: Callable[[], float] = time.monotonic) -> None:
        """``read_secret`` gives the text of a secret by its ARN. On one machine every process needs the key, so a wrong or missing one
        is said at the start."""
        self._settings = settings
        self._read_secret = read_secret
        self._content: tuple[bytes, ...] = ()
        self._read_at = 0.0
        self._clock = clock
        if settings.provisioner in ("launcher", "docker"):
            self.content()

    def content(self) -> bytes:
        """The key that seals."""
        return self.opening()[0]

    def opening(self) -> tuple[bytes, ...]:
        """Those that open, the one that seals first."""
        if not self._content:
            self._read_at, self._content = self._clock(), self._found()
        return self._content

    def opening_anew(self) -> tuple[bytes, ...]:
        """The same, read again unless that was a moment ago: another process may have sealed with a newer one."""
        if self._clock() - self._read_at >= limits.SECRET_SECONDS_MIN:
            self._content = ()
        return self.opening()

    def sandboxes(self) -> bytes:
        told = self._settings.sandbox_key
        return sandbox_key(self.content()) if told is None else _key("MOORAGE_SANDBOX_KEY", told)

    def _found(self) -> tuple[bytes, ...]:
        settings = self._settings
        if settings.content_key is not None:
            return _keys("MOORAGE_CONTENT_KEY", settings.content_key)
        if settings.content_key_secret is not None:
            return _keys("the secret that MOORAGE_CONTENT_KEY_SECRET names", self._read_secret(settings.content_key_secret))
        raise SettingsError("MOORAGE_CONTENT_KEY is not set, so this process can neither seal nor open. 'make up' makes one.")


def _keys(name: str, text: str) -> tuple[bytes, ...]:
    return tuple(_key(name, word) for word in text.split() or [""])


def _key(name: str, text: str) -> bytes:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise SettingsError(f"{name} must be {_BYTES} bytes as hex. 'make up' makes one, and so does the CDK app.")
    return key
