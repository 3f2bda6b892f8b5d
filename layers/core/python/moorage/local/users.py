"""The users of sandboxes on this machine, and the permissions that they need."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from moorage.errors import SandboxError, SettingsConflict
from moorage.local.system_calls import private_mounts

HOST_UIDS_FROM: Final = 1_900_000_000
HOST_UIDS: Final = 100_000
"""Users for the sandboxes of a root launcher; above everything that systemd or subuid ranges hand out."""


def check_system(platform: str) -> None:
    """``platform`` is ``sys.platform``. Raises :class:`SettingsConflict` if there are no namespaces to make sandboxes of."""
    if platform != "linux":
        name = {"darwin": "macOS", "win32": "Windows"}.get(platform, platform)
        raise SettingsConflict(
            f"moorage runs on Linux, and this is {name}: 'docker compose up' in a clone runs it here (docs/docker.md)."
        )


def may_run_as_other_users() -> bool:
    """Whether this process can give each sandbox a user of its own: root, with the right to mount."""
    if os.geteuid() != 0:
        return False
    try:
        subprocess.run(["/bin/true"], preexec_fn=private_mounts, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def has_disable_userns() -> bool:
    """Whether this bubblewrap (0.8 or newer) can forbid nested user namespaces. Raises :class:`SandboxError` if there is none."""
    if shutil.which("bwrap") is None:
        raise SandboxError("bubblewrap is not installed ('apt install bubblewrap'): there can be no sandboxes.")
    return "--disable-userns" in subprocess.run(["bwrap", "--help"], capture_output=True, text=True).stdout


def check_namespaces(as_other_user: bool) -> None:
    """Make the smallest of sandboxes, as the user that sandboxes will have. Raises :class:`SandboxError` with the remedy."""
    try:
        tried = subprocess.run(
            ["bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "--unshare-all", "--unshare-user", "--die-with-parent", "/bin/true"],
            capture_output=True,
            text=True,
            errors="replace",
            preexec_fn=_become_other_user if as_other_user else None,
        )
    except OSError as error:
        raise SandboxError(f"The users of sandboxes cannot run {shutil.which('bwrap')}: {error.strerror}.") from error
    if tried.returncode != 0:
        raise SandboxError(
            "bubblewrap can make no namespaces on this machine, so there can be no sandboxes. "
            + how_to_allow_namespaces(Path("/proc/sys"))
            + f"\nbubblewrap said: {tried.stderr.strip() or tried.returncode}"
        )


def _become_other_user() -> None:
    os.setgroups([])
    os.setresgid(HOST_UIDS_FROM, HOST_UIDS_FROM, HOST_UIDS_FROM)
    os.setresuid(HOST_UIDS_FROM, HOST_UIDS_FROM, HOST_UIDS_FROM)


# Names under /proc/sys, the value that forbids, the one that allows, and who sets it.
_NAMESPACE_SWITCHES: Final = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "0", "AppArmor keeps user namespaces from programs (Ubuntu 23.10 on)"),
    ("kernel/unprivileged_userns_clone", "0", "1", "This kernel keeps user namespaces to root (Debian and others)"),
    ("user/max_user_namespaces", "0", "15000", "The number of user namespaces is set to none (Red Hat and others)"),
)


def how_to_allow_namespaces(sysctl: Path) -> str:
    """The remedy for this machine's owner; ``sysctl`` is ``/proc/sys``."""
    for name, forbids, allows, reason in _NAMESPACE_SWITCHES:
        path = sysctl / name
        if path.exists() and path.read_text().strip() == forbids:
            return f"{reason}. Please run:  sudo sysctl -w {name.replace('/', '.')}={allows}"
    return (
        "If this is a container itself, its engine forbids them: start it with "
        "'--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined', or with "
        "'--privileged', or use a virtual machine."
    )
