"""The gate: every hook of mitmproxy at which something is learnt about a connection, and what the policy says to it.

A client connection is a *peer*. It proves whose it is with the container's credential on each CONNECT and each plain request. After
CONNECT it is a tunnel to one host at one checked address, and stays that: unopened if the container has no secret for the host,
otherwise opened with a certificate of the deployment's own, so that each request inside is decided anew. Plain ``http://`` requests
are decided one by one.

No address is ever connected to that was not approved for that peer: :meth:`Gate.server_connect` is the one choke point, and what it
does not find is refused.
"""

import asyncio
import base64
import binascii
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mitmproxy import connection, http, tls
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy import layer, server_hooks
from mitmproxy.proxy.layers import ClientTLSLayer, ServerTLSLayer
from mitmproxy.proxy.layers.http import HTTPMode
from mitmproxy.proxy.layers.modes import HttpProxy
from moorage import limits
from moorage.egress.client_hello import NotTls, looks_like_tls, read_client_hello
from moorage.egress.grants import Grant, Grants, PolicyUnavailable
from moorage.egress.policy import Decision, EgressRequest, Reason, decide, sentence, shown
from moorage.egress.store import Entry
from moorage.egress.substitution import Scrubber, substitute
from moorage.hosts import normalise

from functions.egress_proxy.exchange import Exchange
from functions.egress_proxy.journal import Journal, new_entry_id
from functions.egress_proxy.layers import UNRECOGNIZED_NAME, BoundedHttpLayer, Refusal, Tunnel
from functions.egress_proxy.resolver import Resolver, Unresolvable

_EXCHANGE = "moorage"
"""Where a flow carries its :class:`Exchange`."""

_APPROVED_MAX = 256
_SWEEP_SECONDS = 0.5
_CONNECTIONS_MAX = 8_192
_UNAVAILABLE_SECONDS_MAX = 15.0
"""Open tunnels outlive a table that does not answer for this long; new requests do not."""

_STATUS = {
    Reason.CREDENTIAL_MISSING: 407,
    Reason.CREDENTIAL_UNKNOWN: 407,
    Reason.POLICY_UNAVAILABLE: 503,
    Reason.TOO_MANY_CONNECTIONS: 429,
    Reason.UNRESOLVABLE: 502,
    Reason.MALFORMED: 400,
    Reason.HEADERS_TOO_LARGE: 431,
}
"""HTTP statuses of refusals; all others are 403."""


@dataclass(frozen=True, slots=True)
class Credential:
    username: str
    password: str = field(repr=False)


@dataclass(slots=True)
class OpenTunnel:
    host: str
    port: int
    address: str
    entry: Entry
    layer: Tunnel | None = None


@dataclass(slots=True)
class Peer:
    """One client connection."""

    connected_at: float
    credential: Credential | None = None
    grant: Grant | None = None
    checked_at: float = 0.0
    approved: set[tuple[str, int]] = field(default_factory=set)
    tunnel: OpenTunnel | None = None
    is_settled: bool = False
    """It has said something that was allowed; until then its time is short."""


