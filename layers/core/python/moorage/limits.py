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
"""Links of a ``previous_response_id`` chain. Their ids stand on the record (24 bytes each), and all are read at once."""

# --- The loop ------------------------------------------------------------------------------------------------------------

ROUNDS_MAX: Final = 5_000
"""Model steps of one response; the model's context or ``max_tool_calls`` ends it far earlier."""

RESPONSE_SECONDS_MAX: Final = 24 * 3600
"""Wall time of one response, from its creation."""

STEP_ATTEMPTS_MAX: Final = 5
"""Runs of one step, crashes and takeovers included, before the response fails."""

CALL_ATTEMPTS_MAX: Final = 5
"""The same for one tool call."""

STORING_ATTEMPTS_MAX: Final = 3
"""Runs of a tool call that try to store the files its commands left, before it ends without."""

CALL_ROUNDS_MAX: Final = 5
"""Rounds in which a tool call neither ended, nor was still going, nor waited for its container, before the response fails: each has
four runs, and not even the word that the call was lost could be stored."""

EXECUTION_ROUNDS_MAX: Final = 150
"""Rounds before a successor execution takes over. One round writes about 11 + 7 * calls history events, and Step Functions fails
an execution at 25,000: with ``CALLS_PER_ROUND_MAX`` calls this stays below 22,000."""

CALLS_PER_ROUND_MAX: Final = 16
"""Hosted tool calls of one model step that run; the model is told that the others were not run."""

RECOVERY_SECONDS: Final = 10
"""A loop that has been silent for this long and has no running execution has lost it."""

RECOVERIES_MAX: Final = 20
"""Restarts of one loop after lost executions, before the response fails."""

END_TRIES_MAX: Final = 100
"""Attempts to append the end of a response from outside while its steps are still writing, each right after reading the log."""

WAIT_SECONDS_MAX: Final = 60
"""The longest that one ``next: wait`` may ask for."""

WAITS_MAX: Final = 120
"""Consecutive waits for the same thing (a container that starts, an upstream that throttles) before the response fails. With the
pauses at their longest that is two hours, for an upstream that is being repaired."""

WAIT_SECONDS_FIRST: Final = 2
"""The first pause for an upstream that does not say when to come back; each is twice as long as the one before, up to the longest."""

MODEL_STEP_SECONDS_MAX: Final = 840
"""A model step ends itself before Lambda's 900 s."""

TOOL_STEP_SECONDS_MAX: Final = 780
"""A tool step hands over to its next run before Lambda's 900 s."""

SANDBOX_WAIT_SECONDS: Final = 45
"""How long a tool step waits for a container that starts before the state machine sends it round again."""

SANDBOX_PATIENCE_SECONDS: Final = 15 * 60
"""How long a call is sent round again for want of its container, before the model is told that there is none."""

SANDBOX_HOST_POLL_SECONDS: Final = 0.25
SANDBOX_HOST_WAIT_SECONDS: Final = 5
"""Who starts sandboxes and has died is there again within two seconds; a tool step that waits longer leaves it to the state machine."""

SANDBOX_HOST_PAUSE_SECONDS_MAX: Final = 15
"""The longest pause of the state machine then; the first takes a second, and each is twice as long as the one before."""

SANDBOX_POLL_SECONDS_MIN: Final = 0.02
"""Its first look again; each pause after it is twice as long, up to what the container asks for."""

SANDBOX_CAPACITY_RETRY_SECONDS: Final = 5.0

SANDBOX_REFUSAL_SECONDS: Final = 20
"""For this long a tool step repeats why no sandbox could be had; after that it is tried again."""

CANCEL_POLL_SECONDS: Final = 1.0

CANCEL_BLIND_SECONDS: Final = 60.0
"""So long a step goes on though nobody can tell whether it was cancelled; each look has tried five times by itself before it fails."""

CALL_PIECE_CHARS: Final = 2_000
"""A command or code that arrived whole is told in pieces of this size, so that no event grows large."""

# --- The event log ----------------------------------------------------------------------------------------------------------

BATCH_EVENTS_BYTES_MAX: Final = 4 * KIB
"""A flush is due at this size ..."""

BATCH_SECONDS_MAX: Final = 0.08
"""... or at this age, while a client reads along through the log."""

