"""Bounds of agents."""

from typing import Final

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
