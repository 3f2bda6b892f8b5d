"""Signing in to the console with an issuer: authorization code with PKCE (RFC 6749, RFC 7636; OpenID Connect Core 1.0, section 3.1).

What is remembered between leaving and coming back (state, nonce, verifier) is sealed into a cookie of the browser that left, so that
nobody else can come back in its place. A state serves once: the table notes it.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final
from urllib.parse import quote, urlencode

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from moorage import limits, sealing
from moorage.egress.fetch import FetchError
from moorage.errors import ConditionFailed, issuer_unreachable, sign_in_failed
from moorage.identity.ended import COME_BACK
from moorage.identity.issuer import Issuer
from moorage.identity.tokens import Tokens
from moorage.settings import Settings
from moorage.store import keys
from moorage.store.api_keys import ApiKey, hash_of
from moorage.store.table import Table

_BOUND_TO: Final = b"moorage sign-in"


@dataclass(frozen=True, slots=True)
class Departure:
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

    async def leave(self) -> tuple[str, str]:
        """Where the browser goes, and what its cookie holds."""
        document = await self._issuer.document()
        if not document.authorization_endpoint or not document.token_endpoint:
            raise sign_in_failed("The issuer names no place to sign in at.")
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        departure = Departure(state, nonce, verifier, int(self._clock()) + limits.SIGN_IN_SECONDS)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self._settings.oidc_client_id or "",
            "redirect_uri": self._comes_back_to,
            "scope": self._settings.oidc_scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        separator = "&" if "?" in document.authorization_endpoint else "?"
        return f"{document.authorization_endpoint}{separator}{urlencode(query)}", self._sealed(departure)

    async def come_back(self, cookie: str, said: Mapping[str, str]) -> tuple[str, ApiKey]:
        """The person's token, and what it opens. Raises :class:`~moorage.errors.ApiError`; the code was not sent on then, or is used
        up."""
        departure = self._opened(cookie)
        if departure is None or not hmac.compare_digest(departure.state.encode(), said.get("state", "").encode()):
            raise sign_in_failed("It did not begin in this browser, or took longer than ten minutes.")
        forgotten_at = departure.expires_at + limits.SIGN_IN_SECONDS
        note = {"PK": keys.console_code(hash_of(departure.state)), "SK": keys.META, "ttl": forgotten_at}
        try:
            await self._table.put(note, if_absent=True)
        except ConditionFailed:
            raise sign_in_failed("This address has served already.") from None
        if said.get("iss", self._issuer.url) != self._issuer.url:  # RFC 9207
            raise sign_in_failed("Another issuer has answered.")
        if "code" not in said:
            raise sign_in_failed("The issuer did not let you in.")
        token = await self._exchanged(said["code"], departure.verifier)
        claims = await self._tokens.verified(token, {self._settings.oidc_client_id or ""})
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), departure.nonce.encode()):
            raise sign_in_failed("The issuer's token is for another sign-in.")
        return token, await self._tokens.find(token)

    async def way_out(self) -> str | None:
        """Where the browser ends its session at the issuer (OpenID Connect RP-Initiated Logout 1.0), without the token in the address.
        None where there is no such place."""
        document = await self._issuer.document()
        if not document.end_session_endpoint:
            return None
        query = {"client_id": self._settings.oidc_client_id or "", "post_logout_redirect_uri": self._settings.oidc_console_url or ""}
        return f"{document.end_session_endpoint}{'&' if '?' in document.end_session_endpoint else '?'}{urlencode(query)}"

    @property
    def _comes_back_to(self) -> str:
        return f"{(self._settings.oidc_console_url or '').rstrip('/')}/{COME_BACK}"

    async def _exchanged(self, code: str, verifier: str) -> str:
        """The ID token for a code."""
        document, client, secret = await self._issuer.document(), self._settings.oidc_client_id or "", self._settings.oidc_client_secret
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": self._comes_back_to, "code_verifier": verifier}
        headers = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}
        if secret:
            named = f"{quote(client, safe='')}:{quote(secret, safe='')}".encode()  # RFC 6749, section 2.3.1
            headers["authorization"] = f"Basic {base64.b64encode(named).decode()}"
        else:
            form["client_id"] = client
        try:
            async with self._issuer.fetcher.asked(
                document.token_endpoint,
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
        return HKDF(SHA256(), 32, salt=None, info=_BOUND_TO).derive(self._content_key())

    def _sealed(self, departure: Departure) -> str:
        said = orjson.dumps(asdict(departure)).decode()
        return base64.urlsafe_b64encode(sealing.seal(said, self._key(), _BOUND_TO)).decode().rstrip("=")

    def _opened(self, cookie: str) -> Departure | None:
        """None for what is no cookie of this deployment, and for one that has expired."""
        try:
            data = base64.b64decode(cookie + "=" * (-len(cookie) % 4), altchars=b"-_", validate=True)
            departure = Departure(**orjson.loads(sealing.unseal(data, self._key(), _BOUND_TO)))
        except (InvalidTag, ValueError, TypeError):
            return None
        return departure if self._clock() < departure.expires_at else None
