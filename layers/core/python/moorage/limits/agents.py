"""Bounds of the Agents API."""

from typing import Final

from moorage.limits.units import KIB, MIB

AGENT_NAME_CHARS_MAX: Final = 128
"""As OpenAI's guide has it."""

AGENT_TOOLS_BYTES_MAX: Final = 3 * 1024 * 1024
"""Of compact JSON, as OpenAI's reference has it."""

AGENT_VERSIONS_MAX: Final = 1_000
"""Changes of one agent: each is kept, so that what began with one can be understood."""

AGENT_INLINE_BYTES_MAX: Final = 100 * 1024
"""Of a version that stands in its record, packed; a longer one is an object."""

AGENT_SESSION_MESSAGES_MAX: Final = 100
"""Of one input event."""

AGENT_SESSION_EVENTS_MAX: Final = 100
"""Of one request; each may be a decision that is written by itself."""

AGENT_SESSION_INPUTS_MAX: Final = 64
"""Requests whose input waits for the next step of one turn."""

AGENT_SESSION_POLL_SECONDS: Final = 0.5
"""How often the stream of a session that does nothing looks for its next turn, where no bell is heard."""

AGENT_SESSION_TURNS_READ: Final = 10
"""Turns of a session whose items are read for a page, before it is looked whether it is full."""

AGENT_SESSION_TRACES_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of one page of traces, as OpenAI's reference has it; a single trace may be longer."""

AGENT_SESSION_ENVIRONMENT_CHARS_MAX: Final = 2_000
"""Of what a session asked for as its environment that stands in its record, sealed; a longer one is an object."""

AGENT_SESSION_CHAIN_MAX: Final = 32
"""Responses that one of a session names as those before it (24 bytes each on its record): the next one has what was said as its own.
So its records cost at most a write unit more, and a session may have any number of responses."""

AGENT_SESSION_CHAIN_SHARE: Final = 0.1
"""Of the retention, which a chain of a session's may be old. What was said is read and written again before it expires, in any
session that is used once in the rest of the time."""

AGENT_TURN_RESPONSES_MAX: Final = 1_000
"""Of one turn. Their ids stand on its record, 50 bytes each."""

AGENT_SESSION_ARTIFACTS_MAX: Final = 100
"""Files of one turn that are published, in the order of their paths."""

AGENT_SESSION_ARTIFACTS_AT_ONCE: Final = 4
"""Files of a turn that are copied side by side."""

AGENT_SUBAGENTS: Final = 6
"""Subagents that are active at once where the agent does not say it: OpenAI's default."""

AGENT_EXPORT_SESSIONS_MAX: Final = 1_000
"""Sessions of one archive."""

AGENT_EXPORT_TURNS_MAX: Final = 10_000
"""Turns of one session in an archive: their facts stand together in one of its entries."""

AGENT_EXPORT_ARTIFACTS_MAX: Final = 10_000
"""Artifacts of one session in an archive."""

AGENT_EXPORT_NAMES_MAX: Final = 16
"""Kinds of things that an archive names as left out of a session."""

AGENT_ARCHIVE_ENTRIES_MAX: Final = 200_000
"""Entries of an archive. Each takes 1 KiB at least, so that more do not fit into a file."""

AGENT_ARCHIVE_TEXT_BYTES_MAX: Final = 128 * 1024 * 1024
"""One entry of JSON lines: what one response was given and has answered. It is in memory while it is read."""

AGENT_ARCHIVE_ITEMS_MAX: Final = 100_000
"""Items of one response in an archive, with those that were said before it."""

AGENT_ARCHIVE_VALUES_MAX: Final = 2_000_000
"""JSON values of one such entry: each takes a hundred bytes of memory while it is read."""

AGENT_IMPORT_SECONDS_MAX: Final = 6 * 3600
"""After so long the process of an import that has not ended is dead, and the reaper ends it."""

AGENT_UNREVEALED_READ: Final = 100
"""Sessions of such imports that one round of the reaper looks at."""

# --- Hosted environments ----------------------------------------------------------------------------------------------

ENVIRONMENT_FILES_MAX: Final = 500
"""Files that one request puts into an environment. Each is a copy in the bucket; eight are made at once."""

