"""Tokens of an issuer in the place of API keys. A signed JWT (RFC 7519, RFC 8725) names a person, and the settings map its claims to
a tenant and a role.

These are checked: the algorithm, the signature by a published key, the issuer, the audience, the times, and whether the session was
ended. A token becomes an :class:`~moorage.store.api_keys.ApiKey` that lies in no table. Its id follows from issuer, tenant and subject.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final, Self

import jwt
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidIssuerError,
    MissingRequiredClaimError,
    PyJWTError,
)

from moorage import limits
from moorage.egress.fetch import Fetcher
from moorage.errors import invalid_token, token_without_place
from moorage.identity.ended_sessions import EndedSessions, session_digest
from moorage.identity.issuer import FAMILIES, Issuer
from moorage.settings import Settings
from moorage.store import keys
from moorage.store.api_keys import MEMBER, READ, TENANT_PATTERN, ApiKey, hash_of, key_id_of
from moorage.store.table import Table

ROLES: Final[Mapping[str, str]] = {"admin": "", "member": MEMBER, "reader": READ}
"""Scopes by role, the highest first."""
_TYPES: Final = frozenset({"", "jwt", "at+jwt", "application/at+jwt"})
"""Of a header: RFC 9068, and what most issuers say. Others are tokens for other things, such as a logout."""


class Tokens:
    def __init__(self, settings: Settings, issuer: Issuer, table: Table, ended: EndedSessions, clock: Callable[[], float]) -> None:
        self.issuer = issuer
        self._settings = settings
        self._table = table
        self._ended = ended
        self._clock = clock
        self.audiences = frozenset(filter(None, (settings.oidc_audience, settings.oidc_client_id)))
        self._seen: dict[str, tuple[float, ApiKey]] = {}
        """By the hash of the whole token: the signature is checked once, and is a part of what was checked."""

    @classmethod
    def of(cls, settings: Settings, table: Table, clock: Callable[[], float]) -> Self:
        """For a function that has no runtime. ``settings`` name an issuer."""
        assert settings.oidc_issuer is not None
        issuer = Issuer(settings.oidc_issuer, Fetcher.of(settings), clock)
        return cls(settings, issuer, table, EndedSessions(table, clock), clock)

    async def find(self, token: str) -> ApiKey:
        """The key that a token stands for. Raises :class:`~moorage.errors.ApiError` with the token's fault."""
        digest, now = hash_of(token), self._clock()
        if await self._ended.has(session_digest(token)):
            raise invalid_token("its session was ended")
        read_at, known = self._seen.get(digest, (0.0, None))
        if known is None or now - read_at >= limits.TOKEN_KEPT_SECONDS or known.expires_at <= now:
            known = await self._with_budgets(self.key_of(await self.verified(token, self.audiences)))
            if len(self._seen) >= limits.TOKENS_KEPT_MAX:
                self._seen.clear()
            self._seen[digest] = (now, known)
        return known

    async def vouched(self, token: str, said: Any) -> ApiKey:
        """Where no issuer can be reached: ``said`` is what the gateway's authorizer found (:func:`as_said`), or something else where it
        found nothing. Raises :class:`~moorage.errors.ApiError` as :meth:`find` does."""
        key = _said_of(hash_of(token), said)
        if key is None:
            raise invalid_token("the gateway has not checked it")
        if key.expires_at <= self._clock():
            raise invalid_token("it has expired")
        if await self._ended.has(session_digest(token)):
            raise invalid_token("its session was ended")
        return await self._with_budgets(key)

    async def verified(self, token: str, audiences: Collection[str]) -> Mapping[str, Any]:
        """The claims of a token for one of these audiences. Raises :class:`~moorage.errors.ApiError`."""
        if len(token) > limits.TOKEN_CHARS_MAX:
            raise invalid_token("it is too long")
        try:
            header = jwt.get_unverified_header(token)
        except (PyJWTError, ValueError) as error:
            raise invalid_token("it is no signed JWT") from error
        algorithm, key_id = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in FAMILIES:
            raise invalid_token(f"its algorithm is none of {', '.join(FAMILIES)}")
        if "crit" in header or str(header.get("typ", "")).lower() not in _TYPES:
            raise invalid_token("its header asks for what is not known here")
        key = await self.issuer.key(key_id, algorithm)
        if key is None:
            raise invalid_token("its issuer publishes no such key")
        claims = _decoded(token, key, algorithm, self.issuer.url)
        self._check(claims, audiences)
        return claims

    def _check(self, claims: Mapping[str, Any], audiences: Collection[str]) -> None:
        """Checks that PyJWT does not make. Raises :class:`~moorage.errors.ApiError`."""
        subject, now = claims["sub"], self._clock()
        if not isinstance(subject, str) or not 0 < len(subject) <= limits.SUBJECT_CHARS_MAX:
            raise invalid_token("it names nobody")
        # Cognito's access tokens name their client instead of an audience.
        named = claims.get("aud", claims.get("client_id"))
        meant = {each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str)}
        if not meant & set(audiences):
            raise invalid_token("it is for another audience")
        client = self._settings.oidc_client_id
        if client in meant and claims.get("azp", client) != client:
            raise invalid_token("it was issued to another client")
        if now - claims["iat"] > limits.TOKEN_AGE_SECONDS_MAX + limits.TOKEN_LEEWAY_SECONDS:
            raise invalid_token("it was issued too long ago")

    def key_of(self, claims: Mapping[str, Any]) -> ApiKey:
        """The key that claims stand for. Raises :class:`~moorage.errors.ApiError` if they name no tenant or no role."""
        tenant_id, scope, subject = self._tenant(claims), self._scope(claims), claims["sub"]
        counts_as = hashlib.sha256("\0".join(("oidc", self.issuer.url, tenant_id, subject)).encode()).hexdigest()
        return ApiKey(
            key_id=key_id_of(counts_as),
            tenant_id=tenant_id,
            name=subject,
            created_at=int(claims["iat"]),
            scope=scope,
            expires_at=min(int(claims["exp"]), int(claims["iat"]) + limits.TOKEN_AGE_SECONDS_MAX) + limits.TOKEN_LEEWAY_SECONDS,
            parent=counts_as,
            subject=subject,
        )

    async def _with_budgets(self, key: ApiKey) -> ApiKey:
        has_budget = await self._table.get(keys.budgets(key.tenant_id), f"tenant:{key.tenant_id}") is not None
        return replace(key, budgets=("tenant",)) if has_budget else key

    def _tenant(self, claims: Mapping[str, Any]) -> str:
        """The tenant that the claim names. If one tenant is listed, a token need not name it."""
        listed = self._settings.oidc_tenants
        said = claims.get(self._settings.oidc_tenant_claim)
        if isinstance(said, list) and len(said) == 1:
            (said,) = said
        if said is None and len(listed) == 1 and listed != ("*",):
            return listed[0]
        if not isinstance(said, str) or not TENANT_PATTERN.fullmatch(said) or (listed != ("*",) and said not in listed):
            raise token_without_place("tenant", self._settings.oidc_tenant_claim)
        return said

    def _scope(self, claims: Mapping[str, Any]) -> str:
        """The scope of the highest role that the claim names."""
        said = claims.get(self._settings.oidc_role_claim)
        words = said.split() if isinstance(said, str) else said if isinstance(said, list) else []
        held = {self._settings.oidc_roles.get(word) for word in words if isinstance(word, str)}
        role = next((role for role in ROLES if role in held), None)
        if role is None:
            raise token_without_place("role", self._settings.oidc_role_claim)
        return ROLES[role]


