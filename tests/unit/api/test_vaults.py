"""``/v1/vaults`` as the SDK drives it: what is shown, what is rotated, what is refused, and that no secret comes out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from moorage import limits
from moorage.store import keys
from moorage.store.audit import Audit
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from tests.unit.api.served import KEY_A, Served
from tests.unit.loop.lab import Lab
from tests.unit.store.memory import MemoryAudit

URL = "https://depot.example/mcp"
BEARER: Any = {"type": "static_bearer", "mcp_server_url": URL, "token": "hidden-token"}
OAUTH: Any = {
    "type": "mcp_oauth",
    "mcp_server_url": URL,
    "access_token": "hidden-access",
    "expires_at": "2027-01-31T13:30:00.5+01:00",
    "refresh": {
        "client_id": "moorage",
        "refresh_token": "hidden-refresh",
        "token_endpoint": "https://login.example/token",
        "token_endpoint_auth": {"type": "client_secret_basic", "client_secret": "hidden-client"},
        "resource": "https://depot.example/",
        "scope": "read write",
    },
}
VARIABLE: Any = {
    "type": "environment_variable",
    "secret_name": "DEPOT_KEY",
    "secret_value": "hidden-value",
    "networking": {"type": "limited", "allowed_hosts": ["API.Depot.example", "files.depot.example"]},
}
SHOWN: dict[str, Any] = {
    "static_bearer": {"type": "static_bearer", "mcp_server_url": URL},
    "mcp_oauth": {
        "type": "mcp_oauth",
        "mcp_server_url": URL,
        "expires_at": "2027-01-31T12:30:00Z",
        "refresh": {
            "client_id": "moorage",
            "token_endpoint": "https://login.example/token",
            "token_endpoint_auth": {"type": "client_secret_basic"},
            "resource": "https://depot.example/",
            "scope": "read write",
        },
    },
    "environment_variable": {
        "type": "environment_variable",
        "secret_name": "DEPOT_KEY",
        "networking": {"type": "limited", "allowed_hosts": ["api.depot.example", "files.depot.example"]},
    },
}


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Served, AsyncOpenAI]]:
    served = Served.of(Lab())
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(served.app))
    async with AsyncOpenAI(api_key="key-a", base_url="http://api/v1", http_client=http, max_retries=0) as sdk:
        yield served, sdk


async def held(served: Served, vault_id: str, credential_id: str) -> dict[str, str]:
    """The secrets that a credential has."""
    vaults = served.lab.runtime.stores.vaults
    return dict(vaults.opened(await vaults.credential("t", vault_id, credential_id)).secrets)


async def test_the_sdk_drives_the_whole_life_of_a_vault() -> None:
    async with serving() as (served, sdk):
        made = await sdk.beta.agents.vaults.create(name="  staging ", metadata={"team": "a"})
        whole = {
            "id": made.id,
            "object": "vault",
            "created_at": int(served.lab.now),
            "name": "staging",
            "metadata": {"team": "a"},
        }
        assert made.to_dict() == whole
        assert (await sdk.beta.agents.vaults.retrieve(made.id)).to_dict() == whole
        assert (await sdk.beta.agents.vaults.update(made.id, name="live")).to_dict() == whole | {"name": "live"}
        cleared = await sdk.beta.agents.vaults.update(made.id, name=None, metadata={})
        assert cleared.to_dict() == whole | {"name": None, "metadata": {}}
        gone = await sdk.beta.agents.vaults.delete(made.id)
        assert gone.to_dict() == {"id": made.id, "object": "vault.deleted", "deleted": True}
        for call in (sdk.beta.agents.vaults.retrieve, sdk.beta.agents.vaults.delete, sdk.beta.agents.vaults.credentials.list):
            with pytest.raises(NotFoundError, match="not found"):
                await call(made.id)


async def test_vaults_are_listed_by_their_metadata_and_none_is_archived() -> None:
    async with serving() as (served, sdk):
        made = []
        for name, team in (("a", "x"), ("b", "y"), ("c", "x")):
            made.append(await sdk.beta.agents.vaults.create(name=name, metadata={"team": team, "of": "us"}))
            served.lab.now += 1
        vaults = sdk.beta.agents.vaults
        assert [vault.name async for vault in vaults.list(limit=1)] == ["c", "b", "a"]
        assert [vault.name async for vault in vaults.list(order="asc", after=made[0].id)] == ["b", "c"]
        assert [vault.name async for vault in vaults.list(limit=1, metadata={"team": "x", "of": "us"})] == ["c", "a"]
        assert [vault.name async for vault in vaults.list(metadata={"team": "x", "of": "them"})] == []
        assert [vault.name async for vault in vaults.list(status="active")] == ["c", "b", "a"]
        assert [vault.name async for vault in vaults.list(status=["active", "archived"])] == ["c", "b", "a"]
        assert [vault.name async for vault in vaults.list(status="archived")] == []
        with pytest.raises(BadRequestError, match="Supported values are"):
            await vaults.list(status="ended")  # type: ignore[arg-type]


@pytest.mark.parametrize("auth", [BEARER, OAUTH, VARIABLE], ids=SHOWN)
async def test_a_credential_is_shown_without_its_secrets(auth: Any) -> None:
    async with serving() as (served, sdk):
        vault = await sdk.beta.agents.vaults.create()
        credentials = sdk.beta.agents.vaults.credentials
        made = await credentials.create(vault.id, name=" depot ", auth=auth, metadata={"a": "b"})
        whole = {
            "id": made.id,
            "object": "vault.credential",
            "vault_id": vault.id,
            "created_at": int(served.lab.now),
            "updated_at": int(served.lab.now),
            "name": "depot",
            "auth": SHOWN[auth["type"]],
            "metadata": {"a": "b"},
        }
        assert made.to_dict() == whole
        assert (await credentials.retrieve(made.id, vault_id=vault.id)).to_dict() == whole
        assert [each.to_dict() async for each in credentials.list(vault.id)] == [whole]
        assert "hidden-" not in repr(served.lab.runtime.stores.table.records)  # type: ignore[attr-defined]
        assert "hidden-" not in repr(await served.lab.runtime.stores.vaults.credential("t", vault.id, made.id))
        gone = await credentials.delete(made.id, vault_id=vault.id)
        assert gone.to_dict() == {"id": made.id, "object": "vault.credential.deleted", "deleted": True}
        with pytest.raises(NotFoundError, match="Credential with id"):
            await credentials.retrieve(made.id, vault_id=vault.id)


async def test_credentials_are_listed_by_their_metadata_also_behind_one_that_was_deleted() -> None:
    async with serving() as (served, sdk):
        vault, credentials = await sdk.beta.agents.vaults.create(), sdk.beta.agents.vaults.credentials
        made = []
        for name, team in (("a", "x"), ("b", "y"), ("c", "x")):
            made.append(await credentials.create(vault.id, name=name, auth=BEARER, metadata={"team": team}))
            served.lab.now += 0.001
        assert [each.name async for each in credentials.list(vault.id, limit=1)] == ["c", "b", "a"]
        assert [each.name async for each in credentials.list(vault.id, metadata={"team": "x"}, order="asc")] == ["a", "c"]
        assert [each.name async for each in credentials.list(vault.id, status="archived")] == []
        await credentials.delete(made[1].id, vault_id=vault.id)
        assert [each.name async for each in credentials.list(vault.id, after=made[1].id)] == ["a"]
        assert [each.name async for each in credentials.list(vault.id, after=made[1].id, order="asc")] == ["c"]
        with pytest.raises(BadRequestError, match="is not in this list"):
            await credentials.list(vault.id, after="cred_1")


ROTATIONS: dict[str, tuple[Any, Any, dict[str, Any], dict[str, str]]] = {
    "a bearer token": (BEARER, {"type": "static_bearer", "token": "hidden-next"}, {}, {"token": "hidden-next"}),
    "a value": (VARIABLE, {"type": "environment_variable", "secret_value": "hidden-next"}, {}, {"secret_value": "hidden-next"}),
    "an access token, whose end goes with it": (
        OAUTH,
        {"type": "mcp_oauth", "access_token": "hidden-next"},
        {"expires_at": None},
        {"access_token": "hidden-next"},
    ),
    "an access token with its end": (
        OAUTH,
        {"type": "mcp_oauth", "access_token": "hidden-next", "expires_at": "2028-01-01T00:00:00Z"},
        {"expires_at": "2028-01-01T00:00:00Z"},
        {"access_token": "hidden-next"},
    ),
    "nothing": (OAUTH, {"type": "mcp_oauth", "access_token": None, "refresh": None}, {}, {}),
    "an end, taken away": (OAUTH, {"type": "mcp_oauth", "expires_at": None}, {"expires_at": None}, {}),
    "a refresh token": (
        OAUTH,
        {"type": "mcp_oauth", "refresh": {"refresh_token": "hidden-next", "token_endpoint_auth": None}},
        {},
        {"refresh_token": "hidden-next"},
    ),
    "a client's secret": (
        OAUTH,
        {"type": "mcp_oauth", "refresh": {"token_endpoint_auth": {"type": "client_secret_basic", "client_secret": "hidden-next"}}},
        {},
        {"client_secret": "hidden-next"},
    ),
    "scopes": (
        OAUTH,
        {"type": "mcp_oauth", "refresh": {"scope": "read"}},
        {"refresh": SHOWN["mcp_oauth"]["refresh"] | {"scope": "read"}},
        {},
    ),
    "scopes, taken away": (
        OAUTH,
        {"type": "mcp_oauth", "refresh": {"scope": None}},
        {"refresh": SHOWN["mcp_oauth"]["refresh"] | {"scope": None}},
        {},
    ),
}
HELD: dict[str, dict[str, str]] = {
    "static_bearer": {"token": "hidden-token"},
    "mcp_oauth": {"access_token": "hidden-access", "refresh_token": "hidden-refresh", "client_secret": "hidden-client"},
    "environment_variable": {"secret_value": "hidden-value"},
}


@pytest.mark.parametrize(("auth", "rotation", "shown", "secrets"), ROTATIONS.values(), ids=ROTATIONS)
async def test_a_rotation_changes_what_it_names(auth: Any, rotation: Any, shown: dict[str, Any], secrets: dict[str, str]) -> None:
    async with serving() as (served, sdk):
        vault, credentials = await sdk.beta.agents.vaults.create(), sdk.beta.agents.vaults.credentials
        made = await credentials.create(vault.id, name="depot", auth=auth, metadata={"a": "b"})
        served.lab.now += 60
        changed = await credentials.update(made.id, vault_id=vault.id, auth=rotation)
        whole = {**made.to_dict(), "updated_at": int(served.lab.now), "auth": SHOWN[auth["type"]] | shown}
        assert changed.to_dict() == whole
        assert (await credentials.retrieve(made.id, vault_id=vault.id)).to_dict() == whole
        assert await held(served, vault.id, made.id) == HELD[auth["type"]] | secrets


async def test_metadata_changes_without_the_secrets() -> None:
    async with serving() as (served, sdk):
        vault, credentials = await sdk.beta.agents.vaults.create(), sdk.beta.agents.vaults.credentials
        made = await credentials.create(vault.id, name="depot", auth=BEARER, metadata={"a": "b"})
        assert (await credentials.update(made.id, vault_id=vault.id)).to_dict() == made.to_dict()
        for sent, kept in (({"c": "d"}, {"c": "d"}), ({}, {}), (None, {})):
            changed = await credentials.update(made.id, vault_id=vault.id, extra_body={"metadata": sent})
            assert changed.metadata == kept
        assert await held(served, vault.id, made.id) == HELD["static_bearer"]


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "name", "missing_required_parameter"),
    ({"name": "x"}, "auth", "missing_required_parameter"),
    ({"name": " ", "auth": BEARER}, "name", "invalid_value"),
    ({"name": "ä" * 129, "auth": BEARER}, "name", "invalid_value"),
    ({"name": "x", "auth": BEARER, "status": "archived"}, "status", "unknown_parameter"),
    ({"name": "x", "auth": {"type": "basic"}}, "auth.type", "invalid_value"),
    ({"name": "x", "auth": BEARER | {"token": ""}}, "auth.token", "string_below_min_length"),
    ({"name": "x", "auth": BEARER | {"token": "hidden\n"}}, "auth.token", "invalid_value"),
    ({"name": "x", "auth": BEARER | {"token": ["hidden-token"]}}, "auth.token", "invalid_type"),
    (
        {"name": "x", "auth": BEARER | {"token": "s" * (limits.VAULT_SECRET_CHARS_MAX + 1)}},
        "auth.token",
        "string_above_max_length",
    ),
    ({"name": "x", "auth": BEARER | {"mcp_server_url": "http://depot.example/mcp"}}, "auth.mcp_server_url", "invalid_value"),
    ({"name": "x", "auth": BEARER | {"mcp_server_url": "https://a:b@depot.example"}}, "auth.mcp_server_url", "invalid_value"),
    ({"name": "x", "auth": BEARER | {"mcp_server_url": "https://10.0.0.1/mcp"}}, "auth.mcp_server_url", "invalid_value"),
    ({"name": "x", "auth": BEARER | {"mcp_server_url": "https://depot.example:9/"}}, "auth.mcp_server_url", "invalid_value"),
    ({"name": "x", "auth": OAUTH | {"expires_at": "tomorrow"}}, "auth.expires_at", "invalid_value"),
    ({"name": "x", "auth": OAUTH | {"expires_at": "2027-02-31T00:00:00Z"}}, "auth.expires_at", "invalid_value"),
    (
        {"name": "x", "auth": OAUTH | {"refresh": OAUTH["refresh"] | {"token_endpoint": "http://login.example"}}},
        "auth.refresh.token_endpoint",
        "invalid_value",
    ),
    (
        {"name": "x", "auth": OAUTH | {"refresh": OAUTH["refresh"] | {"token_endpoint_auth": {"type": "client_secret_post"}}}},
        "auth.refresh.token_endpoint_auth.client_secret",
        "missing_required_parameter",
    ),
    ({"name": "x", "auth": OAUTH | {"refresh": OAUTH["refresh"] | {"scope": "a  b"}}}, "auth.refresh.scope", "invalid_value"),
    ({"name": "x", "auth": VARIABLE | {"secret_name": "codex_home"}}, "auth.secret_name", "invalid_value"),
    ({"name": "x", "auth": VARIABLE | {"secret_name": "HTTPS_PROXY"}}, "auth.secret_name", "invalid_value"),
    ({"name": "x", "auth": VARIABLE | {"secret_name": "a-b"}}, "auth.secret_name", "invalid_value"),
    ({"name": "x", "auth": VARIABLE | {"secret_value": "hidden\r\n"}}, "auth.secret_value", "invalid_value"),
    *(
        (
            {"name": "x", "auth": VARIABLE | {"networking": {"type": "limited", "allowed_hosts": hosts}}},
            f"auth.networking.allowed_hosts{at}",
            code,
        )
        for hosts, at, code in (
            ([], "", "array_below_min_length"),
            ([f"h{n}.example" for n in range(17)], "", "array_above_max_length"),
            (["a.example", "A.example"], "", "invalid_value"),
            (["192.0.2.1"], "[0]", "invalid_value"),
            (["*.example.com"], "[0]", "invalid_value"),
            (["a.example:443"], "[0]", "invalid_value"),
        )
    ),
]


@pytest.mark.parametrize(("body", "param", "code"), REFUSED)
async def test_a_credential_that_cannot_be_used_is_refused_by_name(body: dict[str, Any], param: str, code: str) -> None:
    async with serving() as (served, sdk):
        vault = await sdk.beta.agents.vaults.create()
        answer = await served.post(f"/vaults/{vault.id}/credentials", body)
        assert (answer.json()["error"]["param"], answer.json()["error"]["code"]) == (param, code), answer.text
        assert answer.status_code == 400
        assert "hidden" not in answer.text
        assert [each async for each in sdk.beta.agents.vaults.credentials.list(vault.id)] == []


WRONG_ROTATIONS: list[tuple[Any, Any, str, str]] = [
    (BEARER, {"type": "mcp_oauth", "access_token": "x"}, "auth.type", "invalid_value"),
    (BEARER, {"type": "static_bearer"}, "auth.token", "missing_required_parameter"),
    (BEARER, {"type": "static_bearer", "token": "x", "mcp_server_url": URL}, "auth.mcp_server_url", "unknown_parameter"),
    (OAUTH | {"refresh": None}, {"type": "mcp_oauth", "refresh": {"scope": "a"}}, "auth.refresh", "invalid_value"),
    (
        OAUTH,
        {"type": "mcp_oauth", "refresh": {"token_endpoint_auth": {"type": "client_secret_post"}}},
        "auth.refresh.token_endpoint_auth.type",
        "invalid_value",
    ),
]


@pytest.mark.parametrize(("auth", "rotation", "param", "code"), WRONG_ROTATIONS)
async def test_a_rotation_keeps_what_a_credential_is_for(auth: Any, rotation: Any, param: str, code: str) -> None:
    async with serving() as (served, sdk):
        vault = await sdk.beta.agents.vaults.create()
        made = await sdk.beta.agents.vaults.credentials.create(vault.id, name="depot", auth=auth)
        before = await held(served, vault.id, made.id)
        answer = await served.post(f"/vaults/{vault.id}/credentials/{made.id}", {"auth": rotation})
        assert (answer.status_code, answer.json()["error"]["param"], answer.json()["error"]["code"]) == (400, param, code)
        assert await held(served, vault.id, made.id) == before


async def test_a_vault_goes_with_its_credentials_also_with_one_that_comes_meanwhile() -> None:
    async with serving() as (served, sdk):
        vault, credentials = await sdk.beta.agents.vaults.create(), sdk.beta.agents.vaults.credentials
        await credentials.create(vault.id, name="first", auth=BEARER)
        table: Any = served.lab.runtime.stores.table
        late: list[Any] = []

        async def meanwhile(record: Any) -> None:
            if record["SK"] == keys.GONE and not late:
                late.append(None)
                late.append(await credentials.create(vault.id, name="second", auth=BEARER))

        table.before_write = meanwhile
        await sdk.beta.agents.vaults.delete(vault.id)
        assert len(late) == 2
        assert [sk for pk, sk in table.records if pk == keys.vault("t", vault.id)] == [keys.GONE]
        with pytest.raises(NotFoundError):
            await credentials.create(vault.id, name="third", auth=BEARER)


async def test_a_vault_takes_as_many_credentials_as_it_may_have() -> None:
    async with serving() as (_, sdk):
        vault, credentials = await sdk.beta.agents.vaults.create(), sdk.beta.agents.vaults.credentials
        made = [await credentials.create(vault.id, name="x", auth=BEARER) for _ in range(limits.VAULT_CREDENTIALS_MAX)]
        with pytest.raises(BadRequestError, match="at most 100 credentials"):
            await credentials.create(vault.id, name="x", auth=BEARER)
        await credentials.delete(made[0].id, vault_id=vault.id)
        assert (await credentials.create(vault.id, name="x", auth=BEARER)).name == "x"


async def test_two_rotations_at_once_come_one_after_the_other() -> None:
    async with serving() as (served, sdk):
        vault, credentials = await sdk.beta.agents.vaults.create(), sdk.beta.agents.vaults.credentials
        made = await credentials.create(vault.id, name="depot", auth=OAUTH)
        table: Any = served.lab.runtime.stores.table
        raced: list[Any] = []

        async def meanwhile(record: Any) -> None:
            if record["SK"] == keys.credential(made.id) and not raced:
                raced.append(None)
                rotation: Any = {"type": "mcp_oauth", "refresh": {"refresh_token": "hidden-other"}}
                await credentials.update(made.id, vault_id=vault.id, auth=rotation)

        table.before_write = meanwhile
        await credentials.update(made.id, vault_id=vault.id, auth={"type": "mcp_oauth", "access_token": "hidden-mine"})
        assert await held(served, vault.id, made.id) == {
            "access_token": "hidden-mine",
            "refresh_token": "hidden-other",
            "client_secret": "hidden-client",
        }


async def test_a_secret_opens_in_its_own_record_and_with_this_deployments_key_alone() -> None:
    async with serving() as (served, sdk):
        vault, credentials = await sdk.beta.agents.vaults.create(), sdk.beta.agents.vaults.credentials
        first = await credentials.create(vault.id, name="first", auth=BEARER)
        second = await credentials.create(vault.id, name="second", auth=BEARER)
        records: Any = served.lab.runtime.stores.table.records  # type: ignore[attr-defined]
        pk = keys.vault("t", vault.id)
        records[pk, keys.credential(first.id)]["sealed"] = records[pk, keys.credential(second.id)]["sealed"]
        records[pk, keys.credential(second.id)]["sealed"] = "mrg1.00000000.AAAA"
        for made in (first, second):
            answer = await served.post(
                f"/vaults/{vault.id}/credentials/{made.id}", {"auth": {"type": "static_bearer", "token": "hidden-next"}}
            )
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "credential_unreadable")


async def test_who_made_rotated_or_deleted_a_credential_is_noted_without_its_secret() -> None:
    async with serving() as (served, sdk):
        lines = MemoryAudit()
        served.lab.runtime.stores = replace(served.lab.runtime.stores, audit=Audit(lines, lambda: served.lab.now))
        vault, credentials = await sdk.beta.agents.vaults.create(name="staging"), sdk.beta.agents.vaults.credentials
        made = await credentials.create(vault.id, name="depot", auth=BEARER)
        await credentials.update(made.id, vault_id=vault.id, auth={"type": "static_bearer", "token": "hidden-next"})
        await credentials.update(made.id, vault_id=vault.id, metadata={"a": "b"})  # not of its secrets
        await credentials.delete(made.id, vault_id=vault.id)
        await sdk.beta.agents.vaults.delete(vault.id)
        one = {"setting": "credential", "id": made.id, "vault_id": vault.id}
        assert [(line["kind"], line["who"], line["tenant"], line["what"]) for line in lines.written] == [
            *(("setting.changed", KEY_A, "t", {**one, "done": done}) for done in ("made", "rotated", "deleted")),
            ("setting.changed", KEY_A, "t", {"setting": "vault", "id": vault.id, "done": "deleted"}),
        ]
