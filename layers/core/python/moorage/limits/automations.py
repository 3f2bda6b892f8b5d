"""Bounds of automations."""

from typing import Final

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
