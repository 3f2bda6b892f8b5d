"""Certificates for the connections that are opened: one leaf per host, signed by the deployment's CA, one key per process."""

from collections import OrderedDict
from collections.abc import Set as AbstractSet
from types import SimpleNamespace

from cryptography.hazmat.primitives.asymmetric import ec
from mitmproxy import certs, http, tls
from mitmproxy.addons.tlsconfig import TlsConfig
from mitmproxy.proxy.context import Context
from moorage.egress.ca import Authority, leaf

_CACHED_MAX = 1_000


class DeploymentCertificates(TlsConfig):
    """mitmproxy's TLS settings, with our authority in place of the one that it would make for itself on disk."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaves: OrderedDict[str, certs.CertStoreEntry] = OrderedDict()
        self.certstore = SimpleNamespace(dhparams=None)  # type: ignore[assignment]

    def configure(self, updated: AbstractSet[str]) -> None:
        """The base class would make an RSA authority in its own directory here."""

    def request(self, flow: http.HTTPFlow) -> None:
        """The base class (from mitmproxy 12 on) would answer requests for a revocation list, on any host."""

    def tls_clienthello(self, tls_clienthello: tls.ClientHelloData) -> None:
        """The host's own certificate is checked before the client gets one, and both sides speak the same protocol."""
        tls_clienthello.establish_server_tls_first = True

    def get_cert(self, conn_context: Context) -> certs.CertStoreEntry:
        host = conn_context.server.sni
        assert host, "a connection was to be opened without a name"
        entry = self._leaves.get(host)
        if entry is None or entry.cert.has_expired():
            certificate = certs.Cert(leaf(self._authority, host, self._key.public_key()))
            entry = certs.CertStoreEntry(certificate, self._key, None, [])  # type: ignore[arg-type]
            self._leaves[host] = entry
            if len(self._leaves) > _CACHED_MAX:
                self._leaves.popitem(last=False)
        return entry
