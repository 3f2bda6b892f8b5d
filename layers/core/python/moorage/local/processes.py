"""Child processes that end with their parent, in order."""

import ctypes
import os
import signal
import socket
import subprocess

_PR_SET_PDEATHSIG = 1


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def die_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent ends; to be called in a child before exec."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def stop_process(process: "subprocess.Popen[bytes]", seconds_max: int) -> None:
    """SIGTERM, patience, then SIGKILL."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def inherited_environment() -> dict[str, str]:
    """This process's environment without AWS credentials: the emulator must never be handed real ones."""
    return {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