BATCH_GATHER_SECONDS: Final = 0.005
"""A due flush waits this long, because items end and begin in bursts: one write instead of three."""

INLINE_BATCH_SECONDS_MAX: Final = 5.0
"""The same for a step whose client is fed directly: the log only has to bound what a crash loses."""

ITEM_INLINE_BYTES_MAX: Final = 300 * KIB
"""A record's body up to here stays in DynamoDB (whose limit is 400 KB an item); larger ones go to S3 with a pointer."""

TABLE_CONNECT_SECONDS: Final = 1.0
"""DynamoDB answers in milliseconds. After this botocore tries it in its own way, and says what is wrong."""

INLINE_RECORD_SECONDS: Final = 0.05
"""A foreground response's record is written after this time; one that has ended by then is written with its events, by one request."""

INLINE_STALE_SECONDS: Final = 60
"""A foreground response whose API process has given no sign of life for this long has lost it."""

INLINE_HEARTBEAT_SECONDS: Final = 15

TAIL_POLL_SECONDS_MIN: Final = 0.02
TAIL_POLL_SECONDS_MAX: Final = 0.5
KEEP_ALIVE_SECONDS: Final = 15
"""SSE comments while nothing else is sent. API Gateway cuts a regional stream at 5 minutes of silence."""

JSON_SILENCE_SECONDS: Final = 60
"""A non-streaming create that takes longer begins its body with white space, unless the operator says otherwise."""

ERASE_WAIT_SECONDS: Final = 30
"""How long an erasure waits for the last writer; the reaper erases what is left."""

KNOWN_RESPONSES_MAX: Final = 8
"""Running responses whose finished items a step worker keeps in memory between steps."""

RETENTION_SECONDS: Final = 30 * 24 * 3600
"""Responses and their events. OpenAI keeps responses for 30 days."""

# --- Model upstreams ---------------------------------------------------------------------------------------------------------

UPSTREAM_CONNECT_SECONDS: Final = 10
UPSTREAM_IDLE_CONNECTIONS_MAX: Final = 8
"""Connections to model upstreams that are kept open for the next request. How many are in use at once is bounded by the responses that
are running."""

UPSTREAM_IDLE_CONNECTION_SECONDS: Final = 30
"""A connection that was not used for longer is not used again. Load balancers close theirs after 60 seconds and more."""

UPSTREAM_URLS_MAX: Final = 64
"""Addresses of upstreams that are kept parsed."""

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

CODE_SECONDS_MAX: Final = 120
"""One run of the code interpreter, unless the operator says otherwise: its calls have no field for a time-out."""

FIGURES_MAX: Final = 20
FIGURES_BYTES_MAX: Final = 4 * MIB
"""Figures of one code interpreter call that stand in its outputs, all together; others are only named. A plot has 20 to 200 KB, and
stands in the log twice."""

EXEC_CONNECT_SECONDS: Final = 5
EXEC_SILENCE_SECONDS: Final = 30
"""The exec server sends a heartbeat every 5 s; six missing ones mean that the connection or the sandbox is dead."""

SANDBOX_START_SECONDS: Final = 20
"""From the start of a local sandbox to its first answer; it takes a tenth of a second on an idle machine."""

SANDBOX_TMP_SHARE: Final = 4
SANDBOX_SHM_SHARE: Final = 8
"""``/tmp`` and ``/dev/shm`` of a local sandbox are memory of the container: a quarter and an eighth of it, so that most is left for
processes when both are full."""

SANDBOX_RESERVE_BYTES: Final = 128 * MIB
SANDBOX_RESERVE_PROCESSES: Final = 16
"""What the exec server of a local sandbox has beside the limits of its commands. It takes 25 MiB, and finished output up to 64."""

SANDBOX_ENTRIES_MAX: Final = 1_000_000
"""Files and directories of one sandbox."""

SANDBOX_TERMINALS_MAX: Final = 64
"""Pseudo-terminals of one local sandbox. The kernel has 4,096 for all (``kernel.pty.max``)."""

PROGRAMS_CHARS_MAX: Final = 2_000
"""What a model is told of the programs in its container, with every request."""

