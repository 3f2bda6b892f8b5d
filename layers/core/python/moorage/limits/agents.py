"""Bounds of agents."""

from typing import Final

AGENT_NAME_CHARS_MAX: Final = 128
"""As OpenAI's guide has it."""

AGENT_TOOLS_BYTES_MAX: Final = 3 * 1024 * 1024
"""Of compact JSON, as OpenAI's reference has it."""

AGENT_VERSIONS_MAX: Final = 1_000
"""Changes of one agent: each is kept, so that what began with one can be understood."""

AGENT_PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Of settings in one page of a list, or a single agent's if they are longer: a page may have fewer agents than it was asked for."""

AGENT_INLINE_BYTES_MAX: Final = 100 * 1024
"""Of a version that stands in its record, packed; a longer one is an object."""
