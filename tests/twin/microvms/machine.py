"""Machines of the twin, from outside: started, put to sleep, woken and ended; and sockets in their networks."""

import asyncio
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.infra.conftest import ROOT
from tests.twin.microvms.zygote import HOOK_PORT

FREEZER: Final = Path("/sys/fs/cgroup/freezer")
_CLONE_NEWNET: Final = 0x40000000
_WAIT_SECONDS_MAX: Final = 60
_HOOK: Final = "POST /aws/lambda-microvms/runtime/v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
_TLS_HELLO: Final = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"


def why_no_machines() -> str | None:
    """Why this machine cannot have MicroVMs of the twin; None if it can."""
    if os.geteuid() != 0:
        return "only root can make machines of the twin: their commands are another user's"
    for tool in ("unshare", "ip", "mount"):
        if shutil.which(tool) is None:
            return f"'{tool}' is not installed"
    made = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    return None if made.returncode == 0 else "'unshare' cannot make namespaces here"


def has_freezer() -> bool:
    return os.access(FREEZER / "cgroup.procs", os.W_OK)


class Image:
    """A started process that machines are forks of."""

    def __init__(self, folder: Path, *, uses_freezer: bool) -> None:
        """``folder``: where any user may read the sandbox's programs."""
        self._uses_freezer = uses_freezer
        programs = folder / "sandbox"
        shutil.copytree(ROOT / "functions" / "sandbox", programs, ignore=shutil.ignore_patterns("__pycache__", "packages"))
        toolbox = (ROOT / ".venv-toolbox").resolve()
        shown = [str(toolbox), sys.base_prefix, str(Path(os.path.realpath(toolbox / "bin" / "python")).parents[1])]
        self._process = subprocess.Popen(
            [os.path.realpath(sys.executable), "-S", str(Path(__file__).with_name("zygote.py")), str(programs), *dict.fromkeys(shown)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": f"{programs}/bin:{toolbox}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
            start_new_session=True,
        )

    def machine(self, name: str, *, uses_freezer: bool | None = None) -> "Machine":
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("one\n")
        self._process.stdin.flush()
        freezes = self._uses_freezer if uses_freezer is None else uses_freezer
        return Machine(name, json.loads(self._process.stdout.readline()), uses_freezer=freezes)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


class Machine:
    def __init__(self, name: str, pid: int, *, uses_freezer: bool) -> None:
        self.pid = pid
        self._network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        self._group = FREEZER / f"moorage-{name}-{pid}" if uses_freezer else None
        if self._group is not None:
            self._group.mkdir()
            (self._group / "cgroup.procs").write_text(str(pid))

    def new_socket(self) -> socket.socket:
        """One in the machine's network. It belongs there from its making on, whoever uses it."""
        libc, home = ctypes.CDLL(None, use_errno=True), os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            if libc.setns(self._network, _CLONE_NEWNET) != 0:
                raise ConnectionRefusedError("the machine has ended")
            made = socket.socket()
        finally:
            libc.setns(home, _CLONE_NEWNET)
            os.close(home)
        made.setblocking(False)
        return made

    async def connected(self, port: int) -> socket.socket:
        made = self.new_socket()
        try:
            await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
        except BaseException:
            made.close()
            raise
        return made

    async def run_hook(self, vm_id: str, payload: str) -> int:
        """Call it, as AWS does, and answer its status. Something sends a TLS hello to the plain port before (reported)."""
        connection = await self._hook_connection()
        with connection:
            await asyncio.get_running_loop().sock_sendall(connection, _TLS_HELLO)
        body = json.dumps({"microvmId": vm_id, "runHookPayload": payload}).encode()
        connection = await self._hook_connection()
        with connection:
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(connection, _HOOK.format(length=len(body)).encode() + body)
            head = await loop.sock_recv(connection, 4_096)
        return int(head.split(b" ")[1]) if head else 0

    async def _hook_connection(self) -> socket.socket:
        deadline = time.monotonic() + _WAIT_SECONDS_MAX
        while True:
            try:
                return await self.connected(HOOK_PORT)
            except OSError:
                if time.monotonic() > deadline or not self.is_alive:
                    raise
                await asyncio.sleep(0.02)

    def processes(self) -> list[int]:
        """All of them, parents before children."""
        found = [self.pid]
        for pid in found:
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(OSError):
                    found += [int(child) for child in task.read_text().split()]
        return found

    def suspend(self) -> None:
        """Stop everything where it stands."""
        if self._group is not None:
            self._freeze("FROZEN")
            return
        stopped: set[int] = set()
        while new := [pid for pid in self.processes() if pid not in stopped]:
            for pid in new:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            stopped |= set(new)

    def resume(self) -> None:
        if self._group is not None:
            self._freeze("THAWED")
            return
        for pid in reversed(self.processes()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _freeze(self, state: str) -> None:
        assert self._group is not None
        deadline = time.monotonic() + _WAIT_SECONDS_MAX
        file = self._group / "freezer.state"
        file.write_text(state)
        while file.read_text().strip() != state:
            assert time.monotonic() < deadline, f"the machine is not {state}"
            time.sleep(0.01)

    @property
    def is_alive(self) -> bool:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
        except OSError:
            return False

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.resume()
        deadline = time.monotonic() + _WAIT_SECONDS_MAX
        while self.is_alive and time.monotonic() < deadline:
            time.sleep(0.01)
        os.close(self._network)
        while self._group is not None and self._group.exists() and time.monotonic() < deadline:
            with suppress(OSError):  # Its processes are still being cleared away.
                self._group.rmdir()
                return
            time.sleep(0.01)