ENVIRONMENT_PACKAGES_MAX: Final = 50
"""Packages of one ecosystem. Their names stand in the container's record."""

ENVIRONMENT_PLUGINS_MAX: Final = 20
"""Plugins of one environment. Their names and descriptions stand in the container's record."""

PLUGIN_MANIFEST_BYTES_MAX: Final = 65_536

ENVIRONMENT_PACKAGE_CHARS_MAX: Final = 200

ENVIRONMENT_PATH_CHARS_MAX: Final = 1_024
"""Of a path below /workspace. Linux takes 4,096 bytes, and a character has up to four."""

ENVIRONMENT_SIZES: Final = {"small": "1g", "medium": "4g", "large": "16g"}
"""``container_size``, and the ``memory_limit`` that it stands for."""

ENVIRONMENT_PAGE_FILES_MAX: Final = 2_000
"""Files that the environments of one page show, or a single one's if they are more: some 300 KB. A page may be shorter for it."""

ENVIRONMENT_VARIABLES_MAX: Final = 100
SETUP_COMMANDS_MAX: Final = 50
SETUP_BYTES_MAX: Final = 200 * KIB
"""Of an environment's variables and setup commands together: they are one record, and an item of the table has 400 KB."""

SETUP_SECONDS_MAX: Final = 180
"""For all setup commands of a sandbox. A tool call waits for them, and a step has 330 s."""

SETUP_OUTPUT_CHARS_MAX: Final = 1_000
"""Of a setup command that fails: the end of its output is told."""

ENVIRONMENT_TEMPLATE_BYTES_MAX: Final = 4 * MIB
"""Of compact JSON, inline files in it: larger ones are named by ``file_id``."""

# --- Vaults and their credentials -------------------------------------------------------------------------------------

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

# --- Automations ------------------------------------------------------------------------------------------------------

AUTOMATION_NAME_CHARS_MAX: Final = 128
"""As an agent's."""

AUTOMATIONS_MAX: Final = 1_000
"""Of one tenant, unless MOORAGE_AUTOMATIONS_MAX says otherwise: each is looked at when it is due, and has one invocation at a time."""

AUTOMATION_EXPRESSION_CHARS_MAX: Final = 256
"""Of five fields, of which each may be a list."""

AUTOMATION_DUE_READ: Final = 100
"""Automations, and invocations, of which a round learns at once that they are due."""

AUTOMATION_AT_ONCE: Final = 8
"""Deliveries of a round side by side: each is a few writes, and the beginning of a response."""

AUTOMATION_ROUND_SECONDS_MAX: Final = 45
"""After which a round begins nothing more: the next one starts within a minute."""

AUTOMATION_LEASE_SECONDS: Final = 120
"""How long whoever delivers an invocation has it for himself. If he dies, the next round after that delivers it."""

AUTOMATION_PAUSE_SECONDS: Final = 60
"""Between two attempts to deliver."""

AUTOMATION_RETRY_SECONDS: Final = 3600
"""How long a delivery is tried that is refused for now: by a budget, a full disk, or a session that has too much input."""

AUTOMATION_LOG_SECONDS: Final = 90 * 24 * 3600
"""How long an invocation is kept."""

AUTOMATION_INLINE_BYTES_MAX: Final = 30 * 1024
"""Of a target that stands in its records, sealed; a longer one is an object. Each invocation has it too."""

AGENT_AUTOMATIONS_MAX: Final = 20
"""Of one session, made by its agent. What an agent has made and needs no more it deletes."""

AGENT_AUTOMATIONS_PER_DAY: Final = 50
"""How many an agent makes in one session on one day (UTC), those that it has deleted included: one that wakes itself to make the next
one comes to an end."""

AGENT_AUTOMATION_PERIOD_SECONDS_MIN: Final = 300
"""Between two times of one that an agent has made."""

AGENT_AUTOMATION_CALL_SECONDS_MAX: Final = 30
"""A few reads and a write."""

AGENT_AUTOMATION_CALL_BYTES_MAX: Final = 256 * 1024
"""Of the item: as many automations as a session has, in short."""

AGENT_AUTOMATION_CALLS_PER_ROUND_MAX: Final = 8

AGENT_AUTOMATION_WORD_CHARS_MAX: Final = 10_000
"""Of an argument, such as the instructions."""
