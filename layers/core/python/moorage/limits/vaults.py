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

VAULT_IDS_MAX: Final = 10
"""That a session or an environment names, as OpenAI's SDK has it."""

OAUTH_ANSWER_BYTES_MAX: Final = 64 * KIB
"""Of a token endpoint: two tokens, and what it says beside them."""

OAUTH_SECONDS_MAX: Final = 10
"""For one answer of a token endpoint."""

OAUTH_CLAIM_SECONDS: Final = 30
"""How long a refresh keeps others from beginning one. One whose process has died is begun again after it."""

OAUTH_POLL_SECONDS: Final = 0.2
"""Between two looks at a refresh that another process makes."""

OAUTH_AHEAD_SECONDS: Final = 60
"""A token is refreshed so long before its end, or after half of its life if that is shorter: the request that takes it along needs
time."""

OAUTH_PAUSE_SECONDS: Final = 15
"""After a refresh that has failed, nobody tries again for so long: every call of a session asks for a token."""

OAUTH_LIFE_SECONDS_MAX: Final = 10 * 365 * 24 * 3_600
"""Of a token, whatever its endpoint says."""

OAUTH_PARAMETER_CHARS_MAX: Final = 2 * KIB
"""Of a client's id, a resource or a scope: as long as an address."""

assert OAUTH_SECONDS_MAX < OAUTH_CLAIM_SECONDS
