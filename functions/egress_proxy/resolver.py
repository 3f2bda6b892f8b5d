"""Names to addresses: once per decision, with a bound on time, and a hosts file before the system's resolver.

The hosts file (``--hosts``) is the operator's: it pins a name to an address without a DNS server, in the format of ``/etc/hosts``.
It is read again when it changes. What comes out is judged by the policy like any other address.
"""

import asyncio
import ipaddress
import socket
from pathlib import Path

from moorage import limits


class Unresolvable(OSError):
    """The name has no address, or the resolver did not answer in time."""


class Resolver:
    def __init__(self, hosts_file: Path | None = None) -> None:
        self._hosts_file = hosts_file
        self._read_as = (0, 0)
        self._hosts: dict[str, list[str]] = {}

    async def resolve(self, host: str, port: int) -> list[str]:
        """All addresses of ``host``, IPv4 first (a machine without IPv6 must not fail on the first). Raises :class:`Unresolvable`."""
        pinned = self._pinned(host)
        if pinned:
            return pinned
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limits.EGRESS_RESOLVE_SECONDS_MAX):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        except (OSError, UnicodeError) as error:
            raise Unresolvable(f"{host} could not be resolved") from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        return sorted(addresses, key=lambda address: ":" in address)

    def _pinned(self, host: str) -> list[str]:
        if self._hosts_file is None:
            return []
        status = self._hosts_file.stat()
        if (status.st_mtime_ns, status.st_ino) != self._read_as:
            self._hosts = _parse(self._hosts_file.read_text())
            self._read_as = (status.st_mtime_ns, status.st_ino)
        return self._hosts.get(host, [])


def _parse(text: str) -> dict[str, list[str]]:
    hosts: dict[str, list[str]] = {}
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if not address:
            continue
        ipaddress.ip_address(address)  # A typing error must not make a name fall through to DNS.
        for name in names:
            hosts.setdefault(name.lower().removesuffix("."), []).append(address)
    return hosts
