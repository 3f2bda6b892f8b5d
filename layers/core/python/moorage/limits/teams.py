"""Bounds of the agents of a response with a team."""

from typing import Final

LANE_STEPS: Final = 1_000_000
"""Numbers of steps for each agent of a response (``store/keys.py: lane_of``)."""

TEAM_AGENTS_MAX: Final = 64
"""Agents of one response beside ``/root``; two hex digits tell them apart (``ids.mark_of_item``)."""

TEAM_ACTIVE: Final = 3
TEAM_ACTIVE_MAX: Final = 16
"""Agents beside ``/root`` that are active at once: where the request does not say it (OpenAI's default), and at most."""

TEAM_DEPTH_MAX: Final = 5
"""Agents from ``/root`` down to one, ``/root`` not counted."""

TEAM_MESSAGE_CHARS_MAX: Final = 32_000
"""Of a message between agents; a longer answer is cut there, and says so."""

TEAM_MESSAGES_MAX: Final = 200
"""Messages to one agent, all of which are read at each of its steps; the answers of those that it has started come on top."""

TEAM_NAME_CHARS_MAX: Final = 400
"""Of an agent's name in an item that a client sends back."""

TEAM_TASK_CHARS_TOLD: Final = 200
"""Of the beginning of a task that ``list_agents`` tells."""

TEAM_WAIT_MS: Final = 600_000
TEAM_WAIT_MS_MAX: Final = 3_600_000
"""How long ``wait_agent`` waits: where the model does not say it, and at most."""

TEAM_OUTPUTS_MS: Final = 600_000
"""How long a response stays open on a WebSocket for outputs of its client while no agent works; OpenAI names no time."""

TEAM_OUTPUTS_MAX: Final = 32
"""Outputs of one frame, which are written together with the records of their agents."""

TEAM_OUTPUT_INLINE_BYTES_MAX: Final = 64 * 1024
"""A longer output goes to the bucket: all of a frame are one transaction, which has 4 MB at most."""
