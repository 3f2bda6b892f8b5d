"""The gate: every hook of mitmproxy that brings a new fact about a connection, and the policy's answer to it.

A client connection is a *peer*. Each CONNECT and each plain request carries the container's credential. After CONNECT it is a tunnel to
one host at one checked address, and stays that: unopened if the container has no secret for the host, otherwise opened with a
certificate of the deployment's own, so that each request inside is decided anew. Plain ``http://`` requests are decided one by one.

No address is ever connected to that was not approved for that peer: :meth:`Gate.server_connect` is the one choke point, and refuses
unknown ones.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from mitmproxy import connection, http, tls
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy import layer, server_hooks
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers import ClientTLSLayer, ServerTLSLayer
from mitmproxy.proxy.layers.http import HttpLayer, HTTPMode
from mitmproxy.proxy.layers.modes import HttpProxy
from moorage import limits
from moorage.egress.client_hello import NotTls, looks_like_tls, read_client_hello
from moorage.egress.grants import Grant, Grants, PolicyUnavailable
from moorage.egress.policy import EgressDecision, EgressReason, EgressRequest, decide, sentence, shown
from moorage.egress.redaction import Scrubber, patterns_of
from moorage.egress.secrets import OpenSecret
from moorage.egress.store import EgressLogEntry
from moorage.egress.substitution import AS_SENT, SubstitutedRequest, ValuesTooLarge, form_secrets, substitute
from moorage.hosts import normalise

from functions.egress_proxy.exchange import Exchange, Windows, exchange_of
from functions.egress_proxy.journal import DecisionLog, new_entry_id
from functions.egress_proxy.layers import UNRECOGNIZED_NAME, BoundedHttpLayer, RefusalLayer, Tunnel
from functions.egress_proxy.messages import (
    Credential,
    connect_host,
    has_short_body,
    has_small_body,
    host_header,
    is_malformed,
    may_be_http,
    refusal,
    status_of,
    take_credential,
    url_host,
)
from functions.egress_proxy.peers import OpenTunnel, Peer, Peers
from functions.egress_proxy.resolver import Resolver, Unresolvable

_ASKED = frozenset({EgressReason.HOST_NEEDS_APPROVAL, EgressReason.SECRET_NEEDS_APPROVAL})
_SWEEP_SECONDS = 0.5
_UNAVAILABLE_SECONDS_MAX = 15.0
"""Open tunnels outlive a table that does not answer for this long; new requests do not."""


class RequestRefused(Exception):
    """A request ends here; the decision says why."""

    def __init__(self, decision: EgressDecision, secrets: tuple[str, ...] = ()) -> None:
        super().__init__(decision.sentence)
        self.decision = decision
        self.secrets = secrets
        """Names of those that wait for a person's word."""