def as_said(token: str, key: ApiKey) -> str:
    """An authorizer's claims of a token that it has verified. The hash ties it to this token: a request may bring several."""
    return json.dumps({"digest": hash_of(token), **{name: getattr(key, name) for name in _SAID}})


_SAID: Final = ("key_id", "tenant_id", "name", "created_at", "scope", "expires_at", "parent", "subject")


def _said_of(digest: str, said: Any) -> ApiKey | None:
    if not isinstance(said, str):
        return None
    told = json.loads(said)
    return ApiKey(**{name: told[name] for name in _SAID}) if told["digest"] == digest else None


def _decoded(token: str, key: Any, algorithm: str, issuer: str) -> dict[str, Any]:
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            issuer=issuer,
            leeway=limits.TOKEN_LEEWAY_SECONDS,
            options={"require": ["exp", "iat", "iss", "sub"], "verify_aud": False},
        )
    except ExpiredSignatureError as error:
        raise invalid_token("it has expired") from error
    except ImmatureSignatureError as error:
        raise invalid_token("it is not valid yet") from error
    except InvalidIssuerError as error:
        raise invalid_token("it is of another issuer") from error
    except MissingRequiredClaimError as error:
        raise invalid_token(f"it lacks '{error.claim}'") from error
    except (PyJWTError, ValueError, TypeError) as error:
        raise invalid_token("its signature or its form is wrong") from error
    if not all(isinstance(claims[name], int | float) for name in ("exp", "iat")):
        raise invalid_token("its times are no numbers")
    return claims
