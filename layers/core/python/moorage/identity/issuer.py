"""An issuer's metadata and public keys (OpenID Connect Discovery 1.0, RFC 7517).

Both are used for an hour and then read again. A token that names an unknown key makes the process read the keys again, a few times a
minute at most: tokens that name keys at random must not become requests to the issuer. If the issuer cannot be reached, the last keys
are used, and one request a minute waits for another attempt.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import jwt
import orjson
from jwt.exceptions import PyJWTError

from moorage import limits
from moorage.dataclass import dataclass
from moorage.egress.fetch import Fetcher, FetchError
from moorage.errors import issuer_unreachable

FAMILIES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
"""Every algorithm that is taken, with the kind of key that it takes. All have a private key that only the issuer holds: with HMAC,
whoever checks a token could make one."""
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


class InvalidIssuerAnswer(Exception):
    """It breaks the standards, or a rule of ours."""


@dataclass(frozen=True, slots=True)
class ProviderMetadata:
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    end_session_endpoint: str = ""


class Issuer:
    def __init__(self, url: str, fetcher: Fetcher, clock: Callable[[], float]) -> None:
        """``url`` must equal the ``iss`` of tokens, letter by letter."""
        self.url = url
        self.fetcher = fetcher
        self._clock = clock
        self._metadata: ProviderMetadata | None = None
        self._keys: dict[str, tuple[Mapping[str, Any], Any]] = {}
        self._read_at = 0.0
        self._refreshes: deque[float] = deque(maxlen=limits.ISSUER_REFRESHES_MAX)
        """When the last ones began."""
        self._refreshes_ended = 0
        self._refreshing = asyncio.Lock()

    async def metadata(self) -> ProviderMetadata:
        """Raises :class:`~moorage.errors.ApiError` if they were not read for a day, and cannot be read now."""
        is_usable = self._metadata is not None and self._age() <= limits.ISSUER_STALE_SECONDS
        if not is_usable or (self._age() > limits.ISSUER_FRESH_SECONDS and self._may_refresh_again()):
            await self._refresh()
        if self._metadata is None or self._age() > limits.ISSUER_STALE_SECONDS:
            raise issuer_unreachable()
        return self._metadata

    def _may_refresh_again(self) -> bool:
        """The known keys can be used meanwhile, so that one request waits for the issuer and not all of them."""
        return not self._refreshing.locked() and self._clock() - self._refreshes[-1] >= limits.ISSUER_REFRESHES_SECONDS

    async def key(self, key_id: str | None, algorithm: str) -> Any:
        """The public key for a token's header; None if the issuer has none. Raises :class:`~moorage.errors.ApiError` as above."""
        await self.metadata()
        found = self._fitting(key_id, algorithm)
        if found is None:
            await self._refresh()
            found = self._fitting(key_id, algorithm)
        return found

    def _fitting(self, key_id: str | None, algorithm: str) -> Any:
        """The one key of this name that fits the algorithm. A token without a name gets the only key that fits."""
        fitting = [
            key for name, (described, key) in self._keys.items() if (key_id is None or name == key_id) and _fits(described, algorithm)
        ]
        return fitting[0] if len(fitting) == 1 else None

    def _age(self) -> float:
        return self._clock() - self._read_at

    async def _refresh(self) -> None:
        """Read both again, unless that was done often enough a moment ago. Who waits for another's attempt makes none of its own."""
        ended_before = self._refreshes_ended
        async with self._refreshing:
            now = self._clock()
            is_full = len(self._refreshes) == limits.ISSUER_REFRESHES_MAX
            if self._refreshes_ended != ended_before or (is_full and now - self._refreshes[0] < limits.ISSUER_REFRESHES_SECONDS):
                return
            self._refreshes.append(now)
            try:
                metadata = _metadata(await self._ask(f"{self.url.rstrip('/')}/.well-known/openid-configuration"), self.url)
                keys = _keys(await self._ask(metadata.jwks_uri))
            except (FetchError, InvalidIssuerAnswer, ValueError):
                return
            finally:
                self._refreshes_ended += 1
            self._metadata, self._keys, self._read_at = metadata, keys, now

    async def _ask(self, url: str) -> Any:
        body = await self.fetcher.ask(
            url,
            method="GET",
            headers={"accept": "application/json"},
            bytes_max=limits.ISSUER_ANSWER_BYTES_MAX,
            seconds=limits.ISSUER_SECONDS_MAX,
        )
        return orjson.loads(body)


def _metadata(said: Any, issuer: str) -> ProviderMetadata:
    if not isinstance(said, dict) or said.get("issuer") != issuer:
        raise InvalidIssuerAnswer("the metadata name another issuer")
    names = ("jwks_uri", "authorization_endpoint", "token_endpoint", "end_session_endpoint")
    places = {name: said[name] for name in names if isinstance(said.get(name), str)}
    if "jwks_uri" not in places or not all(_is_safe(place, issuer) for place in places.values()):
        raise InvalidIssuerAnswer("the metadata lack jwks_uri, or name an address in clear text")
    return ProviderMetadata(**places)


def _is_safe(url: str, issuer: str) -> bool:
    """Whether an address is over TLS. One in clear text is taken only from an issuer on this machine."""
    return urlsplit(url).scheme in ("https", urlsplit(issuer).scheme)


def _keys(said: Any) -> dict[str, tuple[Mapping[str, Any], Any]]:
    """Public keys for signatures, by name. Others are left out: an issuer may publish keys for other uses beside them."""
    listed = said.get("keys") if isinstance(said, dict) else None
    if not isinstance(listed, list) or len(listed) > limits.ISSUER_KEYS_MAX:
        raise InvalidIssuerAnswer("it publishes no list of keys, or too long a one")
    found: dict[str, tuple[Mapping[str, Any], Any]] = {}
    for number, described in enumerate(listed):
        if not isinstance(described, dict) or described.get("kty") not in FAMILIES.values() or described.get("use", "sig") != "sig":
            continue
        name = described.get("kid", f"#{number}")
        public = {part: value for part, value in described.items() if part != "d"}
        try:
            key = jwt.PyJWK(public, algorithm=_any_algorithm(public)).key
        except (PyJWTError, ValueError, TypeError):
            continue
        if isinstance(name, str) and getattr(key, "key_size", limits.RSA_BITS_MIN) >= _bits_min(public):
            found[name] = (public, key)
    return found


def _any_algorithm(described: Mapping[str, Any]) -> str:
    match described["kty"]:
        case "RSA":
            return "RS256"
        case "EC":
            return next((name for name, curve in _CURVES.items() if curve == described.get("crv")), "ES256")
    return "EdDSA"


def _bits_min(described: Mapping[str, Any]) -> int:
    return limits.RSA_BITS_MIN if described["kty"] == "RSA" else 0


def _fits(described: Mapping[str, Any], algorithm: str) -> bool:
    """The kind of key, its curve, and its own word on its use."""
    return (
        described["kty"] == FAMILIES[algorithm]
        and described.get("alg", algorithm) == algorithm
        and described.get("crv") == _CURVES.get(algorithm, described.get("crv"))
    )
