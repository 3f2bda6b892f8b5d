"""Secrets in ``models.toml`` are named, never written: ``env:NAME`` or ``ssm:/path``."""

from collections.abc import Mapping

from moorage.errors import SettingsConflict
from moorage.ids import KEY_PREFIX


def why_no_key(name: str, upstream: Mapping[str, str]) -> str | None:
    """Why a variable holds no key of another server, as the predicate of a sentence; None if it holds one.

    A shell that has read ``.moorage/env`` holds moorage's own key in OPENAI_API_KEY. It must not be sent to a provider.
    """
    value = upstream.get(name)
    if not value:
        return "is not set"
    if value.startswith(KEY_PREFIX):
        return f"holds a key of moorage itself ({KEY_PREFIX}...) and so counts as not set"
    return None


def check_reference(where: str, field: str, reference: str, upstream: Mapping[str, str], *, has_secrets: bool) -> None:
    """What a schema cannot say. Raises SettingsConflict."""
    kind, _, name = reference.partition(":")
    if kind not in ("env", "ssm") or not name:
        # The value is not quoted: it may be a key that somebody wrote here.
        raise SettingsConflict(f"{where}: {field} must be a reference, 'env:NAME' or 'ssm:/path', never the {field} itself.")
    if kind == "env" and (lack := why_no_key(name, upstream)) is not None:
        raise SettingsConflict(f"{where}: {field} refers to the environment variable {name}, which {lack}.")
    if kind == "ssm" and not has_secrets:
        raise SettingsConflict(f"{where}: {field} refers to SSM ({name}), which can be read only on AWS; use env:NAME here.")
