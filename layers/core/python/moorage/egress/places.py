"""What tells containers apart that reach the proxy from one address.

The proxy counts connections by the place that they come from until they have shown a credential (``functions/egress_proxy/peers.py``).
All MicroVMs of a network connector share an address (reported; not measured here). So the forwarder in each of them begins a connection
with a line that says whose it is, and that only the deployment can have written. It gives no leave for anything: it only names a place.
"""

import hashlib
import hmac
import re
from typing import Final

PREFACE: Final = b"MOORAGE-PLACE "
"""No HTTP request begins like this: it would be a method that RFC 9110 allows and that nobody has."""
LINE_BYTES_MAX: Final = 256

_WORD: Final = re.compile(r"(cntr_[0-9A-Za-z]{1,120})\.([0-9a-f]{64})")


def places_key(sandbox_key: bytes) -> bytes:
    """What places are signed with. ``functions/custom_resource`` does the same at deployment."""
    return hmac.digest(sandbox_key, b"moorage egress places", "sha256")


def place_word(key: bytes, container_id: str) -> str:
    """What the container's forwarder says after :data:`PREFACE`."""
    return f"{container_id}.{hmac.new(key, container_id.encode(), hashlib.sha256).hexdigest()}"


def place_in(line: bytes, key: bytes) -> str | None:
    """The container that a line names, without its end; None if nobody of the deployment wrote it."""
    found = _WORD.fullmatch(line.removeprefix(PREFACE).decode("latin-1")) if line.startswith(PREFACE) else None
    if found is None or not hmac.compare_digest(place_word(key, found[1]), found[0]):
        return None
    return found[1]