class Refused(Exception):
    """A request ends here; the decision says why."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.sentence)
        self.decision = decision


class Gate:
    def __init__(
        self,
        grants: Grants,
        resolver: Resolver,
        journal: Journal,
        server: Proxyserver,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._grants = grants
        self._resolver = resolver
        self._journal = journal
        self._server = server
        self._now_ms = now_ms
        self._peers: dict[str, Peer] = {}

    # --- Connections ---

    def client_connected(self, client: connection.Client) -> None:
        if len(self._peers) >= _CONNECTIONS_MAX:
            client.error = "too many connections"
            return
        self._peers[client.id] = Peer(connected_at=time.monotonic())

    def client_disconnected(self, client: connection.Client) -> None:
        peer = self._peers.pop(client.id, None)
        if peer is not None and peer.tunnel is not None and peer.tunnel.layer is not None:
            self._tunnel_ended(peer.tunnel)

    def server_connect(self, data: server_hooks.ServerConnectionHookData) -> None:
        peer = self._peers.get(data.client.id)
        if peer is None or data.server.address is None or data.server.address[:2] not in peer.approved:
            data.server.error = "the address was not approved"

    # --- Which protocol comes next: nothing is guessed, and what is not known is refused ---

    def next_layer(self, next_layer: layer.NextLayer) -> None:
        context = next_layer.context
        peer = self._peers.get(context.client.id)
        if peer is None:
            next_layer.layer = Refusal(context, b"")
        elif len(context.layers) == 1 and isinstance(context.layers[0], HttpProxy):
            next_layer.layer = BoundedHttpLayer(context, HTTPMode.regular)
        elif peer.tunnel is None:
            next_layer.layer = Refusal(context, b"")
        elif context.client.tls_established:
            next_layer.layer = BoundedHttpLayer(context, HTTPMode.transparent)
        else:
            self._begin_tunnel(next_layer, peer, peer.tunnel)

    def _begin_tunnel(self, next_layer: layer.NextLayer, peer: Peer, tunnel: OpenTunnel) -> None:
        context, data = next_layer.context, next_layer.data_client()
        if not data:
            if next_layer.data_server():  # The host speaks first: ssh, SMTP and the like.
                self._refuse_tunnel(next_layer, tunnel, Reason.NOT_TLS_OR_HTTP, b"")
            return
        if not looks_like_tls(data):
            if _may_be_http(data):
                next_layer.layer = BoundedHttpLayer(context, HTTPMode.transparent)
            else:
                self._refuse_tunnel(next_layer, tunnel, Reason.NOT_TLS_OR_HTTP, b"")
            return
        try:
            hello = read_client_hello(data)
        except NotTls:
            self._refuse_tunnel(next_layer, tunnel, Reason.MALFORMED, UNRECOGNIZED_NAME)
            return
        if hello is None:
            return
        assert peer.grant is not None
        request = EgressRequest(
            tunnel.host, tunnel.port, address=tunnel.address, sni=hello.sni, has_encrypted_hello=hello.has_encrypted_hello
        )
        decision = decide(request, peer.grant.policy)
        if not decision.allowed:
            self._refuse_tunnel(next_layer, tunnel, decision.reason, UNRECOGNIZED_NAME)
        elif peer.grant.secrets_for(tunnel.host):
            context.server.sni = tunnel.host
            opened = ServerTLSLayer(context)
            opened.child_layer = ClientTLSLayer(context)
            next_layer.layer = opened
            peer.is_settled = True
        else:
            next_layer.layer = tunnel.layer = Tunnel(context)
            peer.is_settled = True
            self._journal.began(tunnel.entry)

    def _refuse_tunnel(self, next_layer: layer.NextLayer, tunnel: OpenTunnel, reason: Reason, message: bytes) -> None:
        next_layer.layer = Refusal(next_layer.context, message)
        self._journal.ended(replace(tunnel.entry, decision="denied", reason=reason))

    def _tunnel_ended(self, tunnel: OpenTunnel, error: str | None = None) -> None:
        assert tunnel.layer is not None
        sent, received = tunnel.layer.bytes_sent, tunnel.layer.bytes_received
        self._journal.ended(replace(tunnel.entry, bytes_sent=sent, bytes_received=received, error=error))
        tunnel.layer = None

    def tls_failed_client(self, data: tls.TlsData) -> None:
        """Typically a program that does not trust the CA: worth a line, since the program alone knows no reason."""
        peer = self._peers.get(data.context.client.id)
        if peer is not None and peer.tunnel is not None:
            error = "the client broke off the TLS handshake; it may not trust the deployment's CA"
            self._journal.ended(replace(peer.tunnel.entry, error=error))

    # --- CONNECT ---

    async def http_connect(self, flow: http.HTTPFlow) -> None:
        peer = self._peers.get(flow.client_conn.id)
        host, port = _connect_host(flow.request), flow.request.port
        credential = _take_credential(flow.request)
        entry = self._entry(host, port, "CONNECT", None)
        try:
            grant = await self._authenticate(peer, credential, host, port)
            entry = replace(entry, tenant_id=grant.tenant_id, container_id=grant.container_id)
            decision, address = await self._approve(EgressRequest(host, port), grant)
        except Refused as refused:
            self._refuse(flow, entry, refused.decision)
            return
        assert peer is not None
        peer.tunnel = OpenTunnel(
            normalise(host) or "", port, address, replace(entry, decision="allowed", reason=decision.reason, address=address)
        )
        _approve_address(peer, address, port)
        # From here on mitmproxy knows this connection by the checked address, and the name is kept above.
        flow.request.data.host = address

    def http_connect_error(self, flow: http.HTTPFlow) -> None:
        """The host was allowed and did not answer."""
        peer = self._peers.get(flow.client_conn.id)
        if peer is None or peer.tunnel is None or flow.response is None or flow.response.status_code != 502:
            return
        error = flow.server_conn.error or "the connection failed"
        text = f"'{peer.tunnel.host}' is allowed, but the connection to it failed: {error}."
        flow.response = _answer(502, text, "upstream_unreachable")
        self._journal.ended(replace(peer.tunnel.entry, status=502, error=error))
        peer.tunnel = None

    # --- Requests: plain ones, and those inside an opened tunnel ---

    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        peer = self._peers.get(flow.client_conn.id)
        tunnel = None if peer is None else peer.tunnel
        request = flow.request
        credential = None if tunnel else _take_credential(request)
        host = tunnel.host if tunnel else _url_host(request)
        port = tunnel.port if tunnel else request.port
        entry = self._entry(host, port, request.method, request.path)
        if tunnel:
            entry = replace(entry, tenant_id=tunnel.entry.tenant_id, container_id=tunnel.entry.container_id)
        try:
            if peer is None:
                raise Refused(_refusal(Reason.TOO_MANY_CONNECTIONS, host, port))
            # An https:// URL in a plain request would have the proxy do the TLS, and show it what a tunnel hides.
            if flow.error is not None or _is_malformed(request) or (tunnel is None and request.scheme != "http"):
                raise Refused(_refusal(Reason.MALFORMED, host, port))
            if tunnel:
                grant, decision, address = await self._decide_inside(peer, tunnel, flow)
            else:
                grant = await self._authenticate(peer, credential, host, port)
                entry = replace(entry, tenant_id=grant.tenant_id, container_id=grant.container_id)
                asked = EgressRequest(host, port, host_header=_host_header(request))
                decision, address = await self._approve(asked, grant)
                _approve_address(peer, address, port)
                request.data.host = address
        except Refused as refused:
            self._refuse(flow, entry, refused.decision)
            return
        entry = replace(entry, decision="allowed", reason=decision.reason, address=address)
        peer.is_settled = True
        self._let_through(flow, grant, normalise(host) or "", entry)

    async def _decide_inside(self, peer: Peer, tunnel: OpenTunnel, flow: http.HTTPFlow) -> tuple[Grant, Decision, str]:
        grant = await self._authenticate(peer, peer.credential, tunnel.host, tunnel.port)
        # The SNI was compared before the tunnel was opened; what remains is the name in the request.
        asked = EgressRequest(tunnel.host, tunnel.port, address=tunnel.address, host_header=_host_header(flow.request))
        decision = decide(asked, grant.policy)
        if not decision.allowed:
            raise Refused(decision)
        return grant, decision, tunnel.address

    def _let_through(self, flow: http.HTTPFlow, grant: Grant, host: str, entry: Entry) -> None:
        request = flow.request
        for name in ("proxy-connection", "proxy-authorization"):
            request.headers.pop(name, None)
        if request.headers.get("upgrade", "websocket").lower() != "websocket":
            request.headers.pop("upgrade")
        secrets = grant.secrets_for(host)
        sent: tuple[bytes, ...] = ()
        if secrets and flow.client_conn.tls_established:
            swapped = substitute(secrets, host, request.method, request.path, request.headers.fields)
            request.headers.fields, request.data.path, sent = swapped.headers, swapped.path.encode(), swapped.sent
            entry = replace(entry, secrets=swapped.names)
            # An echo in a compressed body could not be seen; most servers then send a plain one.
            request.headers["accept-encoding"] = "identity"
        exchange = Exchange(entry, Scrubber(secrets, sent))
        flow.metadata[_EXCHANGE] = exchange
        request.stream = exchange.count_request
        self._journal.began(entry)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        exchange = flow.metadata.get(_EXCHANGE)
        if exchange is None or flow.response is None:
            return
        exchange.scrub_head(flow.response)
        if flow.response.status_code != 101:
            flow.response.stream = exchange.body(flow.response, is_http1=not flow.request.is_http2)

    def response(self, flow: http.HTTPFlow) -> None:
        exchange = flow.metadata.get(_EXCHANGE)
        if exchange is None or flow.response is None:
            return
        if flow.response.trailers:
            fields = flow.response.trailers.fields
            flow.response.trailers.fields = tuple((name, exchange.scrubber.text(value)) for name, value in fields)
        if flow.websocket is None:
            self._exchange_ended(flow, exchange, flow.response.status_code)

    def error(self, flow: http.HTTPFlow) -> None:
        exchange = flow.metadata.get(_EXCHANGE)
        if exchange is not None:
            self._exchange_ended(flow, exchange, None, _upstream_error(flow))

    def websocket_message(self, flow: http.HTTPFlow) -> None:
        exchange = flow.metadata.get(_EXCHANGE)
        assert flow.websocket is not None
        message = flow.websocket.messages[-1]
        del flow.websocket.messages[:-1]  # They are passed on, not collected.
        if exchange is None:
            message.drop()
        elif message.from_client:
            exchange.bytes_sent += len(message.content)
        else:
            exchange.bytes_received += len(message.content)
            message.content = exchange.scrubber.text(message.content)

    def websocket_end(self, flow: http.HTTPFlow) -> None:
        exchange = flow.metadata.get(_EXCHANGE)
        if exchange is not None:
            self._exchange_ended(flow, exchange, 101)

    def _exchange_ended(self, flow: http.HTTPFlow, exchange: Exchange, status: int | None, error: str | None = None) -> None:
        flow.metadata.pop(_EXCHANGE)
        sent, received = exchange.bytes_sent, exchange.bytes_received
        self._journal.ended(replace(exchange.entry, bytes_sent=sent, bytes_received=received, status=status, error=error))

    # --- Deciding ---

    async def _authenticate(self, peer: Peer | None, credential: Credential | None, host: str, port: int) -> Grant:
        if peer is None or credential is None:
            raise Refused(_refusal(Reason.CREDENTIAL_MISSING, host, port))
        try:
            grant = await self._grants.find(credential.username, credential.password)
        except PolicyUnavailable as error:
            raise Refused(_refusal(Reason.POLICY_UNAVAILABLE, host, port)) from error
        if grant is None:
            raise Refused(_refusal(Reason.REVOKED if peer.tunnel else Reason.CREDENTIAL_UNKNOWN, host, port))
        peer.credential, peer.grant, peer.checked_at = credential, grant, time.monotonic()
        mine = sum(1 for other in self._peers.values() if other.grant and other.grant.container_id == grant.container_id)
        if mine > limits.EGRESS_CONNECTIONS_MAX:
            raise Refused(_refusal(Reason.TOO_MANY_CONNECTIONS, host, port))
        return grant

    async def _approve(self, request: EgressRequest, grant: Grant) -> tuple[Decision, str]:
        """Judge the name, resolve it once, judge the addresses; the first that passes is the one to connect to."""
        decision = decide(request, grant.policy)
        if not decision.allowed:
            raise Refused(decision)
        try:
            addresses = await self._resolver.resolve(normalise(request.host) or "", request.port)
        except Unresolvable as error:
            raise Refused(_refusal(Reason.UNRESOLVABLE, request.host, request.port)) from error
        decisions = [(decide(replace(request, address=address), grant.policy), address) for address in addresses]
        chosen = next(((decision, address) for decision, address in decisions if decision.allowed), None)
        if chosen is None:
            raise Refused(decisions[0][0])
        return chosen

    def _refuse(self, flow: http.HTTPFlow, entry: Entry, decision: Decision) -> None:
        status = _STATUS.get(decision.reason, 403)
        self._journal.ended(replace(entry, decision="denied", reason=decision.reason, status=status))
        if flow.error is not None:
            return  # mitmproxy answers what it could not read.
        if flow.request.method != "CONNECT" and not _has_small_body(flow.request):
            flow.kill()
            return
        flow.response = _answer(status, decision.sentence, decision.reason)

    def _entry(self, host: str, port: int, method: str, path: str | None) -> Entry:
        at_ms = self._now_ms()
        return Entry(
            id=new_entry_id(at_ms),
            at_ms=at_ms,
            tenant_id="",
            container_id="",
            host=shown(normalise(host) or host),
            port=port,
            method=shown(method)[:20],
            path=None if path is None else shown(path.partition("?")[0].partition("#")[0])[: limits.EGRESS_PATH_CHARS_MAX],
            decision="denied",
            reason="",
        )

    # --- Revocation, and clients that say nothing ---

    async def sweep(self) -> None:
        """Close what is no longer allowed, twice a second until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = time.monotonic()
            for client_id, peer in list(self._peers.items()):
                if await self._is_over(peer, now):
                    self._close(client_id, peer)

    async def _is_over(self, peer: Peer, now: float) -> bool:
        if not peer.is_settled and now - peer.connected_at > limits.EGRESS_HELLO_SECONDS_MAX:
            return True
        if peer.credential is None or peer.grant is None:
            return False
        try:
            grant = await self._grants.refresh(peer.credential.password)
        except PolicyUnavailable:
            return now - peer.checked_at > _UNAVAILABLE_SECONDS_MAX
        peer.checked_at = now
        if grant is None:
            return True
        peer.grant = grant
        tunnel = peer.tunnel
        return tunnel is not None and not decide(EgressRequest(tunnel.host, tunnel.port, tunnel.address), grant.policy).allowed

    def _close(self, client_id: str, peer: Peer) -> None:
        if peer.tunnel is not None and peer.tunnel.layer is not None:
            self._tunnel_ended(peer.tunnel, "closed: the container's network access has ended")
        handler = self._server.connections.get(client_id)
        transport = None if handler is None else handler.transports.get(handler.client)
        if transport is not None and transport.handler is not None:
            transport.handler.cancel("closed by policy")


