"""Secrets in ``models.toml`` are named, never written: ``env:NAME`` or ``ssm:/path``."""

from collections.abc import Mapping

from moorage.errors import SettingsConflict


def check_reference(where: str, field: str, reference: str, upstream: Mapping[str, str], *, has_secrets: bool) -> None:
    """What a schema cannot say. Raises SettingsConflict."""
    kind, _, name = reference.partition(":")
    if kind not in ("env", "ssm") or not name:
        # The value is not quoted: it may be a key that somebody wrote here.
        raise SettingsConflict(f"{where}: {field} must be a reference, 'env:NAME' or 'ssm:/path', never the {field} itself.")
    if kind == "env" and not upstream.get(name):
        raise SettingsConflict(f"{where}: {field} refers to the environment variable {name}, which is not set.")
    if kind == "ssm" and not has_secrets:
        raise SettingsConflict(f"{where}: {field} refers to SSM ({name}), which can be read only on AWS; use env:NAME here.")
