"""A small OpenID Connect issuer on this machine: discovery, keys, authorization code with PKCE, tokens, and the end of a session.

It follows OpenID Connect Core 1.0 and Discovery 1.0 as far as a client needs it, checks what a client sends as an issuer would, and can
be told to be wrong or away.
"""

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

AUDIENCE = "https://api.example.com"
CLIENT = "moorage-console"
PERSON: dict[str, Any] = {"sub": "ada@example.com", "tenant": "acme", "roles": ["admin"]}


@dataclass(frozen=True)
class SigningKey:
    name: str
    private: Any = field(repr=False)
    algorithm: str = "RS256"

    @classmethod
    def rsa(cls, name: str, bits: int = 2048) -> "SigningKey":
        return cls(name, rsa.generate_private_key(65537, bits))

    @classmethod
    def ec(cls, name: str) -> "SigningKey":
        return cls(name, ec.generate_private_key(ec.SECP256R1()), "ES256")

    def public(self) -> dict[str, Any]:
        kind: Any = RSAAlgorithm if self.algorithm.startswith("RS") else ECAlgorithm
        described: dict[str, Any] = json.loads(kind.to_jwk(self.private.public_key()))
        return described | {"kid": self.name, "use": "sig", "alg": self.algorithm}

    def sign(self, claims: Mapping[str, Any], **header: Any) -> str:
        private: PrivateKeyTypes = self.private
        return jwt.encode(dict(claims), private, algorithm=self.algorithm, headers={"kid": self.name, **header})  # type: ignore[arg-type]


@dataclass
class Issuer:
    url: str = ""
    keys: list[SigningKey] = field(default_factory=lambda: [SigningKey.rsa("first")])
    person: Mapping[str, Any] = field(default_factory=lambda: dict(PERSON))
    """Claims of whoever signs in next."""
    document: dict[str, Any] = field(default_factory=dict)
    """What its document says instead."""
    more_keys: list[dict[str, Any]] = field(default_factory=list)
    secret: str | None = None
    """What a client shows with a code."""
    nonce: str | None = None
    """What its ID tokens say instead of the client's."""
    is_away: bool = False
    asked: Counter[str] = field(default_factory=Counter)
    """Requests by path."""
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def claims(self, **other: Any) -> dict[str, Any]:
        now = int(time.time())
        whole = {"iss": self.url, "aud": AUDIENCE, "iat": now, "exp": now + 600, **self.person, **other}
        return {name: value for name, value in whole.items() if value is not None}

    def token(self, **other: Any) -> str:
        return self.keys[0].sign(self.claims(**other))

    def described(self) -> dict[str, Any]:
        endpoints = {"authorization_endpoint": "authorize", "token_endpoint": "token", "end_session_endpoint": "logout"}
        places = endpoints | {"jwks_uri": "keys"}
        return {"issuer": self.url, **{name: f"{self.url}/{path}" for name, path in places.items()}, **self.document}

    def authorize(self, query: Mapping[str, str]) -> str:
        """Where the browser goes then. Whoever comes is let in."""
        assert (query["response_type"], query["client_id"], query["code_challenge_method"]) == ("code", CLIENT, "S256")
        assert "openid" in query["scope"].split()
        code = secrets.token_urlsafe(16)
        self._codes[code] = dict(query)
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state'], 'iss': self.url})}"

    def exchange(self, form: Mapping[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """A code serves once, for the client and the verifier that it was given to."""
        if self.secret is not None:
            shown = base64.b64encode(f"{CLIENT}:{self.secret}".encode()).decode()
            is_client = authorization == f"Basic {shown}"
        else:
            is_client = form.get("client_id") == CLIENT
        asked = self._codes.pop(form.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest()).decode().rstrip("=")
        if not is_client or asked is None or (asked["code_challenge"], asked["redirect_uri"]) != (challenge, form.get("redirect_uri")):
            return 400, {"error": "invalid_grant"}
        token = self.token(aud=CLIENT, nonce=self.nonce or asked["nonce"])
        return 200, {"token_type": "Bearer", "expires_in": 600, "access_token": "opaque", "id_token": token}


@contextmanager
def issuing() -> Iterator[Issuer]:
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            issuer.asked[parts.path] += 1
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if issuer.is_away:
                self._answer(503, {})
            elif parts.path == "/.well-known/openid-configuration":
                self._answer(200, issuer.described())
            elif parts.path == "/keys":
                self._answer(200, {"keys": [*(key.public() for key in issuer.keys), *issuer.more_keys]})
            elif parts.path == "/moved":
                self.send_response(302)
                self.send_header("location", f"{issuer.url}/keys")
                self.end_headers()
            elif parts.path == "/authorize":
                self.send_response(302)
                self.send_header("location", issuer.authorize(query))
                self.end_headers()
            elif parts.path == "/logout":
                self._answer(200, {"signed": "out"})
            else:
                self._answer(404, {})

        def do_POST(self) -> None:
            issuer.asked[self.path] += 1
            form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
            words = {name: values[0] for name, values in form.items()}
            self._answer(*issuer.exchange(words, self.headers.get("authorization", "")))

        def _answer(self, status: int, said: Mapping[str, Any]) -> None:
            body = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()


# --- Tokens of an attacker ---


def unsigned(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def with_public_key_as_secret(issuer: Issuer) -> str:
    """Algorithm confusion: HMAC with what everybody can read."""
    public = issuer.keys[0].private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = unsigned({"alg": "HS256", "typ": "JWT", "kid": "first"}, issuer.claims()).rpartition(".")[0]
    signature = hmac.digest(public, head.encode(), hashlib.sha256)
    return f"{head}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def with_embedded_key(issuer: Issuer) -> str:
    """A key of the attacker's own, which the header brings along or names a place for."""
    own = SigningKey.rsa("own")
    return own.sign(issuer.claims(), jwk=own.public(), jku=f"{issuer.url}/keys", kid="first")