def _refusal(reason: Reason, host: str, port: int) -> Decision:
    return Decision(False, reason, sentence(reason, host, port))


def _approve_address(peer: Peer, address: str, port: int) -> None:
    if len(peer.approved) >= _APPROVED_MAX:
        peer.approved.clear()
    peer.approved.add((address, port))


def _connect_host(request: http.Request) -> str:
    """The name as it was sent; mitmproxy's own reading decodes punycode."""
    return request.data.authority.decode("utf-8", "replace").rpartition(":")[0]


def _url_host(request: http.Request) -> str:
    """The name of an absolute URL, of which mitmproxy keeps only the decoded form."""
    host = request.data.host
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host


def _host_header(request: http.Request) -> str:
    """What the request says it is for; empty if it does not say, or says different things."""
    names = [value.decode("utf-8", "replace").lower() for name, value in request.headers.fields if name.lower() == b"host"]
    if request.data.authority:
        names.append(request.data.authority.decode("utf-8", "replace").lower())
    return names[0] if len(set(names)) == 1 and len(names) <= 2 else ""


def _is_malformed(request: http.Request) -> bool:
    """What no honest client sends, and what another server might read differently."""
    texts = [text for pair in request.headers.fields for text in pair] + [request.data.path, request.data.method]
    return any(byte in text for text in texts for byte in (b"\r", b"\n", b"\0")) or b" " in request.data.path


