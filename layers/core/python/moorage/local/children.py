"""The stack's other processes: the owner of the sandboxes, and their way out."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import boto3

from moorage.errors import SettingsConflict
from moorage.local.environments import Environment, ensure, environment
from moorage.local.places import PACKAGE, ROOT
from moorage.local.processes import die_with_parent
from moorage.local.provision import TABLE
from moorage.store.schema import create_table

LAUNCHER_STOP_SECONDS_MAX = 15
PROXY_STOP_SECONDS_MAX = 10
_START_SECONDS_MAX = 30


def prepare_environments(find: Callable[[str], Environment] = environment) -> None:
    """Install what is missing, once. Without the toolbox sandboxes offer Python alone, which is better than no start."""
    if os.environ.get("MOORAGE_ALLOWED_EGRESS_DOMAINS"):
        ensure(find("egress"))
    if not os.environ.get("MOORAGE_TOOLBOX"):
        try:
            ensure(find("toolbox"))
        except SettingsConflict as error:
            print(f"moorage: {error} Until then commands find Python without packages.", file=sys.stderr, flush=True)


def toolbox_folder() -> Path:
    """Of the packages that sandboxes offer; an operator may name an environment of their own."""
    return Path(os.environ.get("MOORAGE_TOOLBOX") or environment("toolbox").folder)


def start_launcher(state_dir: Path, launcher_socket: Path) -> "subprocess.Popen[bytes]":
    """The owner of the sandboxes."""
    toolbox = toolbox_folder()
    command = [sys.executable, "-m", "moorage.local.launcher", "--socket", str(launcher_socket)]
    command += ["--state-dir", str(state_dir / "sandboxes")]
    if toolbox.exists():
        command += ["--toolbox", str(toolbox)]
    with (state_dir / "launcher.log").open("wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=die_with_parent
        )


def await_launcher(launcher: "subprocess.Popen[bytes]", launcher_socket: Path, log: Path) -> None:
    """Return when it answers. A launcher that cannot work says why, and then nothing here is of use."""
    if not _answers(launcher, launcher_socket):
        raise SystemExit(log.read_text().strip() or f"The owner of the sandboxes did not start in {_START_SECONDS_MAX} seconds.")


def await_egress_proxy(proxy: "subprocess.Popen[bytes]", state_dir: Path) -> None:
    """Return when it answers: a sandbox that starts before it finds no way out."""
    if not _answers(proxy, egress_socket(state_dir)):
        raise SystemExit(f"moorage: The egress proxy did not start; its last words are in {state_dir / 'egress.log'}.")


def _answers(process: "subprocess.Popen[bytes]", path: Path) -> bool:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket(socket.AF_UNIX) as connection:
            if connection.connect_ex(str(path)) == 0:
                return True
        time.sleep(0.01)
    return False


def egress_socket(state_dir: Path) -> Path:
    """Of all sockets the one with the longest name."""
    return state_dir / "egress" / "proxy.sock"


def start_egress_proxy(state_dir: Path, inherited: dict[str, str]) -> tuple[dict[str, str], "subprocess.Popen[bytes]"]:
    """The way out of the sandboxes, and the settings that tell the others of it. It runs only where the operator allows domains."""
    listen = egress_socket(state_dir)
    settings = {
        "MOORAGE_ALLOWED_EGRESS_DOMAINS": inherited["MOORAGE_ALLOWED_EGRESS_DOMAINS"],
        "MOORAGE_EGRESS_PROXY": f"unix:{listen}",
        "MOORAGE_EGRESS_KEY": _egress_key(state_dir),
    }
    command = [str(environment("egress").python), "-m", "functions.egress_proxy.main", "--listen", f"unix:{listen}"]
    for option in ("hosts", "upstream-ca"):
        value = inherited.get(f"MOORAGE_EGRESS_{option.upper().replace('-', '_')}")
        command += [f"--{option}", value] if value else []
    with (state_dir / "egress.log").open("ab") as log:
        create_table(boto3.client("dynamodb"), TABLE)
        process = subprocess.Popen(
            command,
            env=inherited | settings | {"PYTHONPATH": f"{ROOT}:{_package_alone(state_dir)}"},
            cwd=ROOT,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    return settings, process


def _package_alone(folder: Path) -> Path:
    """A folder that holds this package and nothing else: what lies beside an installed one is not for the proxy's own environment."""
    link = folder / "egress-packages" / PACKAGE.name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(PACKAGE)
    return link.parent


def _egress_key(state_dir: Path) -> str:
    """The KMS key that seals domain secrets; made once."""
    path = state_dir / "egress-key"
    if not path.exists():
        path.write_text(str(boto3.client("kms").create_key(Description="moorage egress")["KeyMetadata"]["KeyId"]))
    return path.read_text()
