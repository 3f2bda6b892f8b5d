"""``/v1/vaults``: credentials for MCP servers and for containers' hosts. No answer shows a secret."""

from typing import Annotated, Literal, cast

from moorage.api.bodies import RawBody
from moorage.api.caller import Caller
from moorage.api.queries import query_of
from moorage.api.routing import Router
from moorage.egress.fetch import Fetcher, FetchError
from moorage.errors import invalid_value
from moorage.parallel import beside
from moorage.store.audit import AuditKind
from moorage.stores import Stores
from moorage.vaults.auth import auth_of, rotated
from moorage.vaults.shapes import (
    CHANGE_VAULT,
    CREATE_CREDENTIAL,
    UPDATE_CREDENTIAL,
    Vault,
    VaultCredential,
    VaultPage,
    moment_of,
)
from moorage.vaults.store import Auth, CredentialRecord, VaultRecord
from moorage.wire.answers import Deleted, ListOf
from moorage.wire.responses import deleted, list_object
from moorage.wire.validation import Fields, parse_object

router = Router()
_CREDENTIALS = "/vaults/{vault_id}/credentials"
_Page = Annotated[VaultPage, query_of(VaultPage)]


# --- Vaults ---


@router.post("/vaults", "createVault", "Make a vault", body=("CreateVault", CHANGE_VAULT))
async def create(caller: Caller, body: RawBody) -> Vault:
    wanted = await beside(len(body), lambda: CHANGE_VAULT.body(body))
    made = await caller.runtime.stores.vaults.create(caller.tenant_id, name=wanted.get("name"), metadata=wanted.get("metadata", {}))
    return as_vault(made)


@router.get("/vaults", "listVaults", "Vaults, newest first")
async def list_vaults(caller: Caller, page: _Page) -> ListOf[Vault]:
    if not page.takes_active:
        return list_object([], has_more=False)
    return (await caller.runtime.stores.vaults.page(caller.tenant_id, page, page.metadata)).shown(as_vault)


@router.get("/vaults/{vault_id}", "retrieveVault", "A vault")
async def retrieve(caller: Caller, vault_id: str) -> Vault:
    return as_vault(await caller.runtime.stores.vaults.get(caller.tenant_id, vault_id))


@router.post("/vaults/{vault_id}", "updateVault", "Change a vault's name or metadata", body=("UpdateVault", CHANGE_VAULT))
async def update(caller: Caller, vault_id: str, body: RawBody) -> Vault:
    given = await beside(len(body), lambda: parse_object(body))
    wanted = CHANGE_VAULT(given)
    changes = {name: wanted.get(name, {} if name == "metadata" else None) for name in given}
    return as_vault(await caller.runtime.stores.vaults.update(caller.tenant_id, vault_id, changes))


@router.delete("/vaults/{vault_id}", "deleteVault", "Delete a vault with its credentials", statuses=(409,))
async def delete(caller: Caller, vault_id: str) -> Deleted[Literal["vault.deleted"]]:
    await caller.runtime.stores.vaults.delete(caller.tenant_id, vault_id)
    await caller.runtime.stores.audit.note(AuditKind.SETTING_CHANGED, {"setting": "vault", "id": vault_id, "done": "deleted"})
    return deleted(vault_id, "vault.deleted")


# --- Credentials ---


@router.post(_CREDENTIALS, "createVaultCredential", "Put a credential into a vault", body=("CreateCredential", CREATE_CREDENTIAL))
async def create_credential(caller: Caller, vault_id: str, body: RawBody) -> VaultCredential:
    wanted = await beside(len(body), lambda: CREATE_CREDENTIAL.body(body))
    _check(caller.runtime.fetcher, wanted["auth"])
    made = await caller.runtime.stores.vaults.add(
        caller.tenant_id, vault_id, name=wanted["name"], auth=auth_of(wanted["auth"]), metadata=wanted.get("metadata", {})
    )
    await _noted(caller.runtime.stores, made.id, vault_id, "made")
    return as_credential(made)


