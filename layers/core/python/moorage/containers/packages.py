"""Packages of a container's sandboxes: what installs them from the operator's mirrors, and where they are found.

They lie in the home of the commands' user, which each sandbox has anew. Without configuration and variables of the user's, an installer
asks the mirror alone; the proxy lets it reach no other host, and the mirror only as long as it installs.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

Packages = Mapping[str, Sequence[str]]
"""Names by ecosystem: ``python``, ``npm``."""

_FOLDER: Final = "/home/user/.packages"
_PYTHON: Final = f"{_FOLDER}/python"
_NPM: Final = f"{_FOLDER}/npm"
_PATH: Final = ":".join([f"{_PYTHON}/bin", f"{_NPM}/bin"])

READ_PATH: Final = 'printf %s "$PATH"'
"""A command that tells the path of commands."""

_NODE_PATH: Final = "NODE_PATH"


def variables(path: str, given: Mapping[str, str]) -> dict[str, str]:
    """What finds the packages, beside what the container's own variables ``given`` name. ``path`` as it is without them."""
    modules = ":".join(filter(None, (f"{_NPM}/lib/node_modules", given.get(_NODE_PATH, ""))))
    return {"PYTHONPATH": _PYTHON, _NODE_PATH: modules, "PATH": f"{_PATH}:{path}"}


@dataclass(frozen=True, slots=True)
class Mirrors:
    """Addresses of the operator's indexes; None for what is not installed here."""

    python: str | None = None
    npm: str | None = None

    def of(self, ecosystem: str) -> str | None:
        return {"python": self.python, "npm": self.npm}.get(ecosystem)

    def command(self, ecosystem: str, names: Sequence[str]) -> str:
        """What installs them. Raises ``KeyError`` for an ecosystem without a mirror."""
        mirror = self.of(ecosystem)
        if mirror is None:
            raise KeyError(ecosystem)
        wanted = shlex.join(names)
        if ecosystem == "npm":
            return (
                f"npm install --global --prefix {_NPM} --userconfig /dev/null --globalconfig /dev/null --no-audit --no-fund "
                f"--no-update-notifier --registry {shlex.quote(mirror)} -- {wanted}"
            )
        parts = urlsplit(mirror)
        trusted = f"--trusted-host {shlex.quote(parts.netloc)} " if parts.scheme == "http" else ""
        return (
            'python3 -m pip --isolated ${PIP_CERT:+--cert "$PIP_CERT"} install --no-input --disable-pip-version-check '
            f"--no-warn-script-location --no-cache-dir --upgrade --target {_PYTHON} --index-url {shlex.quote(mirror)} {trusted}"
            f"-- {wanted}"
        )
