from __future__ import annotations

import contextlib
import os
from typing import Dict, Optional

from configuration import ServerConfig

SYSTEM_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


class CommandEnvironment:
    """The environment of a command: its variables and its directories."""

    def __init__(self, config: ServerConfig, owner: Optional[int]) -> None:
        """``owner`` is the user of the commands, if it is not ours."""
        self._own = (config.workspace, config.home)
        self._owners = {config.workspace: None if config.read_only else owner, config.home: owner}
        self._base = base_environment(config)
        for directory in self._own:
            self.directory(directory)

    def variables(self, extra: Dict[str, str]) -> Dict[str, str]:
        return {**self._base, **{str(name): str(value) for name, value in extra.items()}}

    def add(self, variables: Dict[str, str]) -> None:
        """For all that begins from now on."""
        self._base = {**self._base, **variables}

    def directory(self, path: str) -> str:
        """The path; the workspace and the home are made again if a command has removed them, and others are not."""
        if path not in self._own:
            return path
        try:
            os.makedirs(path, exist_ok=True)
            owner = self._owners.get(path)
            if owner is not None:
                os.chown(path, owner, owner, follow_symlinks=False)
        except OSError:
            return "/"
        return path


CJK_FONT = "/usr/share/fonts/truetype/wqy/wqy-microhei.ttc"


def base_environment(config: ServerConfig) -> Dict[str, str]:
    """The environment of every command: a plain one, nothing of the server's, and the owner's additions."""
    environment = {
        "PATH": config.path,
        "HOME": config.home,
        "USER": "user",
        "LOGNAME": "user",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "DEBIAN_FRONTEND": "noninteractive",
        "PYTHONUNBUFFERED": "1",
        "MPLBACKEND": "Agg",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    if os.path.exists(CJK_FONT):  # Where it is missing, matplotlib would complain of its name at every word.
        environment["MATPLOTLIBRC"] = os.path.join(os.path.dirname(config.python_session), "matplotlibrc")
    bundle = certificate_bundle(config)
    if bundle:
        environment["WGETRC"] = os.path.join(os.path.dirname(bundle), "wgetrc")  # wget reads no variable for its certificates
    return {**environment, **config.env}


def certificate_bundle(config: ServerConfig) -> Optional[str]:
    """The system's certificates and the proxy's in one file: tunnelled connections show the former, opened ones the latter."""
    own = config.egress.get("ca_pem")
    if not own:
        return None
    system = b""
    for candidate in SYSTEM_BUNDLES:
        with contextlib.suppress(OSError), open(candidate, "rb") as file:
            system = file.read()
            break
    os.makedirs(config.spool_dir, 0o755, exist_ok=True)
    path = os.path.join(config.spool_dir, "ca-certificates.crt")
    with open(path, "wb") as file:
        file.write(system + b"\n" + own.encode() + b"\n")
    with open(os.path.join(config.spool_dir, "wgetrc"), "w", encoding="utf-8") as file:
        file.write("ca_certificate = %s\n" % path)
    return path
