"""How every program in a sandbox finds the proxy and believes its certificates: variables and one bundle of CAs.

Two rules of thumb decide between the many variables. Those that *replace* a program's own CAs must name the whole bundle (the
system's and the proxy's), or tunnelled connections to ordinary hosts would fail; those that *add* to them take the same bundle
without harm. And every spelling is set, since programs differ in which they read: curl takes ``http_proxy`` in lower case only,
Go and Node either.

Java reads none of these: it has trust stores in a format of its own and takes proxy credentials only from a program's code. Node
before 22.21 reads the proxy only in npm. ``docs/egress.md`` says how to help both.
"""

from typing import Final
from urllib.parse import quote

FORWARDER: Final = "127.0.0.1:3128"
"""Where the exec server brings the proxy's Unix socket to, inside of a sandbox without a network."""
CA_BUNDLE: Final = "/tmp/.exec/ca-certificates.crt"  # noqa: S108
"""Written by the exec server: the system's certificates and the proxy's."""

NO_PROXY: Final = "localhost,127.0.0.1,::1"
"""Servers that the commands start themselves."""


def proxy_url(address: str, username: str, password: str) -> str:
    """``http://user:password@127.0.0.1:3128``, from the address that commands reach the forwarder or the proxy at."""
    return f"http://{quote(username, safe='')}:{quote(password, safe='')}@{address}"


def environment(proxy: str, ca_bundle: str) -> dict[str, str]:
    """The variables of every command in a sandbox with the proxy ``proxy`` and its bundle of CAs at ``ca_bundle``."""
    return {
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"), proxy),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), NO_PROXY),
        # Replacing: OpenSSL (Python, Ruby, wget, uv), requests, curl, git, pip, cargo, AWS SDKs, Nix, Deno, Perl.
        "SSL_CERT_FILE": ca_bundle,
        "REQUESTS_CA_BUNDLE": ca_bundle,
        "CURL_CA_BUNDLE": ca_bundle,
        "GIT_SSL_CAINFO": ca_bundle,
        "PIP_CERT": ca_bundle,
        "CARGO_HTTP_CAINFO": ca_bundle,
        "AWS_CA_BUNDLE": ca_bundle,
        "NIX_SSL_CERT_FILE": ca_bundle,
        "DENO_CERT": ca_bundle,
        "PERL_LWP_SSL_CA_FILE": ca_bundle,
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": ca_bundle,
        "npm_config_cafile": ca_bundle,
        "YARN_HTTPS_CA_FILE_PATH": ca_bundle,
        # Adding: Node. NODE_USE_ENV_PROXY makes fetch() and https.get() read the proxy variables (Node 22.21, 24.5 and later).
        "NODE_EXTRA_CA_CERTS": ca_bundle,
        "NODE_USE_ENV_PROXY": "1",
        # uv and rustup read the file above only when told to leave their built-in roots.
        "UV_NATIVE_TLS": "1",
        "UV_SYSTEM_CERTS": "1",
        "RUSTUP_USE_CURL": "1",
    }
