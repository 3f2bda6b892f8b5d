"""Signing out while the issuer cannot be reached."""

import time

from moorage.egress.fetch import Fetcher
from moorage.identity.ended_sessions import EndedSessions
from moorage.identity.issuer import Issuer
from moorage.identity.sign_in import SignIn
from moorage.identity.tokens import Tokens
from moorage.settings import Settings

from tests.issuer import CLIENT, issuing
from tests.unit.store.memory import MemoryTable


async def test_signing_out_needs_no_issuer() -> None:
    with issuing() as issuer:
        issuer.is_away = True
        said = {
            "MOORAGE_TABLE": "t",
            "MOORAGE_BUCKET": "b",
            "MOORAGE_OIDC_ISSUER": issuer.url,
            "MOORAGE_OIDC_CLIENT_ID": CLIENT,
            "MOORAGE_OIDC_CONSOLE_URL": "https://moorage.example.com/console/",
            "MOORAGE_OIDC_TENANTS": "acme",
        }
        settings, table = Settings.from_environment(said), MemoryTable()
        ended = EndedSessions(table, time.time)
        tokens = Tokens(settings, Issuer(issuer.url, Fetcher(), time.time), table, ended, time.time)
        sign_in = SignIn(settings, tokens, table, lambda: bytes(32), time.time)
        assert await sign_in.logout_url() is None
        issuer.is_away = False
        assert (await sign_in.logout_url() or "").startswith(f"{issuer.url}/logout?")
