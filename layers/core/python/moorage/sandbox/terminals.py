"""Terminals of a sandbox that people sit at, through its exec server (``functions/sandbox/server/terminals.py``).

Opening an id opens it once, reading changes nothing, and a piece of input with an id is typed once: each may be asked for again.
"""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from moorage.sandbox.exec_client import ExecClient


@dataclass(frozen=True, slots=True)
class TerminalOutput:
    """A terminal's output behind an offset."""

    begin: int
    """Where ``output`` begins: beyond the offset that was asked for, where what lay between is not kept any more."""
    output: str
    next: int
    """The offset behind it."""
    outcome: Literal["exit", "timeout", "killed"] | None
    """None while it runs, and as long as there is more to read."""
    exit_code: int | None


class SandboxTerminal:
    """One of them."""

    def __init__(self, client: ExecClient, terminal_id: str) -> None:
        self._client = client
        self._path = f"/v1/terminals/{quote(terminal_id, safe='')}"

    async def open(self, command: str, *, rows: int, columns: int) -> None:
        """Run the command there, a shell if it is empty; one that is open stays as it is."""
        await self._client.ask("PUT", self._path, json={"command": command, "rows": rows, "columns": columns})

    async def read(self, after: int, *, wait_ms: int) -> TerminalOutput:
        """The output behind ``after``, as soon as there is some, or when it has ended; after ``wait_ms`` nothing."""
        query = {"after": str(after), "wait_ms": str(wait_ms)}
        return TerminalOutput(**await self._client.last_line("shown", "GET", self._path, params=query))

    async def type(self, text: str, input_id: str) -> Literal["taken", "ended", "full"]:
        """In the order of the calls; whoever calls before another call has returned leaves the order open. ``full``: its program reads
        nothing, and too much waits for it."""
        data = text.encode("utf-8", "surrogatepass")
        answer = await self._client.ask("POST", f"{self._path}/input", params={"id": input_id}, content=data)
        became: Literal["taken", "ended", "full"] = answer["input"]
        return became

    async def resize(self, *, rows: int, columns: int) -> None:
        await self._client.ask("POST", f"{self._path}/size", json={"rows": rows, "columns": columns})

    async def close(self) -> bool:
        """End its processes; False if it had ended, or is unknown."""
        return bool((await self._client.ask("POST", f"{self._path}/kill"))["killed"])