PROGRAMS_SECONDS_MAX: Final = 15
"""For the launcher to ask the programs of a sandbox for their versions; Java takes longest."""

LOCAL_SANDBOXES_MAX: Final = 256
"""Sandboxes of one launcher."""

TENANT_SANDBOXES_MAX: Final = 64
"""Of these, how many one tenant may have: a quarter, so that it takes four to leave none for a fifth."""

TENANT_DISK_BYTES_MAX: Final = 60 * 1024 * MIB
"""What all live sandboxes of one tenant may hold on this machine's disk: three times what one may."""

DISK_RESERVE_BYTES: Final = 1024 * MIB
"""What sandboxes leave of a disk that others use too, the emulator's journal among them."""

DISK_SHARE_BYTES_MIN: Final = 256 * MIB
"""A sandbox that holds no more than this is never the one that has filled the disk."""

DISK_LOOK_SECONDS: Final = 0.25
"""How often the launcher looks at the disk: a fast one takes 1 GiB in this time at most."""

DISK_GROWTH_SECONDS: Final = 60
"""Of the sandboxes that hold more than their share, the one that grew most in this time is the one that has filled the disk."""

SANDBOX_FILES_MAX: Final = 100_000
"""Files that one listing of a workspace returns; with more, the listing says that it is not complete."""

CONTAINER_PROCESSES_MAX: Final = 512
CONTAINER_OPEN_FILES_MAX: Final = 4_096
WORKSPACE_BYTES_MAX: Final = 20 * 1024 * MIB
ARTIFACT_BYTES_MAX: Final = 512 * MIB
"""A larger file under /mnt/data is not stored (the model is told); it stays in the running container."""

ARTIFACTS_MAX: Final = 10_000
"""Files of one container that are stored."""

ARTIFACTS_BYTES_MAX: Final = WORKSPACE_BYTES_MAX
"""Bytes of all files of one container that are stored. Holes take no room in a container's disk and all of it in S3, so that its quota
is no bound for what is stored."""

CONTAINER_FILE_IDS_MAX: Final = 50
FILE_BYTES_MAX: Final = 512 * MIB

# --- Skills -----------------------------------------------------------------------------------------------------------------------
#
# The first four, and what a SKILL.md may hold, are the API's own (guide "Skills"; agentskills.io, "Specification").

SKILL_ZIP_BYTES_MAX: Final = 50 * MIB
SKILL_FILES_MAX: Final = 500
SKILL_FILE_BYTES_MAX: Final = 25 * MIB
SKILLS_ATTACHED_MAX: Final = 200
"""Skills of one container."""
SKILL_NAME_CHARS_MAX: Final = 64
SKILL_DESCRIPTION_CHARS_MAX: Final = 1024
SKILL_BYTES_MAX: Final = 128 * MIB
"""All files of a bundle, unpacked; they are in memory while it is checked."""
SKILL_ZIP_ENTRIES_MAX: Final = 2 * SKILL_FILES_MAX
"""Files and folders."""
SKILL_FRONT_MATTER_CHARS_MAX: Final = 16_384
SKILL_NAME_BYTES_MAX: Final = 255
"""One name in a path (NAME_MAX of Linux's file systems)."""
SKILL_PATH_BYTES_MAX: Final = 1024
SKILL_FORM_OVERHEAD_BYTES_MAX: Final = 1 * MIB
"""What the headers of 500 files add to a form."""
SKILL_VERSIONS_MAX: Final = 10_000
SKILL_INLINE_CHARS_MAX: Final = 70_254_592
"""Base64 of an inline bundle (OpenAPI document, ``InlineSkillSourceParam.data``)."""
SKILL_UNUSED_SECONDS: Final = 3600
"""A stored bundle that no version names is erased after this time: an upload that is under way may be about to name it."""
SKILL_CONTEXT_CHARS_MAX: Final = 16_384
"""What a model is told of its skills: about 4,000 tokens. Skills beyond that are found in the folder."""

# --- Files, uploads, conversations ----------------------------------------------------------------------------------------------

BLOB_PART_BYTES: Final = 8 * MIB
"""One part of a stream to S3 (which takes 5 MiB to 5 GiB, 10,000 parts); two are in memory at a time."""

