from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import subprocess
from typing import Any, Callable, Dict, List, Optional, Tuple

import light_fork
from configuration import ServerConfig
from terminal import take_terminal

PROCESSES_SLACK = 16
PR_SET_NO_NEW_PRIVS = 38
"""linux/prctl.h"""
UMASK = 0o022
COMMAND_NICENESS = 10
"""Commands give way to the server, however many they are: it sleeps most of the time and answers as soon as it is asked."""


class Processes:
    """Starts processes with less than the server has, and hears of every one that ends (orphans too, as PID 1 must)."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        # Loaded here: between fork and exec nothing is imported.
        self._prctl = ctypes.CDLL(None).prctl
        self._bounds = bounds_of(config)
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
        has_terminal: bool = False,
    ) -> int:
        """Start a process in a session of its own and return its id; ``on_exit`` gets the exit code (128 + signal). ``has_terminal``
        says that ``stdin`` is one: it becomes that of the session."""
        streams = (stdin, stdout, stderr)
        if has_terminal or self.other_uid is not None or not light_fork.is_possible(streams):
            process = subprocess.Popen(
                arguments,
                cwd=cwd,
                env=env,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=pass_fds,
                start_new_session=True,
                preexec_fn=self._limit_at_terminal if has_terminal else self._limit,
                umask=UMASK,
                **self._drop,
            )
            process.returncode = 0  # Popen must not wait for it: reap() does
            pid = process.pid
        else:
            pid = light_fork.start(arguments, self._limit, cwd=cwd, env=env, streams=streams, pass_fds=pass_fds, umask=UMASK)
        self._waiting[pid] = on_exit
        # When memory runs out, the kernel takes a command and not the server.
        with contextlib.suppress(OSError):
            fd = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, b"500")
            finally:
                os.close(fd)
        return pid

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

    def _limit_at_terminal(self) -> None:
        self._limit()
        take_terminal()

    def _limit(self) -> None:
        for fd in self._config.join_fds:
            # Where the kernel judges by who writes and not by who opened (before 5.16), they stay in the server's group.
            with contextlib.suppress(OSError):
                os.write(fd, b"0")
        # No set-uid program gives a command more than it has. Engines can say so themselves, Fargate cannot.
        self._prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        os.nice(COMMAND_NICENESS)
        for which, bound in self._bounds:
            resource.setrlimit(which, (bound, bound))


def found(program: str, path: str) -> Optional[str]:
    candidates = [os.path.join(directory, program) for directory in path.split(":")]
    return next((candidate for candidate in candidates if os.access(candidate, os.X_OK)), None)


def bounds_of(config: ServerConfig) -> List[Tuple[int, int]]:
    """The limits of a command, soft and hard. One that is lower already stays."""
    wanted = [
        # Not 0: a core_pattern that is a program is run all the same then, outside and as root; 1 is what the kernel uses to say no.
        (resource.RLIMIT_CORE, 1),
        (resource.RLIMIT_NOFILE, config.open_files_max),
        # With a control group that one is the limit, for the kernel counts there what it refuses.
        (resource.RLIMIT_NPROC, config.processes_max + (PROCESSES_SLACK if config.join_fds else 0)),
        (resource.RLIMIT_FSIZE, config.disk_bytes_max),
    ]
    if config.process_bytes_max:
        wanted.append((resource.RLIMIT_DATA, config.process_bytes_max))
    return [(which, lowered(value, resource.getrlimit(which)[1])) for which, value in wanted]


def lowered(value: int, hard: int) -> int:
    return value if hard == resource.RLIM_INFINITY else min(value, hard)
