"""The keys of what a tenant stores, beside those of everything else (``keys.py``): a sum, and an entry for each that adds to it."""

from typing import Final

STORED: Final = "stored"
"""The kind of the sums, in the list of what is due: to be counted again."""
TOTAL: Final = "TOTAL"
"""Sort key of a tenant's sum; those of entries begin with small letters, so that they come after it."""


def stored(tenant_id: str) -> str:
    return f"T#{tenant_id}#STORED"


def holder(kind: str, resource_id: str) -> str:
    return f"{kind}#{resource_id}"


def holder_of(sk: str) -> tuple[str, str]:
    """Kind and id back from :func:`holder`."""
    kind, _, resource_id = sk.partition("#")
    return kind, resource_id