BLOB_READ_BYTES: Final = 256 * KIB
FILE_NAME_BYTES_MAX: Final = 255
"""A file's name also names it in a container (Linux ``NAME_MAX``)."""

FILE_EXPIRES_SECONDS_MIN: Final = 3600
FILE_EXPIRES_SECONDS_MAX: Final = 30 * 24 * 3600
"""``expires_after.seconds``. OpenAPI: ``FileExpirationAfter``."""

FILES_LIST_MAX: Final = 10_000
"""``limit`` of ``GET /v1/files``, also its default (OpenAPI)."""

GONE_SECONDS: Final = 3600
"""How long a deleted id still marks its place for a client that pages."""

UPLOAD_SECONDS: Final = 3600
UPLOAD_PART_BYTES_MAX: Final = 64 * MIB
UPLOAD_PARTS_MAX: Final = 10_000
UPLOAD_KEPT_SECONDS: Final = 24 * 3600
"""How long the record of an upload stays after its end."""

FORM_FIELD_BYTES_MAX: Final = 16 * KIB
FORM_PARTS_MAX: Final = 20
FORM_OVERHEAD_BYTES_MAX: Final = 64 * KIB
"""What boundaries, headers and short fields may add to a file in a multipart body."""

PRESIGNED_SECONDS: Final = 300
CONVERSATION_BATCH_INLINE_BYTES_MAX: Final = 100 * KIB
"""A compressed append up to here stays in the table; a transaction costs two write units per KiB, S3 one request for any size."""

CITATIONS_MAX: Final = 200
"""Annotations of one text part."""

CONDITIONAL_WRITES_MAX: Final = 20
"""Tries of one read-change-write before it gives up: with 20 writers at once the last one needs 20."""

CONVERSATION_WRITES_MAX: Final = 60
CONVERSATION_PAUSE_SECONDS_MAX: Final = 0.25
"""Tries of a writer to a conversation, and the longest pause before one. A response has its answer by then, and must not fail for want
of a place to put it: 40 at once get by."""

INPUT_FILE_BYTES_MAX: Final = 50 * MIB
"""One ``input_file`` or ``input_image``, given by id, data or URL, as a model gets it. ``file_data``: 73,400,320 base64 characters
(OpenAPI) are 52.5 MiB."""

INPUT_INLINE_BYTES_MAX: Final = 1 * MIB
"""A longer file is only named to a model that has it in its container: it reads there what it needs."""

FETCH_SECONDS_MAX: Final = 60
FETCH_CONNECT_SECONDS: Final = 10
"""For one address; the next one is tried then."""
FETCH_REDIRECTS_MAX: Final = 5

# --- The life of a container ------------------------------------------------------------------------------------------------------

CONTAINER_TOUCH_SECONDS: Final = 10
"""``last_active_at`` is written at most this often; expiry counts in minutes."""

CONTAINER_START_LEASE_SECONDS: Final = 60
"""A starter that gives no sign of life for this long has died, and another may start the same sandbox."""

SWEEP_AT_ONCE: Final = 16
"""Of what is due in a minute, what the reaper looks into side by side: a sandbox takes it about two seconds, so some 500 a minute, and
each has a connection of its own."""

CONTAINER_POLL_SECONDS: Final = 0.25
"""What the others are told to wait while one of them starts the sandbox."""

CONTAINER_NAME_CHARS_MAX: Final = 256
CONTAINER_TRANSFERS_MAX: Final = 8
"""Files of one container that are moved at once; each holds up to two parts."""

BATCH_FILE_BYTES_MAX: Final = 256 * KIB
"""A file that is read from a sandbox together with others; larger ones are streamed alone."""

BATCH_FILES_MAX: Final = 250
"""Files of one such request; one file of it is in memory at a time."""

BATCHES_MAX: Final = 32
"""Such requests of one container at once: what takes time is S3, 20 to 50 ms for an object, and not the machine."""

CONTAINER_RETRY_SECONDS: Final = 60
"""When a sweep looks again at a sandbox that it could not stop."""

ORPHAN_SECONDS_MIN: Final = 300
"""A sandbox is stopped when nobody has owned it for this long: longer than a start and every step of a deletion take."""

WARM_SANDBOX_SECONDS_MAX: Final = 12 * 3600
"""A sandbox that has waited in the warm pool for so long is replaced: a newer one has a newer image and newer patches."""