def _take_credential(request: http.Request) -> Credential | None:
    """The proxy credential, removed from the request."""
    values = request.headers.get_all("proxy-authorization")
    request.headers.pop("proxy-authorization", None)
    if len(values) != 1:
        return None
    scheme, _, encoded = values[0].partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        username, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return Credential(username, password) if colon else None


def _has_small_body(request: http.Request) -> bool:
    """A refused body is read to its end before the answer goes out; one that has none in sight is cut off instead."""
    if "transfer-encoding" in request.headers:
        return False
    length = request.headers.get("content-length")
    if length is None:
        return not request.is_http2 or request.method in ("GET", "HEAD")
    return length.isdigit() and int(length) <= limits.EGRESS_DENIED_BODY_BYTES_MAX


def _may_be_http(data: bytes) -> bool:
    """A method's letters, as far as they have come."""
    word = data[:20].partition(b" ")[0]
    return word.isalpha() and word.isupper() and (len(data) < 20 or b" " in data[:20]) and not data.startswith(b"SSH-")


def _upstream_error(flow: http.HTTPFlow) -> str:
    return flow.server_conn.error or (flow.error.msg[:300] if flow.error else "the connection failed")


def _answer(status: int, text: str, code: str) -> http.Response:
    """The refusal as the body, and in the reason phrase: pip, Python and wget show only that of a refused CONNECT."""
    body = {"error": {"message": text, "type": "egress_error", "param": None, "code": code}}
    headers = {"content-type": "application/json", "x-moorage-egress": code}
    if status == 407:
        headers["proxy-authenticate"] = 'Basic realm="moorage egress"'
    response = http.Response.make(status, json.dumps(body) + "\n", headers)
    response.reason = text
    return response
