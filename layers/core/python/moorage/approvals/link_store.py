"""Links that decide one approval without a key: what may be decided, by whose leave and until when, sealed into the address.

AES-256-GCM with a key derived from the deployment's content key, so that nothing is stored and nobody can make one. A link serves one
decision because an approval takes one; the same decision again changes nothing. It ends with its time, and with the key that made it.
"""

import base64
import binascii
from dataclasses import field
from typing import Final, Self

import orjson

from moorage import sealing
from moorage.dataclass import dataclass

_BOUND_TO: Final = b"moorage approval link"


@dataclass(frozen=True, slots=True)
class ApprovalLinkRecord:
    tenant_id: str
    approval_id: str
    expires_at: int
    """Unix seconds."""
    key_id: str
    """Of the key that asked for it."""


@dataclass(frozen=True, slots=True)
class ApprovalLinks:
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, content_key: bytes) -> Self:
        return cls(sealing.derived_key(content_key, _BOUND_TO))

    def seal(self, link: ApprovalLinkRecord) -> str:
        said = orjson.dumps([link.tenant_id, link.approval_id, link.expires_at, link.key_id]).decode()
        return base64.urlsafe_b64encode(sealing.seal(said, self.key, _BOUND_TO)).decode().rstrip("=")

    def open(self, token: str, now: float) -> ApprovalLinkRecord | None:
        """None for a text that is no link of this deployment, and for an expired one."""
        try:
            data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
            link = ApprovalLinkRecord(*orjson.loads(sealing.unseal(data, self.key, _BOUND_TO)))
        except (sealing.SealBroken, ValueError, binascii.Error):
            return None
        return link if now < link.expires_at else None