WARM_START_SECONDS_MAX: Final = 600
"""A sandbox of the pool that does not answer by then is given up; Fargate takes 20 to 60 seconds."""

WARM_ANSWER_SECONDS: Final = 2.0
"""A sandbox of the pool answers in milliseconds. One that waits and is silent for so long is replaced."""

WARM_CLAIMED_SECONDS_MAX: Final = 5
"""A claimed sandbox that does not answer by then is handed over as it is: who looks into it ends it, and the container gets another."""

WARM_SANDBOXES_MAX: Final = 100
"""Of one memory tier."""

CONTAINER_ERASE_AGAIN_SECONDS: Final = 1_000
"""After a deletion a step may go on writing until it meets the end of its process (Lambda: 900 s); then everything is erased again."""

CONTAINER_OBJECT_SECONDS_MIN: Final = 3600
"""Objects of a container that no row names are collected at this age: a younger one may belong to a transfer under way."""

# --- The stack on one machine ---------------------------------------------------------------------------------------------------

CHILD_POLL_SECONDS: Final = 0.1
CHILD_PAUSE_SECONDS: Final = 0.5
CHILD_DEATHS_MAX: Final = 5
CHILD_DEATHS_SECONDS: Final = 30
"""A child that dies more often in this time will not live: the stack ends and says so."""

LOCAL_LOG_BYTES_MAX: Final = 16 * MIB
"""A log file of the stack is put aside at this size; one of its predecessors is kept."""

# --- The shape of requests (wire) -----------------------------------------------------------------------------------------

JSON_DEPTH_MAX: Final = 100
"""Levels of free-form JSON (a tool's ``parameters``). orjson writes at most 254, and records and events add some around it."""

PARAM_NAME_CHARS_MAX: Final = 200
"""A client's own field name, as far as an error message repeats it."""

FAULTS_MAX: Final = 1_000
"""Faults of one request that are looked through for the first. More can only be unknown fields: objects of the protocol have fewer."""

FIELDS_TOLD_MAX: Final = 200
"""Fields of an object among which its first fault is looked for then. No object of the protocol has so many."""

ITEM_ID_CHARS_MAX: Final = 512
NAME_CHARS_MAX: Final = 128
MODEL_NAME_CHARS_MAX: Final = 256
NAMESPACE_NAME_CHARS_MAX: Final = 64
IDENTIFIER_CHARS_MAX: Final = 1_024
"""``user``, ``safety_identifier`` and ``prompt_cache_key``; the API's own bounds differ between its documents (64, 128, none)."""

IMAGE_URL_CHARS_MAX: Final = 20_971_520
FILE_DATA_CHARS_MAX: Final = 73_400_320
SCHEMA_NAME_CHARS_MAX: Final = 64
CONVERSATION_ITEMS_PER_CALL_MAX: Final = 20
ENCRYPTED_CONTENT_CHARS_MAX: Final = 20_971_520
ALLOWED_DOMAINS_MAX: Final = 500
DOMAIN_SECRETS_MAX: Final = 100
DOMAIN_SECRET_CHARS_MAX: Final = 65_536
DOMAIN_SECRETS_CHARS_MAX: Final = 131_072
"""All that one policy's secrets say: they are one record of the table (400 KB) beside the domains, and the proxy looks for each
value in a score of encodings."""

"""A header's worth and more; OpenAI's 10 MiB cannot be sent in a header anywhere."""

PAGE_ITEMS_DEFAULT: Final = 20
PAGE_ITEMS_MAX: Final = 100
QUERY_DIGITS_MAX: Final = 16
"""Digits of a whole number in a query string."""

GRAMMAR_CHARS_MAX: Final = 200_000
GRAMMAR_INPUT_CHARS_MAX: Final = 1_000_000
GRAMMAR_CHECKS_MAX: Final = 2
"""Checks of one process at once; each is a process that may take ``GRAMMAR_MEMORY_BYTES_MAX``."""

GRAMMAR_CHECK_SECONDS_MAX: Final = 2.0
GRAMMAR_START_SECONDS_MAX: Final = 5.0
"""For the checking process to start; a busy machine needs more than the usual 0.1 s."""

