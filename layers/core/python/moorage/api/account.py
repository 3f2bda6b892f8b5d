"""``/v1/me``: the caller. An extension of ours."""

from dataclasses import asdict

from fastapi import Request

from moorage import __version__
from moorage.api.caller import Caller
from moorage.api.credentials import secret_of
from moorage.api.routing import Router
from moorage.loop.budget import standings
from moorage.model.catalog import ModelCatalog
from moorage.store.api_keys import READ
from moorage.wire.operator_answers import Me, PriceShown

router = Router()


@router.get("/me", "me", "What the key of this request stands for")
async def me(request: Request, caller: Caller) -> Me:
    """The identity behind this request's key."""
    runtime, settings = caller.runtime, caller.runtime.settings
    key = await runtime.identity.caller_of(secret_of(request.headers))
    assert key is not None, "the gate has let a request without a key through"
    return {
        "object": "me",
        "tenant": caller.tenant_id,
        "key": {
            "id": caller.key_id,
            "name": key.name,
            "created_at": key.created_at,
            "scope": "read" if key.scope == READ else None,
            "expires_at": key.expires_at or None,
        },
        "limits": {
            "requests_per_minute": settings.requests_per_minute,
            "tokens_per_minute": settings.tokens_per_minute,
            "running_responses": settings.running_responses_max,
            "stored_bytes": settings.stored_bytes_max,
            "retention_seconds": settings.retention_seconds,
        },
        "network": {"allowed_domains": list(settings.allowed_egress_domains)},
        "storage": (await runtime.stores.files.stored.standing(caller.tenant_id)).to_json(),
        "budgets": await standings(runtime.stores, caller.tenant_id, caller.draws_on),
        "prices": [_price(runtime.models.catalog, model["id"]) for model in runtime.models.catalog.listing()],
        "version": __version__,
    }


def _price(catalog: ModelCatalog, model: str) -> PriceShown:
    """US dollars per million tokens and per call; null if they are not known."""
    price = catalog.price_of(model)
    return {"model": model, "price": None if price is None else asdict(price)}
