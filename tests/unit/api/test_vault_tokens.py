"""Which credential opens a server, and how its token is refreshed: once, however many ask."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from moorage import limits
from moorage.egress.fetch import Fetcher
from moorage.errors import ApiError
from moorage.runtime import Process, Runtime
from moorage.store import keys
from moorage.vaults.choice import credential_for, credentials_in
from moorage.vaults.routes import as_credential
from moorage.vaults.store import CredentialRecord
from moorage.vaults.tokens import bearer_token

from tests.token_endpoint import CLIENT, TokenEndpoint, token_endpoint
from tests.unit.api.served import Served
from tests.unit.loop.lab import Lab

URL = "https://depot.example/mcp"
NOBODY: Any = {"type": "none"}
BASIC: Any = {"type": "client_secret_basic", "client_secret": CLIENT[1]}
POST: Any = {"type": "client_secret_post", "client_secret": CLIENT[1]}


@dataclass
class Depot:
    """A vault of the tenant ``t``, and an endpoint on this machine."""

    served: Served
    endpoint: TokenEndpoint
    vault_id: str

    @property
    def lab(self) -> Lab:
        return self.served.lab

    @property
    def runtime(self) -> Runtime:
        return self.served.lab.runtime

    async def made(self, auth: Any) -> CredentialRecord:
        answer = await self.served.post(f"/vaults/{self.vault_id}/credentials", {"name": "depot", "auth": auth})
        assert answer.status_code == 200, answer.text
        return await self.read(answer.json()["id"])

    async def oauth(self, way: Any = NOBODY, *, until: float = 0, **more: Any) -> CredentialRecord:
        """One whose token ends ``until`` seconds from now."""
        client = {"client_id": CLIENT[0], "refresh_token": "refresh-0", "token_endpoint": self.endpoint.url}
        refresh = {**client, "token_endpoint_auth": way, **more}
        made = await self.made({"type": "mcp_oauth", "mcp_server_url": URL, "access_token": "access-0", "refresh": refresh})
        changed = await self.runtime.stores.vaults.write(made, {"expires_at": int(self.lab.now + until)})
        assert changed is not None
        return changed

    async def read(self, credential_id: str) -> CredentialRecord:
        return await self.runtime.stores.vaults.credential("t", self.vault_id, credential_id)

    async def secrets(self, credential: CredentialRecord) -> dict[str, str]:
        return dict(self.runtime.stores.vaults.opened(await self.read(credential.id)).secrets)

    async def rotate(self, credential: CredentialRecord, auth: Any) -> None:
        answer = await self.served.post(f"/vaults/{self.vault_id}/credentials/{credential.id}", {"auth": auth})
        assert answer.status_code == 200, answer.text


@asynccontextmanager
async def a_depot() -> AsyncIterator[Depot]:
    served = Served.of(Lab())
    with token_endpoint() as endpoint:
        served.lab.runtime.fetcher = Fetcher(allowed_networks=("127.0.0.0/8", "::1/128"), ports=(443, endpoint.port))
        vault = await served.post("/vaults", {})
        yield Depot(served, endpoint, vault.json()["id"])


async def test_a_token_that_lasts_is_sent_as_it_is() -> None:
    async with a_depot() as depot:
        bearer = await depot.made({"type": "static_bearer", "mcp_server_url": URL, "token": "word"})
        lasting = await depot.oauth(until=limits.OAUTH_AHEAD_SECONDS + 1)
        endless = await depot.made({"type": "mcp_oauth", "mcp_server_url": URL, "access_token": "access-9"})
        told = [await bearer_token(depot.runtime, each) for each in (bearer, lasting, endless)]
        assert (told, depot.endpoint.asked) == (["word", "access-0", "access-9"], [])


WAYS: dict[str, tuple[Any, dict[str, Any], dict[str, str]]] = {
    "by its id alone": (NOBODY, {}, {"client_id": "moorage"}),
    "with a secret in the header": (BASIC, {}, {"authorization": "moorage:client & secret"}),
    "with a secret in the body": (POST, {}, {"client_id": "moorage", "client_secret": "client & secret"}),
    "with a resource and scopes": (
        NOBODY,
        {"resource": "https://depot.example/", "scope": "read write"},
        {"client_id": "moorage", "resource": "https://depot.example/", "scope": "read write"},
    ),
}


@pytest.mark.parametrize(("way", "more", "sent"), WAYS.values(), ids=WAYS)
async def test_a_token_that_is_about_to_end_is_refreshed_and_kept(way: Any, more: dict[str, Any], sent: dict[str, str]) -> None:
    async with a_depot() as depot:
        credential = await depot.oauth(way, until=limits.OAUTH_AHEAD_SECONDS, **more)
        before = as_credential(credential)
        assert await bearer_token(depot.runtime, credential) == "access-1"
        assert depot.endpoint.asked == [{"grant_type": "refresh_token", "refresh_token": "refresh-0", **sent}]
        assert await bearer_token(depot.runtime, await depot.read(credential.id)) == "access-1"
        after = as_credential(await depot.read(credential.id))
        ends: Any = after["auth"]
        assert after == before | {"auth": before["auth"] | {"expires_at": ends["expires_at"]}}
        assert (await depot.read(credential.id)).expires_at == int(depot.lab.now) + 3_600
        depot.lab.now += 3_600
        assert await bearer_token(depot.runtime, await depot.read(credential.id)) == "access-2"
        assert [each["refresh_token"] for each in depot.endpoint.asked] == ["refresh-0", "refresh-1"]


async def test_a_refresh_token_stays_where_no_other_one_comes() -> None:
    async with a_depot() as depot:
        depot.endpoint.rotates, depot.endpoint.expires_in = False, "60"
        credential = await depot.oauth()
        for given in ("access-1", "access-2"):
            assert await bearer_token(depot.runtime, await depot.read(credential.id)) == given
            depot.lab.now += 29
            assert await bearer_token(depot.runtime, await depot.read(credential.id)) == given, "half of its life is left"
            depot.lab.now += 1
        assert await depot.secrets(credential) == {"access_token": "access-2", "refresh_token": "refresh-0"}


async def test_a_token_without_an_end_is_not_refreshed_again() -> None:
    async with a_depot() as depot:
        depot.endpoint.expires_in = None
        credential = await depot.oauth()
        assert await bearer_token(depot.runtime, credential) == "access-1"
        depot.lab.now += 10**6
        assert await bearer_token(depot.runtime, await depot.read(credential.id)) == "access-1"
        assert (await depot.read(credential.id)).expires_at is None


async def test_many_callers_in_two_processes_refresh_once() -> None:
    async with a_depot() as depot:
        credential = await depot.oauth()
        other = replace(depot.runtime, process=Process())
        depot.endpoint.may_answer.clear()
        calls = [asyncio.create_task(bearer_token(runtime, credential)) for runtime in (depot.runtime, other) * 5]
        assert await asyncio.to_thread(depot.endpoint.has_been_asked.wait, 30)
        calls += [asyncio.create_task(bearer_token(other, credential)) for _ in range(5)]
        depot.endpoint.may_answer.set()
        assert await asyncio.gather(*calls) == ["access-1"] * 15
        assert len(depot.endpoint.asked) == 1


async def test_a_token_that_still_holds_is_not_waited_for() -> None:
    async with a_depot() as depot:
        credential = await depot.oauth(until=5)
        depot.endpoint.may_answer.clear()
        first = asyncio.create_task(bearer_token(depot.runtime, credential))
        assert await asyncio.to_thread(depot.endpoint.has_been_asked.wait, 30)
        assert await bearer_token(depot.runtime, await depot.read(credential.id)) == "access-0"
        depot.endpoint.may_answer.set()
        assert await first == "access-1"


async def test_a_refresh_goes_on_when_its_caller_goes() -> None:
    async with a_depot() as depot:
        credential = await depot.oauth()
        depot.endpoint.may_answer.clear()
        caller = asyncio.create_task(bearer_token(depot.runtime, credential))
        assert await asyncio.to_thread(depot.endpoint.has_been_asked.wait, 30)
        caller.cancel()
        depot.endpoint.may_answer.set()
        await asyncio.wait(set(depot.runtime.process.tasks))
        assert await depot.secrets(credential) == {"access_token": "access-1", "refresh_token": "refresh-1"}


async def test_a_claim_whose_process_has_died_is_taken_over() -> None:
    async with a_depot() as depot:
        credential = await depot.oauth()
        until = int(depot.lab.now) + limits.OAUTH_CLAIM_SECONDS
        dead = await depot.runtime.stores.vaults.write(credential, {"refresh_until": until})
        assert dead is not None
        depot.lab.now = until
        assert await bearer_token(depot.runtime, dead) == "access-1"


FAILURES: dict[str, tuple[int, Any, str]] = {
    "a used-up refresh token": (400, {"error": "invalid_grant", "error_description": "refresh-0"}, "answered 400 (invalid_grant)"),
    "a word of its own": (401, {"error": "refresh-0"}, "answered 401"),
    "no JSON": (500, b"<p>refresh-0</p>", "answered 500"),
    "a redirection": (302, b"", "answered 302"),
    "no token": (200, {"token_type": "bearer"}, "answered without a bearer token"),
    "another kind of token": (200, {"access_token": "a", "token_type": "mac"}, "answered without a bearer token"),
    "a token that no header can hold": (200, {"access_token": "a\r\nb"}, "answered without a bearer token"),
    "too long an answer": (
        200,
        b" " * (limits.OAUTH_ANSWER_BYTES_MAX + 1),
        f"could not be asked (it is larger than {limits.OAUTH_ANSWER_BYTES_MAX} bytes)",
    ),
}


@pytest.mark.parametrize(("status", "said", "reason"), FAILURES.values(), ids=FAILURES)
async def test_a_refresh_that_fails_is_a_sentence_and_is_not_repeated_at_once(status: int, said: Any, reason: str) -> None:
    async with a_depot() as depot:
        credential = await depot.oauth()
        depot.endpoint.answers.append((status, said))
        for _ in range(2):
            with pytest.raises(ApiError) as failed:
                await bearer_token(depot.runtime, await depot.read(credential.id))
            assert failed.value.message == (
                f"The access token of the credential '{credential.id}' is used up, and could not be refreshed: "
                f"its token endpoint {reason}."
            )
            assert (failed.value.status, failed.value.code) == (400, "credential_not_refreshed")
        assert len(depot.endpoint.asked) == 1
        depot.lab.now += limits.OAUTH_PAUSE_SECONDS
        assert await bearer_token(depot.runtime, await depot.read(credential.id)) == "access-1"


async def test_an_internal_address_is_not_asked() -> None:
    async with a_depot() as depot:
        credential = await depot.oauth()
        depot.runtime.fetcher = Fetcher(ports=(depot.endpoint.port,))
        with pytest.raises(ApiError, match="its host is not a public address"):
            await bearer_token(depot.runtime, credential)
        assert depot.endpoint.asked == []


async def test_a_token_that_still_holds_serves_while_a_refresh_fails() -> None:
    async with a_depot() as depot:
        credential = await depot.oauth(until=30)
        depot.endpoint.answers.append((503, b""))
        assert await bearer_token(depot.runtime, credential) == "access-0"
        assert await bearer_token(depot.runtime, await depot.read(credential.id)) == "access-0"
        assert len(depot.endpoint.asked) == 1


async def test_a_rotation_ends_the_pause_after_a_failure() -> None:
    async with a_depot() as depot:
        credential = await depot.oauth()
        depot.endpoint.refresh_token = "refresh-by-hand"
        with pytest.raises(ApiError, match="invalid_grant"):
            await bearer_token(depot.runtime, credential)
        await depot.rotate(credential, {"type": "mcp_oauth", "refresh": {"refresh_token": "refresh-by-hand"}})
        assert await bearer_token(depot.runtime, await depot.read(credential.id)) == "access-1"


async def test_what_a_person_rotates_during_a_refresh_stays() -> None:
    async with a_depot() as depot:
        credential = await depot.oauth()
        depot.endpoint.may_answer.clear()
        call = asyncio.create_task(bearer_token(depot.runtime, credential))
        assert await asyncio.to_thread(depot.endpoint.has_been_asked.wait, 30)
        await depot.rotate(credential, {"type": "mcp_oauth", "access_token": "access-by-hand"})
        depot.endpoint.may_answer.set()
        assert await call == "access-by-hand"
        assert await depot.secrets(credential) == {"access_token": "access-by-hand", "refresh_token": "refresh-1"}


async def test_a_credential_that_is_deleted_during_its_refresh_stays_deleted() -> None:
    async with a_depot() as depot:
        credential = await depot.oauth()
        depot.endpoint.may_answer.clear()
        call = asyncio.create_task(bearer_token(depot.runtime, credential))
        assert await asyncio.to_thread(depot.endpoint.has_been_asked.wait, 30)
        await depot.served.delete(f"/vaults/{depot.vault_id}")
        depot.endpoint.may_answer.set()
        with pytest.raises(ApiError, match="not found"):
            await call
        table: Any = depot.runtime.stores.table
        assert [sk for pk, sk in table.records if pk == keys.vault("t", depot.vault_id)] == [keys.GONE]


async def test_a_used_up_token_without_a_refresh_is_told() -> None:
    async with a_depot() as depot:
        auth = {"type": "mcp_oauth", "mcp_server_url": URL, "access_token": "access-9", "expires_at": "2001-01-01T00:00:00Z"}
        credential = await depot.made(auth)
        with pytest.raises(ApiError, match="has no 'refresh'") as told:
            await bearer_token(depot.runtime, credential)
        assert told.value.code == "credential_expired"


async def test_no_token_stands_in_the_table() -> None:
    async with a_depot() as depot:
        await bearer_token(depot.runtime, await depot.oauth(BASIC))
        stored = repr(depot.runtime.stores.table.records)  # type: ignore[attr-defined]
        for word in ("access-0", "access-1", "refresh-0", "refresh-1", CLIENT[1]):
            assert word not in stored


# --- Choice -------------------------------------------------------------------------------------------------------------


async def test_a_credential_is_found_by_its_server_however_the_address_is_written() -> None:
    async with a_depot() as depot:
        made = [
            await depot.made({"type": "static_bearer", "mcp_server_url": url, "token": "word"})
            for url in ("https://Depot.example:443", "https://depot.example/mcp", "https://depot.example/mcp?a=1")
        ]
        there = await credentials_in(depot.runtime.stores, "t", [depot.vault_id, depot.vault_id])
        found = [
            credential_for(url, there)
            for url in (
                "https://depot.example/",
                "https://DEPOT.example/mcp",
                "https://depot.example/mcp?a=1",
                "https://depot.example/mcp/",
                "http://depot.example/mcp",
                "https://other.example/mcp",
                "moorage://workspace",
            )
        ]
        assert found == [*made, None, None, None, None]


async def test_one_of_several_is_named_by_its_id() -> None:
    async with a_depot() as depot:
        bearer: Any = {"type": "static_bearer", "mcp_server_url": URL, "token": "word"}
        variable: Any = {
            "type": "environment_variable",
            "secret_name": "KEY",
            "secret_value": "v",
            "networking": {"type": "unrestricted"},
        }
        made = [await depot.made(bearer), await depot.made(bearer), await depot.made(variable)]
        there = await credentials_in(depot.runtime.stores, "t", [depot.vault_id])
        assert credential_for(URL, there, credential_id=made[1].id) == made[1]
        for url, credential_id, status, sentence in (
            (URL, None, 400, "2 credentials of the vaults are for this server. Name one of them by its id."),
            (URL, made[2].id, 400, f"'{made[2].id}' is for a variable of environments."),
            ("https://other.example", made[0].id, 400, f"'{made[0].id}' is for another server."),
            (URL, "cred_1", 404, "Credential with id 'cred_1' not found."),
        ):
            with pytest.raises(ApiError) as refused:
                credential_for(url, there, credential_id=credential_id, param="tools[0].credential_id")
            assert (refused.value.status, refused.value.param) == (status, "tools[0].credential_id")
            assert refused.value.message.endswith(sentence)


async def test_vaults_of_others_are_unknown_and_too_many_are_refused() -> None:
    async with a_depot() as depot:
        with pytest.raises(ApiError) as unknown:
            await credentials_in(depot.runtime.stores, "other", [depot.vault_id])
        assert (unknown.value.status, unknown.value.param) == (404, "vault_ids[0]")
        with pytest.raises(ApiError) as refused:
            await credentials_in(depot.runtime.stores, "t", [depot.vault_id] * (limits.VAULT_IDS_MAX + 1))
        assert (refused.value.status, refused.value.code) == (400, "array_above_max_length")