GRAMMAR_EARLEY_CHARS_MAX: Final = 20_000
"""Earley parsing is slow; beyond this the verdict of LALR stands."""

GRAMMAR_MEMORY_BYTES_MAX: Final = 512 * MIB
GRAMMAR_EXPECTED_MAX: Final = 8
"""Terminals that an error message names."""

# --- The way out ---------------------------------------------------------------------------------------------------------------

EGRESS_POLICY_SECONDS_MAX: Final = 2.0
"""Age at which the proxy reads a container's policy again: a revocation holds after this long at the latest."""

EGRESS_CONNECTIONS_MAX: Final = 256
"""Connections of one container to the proxy. Browsers and package managers stay below 64."""

EGRESS_TENANT_CONNECTIONS_MAX: Final = 1_024
"""Connections of all containers of one tenant: an eighth of what the proxy takes."""

EGRESS_STRANGERS_MAX: Final = 2 * EGRESS_CONNECTIONS_MAX
"""Connections from one place (a sandbox, an address) that have not shown a credential yet. Programs show it in their first bytes, and
a burst of them meets the limit of its container first, which is told to it."""

EGRESS_STRANGERS_SCARCE_MAX: Final = 32
EGRESS_STRANGERS_ALL_MAX: Final = 2_048
"""Once there are so many strangers in all, one place has as many as the line above: that is enough for whoever does not hold them."""

EGRESS_ALL_CONNECTIONS_MAX: Final = 8_192
"""Connections to one proxy, as far as the process may open as many files."""

EGRESS_HELLO_BYTES_MAX: Final = 64 * KIB
"""A TLS ClientHello; with post-quantum key shares about 2 KiB."""

EGRESS_HEADER_BYTES_MAX: Final = 128 * KIB
"""A request's line and headers, twice what common servers take."""

EGRESS_HELLO_SECONDS_MAX: Final = 30
"""A connection that has said nothing useful for this long is closed (slow clients)."""

EGRESS_RESOLVE_SECONDS_MAX: Final = 5.0
"""A name that is not resolved within this time is unresolvable."""

EGRESS_PIECE_BYTES_MAX: Final = 64 * KIB
"""What an answer's body is unpacked into at a time: the client has taken one piece before the next is made."""

EGRESS_CODINGS_MAX: Final = 3
"""Codings of one body (``Content-Encoding: gzip, br``) that are undone; servers use one."""

EGRESS_ZSTD_WINDOW_BYTES_MAX: Final = 8 * MIB
"""What an encoder may ask of a decoder over HTTP (RFC 9659, section 3)."""

EGRESS_WINDOWS_MAX: Final = 16
"""Bodies in br and zstd that the proxy unpacks at once: each keeps a window of up to 16 MiB (RFC 7932, section 9.1), and its task
has 512 MiB."""

EGRESS_WINDOWS_PER_TENANT_MAX: Final = 4
"""Of these, one tenant's: requests ask for plain bodies, and few servers pack them anyhow."""

EGRESS_DENIED_BODY_BYTES_MAX: Final = 1 * MIB
"""A refused request's body is read up to here, so that the client sees the refusal; beyond it the connection is cut."""

EGRESS_LOG_SECONDS: Final = 0.2
"""Decisions are written to the table in batches of this age."""

EGRESS_LOG_ENTRIES_PER_FLUSH_MAX: Final = 100
"""Records of one container in one batch; equal ones count as one, and what is more is counted in the last."""

EGRESS_PATH_CHARS_MAX: Final = 1_024
"""A path as the log keeps it."""

RATE_SHARE_SECONDS: Final = 1.0
"""For how long a process takes along of a key's rate. A limit may be met early by what each process takes and does not use."""

RATE_LIMITED_KEYS_MAX: Final = 10_000
"""API keys whose rate one process counts; beyond it the one seen first starts anew."""

# --- Truncation ----------------------------------------------------------------------------------------------------------

TRUNCATION_EXCESS: Final = 1.25
"""An input is refused as too long when its estimate is this many times the window: the estimate may be a quarter too high."""

# --- Compaction ----------------------------------------------------------------------------------------------------------

