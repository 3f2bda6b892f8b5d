"""The exec server: runs commands inside one sandbox and serves its files, over HTTP (protocol 1, see README.md beside this file).

It is the first process of its sandbox, needs nothing but Python 3.9 and knows nothing of the rest. Three ideas carry it:

* **An exec is its list of events.** Events are numbered once and kept as bytes, so that a reader may attach at any number, as often
  as it likes, and always gets the same rest. Readers pull from that list at their own pace: a slow one holds up nobody and costs no
  memory.
* **Output is bounded where it arrives.** The first half of the allowed characters becomes events at once, a ring of the last half
  is kept, and everything goes to a spool file of bounded size, so that a command that prints a gigabyte costs the memory of one
  that prints a page.
* **Commands are not trusted.** They cannot read this process (it is not dumpable, its token came through a pipe) nor stop it (it is
  PID 1 and handles no signal of theirs), and where it runs as root they run as somebody else.

Run as ``exec_server.py --config-fd N`` with a JSON object on that descriptor, or with the object in ``MOORAGE_SANDBOX_CONFIG`` (the
server then starts itself anew without that variable, so that no command finds it in ``/proc``).
"""

from __future__ import annotations

import asyncio
import codecs
import collections
import contextlib
import ctypes
import errno
import hashlib
import hmac
import json
import os
import re
import resource
import secrets
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
import traceback
import urllib.parse
from typing import Any, AsyncIterator, Callable, Deque, Dict, Iterator, List, NoReturn, Optional, Tuple

PROTOCOL = 1

HEARTBEAT_SECONDS = 5.0
READ_BYTES = 64 * 1024
HEADER_BYTES_MAX = 32 * 1024
BODY_BYTES_MAX = 4 * 1024 * 1024
CONNECTIONS_MAX = 1_000
REQUEST_SECONDS_MAX = 75.0
"""A connection that sends no request for this long is closed."""

TIMEOUT_MS_MAX = 4 * 3600 * 1000
OUTPUT_CHARS_MAX = 1_000_000
ARGUMENT_BYTES_MAX = 120_000
"""Linux takes 128 KiB in one argument; a longer command goes to the shell as a file in memory."""

FLUSH_SECONDS = 0.02
"""Output that arrives within this time becomes one event ..."""
FLUSH_CHARS = 16_000
"""... unless it is this much."""
SLOW_FLUSH_SECONDS = 0.5
SLOW_FLUSH_EVENTS = 2_000
"""An exec with more events than this is flushed more seldom, so that single characters do not fill the memory."""

DRAIN_SECONDS = 0.1
"""When the shell has ended but something still holds its output open (a background service), wait this long for more."""
DRAIN_BYTES_MAX = 1024 * 1024

FINISHED_EXECS_MAX = 1_000
FINISHED_BYTES_MAX = 64 * 1024 * 1024
FORGOTTEN_IDS_MAX = 100_000
"""Ids of execs whose events were dropped. They must not run again, so the id is remembered much longer than the events."""

COMMAND_NICENESS = 10
"""Commands give way to the server, however many they are: it sleeps most of the time and answers as soon as it is asked."""

BATCH_FILE_BYTES_MAX = 256 * 1024
"""A file in an answer that holds many; each is read whole, so that its length stands before it."""

KILL_ROUNDS_MAX = 50
TREE_DEPTH_MAX = 100
UPLOAD_PREFIX = ".moorage-upload-"
RESULT_CHARS_MAX = 100_000

TOKEN_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
LENGTH = struct.Struct(">q")
EXEC_ID = re.compile(r"[^\x00-\x1f\x7f]{1,200}\Z")
MARKER = "\n… {count} chars truncated; full output: {path} …\n"


class Config:
    """What the owner of the sandbox decides. Every field but the token (or its hash) and ``listen`` has a default."""

    def __init__(self, values: Dict[str, Any]) -> None:
        self.token_sha256: str = values.get("token_sha256") or hashed(values["token"])
        """Of the token only the hash is kept, and only the hash need be given."""
        self.is_unclaimed: bool = values.get("unclaimed", False)
        """Whether the sandbox waits in a pool: until it is claimed, its token opens nothing but health and the claim."""
        self.listen: str = values["listen"]
        """``fd:3`` (a listening socket that was inherited), ``unix:/path`` or ``tcp:0.0.0.0:8080``."""
        self.workspace: str = values.get("workspace", "/mnt/data")
        self.home: str = values.get("home", "/home/user")
        self.spool_dir: str = values.get("spool_dir", "/tmp/.exec")
        self.env: Dict[str, str] = values.get("env", {})
        self.path: str = values.get("path") or os.environ.get("PATH", os.defpath)
        self.uid: Optional[int] = values.get("uid")
        """The user of the commands; only for a server that runs as root."""
        self.egress: Dict[str, str] = values.get("egress") or {}
        """``socket`` if a forwarder on 127.0.0.1 must reach the proxy there, ``ca_pem``. The variables come with ``env``."""
        self.python: str = values.get("python", "python3")
        self.python_session: str = values.get("python_session") or os.path.join(
            os.path.dirname(os.path.abspath(__file__)), "python_session.py"
        )
        limits = values.get("limits", {})
        self.processes_max: int = limits.get("processes", 512)
        self.open_files_max: int = limits.get("open_files", 4_096)
        self.process_bytes_max: int = limits.get("process_bytes", 0)
        """Writable memory of one process, 0 for no limit: the stand-in where there is no cgroup."""
        self.disk_bytes_max: int = limits.get("disk_bytes", 20 * 1024**3)
        self.disk_entries_max: int = limits.get("disk_entries", 1_000_000)
        self.disk_reserve_bytes: int = limits.get("disk_reserve_bytes", 1024**3)
        """What the disk must have left for others."""
        self.spool_bytes_max: int = limits.get("spool_bytes", 1024**3)


def hashed(token: str) -> str:
    if len(token) < 32:
        raise ValueError("the token must have at least 32 characters")
    return hashlib.sha256(token.encode()).hexdigest()


# --- Events and truncation ------------------------------------------------------------------------------------------------


