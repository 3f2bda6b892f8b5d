"""The key of a deployment, and the one of its sandboxes, which follows from it.

The first opens all that the deployment has sealed: what clients carry as ``encrypted_content``, secrets of webhooks and of remote
servers. So on AWS it is in no variable: whoever seals or opens reads it from Secrets Manager, once in a process and not before it is
needed. The second is what tokens of sandboxes are derived from, and leads nowhere but to them, from inside their network. It is a
variable, because there is no way to Secrets Manager from there; an endpoint would cost $7.30 a month and zone.
"""

import hmac
from collections.abc import Callable
from typing import Final

from moorage.settings import Settings, SettingsError

_BYTES: Final = 32


def sandbox_key(content_key: bytes) -> bytes:
    """``functions/custom_resource`` does the same at deployment."""
    return hmac.digest(content_key, b"moorage sandboxes", "sha256")


class DeploymentKeys:
    def __init__(self, settings: Settings, read_secret: Callable[[str], str]) -> None:
        """``read_secret`` gives the text of a secret by its ARN. On one machine every process needs the key, so a wrong or missing one
        is said at the start."""
        self._settings = settings
        self._read_secret = read_secret
        self._content: bytes | None = None
        if settings.provisioner in ("launcher", "docker"):
            self.content()

    def content(self) -> bytes:
        if self._content is None:
            self._content = self._found()
        return self._content

    def sandboxes(self) -> bytes:
        told = self._settings.sandbox_key
        return sandbox_key(self.content()) if told is None else _key("MOORAGE_SANDBOX_KEY", told)

    def _found(self) -> bytes:
        settings = self._settings
        if settings.content_key is not None:
            return _key("MOORAGE_CONTENT_KEY", settings.content_key)
        if settings.content_key_secret is not None:
            return _key("the secret that MOORAGE_CONTENT_KEY_SECRET names", self._read_secret(settings.content_key_secret))
        raise SettingsError("MOORAGE_CONTENT_KEY is not set, so this process can neither seal nor open. 'make up' makes one.")


def _key(name: str, text: str) -> bytes:
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise SettingsError(f"{name} must be {_BYTES} bytes as hex. 'make up' makes one, and so does the CDK app.")
    return key
