"""Bounds of vaults and their credentials."""

from typing import Final

from moorage.limits.units import KIB

VAULT_NAME_BYTES_MAX: Final = 256
"""Of a vault's or a credential's name in UTF-8, as OpenAI's SDK has it."""

VAULT_CREDENTIALS_MAX: Final = 100
"""In one vault. Whoever looks for a credential reads all of a vault's; a policy has as many domain secrets."""

VAULT_SECRET_CHARS_MAX: Final = 8 * KIB
"""Of a token, a client secret or a value: what web servers commonly take of all headers. A credential has three at most, and is one
record of the table."""

VAULT_HOSTS_MAX: Final = 16
"""That one value goes to, as OpenAI's SDK has it."""

OAUTH_PARAMETER_CHARS_MAX: Final = 2 * KIB
"""Of a client's id, a resource or a scope: as long as an address."""
