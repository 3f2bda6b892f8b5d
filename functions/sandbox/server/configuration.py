from __future__ import annotations

import hashlib
import os
from typing import Any, Dict, List, Optional


class ServerConfig:
    """The owner's configuration of the sandbox. Every field but the token (or its hash) and ``listen`` has a default."""

    def __init__(self, values: Dict[str, Any]) -> None:
        self.token_sha256: str = values.get("token_sha256") or hashed(values["token"])
        """Of the token only the hash is kept, and only the hash need be given."""
        self.is_unclaimed: bool = values.get("unclaimed", False)
        """Whether the sandbox waits in a pool: until it is claimed, its token opens nothing but health and the claim."""
        self.listen: str = values["listen"]
        """``fd:3`` (a listening socket that was inherited), ``unix:/path`` or ``tcp:0.0.0.0:8080``."""
        self.workspace: str = values.get("workspace", "/mnt/data")
        self.read_only: bool = values.get("read_only", False)
        """Whether commands can only read the workspace: as root this server keeps its files for itself ..."""
        self.workspace_fd: Optional[int] = values.get("workspace_fd")
        """... and elsewhere its mount is read-only, and this is the directory before that mount, for files that come before the first
        command."""
        self.home: str = values.get("home", "/home/user")
        self.skills: str = values.get("skills", "/home/oai/skills")
        self.spool_dir: str = values.get("spool_dir", "/tmp/.exec")
        self.env: Dict[str, str] = values.get("env", {})
        self.path: str = values.get("path") or os.environ.get("PATH", os.defpath)
        self.uid: Optional[int] = values.get("uid")
        """The user of the commands; only for a server that runs as root."""
        self.egress: Dict[str, Any] = values.get("egress") or {}
        """``socket`` or ``networks`` if a forwarder on 127.0.0.1 must reach the proxy there, ``place``, ``ca_pem``. The variables come
        with ``env``."""
        self.python: str = values.get("python", "python3")
        self.python_session: str = values.get("python_session") or os.path.join(
            os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python_session.py"
        )
        self.javascript_session: str = values.get("javascript_session") or os.path.join(
            os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "javascript_session.js"
        )
        self.desk: Dict[str, Any] = values.get("desk") or {}
        """The browser beside the commands, if there may be one: ``directory``, ``upstream``, ``link``, ``trusted_keys``, ``browser``,
        ``alone`` (``README.md`` above this folder)."""
        self.beside: Dict[str, Any] = values.get("beside") or {}
        """The desk, if it has a container of its own to which nobody but this server can hand anything: ``directory``, ``policies``,
        ``config`` (``desk/beside.py``)."""
        self.neighbour_fd: Optional[int] = values.get("neighbour_fd")
        """A listening socket for the desk, where that has walls of its own."""
        self.neighbour_path: str = values.get("neighbour_path", "")
        """Where the server listens for the same, if nobody can hand a socket over. No command may enter its directory."""
        self.control_fd: Optional[int] = values.get("control_fd")
        """A socket to the owner of the sandbox, who sees what no process in it can see (``owner.py``)."""
        self.control_path: str = values.get("control_path", "")
        """Where the owner meets the server for the same, if it cannot hand a socket over. No command may enter its directory."""
        self.closing_key: int = values.get("closing_key") or 0
        """What the filter of system calls asks of a process that closes itself to others; it lets no command."""
        self.owns_disk: bool = values.get("owns_disk", False)
        """Whether workspace, home and spools lie on a file system that nobody else has: its own figures are exact then."""
        groups = values.get("groups", {})
        self.join_fds: List[int] = groups.get("join", [])
        """Open files that one joins the commands' control groups by; the server stays in a group of its own, with a reserve."""
        self.memory_events_fd: Optional[int] = groups.get("memory_events")
        self.process_events_fd: Optional[int] = groups.get("process_events")
        self.scratch: List[str] = values.get("scratch", [])
        """Directories that are memory: what lies in them counts as the container's."""
        limits = values.get("limits", {})
        self.processes_max: int = limits.get("processes", 512)
        self.open_files_max: int = limits.get("open_files", 4_096)
        self.process_bytes_max: int = limits.get("process_bytes", 0)
        """Writable memory of one process, 0 for no limit: the stand-in where there is no cgroup."""
        self.memory_bytes_max: int = limits.get("memory_bytes", 0)
        """What the commands have together, 0 if it is not known. Somebody else holds them to it."""
        self.disk_bytes_max: int = limits.get("disk_bytes", 20 * 1024**3)
        self.disk_entries_max: int = limits.get("disk_entries", 1_000_000)
        self.disk_reserve_bytes: int = limits.get("disk_reserve_bytes", 1024**3)
        """What the disk must have left for others."""
        self.spool_bytes_max: int = limits.get("spool_bytes", 1024**3)


def hashed(token: str) -> str:
    if len(token) < 32:
        raise ValueError("the token must have at least 32 characters")
    return hashlib.sha256(token.encode()).hexdigest()
