"""The configuration of an exec server that serves a browser alone, in a container beside that of the commands."""

from collections.abc import Mapping
from typing import Any, Final

from moorage import limits
from moorage.sandbox import browser_policies

LINK_DIRECTORY: Final = "/run/desk"
LINK_SOCKET: Final = "link.sock"
"""Where the exec server of the commands lets the browser in (``functions/sandbox/server/desk/neighbour.py``)."""
DESK_DIRECTORY: Final = "/var/desk"


def desk_config(listen: str, upstream: Mapping[str, str], ca_pem: str) -> dict[str, Any]:
    """But for the token. ``listen`` is a Unix socket; ``upstream`` is the way to the egress proxy, empty for none."""
    return {
        "listen": f"unix:{listen}",
        "path": "/usr/bin:/bin",
        "desk": {
            "alone": True,
            "directory": DESK_DIRECTORY,
            "link": f"{LINK_DIRECTORY}/{LINK_SOCKET}",
            "upstream": dict(upstream),
            "trusted_keys": browser_policies.key_pins(ca_pem),
        },
        "limits": {"processes": limits.CONTAINER_PROCESSES_MAX, "open_files": limits.CONTAINER_OPEN_FILES_MAX},
    }
