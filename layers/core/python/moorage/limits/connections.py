"""Bounds of what clients hold open, and of requests that come twice."""

from typing import Final

from moorage.limits.units import KIB, MIB

# --- connections -----------------------------------------------------------------------------------------------------------

HEAD_BYTES_MAX: Final = 64 * KIB
"""Of a request's line and headers, which are read before its key; API Gateway and the usual proxies stop at 10 to 64 kB."""

REQUEST_VALUES_MAX: Final = 200_000
"""Values in the JSON of a body, fields and elements: 20 for each of ``INPUT_ITEMS_MAX`` items. Parsed they take 40 MB at most, in one
call into C that takes 20 ms (docs/decisions/085-bodies-have-fewer-values.md)."""

HEAD_SECONDS_MAX: Final = 20
"""From the connection, or from the first byte of a later request, to the end of the head."""

KEEP_ALIVE_IDLE_SECONDS: Final = 75
"""A connection between two requests: as nginx, and longer than clients' pools keep one (httpx 5 s, aiohttp 15 s, AWS ALB 60 s)."""

WEBSOCKETS_PER_KEY_MAX: Final = 32
"""Open connections of one API key to one process, or to API Gateway; Codex holds one for a session."""

RUNNING_RESPONSES_MAX: Final = 100
"""Of one tenant at once in the state machine, unless MOORAGE_RUNNING_RESPONSES_MAX says otherwise: each holds a sandbox or a worker."""

OTLP_SECONDS_MAX: Final = 10
"""For a collector to take the trace of a response, as OpenTelemetry's exporters have it."""

OTLP_REST_SECONDS_MAX: Final = 2
"""How long an answer waits with its end for that on Lambda, which stops a process that has answered."""

OTLP_SPANS_MAX: Final = 2_000
"""In one request: about a MB. Collectors take 20 MiB (OpenTelemetry Collector, ``max_request_body_size``); a response of 5,000 rounds
with 16 calls each has more."""

PREFLIGHT_SECONDS: Final = 7_200
"""How long a browser may keep what a page of an origin may send: the most that Chromium keeps it."""

# --- rates -------------------------------------------------------------------------------------------------------------------

RATE_SHARE_SECONDS: Final = 1.0
"""For how long a process takes along of a key's rate. A limit may be met early by what each process takes and does not use."""

RATE_LIMITED_KEYS_MAX: Final = 10_000
"""API keys whose rate one process counts; beyond it the one seen first starts anew."""

# --- requests that come twice ------------------------------------------------------------------------------------------------

IDEMPOTENCY_SECONDS: Final = 24 * 60 * 60
"""How long an ``Idempotency-Key`` belongs to its first request, as at other APIs that have such keys."""

IDEMPOTENCY_KEY_CHARS_MAX: Final = 255
IDEMPOTENCY_ANSWER_BYTES_MAX: Final = 256 * KIB
"""Of an answer that is kept to be given again: it stands in one item of the table, which holds 400 kB."""

REPEAT_PENDING_SECONDS: Final = 10
"""A response's record is written 50 ms after its start; a process that has not done so by then is dead."""

REPEAT_CLAIMS_MAX: Final = 3
"""Tries to take a key that ran out."""

RETRY_SECONDS_MAX: Final = 120
"""openai-python and openai-node try again after 0.5 to 8 s, or after a ``retry-after`` of up to 60 s."""

RETRY_NOTE_SECONDS: Final = 2.0
RETRY_NOTE_POLL_SECONDS: Final = 0.05
"""How long a retry waits for the connection of the same request, which is being answered here, to be seen to break."""

RETRY_FAREWELL_SECONDS: Final = 20.0
"""The same once it was seen to break: the hand-over to the state machine is under way, and then the note; five writes and a call."""

# --- chat completions ------------------------------------------------------------------------------------------------------

STOP_WORDS_MAX: Final = 4
"""``stop``, as at OpenAI."""

# --- WebSocket ---------------------------------------------------------------------------------------------------------------

WEBSOCKET_SECONDS_MAX: Final = 60 * 60
"""Life of one connection, as at OpenAI: a deployment can be drained in an hour."""

WEBSOCKET_ACTIVE_MAX: Final = 16
"""Responses of one connection that run side by side, as at OpenAI; others wait."""

WEBSOCKET_STREAM_IDS_MAX: Final = 32
"""Named lanes of one connection, as at OpenAI."""

WEBSOCKET_STREAM_ID_CHARS_MAX: Final = 256
WEBSOCKET_WAITING_MAX: Final = 256
WEBSOCKET_WAITING_BYTES_MAX: Final = 64 * MIB
"""Frames of one connection that wait for those before them; OpenAI names no bound, memory has one."""

WEBSOCKET_STEERS_MAX: Final = 16
"""Inputs that steer one response and wait for its end; OpenAI names no bound. ``WEBSOCKET_WAITING_BYTES_MAX`` bounds those of all
responses of a connection."""

WEBSOCKET_RECENT_MAX: Final = 64
"""Unstored responses of one connection that can be continued; at least one for each lane."""

WEBSOCKET_RECENT_BYTES_MAX: Final = 64 * MIB
"""What they may hold in memory, counted as JSON without what they share."""

# --- WebSocket at API Gateway (quotas for WebSocket APIs, API Gateway developer guide) --------------------------------------

WEBSOCKET_MESSAGE_BYTES_MAX: Final = 128 * KIB
"""Either way. The gateway itself closes a connection that brings more, with code 1009; what is sent through it has to be shorter."""

WEBSOCKET_GATEWAY_SECONDS_MAX: Final = 2 * 60 * 60
WEBSOCKET_SILENCE_SECONDS: Final = 5 * 60
"""Until something is sent where nothing has happened: the gateway closes a connection after 10 minutes."""

WEBSOCKET_MAILBOX_SECONDS: Final = 0.5
"""Between two looks of a worker into its mailbox."""

WEBSOCKET_HOLD_SECONDS: Final = 45
"""How long a worker holds its connection without a sign of life; Lambda runs one that has died again after a minute."""

WEBSOCKET_SIGN_SECONDS: Final = 10

WEBSOCKET_REST_SECONDS: Final = 20
"""For what a worker has left to be done beside it."""

WEBSOCKET_SHORT_CHARS: Final = 256
"""Texts of an event that stay in it when it is too long: names and ids are shorter."""
