"""What a request says of a credential, taken apart into what everybody may see and what is sealed; and how it is rotated.

A rotation keeps the type, the address, the variable's name and the hosts: another one of those is another credential.
"""

from typing import Any

from moorage.errors import invalid_value
from moorage.vaults.store import Auth
from moorage.wire.validation import Fields

_SECRETS = ("token", "access_token", "secret_value")


def auth_of(given: Fields) -> Auth:
    """Of ``shapes.py: CreateCredential``'s ``auth``."""
    shown = {name: value for name, value in given.items() if name not in (*_SECRETS, "expires_at", "refresh")}
    secrets = {name: given[name] for name in _SECRETS if name in given}
    if given["type"] != "mcp_oauth":
        return Auth(shown, secrets)
    refresh = given.get("refresh")
    shown["refresh"] = None if refresh is None else _shown_refresh(refresh)
    return Auth(shown, secrets | ({} if refresh is None else _refresh_secrets(refresh)), given.get("expires_at"))


def rotated(auth: Auth, given: Fields, sent: Fields) -> Auth:
    """After ``shapes.py: UpdateCredential``'s ``auth``; ``sent`` is the same with its nulls. Raises
    :class:`~moorage.errors.ApiError`."""
    if given["type"] != auth.shown["type"]:
        raise invalid_value("auth.type", f"this credential is of the type '{auth.shown['type']}', and keeps it.")
    secrets = {**auth.secrets, **{name: given[name] for name in _SECRETS if name in given}}
    shown, expires_at = dict(auth.shown), auth.expires_at
    if "access_token" in given or "expires_at" in sent:
        expires_at = given.get("expires_at")
    if (refresh := given.get("refresh")) is not None:
        if shown["refresh"] is None:
            raise invalid_value("auth.refresh", "this credential has none: make another one with it.")
        shown["refresh"] = _rotated_refresh(shown["refresh"], refresh, sent["refresh"])
        secrets |= _refresh_secrets(refresh)
    return Auth(shown, secrets, expires_at)


def _shown_refresh(refresh: Fields) -> Fields:
    return {
        "client_id": refresh["client_id"],
        "token_endpoint": refresh["token_endpoint"],
        "token_endpoint_auth": {"type": refresh["token_endpoint_auth"]["type"]},
        "resource": refresh.get("resource"),
        "scope": refresh.get("scope"),
    }


def _rotated_refresh(shown: Fields, refresh: Fields, sent: Fields) -> Fields:
    way: Any = shown["token_endpoint_auth"]["type"]
    if refresh.get("token_endpoint_auth", {"type": way})["type"] != way:
        raise invalid_value("auth.refresh.token_endpoint_auth.type", f"this credential has '{way}', and keeps it.")
    return {**shown, "scope": refresh.get("scope")} if "scope" in sent else shown


def _refresh_secrets(refresh: Fields) -> dict[str, str]:
    held = {**refresh, **refresh.get("token_endpoint_auth", {})}
    return {name: held[name] for name in ("refresh_token", "client_secret") if name in held}
