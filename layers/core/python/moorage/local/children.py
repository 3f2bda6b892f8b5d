"""The stack's other processes: the owner of the sandboxes, and their way out."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import boto3

from moorage.local.places import ROOT
from moorage.local.processes import die_with_parent
from moorage.local.provision import TABLE
from moorage.store.schema import create_table

LAUNCHER_STOP_SECONDS_MAX = 15
PROXY_STOP_SECONDS_MAX = 10
_LAUNCHER_START_SECONDS_MAX = 30


def start_launcher(state_dir: Path, launcher_socket: Path) -> "subprocess.Popen[bytes]":
    """The owner of the sandboxes."""
    toolbox = Path(os.environ.get("MOORAGE_TOOLBOX", str(ROOT / ".venv-toolbox")))
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
    deadline = time.monotonic() + _LAUNCHER_START_SECONDS_MAX
    while time.monotonic() < deadline and launcher.poll() is None:
        with socket.socket(socket.AF_UNIX) as connection:
            if connection.connect_ex(str(launcher_socket)) == 0:
                return
        time.sleep(0.01)
    raise SystemExit(log.read_text().strip() or f"The owner of the sandboxes did not start in {_LAUNCHER_START_SECONDS_MAX} seconds.")


def egress_socket(state_dir: Path) -> Path:
    """Of all sockets the one with the longest name."""
    return state_dir / "egress" / "proxy.sock"


def start_egress_proxy(state_dir: Path, environment: dict[str, str]) -> tuple[dict[str, str], "subprocess.Popen[bytes]"]:
    """The way out of the sandboxes, and the settings that tell the others of it. It runs only where the operator allows domains."""
    interpreter = ROOT / ".venv-egress" / "bin" / "python"
    if not interpreter.exists():
        raise SystemExit("MOORAGE_ALLOWED_EGRESS_DOMAINS needs the egress proxy: 'make setup' installs it into .venv-egress.")
    listen = egress_socket(state_dir)
    settings = {
        "MOORAGE_ALLOWED_EGRESS_DOMAINS": environment["MOORAGE_ALLOWED_EGRESS_DOMAINS"],
        "MOORAGE_EGRESS_PROXY": f"unix:{listen}",
        "MOORAGE_EGRESS_KEY": _egress_key(state_dir),
    }
    command = [str(interpreter), "-m", "functions.egress_proxy.main", "--listen", f"unix:{listen}"]
    for option in ("hosts", "upstream-ca"):
        value = environment.get(f"MOORAGE_EGRESS_{option.upper().replace('-', '_')}")
        command += [f"--{option}", value] if value else []
    with (state_dir / "egress.log").open("ab") as log:
        create_table(boto3.client("dynamodb"), TABLE)
        process = subprocess.Popen(
            command,
            env=environment | settings | {"PYTHONPATH": f"{ROOT}:{ROOT / 'layers' / 'core' / 'python'}"},
            cwd=ROOT,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    return settings, process


def _egress_key(state_dir: Path) -> str:
    """The KMS key that seals domain secrets; made once."""
    path = state_dir / "egress-key"
    if not path.exists():
        path.write_text(str(boto3.client("kms").create_key(Description="moorage egress")["KeyMetadata"]["KeyId"]))
    return path.read_text()