class Transcript:
    """The events of one exec, and the rule by which its output is cut.

    Of ``chars_max`` characters the first half is kept as it comes and the last half at the end, both over stdout and stderr
    together in the order of arrival. Output of at most ``chars_max`` characters is whole. What was cut is counted per stream, and
    each stream that lost something says so where the gap is.
    """

    def __init__(self, chars_max: int, spool: Spool) -> None:
        self.events: List[bytes] = []
        self.event_bytes = 0
        self.is_finished = False
        self._changed = asyncio.Event()
        self._spool = spool
        self._chars_max = chars_max
        self._head_left = chars_max // 2
        self._tail_chars_max = chars_max - chars_max // 2
        self._tail: Deque[Tuple[str, List[str], int]] = collections.deque()
        self._tail_chars = 0
        self._cut = {"stdout": 0, "stderr": 0}
        self._raw: Optional[List[bytes]] = []
        self._pending: List[Tuple[str, str]] = []
        self.pending_chars = 0
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

    def started(self) -> None:
        self._add({"type": "started"})

    def feed(self, stream: str, data: bytes, is_last: bool = False) -> None:
        """Take bytes as they arrived. Invalid UTF-8 becomes U+FFFD; a character may be split over two calls."""
        if self._raw is None:
            self._spool.write(data)
        else:
            self._raw.append(data)
        self.add_text(stream, self._decoders[stream].decode(data, is_last))

    def add_text(self, stream: str, text: str) -> None:
        if self._head_left and text:
            self._pending.append((stream, text[: self._head_left]))
            self.pending_chars += min(len(text), self._head_left)
            text, self._head_left = text[self._head_left :], max(0, self._head_left - len(text))
        if text:
            self._keep_tail(stream, text)

    def flush(self) -> None:
        """Turn pending output into events, one for each run of the same stream."""
        runs: List[Tuple[str, List[str]]] = []
        for stream, text in self._pending:
            if runs and runs[-1][0] == stream:
                runs[-1][1].append(text)
            else:
                runs.append((stream, [text]))
        self._pending, self.pending_chars = [], 0
        for stream, texts in runs:
            self._add({"type": "output", "stream": stream, "text": "".join(texts)})

    def finish(self, kind: str, exit_code: int, extra: Optional[Dict[str, Any]] = None) -> None:
        """Write the tail and the last event (``exit``, ``timeout`` or ``killed``)."""
        for stream in self._decoders:
            self.feed(stream, b"", is_last=True)
        self.flush()
        path = self._spool.path if sum(self._cut.values()) else None
        tails = {stream: "".join("".join(texts) for name, texts, _ in self._tail if name == stream) for stream in self._cut}
        first_in_tail = self._tail[0][0] if self._tail else "stdout"
        for stream in sorted(tails, key=lambda name: name != first_in_tail):
            marker = MARKER.format(count=self._cut[stream], path=path) if self._cut[stream] else ""
            if marker or tails[stream]:
                self._add({"type": "output", "stream": stream, "text": marker + tails[stream]})
        self._tail.clear()
        self._raw = None
        self._spool.close()
        self.is_finished = True
        last = {"type": kind, "exit_code": exit_code, "truncated_chars": sum(self._cut.values()), "spool_path": path}
        self._add({**last, **(extra or {})})

    def forget(self) -> None:
        """Remove the spool: nobody can learn its name any more."""
        self._spool.remove()

    async def lines_after(self, after: int) -> AsyncIterator[bytes]:
        """Event lines with a higher number, as they come, in batches; heartbeats in between."""
        position = after + 1
        while True:
            if position < len(self.events):
                batch = self._batch(position)
                position += len(batch)
                yield b"".join(batch)
            elif self.is_finished:
                return
            else:
                try:
                    await asyncio.wait_for(self._changed.wait(), HEARTBEAT_SECONDS)
                except asyncio.TimeoutError:
                    yield b'{"type":"heartbeat"}\n'

    def _batch(self, position: int) -> List[bytes]:
        end, size = position, 0
        while end < len(self.events) and (end == position or size + len(self.events[end]) <= READ_BYTES):
            size += len(self.events[end])
            end += 1
        return self.events[position:end]

    def _add(self, event: Dict[str, Any]) -> None:
        line = json.dumps({"n": len(self.events), **event}, separators=(",", ":")).encode() + b"\n"
        self.events.append(line)
        self.event_bytes += len(line)
        self._changed.set()
        self._changed = asyncio.Event()

    def _keep_tail(self, stream: str, text: str) -> None:
        last = self._tail[-1] if self._tail else None
        if last and last[0] == stream and last[2] < 4096:
            last[1].append(text)
            self._tail[-1] = (stream, last[1] if len(last[1]) < 64 else ["".join(last[1])], last[2] + len(text))
        else:
            self._tail.append((stream, [text], len(text)))
        self._tail_chars += len(text)
        while self._tail_chars > self._tail_chars_max:
            self._drop(self._tail_chars - self._tail_chars_max)

    def _drop(self, excess: int) -> None:
        if self._raw is not None:
            raw, self._raw = self._raw, None
            for data in raw:
                self._spool.write(data)
        stream, texts, length = self._tail.popleft()
        dropped = min(excess, length)
        if dropped < length:
            self._tail.appendleft((stream, ["".join(texts)[dropped:]], length - dropped))
        self._tail_chars -= dropped
        self._cut[stream] += dropped


class Spool:
    """The full output of one exec on disk, opened when there is something to write, of bounded size."""

    def __init__(self, directory: str, name: str, bytes_max: int) -> None:
        self._directory = directory
        self.path = os.path.join(directory, f"{file_name(name)}.log")
        self._left = bytes_max
        self._fd: Optional[int] = None

    def write(self, data: bytes) -> None:
        """Append what still fits. A full disk ends the spool, not the command."""
        try:
            while data and self._left > 0:
                written = os.write(self._open(), data[: self._left])
                self._left -= written
                data = data[written:]
        except OSError:
            self._left = 0

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def _open(self) -> int:
        if self._fd is None:
            os.makedirs(self._directory, 0o755, exist_ok=True)
            self.remove()
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        return self._fd


def file_name(exec_id: str) -> str:
    """The id itself if it can be a file's name, else one that no other id has."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", exec_id)
    return plain if plain == exec_id else f"{plain[:100]}-{hashlib.sha256(exec_id.encode()).hexdigest()[:12]}"


# --- Processes --------------------------------------------------------------------------------------------------------------


class Processes:
    """Starts processes with less than the server has, and hears of every one that ends (orphans too, as PID 1 must)."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._waiting: Dict[int, Callable[[int], None]] = {}
        self.shell = found("bash", config.path) or found("sh", config.path) or "/bin/sh"
        self.other_uid = config.uid if os.geteuid() == 0 else None
        """The commands' user, if it is not ours."""
        self._drop: Dict[str, Any] = {}
        if self.other_uid is not None:
            self._drop = {"user": self.other_uid, "group": self.other_uid, "extra_groups": []}

    def spawn(
        self,
        arguments: List[str],
        on_exit: Callable[[int], None],
        *,
        cwd: str,
        env: Dict[str, str],
        stdin: int,
        stdout: int,
        stderr: int,
        pass_fds: Tuple[int, ...] = (),
    ) -> int:
        """Start a process in a session of its own and return its id; ``on_exit`` gets the exit code (128 + signal)."""
        process = subprocess.Popen(
            arguments,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            start_new_session=True,
            preexec_fn=self._limit,
            umask=0o022,
            **self._drop,
        )
        process.returncode = 0  # Popen must not wait for it: reap() does
        self._waiting[process.pid] = on_exit
        # When memory runs out, the kernel takes a command and not the server.
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/oom_score_adj", "w") as file:
            file.write("500")
        return process.pid

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            on_exit = self._waiting.pop(pid, None)
            if on_exit is not None:
                on_exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))

    def has_children(self) -> bool:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True

    def _limit(self) -> None:
        os.nice(COMMAND_NICENESS)
        set_limit(resource.RLIMIT_CORE, 0)
        set_limit(resource.RLIMIT_NOFILE, self._config.open_files_max)
        set_limit(resource.RLIMIT_NPROC, self._config.processes_max)
        set_limit(resource.RLIMIT_FSIZE, self._config.disk_bytes_max)
        if self._config.process_bytes_max:
            set_limit(resource.RLIMIT_DATA, self._config.process_bytes_max)


