"""Ended sessions: what a holder of an ended token may still try."""

import base64
import time

import pytest
from moorage.egress.fetch import Fetcher
from moorage.errors import ApiError
from moorage.identity.ended_sessions import EndedSessions, session_digest
from moorage.identity.issuer import Issuer
from moorage.identity.tokens import Tokens
from moorage.settings import Settings
from moorage.store.api_keys import hash_of

from tests.issuer import AUDIENCE, SigningKey, issuing
from tests.unit.store.memory import MemoryTable

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""FIPS 186-5 and SP 800-186, section 3.2.1.3."""


def with_other_signature(token: str) -> str:
    """The same token with the second valid signature: of ECDSA, (r, -s) holds wherever (r, s) does."""
    head, _, signature = token.rpartition(".")
    pair = base64.urlsafe_b64decode(signature + "==")
    r, s = pair[:32], int.from_bytes(pair[32:], "big")
    return f"{head}.{base64.urlsafe_b64encode(r + (P256_ORDER - s).to_bytes(32, 'big')).decode().rstrip('=')}"


async def test_an_ended_token_stays_ended_under_its_other_signature() -> None:
    with issuing() as issuer:
        issuer.keys.insert(0, SigningKey.ec("second"))
        said = {
            "MOORAGE_TABLE": "t",
            "MOORAGE_BUCKET": "b",
            "MOORAGE_OIDC_ISSUER": issuer.url,
            "MOORAGE_OIDC_AUDIENCE": AUDIENCE,
            "MOORAGE_OIDC_TENANTS": "acme",
        }
        table = MemoryTable()
        ended = EndedSessions(table, time.time)
        tokens = Tokens(Settings.from_environment(said), Issuer(issuer.url, Fetcher(), time.time), table, ended, time.time)
        token = issuer.token()
        twin = with_other_signature(token)
        assert twin != token
        opened = await tokens.find(token)
        with pytest.raises(ApiError, match="its signature"):  # although the signed part was checked a moment ago
            await tokens.find(f"{token.rpartition('.')[0]}.{issuer.token(jti='another').rpartition('.')[2]}")
        assert await tokens.find(twin) == opened
        await ended.end(session_digest(token), opened.expires_at)
        for each in (token, twin):
            with pytest.raises(ApiError, match="its session was ended"):
                await tokens.find(each)


def test_a_session_of_a_key_has_the_digest_of_the_key() -> None:
    assert session_digest("sk-moorage-1") == hash_of("sk-moorage-1")