@router.get(_CREDENTIALS, "listVaultCredentials", "A vault's credentials, newest first")
async def list_credentials(caller: Caller, vault_id: str, page: _Page) -> ListOf[VaultCredential]:
    if not page.takes_active:
        await caller.runtime.stores.vaults.get(caller.tenant_id, vault_id)
        return list_object([], has_more=False)
    found = await caller.runtime.stores.vaults.credential_page(caller.tenant_id, vault_id, page, page.metadata)
    return found.shown(as_credential)


@router.get(_CREDENTIALS + "/{credential_id}", "retrieveVaultCredential", "A credential, without its secrets")
async def retrieve_credential(caller: Caller, vault_id: str, credential_id: str) -> VaultCredential:
    return as_credential(await caller.runtime.stores.vaults.credential(caller.tenant_id, vault_id, credential_id))


@router.post(
    _CREDENTIALS + "/{credential_id}",
    "updateVaultCredential",
    "Rotate a credential, or replace its metadata",
    body=("UpdateCredential", UPDATE_CREDENTIAL),
    statuses=(409,),
)
async def update_credential(caller: Caller, vault_id: str, credential_id: str, body: RawBody) -> VaultCredential:
    given = await beside(len(body), lambda: parse_object(body))
    wanted = UPDATE_CREDENTIAL(given)
    auth = wanted.get("auth")

    def rotate(there: Auth) -> Auth:
        assert auth is not None
        return rotated(there, auth, given["auth"])

    changed = await caller.runtime.stores.vaults.change(
        caller.tenant_id,
        vault_id,
        credential_id,
        rotate=None if auth is None else rotate,
        metadata=wanted.get("metadata", {}) if "metadata" in given else None,
    )
    if auth is not None:
        await _noted(caller.runtime.stores, credential_id, vault_id, "rotated")
    return as_credential(changed)


@router.delete(_CREDENTIALS + "/{credential_id}", "deleteVaultCredential", "Delete a credential")
async def delete_credential(caller: Caller, vault_id: str, credential_id: str) -> Deleted[Literal["vault.credential.deleted"]]:
    await caller.runtime.stores.vaults.remove(caller.tenant_id, vault_id, credential_id)
    await _noted(caller.runtime.stores, credential_id, vault_id, "deleted")
    return deleted(credential_id, "vault.credential.deleted")


async def _noted(stores: Stores, credential_id: str, vault_id: str, done: str) -> None:
    what = {"setting": "credential", "id": credential_id, "vault_id": vault_id, "done": done}
    await stores.audit.note(AuditKind.SETTING_CHANGED, what)


def _check(fetcher: Fetcher, auth: Fields) -> None:
    """Whether its addresses may be asked, before anything is sent there. Raises :class:`~moorage.errors.ApiError`."""
    places = {"auth.mcp_server_url": auth.get("mcp_server_url")}
    places["auth.refresh.token_endpoint"] = auth.get("refresh", {}).get("token_endpoint")
    for param, url in places.items():
        try:
            if url is not None:
                fetcher.check(url)
        except FetchError as error:
            raise invalid_value(param, f"{error}.") from error


def as_vault(vault: VaultRecord) -> Vault:
    return {
        "id": vault.id,
        "object": "vault",
        "created_at": vault.created_at,
        "name": vault.name,
        "metadata": dict(vault.metadata),
    }


def as_credential(credential: CredentialRecord) -> VaultCredential:
    until = {"expires_at": moment_of(credential.expires_at)} if credential.type == "mcp_oauth" else {}
    said = {
        "id": credential.id,
        "object": "vault.credential",
        "vault_id": credential.vault_id,
        "created_at": credential.created_at,
        "updated_at": credential.updated_at,
        "name": credential.name,
        "auth": {**credential.shown, **until},
        "metadata": dict(credential.metadata),
    }
    return cast("VaultCredential", said)