def found(program: str, path: str) -> Optional[str]:
    candidates = [os.path.join(directory, program) for directory in path.split(":")]
    return next((candidate for candidate in candidates if os.access(candidate, os.X_OK)), None)


def set_limit(which: int, value: int) -> None:
    """Lower a limit, soft and hard; one that is lower already stays."""
    hard = resource.getrlimit(which)[1]
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (bound, bound))


def kill_session(leader: int, pipe_inodes: Tuple[int, ...], uid: Optional[int]) -> None:
    """Kill a process group and session, and whatever left them but still holds the exec's output pipes.

    New processes may appear while we look, so look again until nothing is left. A service that made a session of its own and
    gave up the pipes is nobody's child any more and lives on.
    """
    for _ in range(KILL_ROUNDS_MAX):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
        strays = members(leader, pipe_inodes) if uid is None else members_as(uid, leader, pipe_inodes)
        if not strays:
            return
        for pid in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def members(leader: int, pipe_inodes: Tuple[int, ...]) -> List[int]:
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
    return [pid for pid in pids if _belongs(pid, leader, pipe_inodes)]


def members_as(uid: int, leader: int, pipe_inodes: Tuple[int, ...]) -> List[int]:
    """The same, seen by the commands' user: without CAP_SYS_PTRACE even root may not look at others' descriptors."""
    return [int(word) for word in done_as(uid, lambda: " ".join(map(str, members(leader, pipe_inodes)))).split()]


def kill_all_of(uid: int) -> None:
    """Kill every process that this user may kill: its own."""

    def kill() -> str:
        os.kill(-1, signal.SIGKILL)
        return ""

    done_as(uid, kill)


def done_as(uid: int, action: Callable[[], str]) -> str:
    """What ``action`` returns when a child of ours does it as another user; empty if it fails."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.write(writing, action().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        answer = file.read().decode()
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
    return answer


def _belongs(pid: int, leader: int, pipe_inodes: Tuple[int, ...]) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, _, group, session = file.read().rsplit(b")", 1)[1].split()[:4]
        if state in (b"Z", b"X"):
            return False
        if leader in (int(group), int(session)):
            return True
        targets = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except (OSError, ValueError):
        return False
    return any(f"pipe:[{inode}]" in targets for inode in pipe_inodes)


class Pipe:
    """The reading end of a command's stdout or stderr."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._loop = loop
        self._on_data = on_data
        self._on_end = on_end
        self.reading_fd, self.writing_fd = os.pipe()
        os.set_blocking(self.reading_fd, False)
        self.inode = os.fstat(self.reading_fd).st_ino
        self.is_open = True
        loop.add_reader(self.reading_fd, self._readable)

    def close_writing_end(self) -> None:
        os.close(self.writing_fd)

    def drain(self) -> None:
        """Read what is there now."""
        left = DRAIN_BYTES_MAX
        while self.is_open and left > 0:
            count = self._readable()
            if count == 0:
                return
            left -= count

    def discard_from_now(self) -> None:
        """Keep reading for a background service that would die of a closed pipe, but forget what it says."""
        self._on_data = lambda data: None
        self._on_end = lambda: None

    def _readable(self) -> int:
        try:
            data = os.read(self.reading_fd, READ_BYTES)
        except BlockingIOError:
            return 0
        if data:
            self._on_data(data)
            return len(data)
        self._loop.remove_reader(self.reading_fd)
        os.close(self.reading_fd)
        self.is_open = False
        self._on_end()
        return 0


# --- Execs --------------------------------------------------------------------------------------------------------------------


class Exec:
    """One run: a command, or a piece of code in the Python session."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fingerprint: str, timeout_ms: int, transcript: Transcript) -> None:
        self.fingerprint = fingerprint
        self.transcript = transcript
        self._loop = loop
        self._timeout_ms = timeout_ms
        self._flush_timer: Optional[asyncio.TimerHandle] = None
        self._timeout_timer: Optional[asyncio.TimerHandle] = None
        self._killed_as: Optional[str] = None
        self._is_settled = False
        self._on_finished: Callable[[], None] = lambda: None
        self._kill: Callable[[], None] = lambda: None
        self.stdin: Optional[Stdin] = None

    @property
    def is_finished(self) -> bool:
        return self.transcript.is_finished

    @property
    def was_killed(self) -> bool:
        return self._killed_as is not None

    def begin(self, kill: Callable[[], None], on_finished: Callable[[], None]) -> None:
        self._kill = kill
        self._on_finished = on_finished
        self.transcript.started()
        self._timeout_timer = self._loop.call_later(self._timeout_ms / 1000, self.kill, "timeout")

    def settle(self) -> None:
        """Its process has ended; only output is still awaited. From now on it can be neither killed nor timed out."""
        self._is_settled = True

    def kill(self, outcome: str) -> bool:
        """End it early as ``timeout`` or ``killed``; False if it has ended."""
        if self._is_settled or self.is_finished:
            return False
        if self._killed_as is None:
            self._killed_as = outcome
        self._kill()
        return True

    def output(self, stream: str, data: bytes) -> None:
        transcript = self.transcript
        if transcript.is_finished:
            return
        transcript.feed(stream, data)
        if transcript.pending_chars >= FLUSH_CHARS:
            transcript.flush()
        elif transcript.pending_chars and self._flush_timer is None:
            seconds = FLUSH_SECONDS if len(transcript.events) < SLOW_FLUSH_EVENTS else SLOW_FLUSH_SECONDS
            self._flush_timer = self._loop.call_later(seconds, self._flush)

    def finish(self, exit_code: int, extra: Optional[Dict[str, Any]] = None) -> None:
        if self.is_finished:
            return
        for timer in (self._flush_timer, self._timeout_timer):
            if timer is not None:
                timer.cancel()
        if self.stdin is not None:
            self.stdin.close()
        self.transcript.finish(self._killed_as or "exit", exit_code, extra)
        self._on_finished()

    def _flush(self) -> None:
        self._flush_timer = None
        if not self.is_finished:
            self.transcript.flush()


class Stdin:
    """The writing end of a command's stdin, for those that asked for one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.reading_fd, writing_fd = os.pipe()
        os.set_blocking(writing_fd, False)
        self._fd: Optional[int] = writing_fd
        self._lock = asyncio.Lock()

    async def write(self, data: bytes) -> None:
        """Write all of it, at the pace of the command. Raises BrokenPipeError when nobody reads."""
        async with self._lock:
            while data:
                if self._fd is None:
                    raise BrokenPipeError
                try:
                    data = data[os.write(self._fd, data) :]
                except BlockingIOError:
                    await asyncio.sleep(0.005)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class ShellRun:
    """Runs one command in a shell and feeds its exec."""

    def __init__(self, execs: Execs, record: Exec, command: str, cwd: str, env: Dict[str, str], has_stdin: bool) -> None:
        self._loop = execs.loop
        self._processes = execs.processes
        self._exec = record
        self._exit_code: Optional[int] = None
        self._pipes = [
            Pipe(self._loop, lambda data: record.output("stdout", data), self._maybe_finish),
            Pipe(self._loop, lambda data: record.output("stderr", data), self._maybe_finish),
        ]
        record.stdin = Stdin(self._loop) if has_stdin else None
        record.begin(self._kill, execs.finished)
        self._pid: Optional[int] = None
        try:
            self._pid = self._spawn(command, cwd, env)
        except OSError as error:
            record.output("stderr", f"The command could not be started: {error.strerror}.\n".encode())
            self._exit_code = 126
        finally:
            for pipe in self._pipes:
                pipe.close_writing_end()
            if record.stdin is not None:
                os.close(record.stdin.reading_fd)

    def _spawn(self, command: str, cwd: str, env: Dict[str, str]) -> int:
        stdin = self._exec.stdin.reading_fd if self._exec.stdin else os.open(os.devnull, os.O_RDONLY)
        arguments, script = [self._processes.shell, "-c", command], None
        if len(command.encode()) > ARGUMENT_BYTES_MAX:
            script = memory_file(command.encode())
            arguments = [self._processes.shell, f"/dev/fd/{script}"]
        try:
            return self._processes.spawn(
                arguments,
                self._shell_ended,
                cwd=cwd,
                env=env,
                stdin=stdin,
                stdout=self._pipes[0].writing_fd,
                stderr=self._pipes[1].writing_fd,
                pass_fds=() if script is None else (script,),
            )
        finally:
            if self._exec.stdin is None:
                os.close(stdin)
            if script is not None:
                os.close(script)

    def _kill(self) -> None:
        if self._pid is not None and self._exit_code is None:
            kill_session(self._pid, tuple(pipe.inode for pipe in self._pipes), self._processes.other_uid)

    def _shell_ended(self, exit_code: int) -> None:
        self._exit_code = exit_code
        self._exec.settle()
        for pipe in self._pipes:
            pipe.drain()
        self._maybe_finish()
        if not self._exec.is_finished:
            self._loop.call_later(DRAIN_SECONDS, self._finish)

    def _maybe_finish(self) -> None:
        if self._exit_code is not None and not any(pipe.is_open for pipe in self._pipes):
            self._finish()

    def _finish(self) -> None:
        for pipe in self._pipes:
            pipe.discard_from_now()
        assert self._exit_code is not None
        self._exec.finish(self._exit_code)


