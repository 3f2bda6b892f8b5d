"""Signing in to the console with an issuer: authorization code with PKCE (RFC 6749, RFC 7636; OpenID Connect Core 1.0, section 3.1).

The state, the nonce and the verifier of a request are sealed into a cookie, so that only the browser that began can finish. A state
serves once: the table notes each one that was used.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from typing import Final
from urllib.parse import quote, urlencode

import orjson

from moorage import limits, sealing
from moorage.dataclass import dataclass
from moorage.egress.fetch import FetchError
from moorage.errors import ApiError, ConditionFailed, issuer_unreachable, sign_in_failed
from moorage.identity.ended_sessions import CALLBACK
from moorage.identity.issuer import Issuer
from moorage.identity.tokens import Tokens
from moorage.settings import Settings
from moorage.store import keys
from moorage.store.api_keys import ApiKey, hash_of
from moorage.store.table import Table

_BOUND_TO: Final = b"moorage sign-in"


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """The state of a browser until it comes back from the issuer."""

    state: str
    nonce: str
    verifier: str = field(repr=False)
    expires_at: int


class SignIn:
    def __init__(
        self, settings: Settings, tokens: Tokens, table: Table, content_key: Callable[[], bytes], clock: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._tokens = tokens
        self._table = table
        self._content_key = content_key
        self._clock = clock

    @property
    def _issuer(self) -> Issuer:
        return self._tokens.issuer

    @property
    def is_over_tls(self) -> bool:
        return (self._settings.oidc_console_url or "").startswith("https:")

    async def start(self) -> tuple[str, str]:
        """The address at the issuer that the browser goes to, and the value of its cookie."""
        metadata = await self._issuer.metadata()
        if not metadata.authorization_endpoint or not metadata.token_endpoint:
            raise sign_in_failed("The issuer names no place to sign in at.")
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        request = AuthorizationRequest(state, nonce, verifier, int(self._clock()) + limits.SIGN_IN_SECONDS)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self._settings.oidc_client_id or "",
            "redirect_uri": self._redirect_uri,
            "scope": self._settings.oidc_scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        separator = "&" if "?" in metadata.authorization_endpoint else "?"
        return f"{metadata.authorization_endpoint}{separator}{urlencode(query)}", self._sealed(request)

    async def finish(self, cookie: str, said: Mapping[str, str]) -> tuple[str, ApiKey]:
        """The person's ID token, and the key that it stands for. ``said`` is the query of the redirect URI. Raises
        :class:`~moorage.errors.ApiError`."""
        request = self._opened(cookie)
        if request is None or not hmac.compare_digest(request.state.encode(), said.get("state", "").encode()):
            raise sign_in_failed("It did not begin in this browser, or took longer than ten minutes.")
        forgotten_at = request.expires_at + limits.SIGN_IN_SECONDS
        note = {"PK": keys.console_code(hash_of(request.state)), "SK": keys.META, "ttl": forgotten_at}
        try:
            await self._table.put(note, if_absent=True)
        except ConditionFailed:
            raise sign_in_failed("This address has served already.") from None
        if said.get("iss", self._issuer.url) != self._issuer.url:  # RFC 9207
            raise sign_in_failed("Another issuer has answered.")
        if "code" not in said:
            raise sign_in_failed("The issuer did not let you in.")
        token = await self._id_token(said["code"], request.verifier)
        claims = await self._tokens.verified(token, {self._settings.oidc_client_id or ""})
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), request.nonce.encode()):
            raise sign_in_failed("The issuer's token is for another sign-in.")
        return token, await self._tokens.find(token)

    async def logout_url(self) -> str | None:
        """Where the browser ends its session at the issuer (OpenID Connect RP-Initiated Logout 1.0), without the token in the address.
        None if the issuer names no such address, or cannot be reached: the session here has ended all the same."""
        try:
            metadata = await self._issuer.metadata()
        except ApiError:
            return None
        if not metadata.end_session_endpoint:
            return None
        query = {"client_id": self._settings.oidc_client_id or "", "post_logout_redirect_uri": self._settings.oidc_console_url or ""}
        return f"{metadata.end_session_endpoint}{'&' if '?' in metadata.end_session_endpoint else '?'}{urlencode(query)}"

    @property
    def _redirect_uri(self) -> str:
        return f"{(self._settings.oidc_console_url or '').rstrip('/')}/{CALLBACK}"

    async def _id_token(self, code: str, verifier: str) -> str:
        """The issuer's answer to a code (OpenID Connect Core 1.0, section 3.1.3). Raises :class:`~moorage.errors.ApiError`."""
        metadata, client, secret = await self._issuer.metadata(), self._settings.oidc_client_id or "", self._settings.oidc_client_secret
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": self._redirect_uri, "code_verifier": verifier}
        headers = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}
        if secret:
            named = f"{quote(client, safe='')}:{quote(secret, safe='')}".encode()  # RFC 6749, section 2.3.1
            headers["authorization"] = f"Basic {base64.b64encode(named).decode()}"
        else:
            form["client_id"] = client
        try:
            async with self._issuer.fetcher.asked(
                metadata.token_endpoint,
                method="POST",
                headers=headers,
                body=urlencode(form).encode(),
                bytes_max=limits.ISSUER_ANSWER_BYTES_MAX,
                seconds=limits.ISSUER_SECONDS_MAX,
            ) as reply:
                body = b"".join([chunk async for chunk in reply.chunks])
        except FetchError as error:
            raise issuer_unreachable() from error
        try:
            token = orjson.loads(body)["id_token"]
        except (ValueError, KeyError, TypeError) as error:
            raise sign_in_failed("The issuer did not take the code.") from error
        if not isinstance(token, str):
            raise sign_in_failed("The issuer did not take the code.")
        return token

    def _key(self) -> bytes:
        return sealing.derived_key(self._content_key(), _BOUND_TO)

    def _sealed(self, request: AuthorizationRequest) -> str:
        said = orjson.dumps(asdict(request)).decode()
        return base64.urlsafe_b64encode(sealing.seal(said, self._key(), _BOUND_TO)).decode().rstrip("=")

    def _opened(self, cookie: str) -> AuthorizationRequest | None:
        """None for a cookie that this deployment did not make, and for one that has expired."""
        try:
            data = base64.b64decode(cookie + "=" * (-len(cookie) % 4), altchars=b"-_", validate=True)
            request = AuthorizationRequest(**orjson.loads(sealing.unseal(data, self._key(), _BOUND_TO)))
        except (sealing.SealBroken, ValueError, TypeError):
            return None
        return request if self._clock() < request.expires_at else None
