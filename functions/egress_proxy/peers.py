"""Who is connected: one :class:`Peer` for each client connection, counted by the place that it comes from until it has shown whose it
is, and by container and tenant from then on.

The proxy is shared by all, so that no count may be one that a single container can fill for the others. Without a credential a
connection belongs to its place: the sandbox behind a Unix socket, the address behind a TCP one (``listening.py``).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from mitmproxy.proxy.layers.http import HttpLayer
from moorage import limits
from moorage.egress.grants import Grant
from moorage.egress.store import EgressLogEntry

from functions.egress_proxy.layers import Tunnel
from functions.egress_proxy.messages import Credential

_APPROVED_MAX = 256


@dataclass(slots=True)
class OpenTunnel:
    host: str
    port: int
    address: str
    entry: EgressLogEntry
    layer: Tunnel | None = None


@dataclass(slots=True)
class Peer:
    """One client connection."""

    place: str
    connected_at: float
    credential: Credential | None = None
    grant: Grant | None = None
    checked_at: float = 0.0
    approved: set[tuple[str, int]] = field(default_factory=set)
    tunnel: OpenTunnel | None = None
    is_settled: bool = False
    """It has said something that was allowed; until then its time is short."""
    http_layers: list[HttpLayer] = field(default_factory=list)
    kept_bytes: int = 0
    """In the proxy's memory, of what it says and is told."""

    @property
    def owner(self) -> str:
        return self.place if self.grant is None else self.grant.container_id

    @property
    def tenant(self) -> str:
        return "" if self.grant is None else self.grant.tenant_id

    def approve(self, address: str, port: int) -> None:
        if len(self.approved) >= _APPROVED_MAX:
            self.approved.clear()
        self.approved.add((address, port))


class Peers:
    def __init__(self, connections_max: int) -> None:
        self._connections_max = connections_max
        self._peers: dict[str, Peer] = {}
        self._strangers: Counter[str] = Counter()
        """By place."""
        self._containers: Counter[str] = Counter()
        self._tenants: Counter[str] = Counter()
        self._kept_by_owner: Counter[str] = Counter()
        self._kept_by_tenant: Counter[str] = Counter()

    def __iter__(self) -> Iterator[tuple[str, Peer]]:
        return iter(list(self._peers.items()))

    def get(self, client_id: str) -> Peer | None:
        return self._peers.get(client_id)

    def has_room(self, place: str, waiting: Counter[str]) -> bool:
        """Whether one more may come, beside those that wait to enter (by place)."""
        is_scarce = self._strangers.total() + waiting.total() >= limits.EGRESS_STRANGERS_ALL_MAX
        strangers_max = limits.EGRESS_STRANGERS_SCARCE_MAX if is_scarce else limits.EGRESS_STRANGERS_MAX
        is_full = len(self._peers) + waiting.total() >= self._connections_max
        return not is_full and self._strangers[place] + waiting[place] < strangers_max

    def enter(self, client_id: str, place: str, now: float) -> bool:
        """False if the place, or the proxy, has too many already."""
        if not self.has_room(place, Counter()):
            return False
        self._peers[client_id] = Peer(place, connected_at=now)
        self._strangers[place] += 1
        return True

    def leave(self, client_id: str) -> Peer | None:
        peer = self._peers.pop(client_id, None)
        if peer is not None:
            self._note_kept(peer, 0)
        if peer is not None and peer.grant is None:
            _less(self._strangers, peer.place)
        elif peer is not None and peer.grant is not None:
            _less(self._containers, peer.grant.container_id)
            _less(self._tenants, peer.grant.tenant_id)
        return peer

    def recognise(self, peer: Peer, credential: Credential, grant: Grant, now: float) -> bool:
        """The peer is the container's of ``grant`` from now on. False if that one, or its tenant, has too many already."""
        before = peer.grant
        if before is None or before.container_id != grant.container_id:
            if self._containers[grant.container_id] >= limits.EGRESS_CONNECTIONS_MAX:
                return False
            if self._tenants[grant.tenant_id] >= limits.EGRESS_TENANT_CONNECTIONS_MAX:
                return False
            if before is None:
                _less(self._strangers, peer.place)
            else:
                _less(self._containers, before.container_id)
                _less(self._tenants, before.tenant_id)
            self._containers[grant.container_id] += 1
            self._tenants[grant.tenant_id] += 1
        kept_bytes = peer.kept_bytes
        self._note_kept(peer, 0)
        peer.credential, peer.grant, peer.checked_at = credential, grant, now
        self._note_kept(peer, kept_bytes)
        return True

    def keep(self, client_id: str, count: int) -> bool:
        """A connection keeps ``count`` bytes from now on. False if its container, or its tenant, keeps too much with them.

        One request at a time of each connection is far below. HTTP/2 brings a hundred, and WebSockets messages of any length.
        """
        peer = self._peers.get(client_id)
        if peer is None:
            return False
        grows = count > peer.kept_bytes
        self._note_kept(peer, count)
        is_much = self._kept_by_owner[peer.owner] > limits.EGRESS_KEPT_BYTES_MAX
        is_much_together = bool(peer.tenant) and self._kept_by_tenant[peer.tenant] > limits.EGRESS_TENANT_KEPT_BYTES_MAX
        return not (grows and (is_much or is_much_together))

    def _note_kept(self, peer: Peer, count: int) -> None:
        for counted, key in ((self._kept_by_owner, peer.owner), (self._kept_by_tenant, peer.tenant)):
            counted[key] += count - peer.kept_bytes
            if not counted[key]:
                del counted[key]
        peer.kept_bytes = count


def _less(counted: Counter[str], key: str) -> None:
    """One less, and nothing kept of a key that has none."""
    counted[key] -= 1
    if not counted[key]:
        del counted[key]