def memory_file(content: bytes) -> int:
    fd = os.memfd_create("command", 0)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class PythonSession:
    """A Python process that keeps its variables from run to run. Started by the first run; gone after a time-out."""

    def __init__(self, execs: Execs, config: Config) -> None:
        self._execs = execs
        self._config = config
        self._queue: Deque[Tuple[Exec, str]] = collections.deque()
        self._current: Optional[Exec] = None
        self._pid: Optional[int] = None
        self._is_new = False
        self._pipes: List[Pipe] = []
        self._requests: Optional[int] = None
        self._request_path = ""
        self._answers = b""

    def run(self, record: Exec, code: str) -> None:
        self._queue.append((record, code))
        self._next()

    def _next(self) -> None:
        while self._current is None and self._queue:
            record, code = self._queue.popleft()
            if record.was_killed:
                record.transcript.started()
                record.finish(137, self._outcome(None, []))
                continue
            self._current = record
            record.begin(self._kill, self._finished)
            try:
                if self._pid is None:
                    self._start()
                self._send(code)
            except OSError as error:
                record.output("stderr", f"Python could not be started: {error.strerror}.\n".encode())
                record.finish(126, self._outcome(None, []))
                self._kill()

    def _start(self) -> None:
        loop = self._execs.loop
        requests_reading, self._requests = os.pipe()
        os.set_blocking(self._requests, False)
        answers = Pipe(loop, self._answered, lambda: None)
        self._pipes = [
            Pipe(loop, lambda data: self._output("stdout", data), lambda: None),
            Pipe(loop, lambda data: self._output("stderr", data), lambda: None),
            answers,
        ]
        self._answers = b""
        stdin = os.open(os.devnull, os.O_RDONLY)
        try:
            self._pid = self._execs.processes.spawn(
                [self._config.python, "-u", self._config.python_session, str(requests_reading), str(answers.writing_fd)],
                self._ended,
                cwd=self._execs.existing(self._config.workspace),
                env=self._execs.environment({}),
                stdin=stdin,
                stdout=self._pipes[0].writing_fd,
                stderr=self._pipes[1].writing_fd,
                pass_fds=(requests_reading, answers.writing_fd),
            )
            self._is_new = True
        finally:
            os.close(stdin)
            os.close(requests_reading)
            for pipe in self._pipes:
                pipe.close_writing_end()

    def _send(self, code: str) -> None:
        """Hand over the code as a file: its name always fits into the pipe, so a session that reads no more cannot hold us up."""
        assert self._requests is not None
        path = self._request_path = os.path.join(self._config.spool_dir, f"python-{secrets.token_hex(8)}.json")
        os.makedirs(self._config.spool_dir, 0o755, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            json.dump({"code": code, "workspace": self._config.workspace, "result_chars_max": RESULT_CHARS_MAX}, file)
        self._answers = b""
        os.write(self._requests, path.encode() + b"\n")

    def _output(self, stream: str, data: bytes) -> None:
        if self._current is not None:
            self._current.output(stream, data)

    def _answered(self, data: bytes) -> None:
        self._answers += data
        if self._current is None or (b"\n" not in self._answers and len(self._answers) < BODY_BYTES_MAX):
            return
        try:
            answer = json.loads(self._answers.split(b"\n", 1)[0])
            result, images, exit_code = answer["result"], [str(path) for path in answer["images"]], int(answer["exit_code"])
        except (ValueError, KeyError, TypeError):
            # The code has written to a descriptor that is not its own. Start afresh.
            self._current.kill("killed")
            return
        for pipe in self._pipes[:2]:
            pipe.drain()
        outcome = self._outcome(None if result is None else str(result), images)
        self._is_new = False
        self._current.finish(exit_code, outcome)

    def _ended(self, exit_code: int) -> None:
        for pipe in self._pipes[:2]:
            pipe.drain()
        for pipe in self._pipes:
            pipe.discard_from_now()
        if self._requests is not None:
            os.close(self._requests)
        self._requests = self._pid = None
        if self._current is not None:
            self._current.finish(exit_code, self._outcome(None, []))

    def _kill(self) -> None:
        if self._pid is not None:
            kill_session(self._pid, tuple(pipe.inode for pipe in self._pipes), self._execs.processes.other_uid)

    def _finished(self) -> None:
        self._current = None
        with contextlib.suppress(OSError):
            os.unlink(self._request_path)
        self._execs.finished()
        self._execs.loop.call_soon(self._next)

    def _outcome(self, result: Optional[str], images: List[str]) -> Dict[str, Any]:
        return {"result": result, "images": images, "session_started": self._is_new}


class Refusal(Exception):
    """An answer with an error status: ``{"error": {"code", "message"}}``."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"code": code, "message": message}}


class Execs:
    """All execs by id: those that run, and the newest of those that have ended."""

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.processes = Processes(config)
        self._config = config
        self._by_id: Dict[str, Exec] = {}
        self._forgotten: Dict[str, None] = {}
        self._session = PythonSession(self, config)
        self._base_environment = base_environment(config)
        self.activity = asyncio.Event()
        for directory in (config.workspace, config.home):
            self.existing(directory)

    @property
    def running(self) -> int:
        return sum(not record.is_finished for record in self._by_id.values())

    def get(self, exec_id: str) -> Exec:
        record = self._by_id.get(exec_id)
        if record is not None:
            return record
        if exec_id in self._forgotten:
            raise Refusal(410, "forgotten_exec", f"'{exec_id}' has ended, and its output is no longer kept.")
        raise Refusal(404, "unknown_exec", f"The container knows no '{exec_id}'; it was probably started anew.")

    def start_command(self, exec_id: str, body: Dict[str, Any]) -> Exec:
        command, env, cwd = field(body, "command", str), field(body, "env", dict, {}), body.get("cwd") or self._config.workspace
        if "\0" in command or "\0" in str(cwd) or any("\0" in f"{name}{value}" for name, value in env.items()):
            raise Refusal(400, "invalid_request", "A command cannot contain a null byte.")
        record, is_new = self._record(exec_id, command, body)
        if is_new:
            has_stdin = field(body, "stdin", bool, False)
            ShellRun(self, record, command, self.existing(str(cwd)), self.environment(env), has_stdin)
        return record

    def start_python(self, exec_id: str, body: Dict[str, Any]) -> Exec:
        code = field(body, "code", str)
        record, is_new = self._record(exec_id, code, body)
        if is_new:
            self._session.run(record, code)
        return record

    def environment(self, extra: Dict[str, str]) -> Dict[str, str]:
        return {**self._base_environment, **{str(name): str(value) for name, value in extra.items()}}

    def existing(self, directory: str) -> str:
        """The directory; the workspace and the home are made again if a command has removed them, and others are not."""
        if directory not in (self._config.workspace, self._config.home):
            return directory
        try:
            os.makedirs(directory, exist_ok=True)
            if self.processes.other_uid is not None:
                os.chown(directory, self.processes.other_uid, self.processes.other_uid, follow_symlinks=False)
        except OSError:
            return "/"
        return directory

    def kill_all(self, notice: str) -> None:
        """End every exec and every background process, and say why."""
        for record in list(self._by_id.values()):
            if not record.is_finished:
                record.output("stderr", notice.encode())
                record.kill("killed")
        if self.processes.other_uid is not None:
            kill_all_of(self.processes.other_uid)
        elif os.getpid() == 1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)

    def finished(self) -> None:
        """Forget the oldest events beyond the bounds, but not that they were."""
        ended = [(exec_id, record) for exec_id, record in self._by_id.items() if record.is_finished]
        size = sum(record.transcript.event_bytes for _, record in ended)
        excess = len(ended) - FINISHED_EXECS_MAX
        for exec_id, record in ended[:-1]:
            if excess <= 0 and size <= FINISHED_BYTES_MAX:
                return
            del self._by_id[exec_id]
            record.transcript.forget()
            self._forgotten[exec_id] = None
            excess, size = excess - 1, size - record.transcript.event_bytes
            if len(self._forgotten) > FORGOTTEN_IDS_MAX:
                del self._forgotten[next(iter(self._forgotten))]

    def _record(self, exec_id: str, text: str, body: Dict[str, Any]) -> Tuple[Exec, bool]:
        fingerprint = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if exec_id in self._by_id or exec_id in self._forgotten:
            known = self.get(exec_id)
            if known.fingerprint != fingerprint:
                raise Refusal(409, "exec_id_in_use", f"'{exec_id}' is the id of another command.")
            return known, False
        timeout_ms, chars_max = field(body, "timeout_ms", int), field(body, "max_output_length", int)
        if not 0 < timeout_ms <= TIMEOUT_MS_MAX or not 0 <= chars_max <= OUTPUT_CHARS_MAX:
            raise Refusal(400, "invalid_request", "timeout_ms or max_output_length is out of range.")
        spool = Spool(self._config.spool_dir, exec_id, self._config.spool_bytes_max)
        record = self._by_id[exec_id] = Exec(self.loop, fingerprint, timeout_ms, Transcript(chars_max, spool))
        self.activity.set()
        return record, True


def field(body: Dict[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = body.get(name, default)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Refusal(400, "invalid_request", f"'{name}' must be of type {kind.__name__}.")
    return value


def base_environment(config: Config) -> Dict[str, str]:
    """What every command finds: a plain environment, nothing of the server's, and what the owner adds."""
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
    bundle = certificate_bundle(config)
    if bundle:
        environment["WGETRC"] = os.path.join(os.path.dirname(bundle), "wgetrc")  # wget reads no variable for its certificates
    return {**environment, **config.env}


SYSTEM_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


def certificate_bundle(config: Config) -> Optional[str]:
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


# --- Files ----------------------------------------------------------------------------------------------------------------------


class Workspace:
    """The files under one directory. No path leaves it: each component is opened without following links."""

    def __init__(self, config: Config) -> None:
        self._root = config.workspace
        self._uid = config.uid if config.uid is not None and os.geteuid() == 0 else None

    def entries(self, root: str) -> Iterator[Optional[Dict[str, Any]]]:
        """Every file below ``root``; None where the tree is deeper than the bound or closed."""
        if os.path.normpath(root) != self._root:
            raise Refusal(400, "invalid_request", f"Only {self._root} can be listed.")
        try:
            stack = [(self._open_directory([]), "")]
        except FileNotFoundError:
            return
        iterators = [os.scandir(stack[0][0])]
        try:
            while stack:
                entry = next(iterators[-1], None)
                if entry is None:
                    iterators.pop().close()
                    os.close(stack.pop()[0])
                    continue
                directory, prefix = stack[-1]
                path = prefix + entry.name
                try:
                    status = os.stat(entry.name, dir_fd=directory, follow_symlinks=False)
                    if not stat.S_ISDIR(status.st_mode):
                        if not entry.name.startswith(UPLOAD_PREFIX):
                            yield listed(path, status)
                    elif len(stack) >= TREE_DEPTH_MAX:
                        yield None
                    else:
                        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                        stack.append((os.open(entry.name, flags, dir_fd=directory), path + "/"))
                        iterators.append(os.scandir(stack[-1][0]))
                except PermissionError:
                    yield None  # a directory that its owner has closed
                except OSError:
                    continue  # removed or replaced while we looked
        finally:
            for iterator in iterators:
                iterator.close()
            for fd, _ in stack:
                os.close(fd)

    def open_for_reading(self, path: str) -> int:
        *parents, name = self._components(path)
        try:
            directory = self._open_directory(parents)
            try:
                fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise no_such_file(path) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise no_such_file(path)
        return fd

    def small_content(self, path: str) -> Optional[bytes]:
        """All of a small file; None for one that is larger than ``BATCH_FILE_BYTES_MAX``, or that must be asked for alone to learn
        what is wrong with it."""
        try:
            fd = self.open_for_reading(path)
        except Refusal:
            return None
        with os.fdopen(fd, "rb") as file:
            content = file.read(BATCH_FILE_BYTES_MAX + 1)
        return content if len(content) <= BATCH_FILE_BYTES_MAX else None

    def delete(self, path: str) -> None:
        *parents, name = self._components(path)
        try:
            directory = self._open_directory(parents)
            try:
                os.unlink(name, dir_fd=directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise no_such_file(path) from error

    @contextlib.contextmanager
    def writing(self, path: str) -> Iterator[int]:
        """A descriptor to write a file with; the file appears under its name when all went well."""
        *parents, name = self._components(path)
        temporary = UPLOAD_PREFIX + secrets.token_hex(8)
        directory = -1
        try:
            directory = self._open_directory(parents, create=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(temporary, flags, 0o644, dir_fd=directory)
            try:
                self._give_away(fd)
                yield fd
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=directory)
                raise
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise disk_full() from error
            raise Refusal(409, "not_writable", f"'{path}' cannot be written: {error.strerror}.") from error
        finally:
            if directory >= 0:
                os.close(directory)

    def _components(self, path: str) -> List[str]:
        relative = os.path.relpath(path, self._root) if path.startswith("/") else path
        components = [part for part in relative.split("/") if part not in ("", ".")]
        if not components or ".." in components or "\0" in path or len(components) > TREE_DEPTH_MAX:
            raise Refusal(400, "invalid_path", f"'{path}' is not a path below {self._root}.")
        return components

    def _open_directory(self, components: List[str], create: bool = False) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._root, flags)
        for component in components:
            try:
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(component, 0o755, dir_fd=fd)
                        if self._uid is not None:
                            os.chown(component, self._uid, self._uid, dir_fd=fd, follow_symlinks=False)
                child = os.open(component, flags, dir_fd=fd)
            finally:
                os.close(fd)
            fd = child
        return fd

    def _give_away(self, fd: int) -> None:
        if self._uid is not None:
            os.fchown(fd, self._uid, self._uid)


def listed(path: str, status: os.stat_result) -> Dict[str, Any]:
    kind = "file" if stat.S_ISREG(status.st_mode) else "symlink" if stat.S_ISLNK(status.st_mode) else "other"
    name = os.fsencode(path)
    text = name.decode("utf-8", "replace")
    if text.encode() != name:
        kind = "not_utf8"  # such a name cannot be asked for again
    return {"path": text, "size": status.st_size, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino, "kind": kind}


def no_such_file(path: str) -> Refusal:
    return Refusal(404, "no_such_file", f"There is no regular file '{path}'.")


def disk_full() -> Refusal:
    return Refusal(507, "disk_full", "The disk of the container is full.")


class DiskQuota:
    """Watches what commands write where the file system itself has no quota.

    Looked at about twice a second while something runs (more seldom when the tree is large), so that a command can overshoot by
    what a disk takes in that time. Beyond the quota everything that runs is killed with a notice, and files are refused. Commands
    may be started again (they must be able to delete), until they write yet more. One file never grows beyond the quota
    (RLIMIT_FSIZE). Nothing may hide: directories that their owner has closed are opened again, files without a name are counted
    while they are open, and a tree too deep to be measured counts as full.
    """

    INTERVAL_SECONDS = 0.5
    INTERVAL_SECONDS_MAX = 5.0
    SLACK_BYTES = 4 * 1024 * 1024
    SLACK_ENTRIES = 1_000

    def __init__(self, config: Config, execs: Execs) -> None:
        self._config = config
        self._execs = execs
        self._roots = [config.workspace, config.home, config.spool_dir]
        self._tripped_at = (0, 0)
        self.is_full = False

    async def watch(self) -> NoReturn:
        while True:
            self._execs.activity.clear()
            if not self._execs.processes.has_children():
                await self._execs.activity.wait()
            started = time.monotonic()
            self._judge(*await self._used())
            await asyncio.sleep(min(self.INTERVAL_SECONDS_MAX, max(self.INTERVAL_SECONDS, 20 * (time.monotonic() - started))))

    def _judge(self, used: int, entries: int) -> None:
        config = self._config
        self.is_full = used > config.disk_bytes_max or entries > config.disk_entries_max or self._is_machine_full()
        if not self.is_full:
            self._tripped_at = (0, 0)
        elif used > self._tripped_at[0] + self.SLACK_BYTES or entries > self._tripped_at[1] + self.SLACK_ENTRIES:
            # An immeasurable tree must not become the mark that later ones are compared with.
            self._tripped_at = (used, min(entries, config.disk_entries_max))
            self._execs.kill_all(
                f"\nThe disk of the container is full: more than {config.disk_bytes_max} bytes or {config.disk_entries_max} files "
                f"under {config.workspace} and {config.home}. All processes were stopped. Delete files to go on.\n"
            )

    def _is_machine_full(self) -> bool:
        """Whatever the accounting says, the last of a shared disk is not for sandboxes."""
        try:
            disk = os.statvfs(self._config.workspace)
        except OSError:
            return False
        return disk.f_bavail * disk.f_frsize < self._config.disk_reserve_bytes

    async def _used(self) -> Tuple[int, int]:
        used = entries = 0
        stack = list(self._roots)
        while stack:
            try:
                with opened_directory(stack.pop()) as iterator:
                    for entry in iterator:
                        entries += 1
                        if entries % 500 == 0:
                            await asyncio.sleep(0)
                        with contextlib.suppress(FileNotFoundError):
                            used += entry.stat(follow_symlinks=False).st_blocks * 512
                            if entry.is_dir(follow_symlinks=False):
                                stack.append(entry.path)
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    return used, sys.maxsize
        uid = self._execs.processes.other_uid
        nameless = nameless_bytes(self._roots) if uid is None else int(done_as(uid, lambda: str(nameless_bytes(self._roots))) or 0)
        return used + nameless, entries


def opened_directory(path: str) -> Any:
    """``os.scandir``, also of a directory of ours that was closed to ourselves."""
    try:
        return os.scandir(path)
    except PermissionError:
        if os.path.islink(path):
            raise
        os.chmod(path, 0o700)
        return os.scandir(path)


def nameless_bytes(roots: List[str]) -> int:
    """The size of files that were deleted and are still open in some process, on the disks of ``roots``."""
    disks = {os.stat(root).st_dev for root in roots if os.path.isdir(root)}
    sizes: Dict[Tuple[int, int], int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                for fd in os.listdir(f"/proc/{name}/fd"):
                    status = os.stat(f"/proc/{name}/fd/{fd}")
                    if status.st_nlink == 0 and stat.S_ISREG(status.st_mode) and status.st_dev in disks:
                        sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


# --- HTTP -----------------------------------------------------------------------------------------------------------------------


class Request:
    def __init__(self, method: str, target: str, headers: Dict[str, str], reader: asyncio.StreamReader) -> None:
        self.method = method
        path, _, query = target.partition("?")
        self.path = [urllib.parse.unquote(part) for part in path.split("/")[1:]]
        self.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        self.headers = headers
        self.is_body_read = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
        self._reader = reader

    @property
    def after(self) -> int:
        try:
            return max(-1, int(self.query.get("after", "-1")))
        except ValueError:
            raise Refusal(400, "invalid_request", "'after' must be a whole number.") from None

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, piece by piece."""
        if "chunked" in self.headers.get("transfer-encoding", ""):
            while True:
                size = int((await self._reader.readline()).split(b";")[0], 16)
                if size == 0:
                    while (await self._reader.readline()) not in (b"\r\n", b"\n", b""):
                        pass
                    break
                async for piece in self._exactly(size):
                    yield piece
                await self._reader.readline()
        else:
            async for piece in self._exactly(int(self.headers.get("content-length", "0"))):
                yield piece
        self.is_body_read = True

    async def body(self) -> bytes:
        pieces, size = [], 0
        async for piece in self.chunks():
            size += len(piece)
            if size > BODY_BYTES_MAX:
                raise Refusal(413, "request_too_large", f"The body is larger than {BODY_BYTES_MAX} bytes.")
            pieces.append(piece)
        return b"".join(pieces)

    async def json(self) -> Dict[str, Any]:
        try:
            body = json.loads(await self.body())
        except ValueError:
            raise Refusal(400, "invalid_request", "The body is not JSON.") from None
        if not isinstance(body, dict):
            raise Refusal(400, "invalid_request", "The body must be an object.")
        return body

    async def _exactly(self, size: int) -> AsyncIterator[bytes]:
        while size > 0:
            piece = await self._reader.read(min(size, READ_BYTES))
            if not piece:
                raise ConnectionResetError("the body ended early")
            size -= len(piece)
            yield piece


class Response:
    def __init__(self, writer: asyncio.StreamWriter, request: Request) -> None:
        self._writer = writer
        self._request = request
        self.has_begun = False

    async def json(self, status: int, body: Dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self._head(status, "application/json", f"content-length: {len(content)}")
        self._writer.write(content)
        await self._writer.drain()

    async def stream(self, content_type: str, pieces: AsyncIterator[bytes]) -> None:
        """A chunked body at the reader's pace: nothing is asked of ``pieces`` before the last piece has gone out."""
        self._head(200, content_type, "transfer-encoding: chunked")
        async for piece in pieces:
            self._writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await self._writer.drain()
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def _head(self, status: int, content_type: str, framing: str) -> None:
        self.has_begun = True
        # What is left of a body would be taken for the next request, so there is none.
        last = "" if self._request.is_body_read else "connection: close\r\n"
        self._writer.write(f"HTTP/1.1 {status} -\r\ncontent-type: {content_type}\r\n{last}{framing}\r\n\r\n".encode())


class Server:
    """Reads requests and answers them; knows the protocol and nothing else."""

    def __init__(self, config: Config, loop: asyncio.AbstractEventLoop) -> None:
        self._token_sha256 = config.token_sha256
        self._is_unclaimed = config.is_unclaimed
        self._execs = Execs(config, loop)
        self._workspace = Workspace(config)
        self.quota = DiskQuota(config, self._execs)
        self._boot_id = secrets.token_hex(16)
        self._connections = 0

    def reap(self) -> None:
        self._execs.processes.reap()

    def stop(self) -> None:
        self._execs.kill_all("")

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            while self._connections <= CONNECTIONS_MAX and await self._serve_one(reader, writer):
                pass
        except (OSError, EOFError, ValueError, asyncio.TimeoutError, asyncio.LimitOverrunError):
            pass  # torn, silent or not HTTP: the exec lives on, the reader may come again
        except Exception:
            traceback.print_exc()
        finally:
            self._connections -= 1
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; True if the connection can take another."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_SECONDS_MAX)
        except asyncio.IncompleteReadError:
            return False
        request = parse_head(head, reader)
        response = Response(writer, request)
        try:
            self._authorize(request)
            if request.headers.get("expect", "").lower() == "100-continue":
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await self._route(request, response)
        except Refusal as refusal:
            if response.has_begun:
                return False
            await response.json(refusal.status, refusal.body)
        return request.is_body_read and request.headers.get("connection", "").lower() != "close"

    def _authorize(self, request: Request) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        presented = hashlib.sha256(token.encode("latin-1")).hexdigest()
        if scheme.lower() != "bearer" or not hmac.compare_digest(presented, self._token_sha256):
            raise Refusal(401, "unauthorized", "The token is missing or wrong.")

    async def _route(self, request: Request, response: Response) -> None:
        method, path = request.method, request.path
        if (method, path) == ("GET", ["v1", "health"]):
            await response.json(200, {"protocol": PROTOCOL, "boot_id": self._boot_id, "running": self._execs.running})
        elif (method, path) == ("POST", ["v1", "claim"]):
            await self._claim(request, response)
        elif self._is_unclaimed:
            raise Refusal(403, "unclaimed", "The sandbox waits in a pool and must be claimed first.")
        elif (method, path) == ("GET", ["v1", "files"]):
            await self._list_files(request, response)
        elif (method, path) == ("POST", ["v1", "files", "read"]):
            await self._read_files(request, response)
        elif path == ["v1", "files", "content"] and method in ("GET", "PUT", "DELETE"):
            await self._file_content(request, response)
        elif len(path) in (3, 4) and path[:2] in (["v1", "execs"], ["v1", "python"]) and EXEC_ID.match(path[2]):
            await self._exec(request, response, path[1] == "python", path[2], path[3:])
        else:
            raise Refusal(404, "not_found", f"Unknown: {method} /{'/'.join(path)}")

    async def _claim(self, request: Request, response: Response) -> None:
        """Give the sandbox to its one container, which has another token. The old one is dead at once."""
        token_sha256 = field(await request.json(), "token_sha256", str)
        if not TOKEN_SHA256.match(token_sha256):
            raise Refusal(400, "invalid_request", "A claim takes the hash of a token.")
        # Nothing is awaited from here on: of two claims at once the second finds the first one done.
        if not self._is_unclaimed:
            raise Refusal(409, "already_claimed", "The sandbox belongs to a container.")
        self._is_unclaimed = False
        self._token_sha256 = token_sha256
        await response.json(200, {})

    async def _exec(self, request: Request, response: Response, is_python: bool, exec_id: str, rest: List[str]) -> None:
        action = (request.method, *rest)
        if action == ("PUT",):
            body = await request.json()
            after = request.after
            record = self._execs.start_python(exec_id, body) if is_python else self._execs.start_command(exec_id, body)
            await response.stream("application/x-ndjson", record.transcript.lines_after(after))
        elif action == ("GET",):
            record = self._execs.get(exec_id)
            await response.stream("application/x-ndjson", record.transcript.lines_after(request.after))
        elif action == ("POST", "kill"):
            await request.body()
            await response.json(200, {"killed": self._execs.get(exec_id).kill("killed")})
        elif action == ("POST", "stdin"):
            await self._stdin(request, response, self._execs.get(exec_id))
        else:
            raise Refusal(405, "not_found", f"Unknown: {request.method} /{'/'.join(request.path)}")

    async def _stdin(self, request: Request, response: Response, record: Exec) -> None:
        if record.stdin is None:
            raise Refusal(409, "no_stdin", "The exec was started without stdin.")
        try:
            await record.stdin.write(await request.body())
        except BrokenPipeError:
            raise Refusal(409, "stdin_closed", "The command no longer reads its stdin.") from None
        if request.query.get("close") == "true":
            record.stdin.close()
        await response.json(200, {})

    async def _list_files(self, request: Request, response: Response) -> None:
        entries = self._workspace.entries(request.query.get("root", ""))
        limit = int(request.query.get("limit", "100000"))

        async def lines() -> AsyncIterator[bytes]:
            count, is_complete, batch = 0, True, []
            for entry in entries:
                if entry is None or count >= limit:
                    is_complete = False
                    if entry is None:
                        continue
                    break
                count += 1
                batch.append(json.dumps(entry).encode() + b"\n")
                if len(batch) == 200:
                    yield b"".join(batch)
                    batch = []
                    await asyncio.sleep(0)
            batch.append(json.dumps({"type": "end", "complete": is_complete}).encode() + b"\n")
            yield b"".join(batch)

        await response.stream("application/x-ndjson", lines())

    async def _read_files(self, request: Request, response: Response) -> None:
        paths = field(await request.json(), "paths", list)
        if not all(isinstance(path, str) for path in paths):
            raise Refusal(400, "invalid_request", "'paths' must be a list of texts.")

        async def pieces() -> AsyncIterator[bytes]:
            batch, size = [], 0
            for path in paths:
                content = self._workspace.small_content(path)
                batch += [LENGTH.pack(-1 if content is None else len(content)), content or b""]
                size += LENGTH.size + len(content or b"")
                if size >= READ_BYTES:
                    yield b"".join(batch)
                    batch, size = [], 0
                    await asyncio.sleep(0)
            if batch:
                yield b"".join(batch)

        await response.stream("application/octet-stream", pieces())

    async def _file_content(self, request: Request, response: Response) -> None:
        path = request.query.get("path", "")
        if request.method == "GET":
            fd = self._workspace.open_for_reading(path)
            try:
                await response.stream("application/octet-stream", file_pieces(fd))
            finally:
                os.close(fd)
        elif request.method == "PUT":
            if self.quota.is_full:
                raise disk_full()
            with self._workspace.writing(path) as fd:
                async for piece in request.chunks():
                    while piece:
                        piece = piece[os.write(fd, piece) :]
            await response.json(200, {})
        else:
            await request.body()
            self._workspace.delete(path)
            await response.json(200, {})


def parse_head(head: bytes, reader: asyncio.StreamReader) -> Request:
    lines = head.decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ", 2)
    headers = {}
    for line in lines[1:]:
        if line:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
    return Request(method, target, headers, reader)


async def file_pieces(fd: int) -> AsyncIterator[bytes]:
    while True:
        piece = os.read(fd, READ_BYTES)
        if not piece:
            return
        yield piece


# --- The way out ------------------------------------------------------------------------------------------------------------------


async def forward(socket_path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection from 127.0.0.1 to the proxy's Unix socket: in a sandbox without a network the only way out."""
    try:
        far_reader, far_writer = await asyncio.open_unix_connection(socket_path)
    except OSError:
        writer.close()
        return
    try:
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
    finally:
        writer.close()
        far_writer.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while True:
            data = await reader.read(READ_BYTES)
            if not data:
                break
            writer.write(data)
            await writer.drain()
        writer.write_eof()


# --- The process ------------------------------------------------------------------------------------------------------------------

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
CONFIG_VARIABLE = "MOORAGE_SANDBOX_CONFIG"
FORWARDER_PORT = 3128


def main() -> None:
    config = read_config()
    protect()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(serve(config, loop))


def read_config() -> Config:
    if CONFIG_VARIABLE in os.environ:
        start_anew_without_config_in_environment()
    if len(sys.argv) != 3 or sys.argv[1] != "--config-fd":
        raise SystemExit(f"Usage: exec_server.py --config-fd N, or the configuration in {CONFIG_VARIABLE}")
    with os.fdopen(int(sys.argv[2]), "rb") as file:
        values = json.loads(file.read())
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if null != 0:
        os.close(null)
    return Config(values)


def start_anew_without_config_in_environment() -> NoReturn:
    environment = dict(os.environ)
    fd = memory_file(environment.pop(CONFIG_VARIABLE).encode())
    os.set_inheritable(fd, True)
    os.execve(sys.executable, [sys.executable, "-I", os.path.abspath(__file__), "--config-fd", str(fd)], environment)


def protect() -> None:
    """Close this process to commands of the same user, and take on the duties of PID 1."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_DUMPABLE")
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # A handler of our own (and not "ignore", which commands would inherit): Python's would raise KeyboardInterrupt in PID 1, at
    # the wish of any command. Signals without a handler do not reach PID 1 from inside its namespace.
    signal.signal(signal.SIGINT, lambda number, frame: None)


async def serve(config: Config, loop: asyncio.AbstractEventLoop) -> None:
    os.makedirs(config.spool_dir, exist_ok=True)
    server = Server(config, loop)
    stopping = asyncio.Event()
    loop.add_signal_handler(signal.SIGCHLD, server.reap)
    if config.uid is not None:
        # Commands are another user's and cannot send it; the engine does, to stop the container.
        loop.add_signal_handler(signal.SIGTERM, stopping.set)
    listener = await listen(config.listen, server)
    forwarder = None
    if config.egress.get("socket"):
        path = config.egress["socket"]
        forwarder = await asyncio.start_server(lambda r, w: forward(path, r, w), "127.0.0.1", FORWARDER_PORT)
    watcher = asyncio.ensure_future(server.quota.watch())
    await stopping.wait()
    server.stop()
    watcher.cancel()
    for each in (listener, forwarder):
        if each is not None:
            each.close()


async def listen(address: str, server: Server) -> asyncio.AbstractServer:
    kind, _, rest = address.partition(":")
    if kind == "fd":
        return await asyncio.start_unix_server(
            server.connected, sock=socket.socket(fileno=int(rest)), limit=HEADER_BYTES_MAX, backlog=1024
        )
    if kind == "unix":
        with contextlib.suppress(FileNotFoundError):
            os.unlink(rest)
        listener = await asyncio.start_unix_server(server.connected, rest, limit=HEADER_BYTES_MAX, backlog=1024)
        # In Docker whoever runs the engine's client is not root. Commands are kept out by the mode of the directory.
        os.chmod(rest, 0o666)
        return listener
    if kind == "tcp":
        host, _, port = rest.rpartition(":")
        return await asyncio.start_server(server.connected, host, int(port), limit=HEADER_BYTES_MAX, backlog=1024)
    raise ValueError(f"cannot listen on '{address}'")


if __name__ == "__main__":
    main()
