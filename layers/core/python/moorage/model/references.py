"""Secrets in ``models.toml`` are named, never written: ``env:NAME``, ``ssm:/path`` or ``secretsmanager:/name``."""

import re
from collections.abc import Mapping
from typing import Final

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


KINDS: Final = "'env:NAME', 'ssm:/path' or 'secretsmanager:/name'"
_STORES: Final = {"ssm": "SSM", "secretsmanager": "Secrets Manager"}
"""Where AWS keeps secrets, by the word of a reference."""
_SECRET: Final = re.compile(r"(?!arn:)[A-Za-z0-9/_+=.@-]{1,512}|arn:aws:secretsmanager:[a-z0-9-]+:\d{12}:secret:.+-[A-Za-z0-9]{6}")
"""A secret's name (Secrets Manager API reference, ``CreateSecret``), or its ARN."""


def check_form(where: str, field: str, reference: str, *, has_secrets: bool) -> tuple[str, str]:
    """The kind and the name of a reference, as far as its text says whether it can be read. Raises SettingsConflict."""
    kind, _, name = reference.partition(":")
    if (kind != "env" and kind not in _STORES) or not name:
        # The value is not quoted: it may be a key that somebody wrote here.
        raise SettingsConflict(f"{where}: {field} must be a reference, {KINDS}, never the {field} itself.")
    if kind == "secretsmanager" and _SECRET.fullmatch(name) is None:
        raise SettingsConflict(f"{where}: {field} refers to a secret by its name, or by its whole ARN, which ends with six characters.")
    if kind in _STORES and not has_secrets:
        kept = f"{_STORES[kind]} ({name})"
        raise SettingsConflict(f"{where}: {field} refers to {kept}, which can be read only on AWS; use env:NAME here.")
    return kind, name


def check_reference(where: str, field: str, reference: str, upstream: Mapping[str, str], *, has_secrets: bool) -> None:
    """Checks beyond a schema. Raises SettingsConflict."""
    kind, name = check_form(where, field, reference, has_secrets=has_secrets)
    if kind == "env" and (lack := why_no_key(name, upstream)) is not None:
        raise SettingsConflict(f"{where}: {field} refers to the environment variable {name}, which {lack}.")
