"""Every bound in one place, with its reason.

A loop, buffer, retry or wait elsewhere takes its bound from here. The asserts at the end hold the relations between them.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# --- Requests -----------------------------------------------------------------------------------------------------------

REQUEST_BODY_BYTES_MAX: Final = 32 * MIB
"""A JSON body. API Gateway stops at 10 MB by itself; locally, inline images of up to 20 MB (``input_image.image_url``) must pass."""

TEXT_CHARS_MAX: Final = 10_485_760
"""``input`` and every text or tool output in it. OpenAPI: ``InputTextContentParam.text.maxLength``."""

INPUT_ITEMS_MAX: Final = 10_000
"""Items of one request; beyond it a conversation or ``previous_response_id`` is the right tool."""

TOOLS_MAX: Final = 1_024
METADATA_PAIRS_MAX: Final = 16
METADATA_KEY_CHARS_MAX: Final = 64
METADATA_VALUE_CHARS_MAX: Final = 512
OUTPUT_TOKENS_MIN: Final = 16
CALL_ID_CHARS_MAX: Final = 64
CHAIN_RESPONSES_MAX: Final = 1_000
"""Links of a ``previous_response_id`` chain. Their ids stand on the record (52 bytes each), and all are read at once."""

# --- The loop ------------------------------------------------------------------------------------------------------------

ROUNDS_MAX: Final = 5_000
"""Model steps of one response; the model's context or ``max_tool_calls`` ends it far earlier."""

RESPONSE_SECONDS_MAX: Final = 24 * 3600
"""Wall time of one response, from its creation."""

STEP_ATTEMPTS_MAX: Final = 5
"""Runs of one step, crashes and takeovers included, before the response fails."""

CALL_ATTEMPTS_MAX: Final = 5
"""The same for one tool call."""

EXECUTION_ROUNDS_MAX: Final = 150
"""Rounds before a successor execution takes over. One round writes about 11 + 7 * calls history events, and Step Functions fails
an execution at 25,000: with ``CALLS_PER_ROUND_MAX`` calls this stays below 22,000."""

CALLS_PER_ROUND_MAX: Final = 16
"""Hosted tool calls of one model step that run; the model is told that the others were not run."""

WAIT_SECONDS_MAX: Final = 60
"""The longest that one ``next: wait`` may ask for."""

WAITS_MAX: Final = 120
"""Consecutive waits for the same thing (a container that starts, an upstream that throttles) before the response fails."""

MODEL_STEP_SECONDS_MAX: Final = 840
"""A model step ends itself before Lambda's 900 s."""

TOOL_STEP_SECONDS_MAX: Final = 780
"""A tool step hands over to its next run before Lambda's 900 s."""

CANCEL_POLL_SECONDS: Final = 1.0

# --- The event log ----------------------------------------------------------------------------------------------------------

BATCH_EVENTS_BYTES_MAX: Final = 4 * KIB
"""A flush is due at this size ..."""

BATCH_SECONDS_MAX: Final = 0.08
"""... or at this age, while a client reads along through the log."""

INLINE_BATCH_SECONDS_MAX: Final = 5.0
"""The same for a step whose client is fed directly: the log only has to bound what a crash loses."""

INLINE_BATCH_BYTES_MAX: Final = 256 * KIB

ITEM_INLINE_BYTES_MAX: Final = 300 * KIB
"""A record's body up to here stays in DynamoDB (whose limit is 400 KB an item); larger ones go to S3 with a pointer."""

INLINE_STALE_SECONDS: Final = 60
"""A foreground response whose API process has given no sign of life for this long has lost it."""

INLINE_HEARTBEAT_SECONDS: Final = 15

TAIL_POLL_SECONDS_MIN: Final = 0.02
TAIL_POLL_SECONDS_MAX: Final = 0.5
KEEP_ALIVE_SECONDS: Final = 15
"""SSE comments while nothing else is sent. API Gateway cuts a regional stream at 5 minutes of silence."""

RETENTION_SECONDS: Final = 30 * 24 * 3600
"""Responses and their events. OpenAI keeps responses for 30 days."""

# --- Model upstreams ---------------------------------------------------------------------------------------------------------

UPSTREAM_CONNECT_SECONDS: Final = 10
UPSTREAM_IDLE_SECONDS: Final = 300
"""No byte from the upstream for this long is a hang. Reasoning models may think for minutes without a word."""

UPSTREAM_RETRIES_MAX: Final = 4
UPSTREAM_BACKOFF_SECONDS: Final = 0.5
UPSTREAM_RETRY_AFTER_SECONDS_MAX: Final = 20
"""A longer Retry-After makes the loop wait in the state machine instead of in a paid process."""

UPSTREAM_EVENT_BYTES_MAX: Final = 24 * MIB
"""One event of an upstream's stream; an image or a compaction item can be large."""

# --- Containers and commands --------------------------------------------------------------------------------------------------

COMMANDS_PER_CALL_MAX: Final = 32
COMMAND_CHARS_MAX: Final = 100_000
"""Linux limits one argument to 128 KiB."""

COMMAND_TIMEOUT_MS_DEFAULT: Final = 120_000
COMMAND_TIMEOUT_MS_MAX: Final = 4 * 3600 * 1000
OUTPUT_CHARS_DEFAULT: Final = 16_000
"""stdout and stderr of one command together, as the model sees them."""

OUTPUT_CHARS_MAX: Final = 1_000_000
OUTPUT_SPOOL_BYTES_MAX: Final = 1024 * MIB
"""Full output kept inside the container per command; beyond it output is counted and dropped."""

CONTAINER_IDLE_MINUTES_DEFAULT: Final = 20
CONTAINER_IDLE_MINUTES_MAX: Final = 24 * 60
MEMORY_LIMITS: Final = {"1g": 1, "4g": 4, "16g": 16, "64g": 64}
"""``memory_limit`` in GiB."""

CONTAINER_PROCESSES_MAX: Final = 512
CONTAINER_OPEN_FILES_MAX: Final = 4_096
WORKSPACE_BYTES_MAX: Final = 20 * 1024 * MIB
ARTIFACT_BYTES_MAX: Final = 512 * MIB
"""A larger file under /mnt/data is not stored (the model is told); it stays in the running container."""

ARTIFACTS_MAX: Final = 10_000
"""Files of one container that are stored."""

CONTAINER_FILE_IDS_MAX: Final = 50
FILE_BYTES_MAX: Final = 512 * MIB

assert 11 * EXECUTION_ROUNDS_MAX + 7 * CALLS_PER_ROUND_MAX * EXECUTION_ROUNDS_MAX < 22_000
assert TOOL_STEP_SECONDS_MAX < MODEL_STEP_SECONDS_MAX < 900
assert ITEM_INLINE_BYTES_MAX + BATCH_EVENTS_BYTES_MAX < 400 * 1000
assert INLINE_HEARTBEAT_SECONDS * 3 < INLINE_STALE_SECONDS
assert INLINE_BATCH_BYTES_MAX < ITEM_INLINE_BYTES_MAX
