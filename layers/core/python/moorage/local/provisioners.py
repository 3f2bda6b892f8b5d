"""The starter of sandboxes on this machine."""

from collections.abc import Mapping
from typing import Final

from moorage.errors import SettingsConflict

KINDS: Final = ("launcher", "docker")


def provisioner_of(environ: Mapping[str, str]) -> str:
    """The starter of sandboxes on this machine. Raises :class:`SettingsConflict` for provisioners of AWS accounts."""
    kind = environ.get("MOORAGE_PROVISIONER") or "launcher"
    if kind not in KINDS:
        raise SettingsConflict(f"MOORAGE_PROVISIONER is '{kind}'. On one machine it is 'launcher' (bubblewrap) or 'docker'.")
    return kind
