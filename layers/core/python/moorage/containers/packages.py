"""Packages of a container's sandboxes: what installs them from the operator's mirrors, and where they are found.

They lie in the home of the commands' user, which each sandbox has anew. Without configuration and variables of the user's, an installer
asks the mirror alone. It has a credential of its own at the proxy, which opens the mirrors beside the container's hosts, as long as it
installs. No other command knows it.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from moorage.dataclass import dataclass

Packages = Mapping[str, Sequence[str]]
"""Names by ecosystem: ``python``, ``npm``."""

_FOLDER: Final = "/home/user/.packages"
_PYTHON: Final = f"{_FOLDER}/python"
_NPM: Final = f"{_FOLDER}/npm"
_PATH: Final = ":".join([f"{_PYTHON}/bin", f"{_NPM}/bin"])

READ_PATH: Final = 'printf %s "$PATH"'
"""A command that tells the path of commands."""

_NODE_PATH: Final = "NODE_PATH"
_CREDENTIAL: Final = "INSTALLER_PROXY"
_WAY_OUT: Final = "; ".join(
    f'export {name}="http://${_CREDENTIAL}@${{{name}##*@}}"'
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy")
)
"""The installer's credential in the place of that of all commands, at the same proxy. A container's own variable has no such name."""


def installing(container_id: str, password: str) -> dict[str, str]:
    """The variables of :meth:`Mirrors.command`: an installer's credential at the proxy."""
    return {_CREDENTIAL: f"{container_id}:{password}"}


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
        """What installs them, with the variables of :func:`installing`. Raises ``KeyError`` for an ecosystem without a mirror."""
        return f"{_WAY_OUT}; {self._installer(ecosystem, names)}"

    def _installer(self, ecosystem: str, names: Sequence[str]) -> str:
        mirror = self.of(ecosystem)
        if mirror is None:
            raise KeyError(ecosystem)
        wanted = shlex.join(names)
        if ecosystem == "npm":
            return (
                f"npm install --global --prefix {_NPM} --userconfig {_NPM}/none --globalconfig {_NPM}/none.either --no-audit --no-fund "
                f"--no-update-notifier --registry {shlex.quote(mirror)} -- {wanted}"
            )
        parts = urlsplit(mirror)
        trusted = f"--trusted-host {shlex.quote(parts.netloc)} " if parts.scheme == "http" else ""
        return (
            'python3 -m pip --isolated ${PIP_CERT:+--cert "$PIP_CERT"} install --no-input --disable-pip-version-check '
            f"--no-warn-script-location --no-cache-dir --upgrade --target {_PYTHON} --index-url {shlex.quote(mirror)} {trusted}"
            f"-- {wanted}"
        )
