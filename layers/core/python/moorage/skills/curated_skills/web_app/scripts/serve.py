#!/usr/bin/env python3
"""Keep a service running between commands: serve.py --name NAME --port PORT [--seconds N] -- COMMAND, --list, --stop NAME."""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ.get("SERVICES", "/tmp/services"))
LOG_LINES = 30
STOP_SECONDS = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="service")
    parser.add_argument("--port", type=int)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--stop", metavar="NAME")
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    if options.list:
        for path in sorted(FOLDER.glob("*.json")):
            known = json.loads(path.read_text())
            print(f"{path.stem}: process {known['pid']}, port {known['port']}, {'runs' if is_alive(known['pid']) else 'has ended'}")
    elif options.stop:
        print(f"{options.stop}: {'stopped' if stop(options.stop) else 'was not running'}")
    elif not options.command or options.port is None:
        parser.error("--port and a command after '--' are needed")
    else:
        start(options.name, options.port, options.seconds, options.command)


def start(name: str, port: int, seconds: float, command: list[str]) -> None:
    stop(name)
    if answers(port):
        sys.exit(f"port {port} is taken by something else; --list shows services of this kind")
    log = FOLDER / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    (FOLDER / f"{name}.json").write_text(json.dumps({"pid": process.pid, "port": port, "command": command}))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        if answers(port):
            print(f"{name} listens on port {port}: process {process.pid}, log {log}")
            return
        time.sleep(0.05)
    reason = f"does not listen on port {port} after {seconds:g} s" if process.poll() is None else f"ended with {process.returncode}"
    stop(name)
    sys.exit(f"{name} {reason}; the end of its log:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:]))


def stop(name: str) -> bool:
    path = FOLDER / f"{name}.json"
    if not path.exists():
        return False
    pid = json.loads(path.read_text())["pid"]
    path.unlink()
    if not is_alive(pid):
        return False
    os.killpg(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    if is_alive(pid):
        os.killpg(pid, signal.SIGKILL)
    return True


def is_alive(pid: int) -> bool:
    """Whether the process is there; one that has ended and waits for its parent is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def answers(port: int) -> bool:
    with socket.socket() as connection:
        connection.settimeout(1)
        return connection.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    main()