COMPACTION_KEPT_TOKENS: Final = 20_000
"""The user's latest messages that stay as they are beside the notes, by estimate; at most a quarter of the threshold."""

COMPACTION_WINDOW_SHARE: Final = 0.8
"""Of the model's window: the threshold of ``context_management`` entries that name none."""

COMPACTION_RECENT_SHARE: Final = 0.5
"""Of the threshold: what the latest items take at most that stay as they are. With the user's messages a quarter is left for notes."""

COMPACTION_RECENT_ITEMS_MAX: Final = 100
"""``keep_recent_items``; a round of the loop makes three items or more."""

COMPACTION_PROMPT_CHARS_MAX: Final = 16_384
"""What the notes shall hold, in words; it stands before every part of a transcript."""

COMPACTION_NOTES_TOKENS: Final = 4_000
COMPACTION_NOTES_SHARE: Final = 0.1
"""How long the notes may be, as their writer is told: so many tokens, of a small window this share."""

WORDS_PER_TOKEN: Final = 0.75
"""Of English prose: four characters a token, and five letters a word with a space between."""

COMPACTION_PART_SHARE: Final = 0.4
"""Of the window of the model that writes the notes: a part of the transcript. The notes on the parts before, the instructions and the
answer come beside it, and the estimate may be a quarter too low."""

COMPACTION_PARTS_MAX: Final = 5
"""Parts that are read one after the other while the client waits, each by a request of its own (a sixth where ends between two items
cost room). So notes are written on two windows: an input that is up to twice as long as the window is compacted, and a longer one
refused, because what nobody reads would be lost."""

COMPACT_THRESHOLD_TOKENS_MIN: Final = 1_000
"""OpenAPI: ``ContextManagementParam.compact_threshold.minimum``."""

# --- connections -----------------------------------------------------------------------------------------------------------

HEAD_BYTES_MAX: Final = 64 * KIB
"""Of a request's line and headers, which are read before its key; API Gateway and the usual proxies stop at 10 to 64 kB."""

HEAD_SECONDS_MAX: Final = 20
"""From the connection, or from the first byte of a later request, to the end of the head."""

KEEP_ALIVE_IDLE_SECONDS: Final = 75
"""A connection between two requests: as nginx, and longer than clients' pools keep one (httpx 5 s, aiohttp 15 s, AWS ALB 60 s)."""

WEBSOCKETS_PER_KEY_MAX: Final = 32
"""Open connections of one API key to one process; Codex holds one for a session."""

RUNNING_RESPONSES_MAX: Final = 100
"""Of one tenant at once in the state machine, unless MOORAGE_RUNNING_RESPONSES_MAX says otherwise: each holds a sandbox or a worker."""

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

WEBSOCKET_WAITING_MAX: Final = 256
WEBSOCKET_WAITING_BYTES_MAX: Final = 64 * MIB
"""Frames of one connection that wait for those before them; OpenAI names no bound, memory has one."""

WEBSOCKET_RECENT_MAX: Final = 64
"""Unstored responses of one connection that can be continued; at least one for each lane."""

WEBSOCKET_RECENT_BYTES_MAX: Final = 64 * MIB
"""What they may hold in memory, counted as JSON without what they share."""

assert WEBSOCKET_RECENT_MAX > WEBSOCKET_STREAM_IDS_MAX
assert REQUEST_BODY_BYTES_MAX <= WEBSOCKET_WAITING_BYTES_MAX
assert DOMAIN_SECRET_CHARS_MAX <= EGRESS_HEADER_BYTES_MAX // 2

assert 11 * EXECUTION_ROUNDS_MAX + 7 * CALLS_PER_ROUND_MAX * EXECUTION_ROUNDS_MAX < 22_000
assert TOOL_STEP_SECONDS_MAX < MODEL_STEP_SECONDS_MAX < 900
assert ITEM_INLINE_BYTES_MAX + BATCH_EVENTS_BYTES_MAX < 400 * 1000
assert INLINE_HEARTBEAT_SECONDS * 3 < INLINE_STALE_SECONDS
assert FILE_BYTES_MAX <= 10_000 * BLOB_PART_BYTES
assert CONTAINER_TOUCH_SECONDS < 60
assert SANDBOX_WAIT_SECONDS < CONTAINER_START_LEASE_SECONDS