class EgressAddon:
    def __init__(
        self,
        grants: Grants,
        resolver: Resolver,
        journal: DecisionLog,
        server: Proxyserver,
        peers: Peers,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._grants = grants
        self._resolver = resolver
        self._journal = journal
        self._server = server
        self._peers = peers
        self._now_ms = now_ms
        self._windows = Windows()

    # --- Connections ---

    def client_connected(self, client: connection.Client) -> None:
        if not self._peers.enter(client.id, client.peername[0], time.monotonic()):
            client.error = "too many connections"

    def http_layers_of(self, client_id: str) -> Iterable[HttpLayer]:
        peer = self._peers.get(client_id)
        return () if peer is None else peer.http_layers

    def client_disconnected(self, client: connection.Client) -> None:
        peer = self._peers.leave(client.id)
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
            next_layer.layer = RefusalLayer(context, b"")
        elif len(context.layers) == 1 and isinstance(context.layers[0], HttpProxy):
            next_layer.layer = _http_layer(context, HTTPMode.regular, peer)
        elif peer.tunnel is None:
            next_layer.layer = RefusalLayer(context, b"")
        elif context.client.tls_established:
            next_layer.layer = _http_layer(context, HTTPMode.transparent, peer)
        else:
            self._begin_tunnel(next_layer, peer, peer.tunnel)

    def _begin_tunnel(self, next_layer: layer.NextLayer, peer: Peer, tunnel: OpenTunnel) -> None:
        context, data = next_layer.context, next_layer.data_client()
        if not data:
            if next_layer.data_server():  # The host speaks first: ssh, SMTP and the like.
                self._refuse_tunnel(next_layer, tunnel, EgressReason.NOT_TLS_OR_HTTP, b"")
            return
        if not looks_like_tls(data):
            if may_be_http(data):
                next_layer.layer = _http_layer(context, HTTPMode.transparent, peer)
            else:
                self._refuse_tunnel(next_layer, tunnel, EgressReason.NOT_TLS_OR_HTTP, b"")
            return
        try:
            hello = read_client_hello(data)
        except NotTls:
            self._refuse_tunnel(next_layer, tunnel, EgressReason.MALFORMED, UNRECOGNIZED_NAME)
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

    def _refuse_tunnel(self, next_layer: layer.NextLayer, tunnel: OpenTunnel, reason: EgressReason, message: bytes) -> None:
        next_layer.layer = RefusalLayer(next_layer.context, message)
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
        host, port = connect_host(flow.request), flow.request.port
        credential = take_credential(flow.request)
        entry = self._entry(host, port, "CONNECT", None)
        try:
            grant = await self._authenticate(peer, credential, host, port)
            entry = replace(entry, tenant_id=grant.tenant_id, container_id=grant.container_id)
            decision, address = await self._approve(EgressRequest(host, port), grant)
        except RequestRefused as refused:
            await self._refuse(flow, entry, refused.decision)
            return
        assert peer is not None
        peer.tunnel = OpenTunnel(
            normalise(host) or "", port, address, replace(entry, decision="allowed", reason=decision.reason, address=address)
        )
        peer.approve(address, port)
        # From here on mitmproxy knows this connection by the checked address, and the name is kept above.
        flow.request.data.host = address

    def http_connect_error(self, flow: http.HTTPFlow) -> None:
        """The host was allowed and did not answer."""
        peer = self._peers.get(flow.client_conn.id)
        if peer is None or peer.tunnel is None or flow.response is None or flow.response.status_code != 502:
            return
        error = flow.server_conn.error or "the connection failed"
        text = f"'{peer.tunnel.host}' is allowed, but the connection to it failed: {error}."
        flow.response = refusal(502, text, "upstream_unreachable")
        self._journal.ended(replace(peer.tunnel.entry, status=502, error=error))
        peer.tunnel = None

    # --- Requests: plain ones, and those inside an opened tunnel ---

    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        peer = self._peers.get(flow.client_conn.id)
        tunnel = None if peer is None else peer.tunnel
        request = flow.request
        credential = None if tunnel else take_credential(request)
        host = tunnel.host if tunnel else url_host(request)
        port = tunnel.port if tunnel else request.port
        entry = self._entry(host, port, request.method, request.path)
        if tunnel:
            entry = replace(entry, tenant_id=tunnel.entry.tenant_id, container_id=tunnel.entry.container_id)
        try:
            if peer is None:
                raise RequestRefused(_refusal(EgressReason.TOO_MANY_CONNECTIONS, host, port))
            # An https:// URL in a plain request would have the proxy do the TLS, and show it what a tunnel hides.
            if flow.error is not None or is_malformed(request) or (tunnel is None and request.scheme != "http"):
                raise RequestRefused(_refusal(EgressReason.MALFORMED, host, port))
            if tunnel:
                grant, decision, address = await self._decide_inside(peer, tunnel, flow)
            else:
                grant = await self._authenticate(peer, credential, host, port)
                entry = replace(entry, tenant_id=grant.tenant_id, container_id=grant.container_id)
                asked = EgressRequest(host, port, host_header=host_header(request))
                decision, address = await self._approve(asked, grant)
                peer.approve(address, port)
                request.data.host = address
            swapped = _swapped(flow, grant, normalise(host) or "", port)
        except RequestRefused as refused:
            await self._refuse(flow, replace(entry, secrets=refused.secrets), refused.decision)
            return
        entry = replace(entry, decision="allowed", reason=decision.reason, address=address)
        peer.is_settled = True
        self._let_through(flow, grant, normalise(host) or "", entry, swapped)

    async def _decide_inside(self, peer: Peer, tunnel: OpenTunnel, flow: http.HTTPFlow) -> tuple[Grant, EgressDecision, str]:
        grant = await self._authenticate(peer, peer.credential, tunnel.host, tunnel.port)
        # The SNI was compared before the tunnel was opened; what remains is the name in the request.
        asked = EgressRequest(tunnel.host, tunnel.port, address=tunnel.address, host_header=host_header(flow.request))
        decision = decide(asked, grant.policy)
        if not decision.allowed:
            raise RequestRefused(decision)
        return grant, decision, tunnel.address

    def _let_through(
        self, flow: http.HTTPFlow, grant: Grant, host: str, entry: EgressLogEntry, swapped: SubstitutedRequest | None
    ) -> None:
        request = flow.request
        for name in ("proxy-connection", "proxy-authorization"):
            request.headers.pop(name, None)
        if request.headers.get("upgrade", "websocket").lower() != "websocket":
            request.headers.pop("upgrade")
        secrets = grant.secrets_for(host)
        sent: tuple[bytes, ...] = ()
        if swapped is not None:
            request.headers.fields, request.data.path, sent = swapped.headers, swapped.path.encode(*AS_SENT), swapped.sent
            entry = replace(entry, secrets=swapped.names)
            # An echo in a compressed body could not be seen; most servers then send a plain one.
            request.headers["accept-encoding"] = "identity"
        echoes = patterns_of(sent).union(*(secret.echoes for secret in secrets))
        forms: tuple[OpenSecret, ...] = ()
        if swapped is not None and has_short_body(request):
            forms = form_secrets(secrets, host, request.method, request.path, request.headers.fields)
        exchange = Exchange(entry, Scrubber(echoes), self._windows, forms)
        exchange.attach(flow)
        if not forms:
            request.stream = exchange.count_request
        self._journal.began(entry)

    async def request(self, flow: http.HTTPFlow) -> None:
        """The body of a request that was held for its secrets is whole."""
        exchange, peer = exchange_of(flow), self._peers.get(flow.client_conn.id)
        if exchange is None or not exchange.forms or peer is None or peer.grant is None:
            return
        try:
            names = exchange.fill_form(flow.request)
        except ValuesTooLarge:
            await self._refuse_body(flow, exchange, EgressReason.VALUES_TOO_LARGE, ())
            return
        held = tuple(name for name in names if peer.grant.policy.holds_secret(name))
        if held:
            await self._refuse_body(flow, exchange, EgressReason.SECRET_NEEDS_APPROVAL, held)

    async def _refuse_body(self, flow: http.HTTPFlow, exchange: Exchange, reason: EgressReason, secrets: tuple[str, ...]) -> None:
        exchange.detach(flow)
        entry = replace(exchange.entry, secrets=secrets)
        await self._refuse(flow, entry, _refusal(reason, entry.host or "", entry.port))

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        exchange = exchange_of(flow)
        if exchange is not None and flow.response is not None:
            exchange.receive_head(flow)

    def response(self, flow: http.HTTPFlow) -> None:
        exchange = exchange_of(flow)
        if exchange is None or flow.response is None:
            return
        if flow.response.trailers:
            fields = flow.response.trailers.fields
            flow.response.trailers.fields = tuple((name, exchange.scrubber.text(value)) for name, value in fields)
        if flow.websocket is None:
            self._exchange_ended(flow, exchange, flow.response.status_code)

    def error(self, flow: http.HTTPFlow) -> None:
        exchange = exchange_of(flow)
        if exchange is not None:
            self._exchange_ended(flow, exchange, None, _upstream_error(flow))

    def websocket_message(self, flow: http.HTTPFlow) -> None:
        exchange = exchange_of(flow)
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
        exchange = exchange_of(flow)
        if exchange is not None:
            self._exchange_ended(flow, exchange, 101)

    def _exchange_ended(self, flow: http.HTTPFlow, exchange: Exchange, status: int | None, error: str | None = None) -> None:
        exchange.detach(flow)
        sent, received = exchange.bytes_sent, exchange.bytes_received
        self._journal.ended(replace(exchange.entry, bytes_sent=sent, bytes_received=received, status=status, error=error))

    # --- Deciding ---

    async def _authenticate(self, peer: Peer | None, credential: Credential | None, host: str, port: int) -> Grant:
        if peer is None or credential is None:
            raise RequestRefused(_refusal(EgressReason.CREDENTIAL_MISSING, host, port))
        try:
            grant = await self._grants.find(credential.username, credential.password)
            if grant is not None and _may_have_been_allowed(grant, host, port):
                grant = await self._grants.reread(credential.password)
        except PolicyUnavailable as error:
            raise RequestRefused(_refusal(EgressReason.POLICY_UNAVAILABLE, host, port)) from error
        if grant is None:
            raise RequestRefused(_refusal(EgressReason.REVOKED if peer.tunnel else EgressReason.CREDENTIAL_UNKNOWN, host, port))
        if not self._peers.recognise(peer, credential, grant, time.monotonic()):
            raise RequestRefused(_refusal(EgressReason.TOO_MANY_CONNECTIONS, host, port))
        return grant

    async def _approve(self, request: EgressRequest, grant: Grant) -> tuple[EgressDecision, str]:
        """Judge the name, resolve it once, judge the addresses; the first that passes is the one to connect to."""
        decision = decide(request, grant.policy)
        if not decision.allowed:
            raise RequestRefused(decision)
        try:
            addresses = await self._resolver.resolve(normalise(request.host) or "", request.port)
        except Unresolvable as error:
            raise RequestRefused(_refusal(EgressReason.UNRESOLVABLE, request.host, request.port)) from error
        decisions = [(decide(replace(request, address=address), grant.policy), address) for address in addresses]
        chosen = next(((decision, address) for decision, address in decisions if decision.allowed), None)
        if chosen is None:
            raise RequestRefused(decisions[0][0])
        return chosen

    async def _refuse(self, flow: http.HTTPFlow, entry: EgressLogEntry, decision: EgressDecision) -> None:
        status = status_of(decision.reason)
        refused = replace(entry, decision="denied", reason=decision.reason, status=status)
        if decision.reason in _ASKED:
            await self._journal.asked(refused)
        else:
            self._journal.ended(refused)
        if flow.error is not None:
            return  # mitmproxy answers what it could not read.
        if flow.request.method != "CONNECT" and not has_small_body(flow.request):
            flow.kill()
            return
        flow.response = refusal(status, decision.sentence, decision.reason)

    def _entry(self, host: str, port: int, method: str, path: str | None) -> EgressLogEntry:
        at_ms = self._now_ms()
        return EgressLogEntry(
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
        """Close connections that are no longer allowed, twice a second until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = time.monotonic()
            for client_id, peer in self._peers:
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
        self.cut(client_id)

    def cut(self, client_id: str) -> None:
        """Close a client's connection, and those to the hosts that it led to."""
        handler = self._server.connections.get(client_id)
        transport = None if handler is None else handler.transports.get(handler.client)
        if transport is not None and transport.handler is not None:
            transport.handler.cancel("closed by policy")


def _http_layer(context: Context, mode: HTTPMode, peer: Peer) -> HttpLayer:
    peer.http_layers.append(http_layer := BoundedHttpLayer(context, mode))
    return http_layer


def _may_have_been_allowed(grant: Grant, host: str, port: int) -> bool:
    """Whether the known grant would refuse a host that a person may have allowed since it was read."""
    if decide(EgressRequest(host, port), grant.policy).reason is EgressReason.HOST_NEEDS_APPROVAL:
        return True
    return any(grant.policy.holds_secret(secret.name) for secret in grant.secrets_for(normalise(host) or ""))


def _swapped(flow: http.HTTPFlow, grant: Grant, host: str, port: int) -> SubstitutedRequest | None:
    """The request with its secrets; None if none can be in it. Raises :class:`RequestRefused` if one waits for a person's word."""
    request, secrets = flow.request, grant.secrets_for(host)
    if not secrets or not flow.client_conn.tls_established:
        return None
    try:
        swapped = substitute(secrets, host, request.method, request.path, request.headers.fields)
    except ValuesTooLarge as error:
        raise RequestRefused(_refusal(EgressReason.VALUES_TOO_LARGE, host, port)) from error
    held = tuple(name for name in swapped.names if grant.policy.holds_secret(name))
    if held:
        raise RequestRefused(_refusal(EgressReason.SECRET_NEEDS_APPROVAL, host, port), held)
    return swapped


def _refusal(reason: EgressReason, host: str, port: int) -> EgressDecision:
    return EgressDecision(False, reason, sentence(reason, host, port))


def _upstream_error(flow: http.HTTPFlow) -> str:
    return flow.server_conn.error or (flow.error.msg[:300] if flow.error else "the connection failed")
