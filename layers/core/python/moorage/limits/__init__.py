"""Every bound in one place, with its reason.

A loop, buffer, retry or wait elsewhere takes its bound from here. Containers, the way out, connections, webhooks, knowledge
and tools have modules of their own, whose names are names of this one too. The asserts at the end hold the relations between them.
"""

from typing import Final

from moorage.limits.agents import *
from moorage.limits.approvals import *
from moorage.limits.computer import *
from moorage.limits.connections import *
from moorage.limits.containers import *
from moorage.limits.egress import *
from moorage.limits.identity import *
from moorage.limits.knowledge import *
from moorage.limits.storage import *
from moorage.limits.teams import *
from moorage.limits.tools import *
from moorage.limits.units import *
from moorage.limits.vector_stores import *
from moorage.limits.webhooks import *

# --- Requests -----------------------------------------------------------------------------------------------------------

REQUEST_BODY_BYTES_MAX: Final = 32 * MIB
"""A JSON body. API Gateway stops at 10 MB by itself; locally, inline images of up to 20 MB (``input_image.image_url``) must pass."""

GZIP_MEMBERS_MAX: Final = 1_024
"""Of a body. A client packs it as one; an empty one takes 20 bytes, and each copies what is left of its packet."""

TEXT_CHARS_MAX: Final = 10_485_760
"""``input`` and every text or tool output in it. OpenAPI: ``InputTextContentParam.text.maxLength``."""

INPUT_ITEMS_MAX: Final = 10_000
"""Items of one request; beyond it a conversation or ``previous_response_id`` is the right tool."""

TOOLS_MAX: Final = 1_024
TOOLS_QUERY_CHARS_MAX: Final = 2_000
"""Of the words that a search for tools looks for: a few say what a tool should do."""

TOOLS_FOUND_MAX: Final = 20
TOOLS_FOUND_BYTES_MAX: Final = MIB
"""Of one search: more than a few tools are no find, and each stands before the model from then on."""

LOWERED_HERE_MAX: Final = 4_000
"""Values in the items and tools that are counted and rewritten for a model on the event loop, in some 10 ms; more on a thread."""

STEPS_TOLD_HERE_MAX: Final = 500
"""Steps and calls of a response that are told on the event loop, in some 10 ms; more on a thread."""

WORKED_HERE_BYTES_MAX: Final = 64 * KIB
"""Bytes of a body, or of a model's event, that are parsed on the event loop, in some 5 ms; more of them on a thread."""

WORKED_ALONE_BYTES_MIN: Final = 4 * MIB
"""From here on one such work is done at a time. A call into C holds the interpreter, some 3 ms for each MiB; several threads that wait
for it side by side leave the event loop the last place in the queue."""

WORK_THREADS: Final = 4
TENANT_WORK_THREADS_MAX: Final = 2
"""Threads of one process for work of the processor, and how many of them one tenant has at most."""

TENANT_INPUT_BYTES_MAX: Final = 32 * MIB
"""Bodies of one tenant that are in work at once in one process, from their parsing until a model is asked or the answer begins. What is
made of a body holds up to ten times its length."""

TENANT_INPUT_BYTES_HELD_MAX: Final = 256 * MIB
"""The same with those that come, those that wait, and long answers that clients have not read; more are refused with 429."""

TENANT_INPUT_BYTES_PER_SECOND: Final = 200 * MIB
"""As fast as large bodies of one tenant come where there are several at once: a fifth of what the event loop can read."""

LOOP_PIECE_SECONDS: Final = 0.01
"""After so much work in one piece a stream lets the others of its event loop in."""

SHARED_TEXTS_CHARS_MAX: Final = 8 * MIB
"""Characters by which a model's input grows because the description of a namespace, or of a server, is told with each of its functions.
A thousand functions with 8,000 characters each; a longer description is told with the first of them."""

TOOLS_DEFERRED_CHARS_MAX: Final = 8_000
"""What a model is told of the tools that it may look for: names and descriptions, about 2,000 tokens."""

METADATA_PAIRS_MAX: Final = 16
METADATA_KEY_CHARS_MAX: Final = 64
METADATA_VALUE_CHARS_MAX: Final = 512
OUTPUT_TOKENS_MIN: Final = 16
CALL_ID_CHARS_MAX: Final = 64
CHAIN_RESPONSES_MAX: Final = 1_000
"""Links of a ``previous_response_id`` chain. Their ids stand on the record (24 bytes each), and all are read at once."""

CHAIN_PARTS_KEPT_BYTES_MAX: Final = 8 * MIB
CHAIN_PARTS_KEPT_SECONDS: Final = 300
"""Of the parsed responses of chains that a process keeps: about 8,000 short ones, until nobody has asked for so long."""

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

CLOCK_SKEW_SECONDS_MAX: Final = 5
"""Between two machines of one deployment; what differs by more is a clock that was set."""
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
SANDBOX_POLL_GROWTH: Final = 1.25
"""Its first look again, and how much longer each pause after it is, up to what the container asks for: what is lost after a start that
took long is a fifth of it, where pauses twice as long would lose as much again. A start of a second takes twelve looks."""

SANDBOX_CAPACITY_RETRY_SECONDS: Final = 5.0

CANCELLED_START_SECONDS: Final = 5
"""How long a cancelled start of a sandbox is waited for, so that its id is known."""

SANDBOX_REFUSAL_SECONDS: Final = 20
"""For this long a tool step repeats why no sandbox could be had; after that it is tried again."""

CANCEL_POLL_SECONDS: Final = 1.0

CONTAINER_FILES_POLL_SECONDS: Final = 2.0
"""A call that runs looks so often for files that came into its container through the API. A look costs a read unit."""

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

TABLE_IDLE_SECONDS: Final = 60
"""A connection that has rested longer is not used again. A frozen function does not hear of its end, and a NAT or a load balancer drops
one that rests (after 350 s in AWS) without a word: the next request would wait for its whole read time-out."""

INLINE_RECORD_SECONDS: Final = 0.05
"""A foreground response's record is written after this time; one that has ended by then is written with its events, by one request."""

INLINE_STALE_SECONDS: Final = 60
"""A foreground response whose API process has given no sign of life for this long has lost it."""

INLINE_HEARTBEAT_SECONDS: Final = 15

TAIL_POLL_SECONDS_MIN: Final = 0.02
TAIL_POLL_SECONDS_MAX: Final = 0.5
KEEP_ALIVE_SECONDS: Final = 15
"""SSE comments while nothing else is sent. API Gateway cuts a regional stream at 5 minutes of silence."""

JSON_SILENCE_SECONDS: Final = 25
"""A non-streaming create that takes longer begins its body with white space, unless the operator says otherwise. nginx and load
balancers hang up after 60 seconds, some proxies after 30."""

ERASE_WAIT_SECONDS: Final = 30
"""How long an erasure waits for the last writer; the reaper erases what is left."""

BUDGET_USD_MIN: Final = 0.000_001
"""The smallest budget in dollars; prices are per million tokens."""

BUDGET_HOLD_SECONDS: Final = 900
"""How long a step may hold a part of a shared budget that somebody else is refused for: no model step takes longer (Lambda), and what a
process held that died is free again then."""

BUDGET_HELD_OUTPUT_TOKENS: Final = 1_000
"""What a first step is taken to answer at most, where its request does not say less; later ones hold what the ones before took on
average."""

KNOWN_RESPONSES_MAX: Final = 8
"""Running responses whose finished items a step worker keeps in memory between steps."""

RETENTION_SECONDS: Final = 30 * 24 * 3600
"""Responses and their events. OpenAI keeps responses for 30 days."""

# --- Model upstreams ---------------------------------------------------------------------------------------------------------

SECRET_SECONDS_MAX: Final = 300
"""How long a key that was read from the Parameter Store is used before it is read again: so soon one that was rotated is known."""

SECRET_SECONDS_MIN: Final = 10
"""One that is refused is read again at once, but not for each of many refusals: the Parameter Store gives 40 a second."""

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

CONTAINER_FILE_IDS_MAX: Final = 50
FILE_BYTES_MAX: Final = 512 * MIB
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
DOWNLOAD_PART_BYTES_MAX: Final = 4 * MIB
"""A range up to here is answered and not redirected: in base64 it fits into the 6 MB that a function may answer (Lambda quotas)."""
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

CONVERSATION_REWINDS_MAX: Final = 200
"""Parts of a conversation that were taken out of it; each takes a few bytes of its record, which every append reads."""

INPUT_FILE_BYTES_MAX: Final = 50 * MIB
"""All of ``input_file`` and ``input_image``, given by id, data or URL, that one request to a model shows it: OpenAI takes 50 MB in all
of a request too, and a function's memory has room for so much. ``file_data``: 73,400,320 base64 characters (OpenAPI) are 52.5 MiB."""

INPUT_INLINE_BYTES_MAX: Final = 1 * MIB
"""A longer file is only named to a model that has it in its container: it reads there what it needs."""

FETCH_SECONDS_MAX: Final = 60
FETCH_CONNECT_SECONDS: Final = 10
"""For one address; the next one is tried then."""
FETCH_REDIRECTS_MAX: Final = 5

# --- The stack on one machine ---------------------------------------------------------------------------------------------------

CHILD_POLL_SECONDS: Final = 0.1
CHILD_PAUSE_SECONDS: Final = 0.5
CHILD_YOUTH_SECONDS: Final = 2
CHILD_DEATHS_MAX: Final = 5
"""A child that dies more often in a row, each time so soon after it was ready, will not live: the stack ends and says so. Counting
deaths within a fixed time would take a slow machine's crash loop for none, and a bad day for one."""
CHILD_LOOK_SECONDS: Final = 1
CHILD_ANSWER_SECONDS: Final = 5
CHILD_STOPPED_SECONDS_MAX: Final = 5
"""A child that somebody has stopped (SIGSTOP) is replaced then."""
CHILD_SILENCE_SECONDS_MAX: Final = 60
"""A child that runs and does not answer may only be slow: a machine with too little memory takes its time."""
CHILD_LAST_START_SECONDS_MAX: Final = 5

EXECUTION_WORKERS: Final = 2
"""Processes that play the loop on one machine, so that a death leaves one at work. Each plays many executions side by side."""
EXECUTIONS_PLAYED_MAX: Final = 2_000
"""Of one worker at once, waiting ones included; the others wait for their turn."""
EXECUTION_STEPS_MAX: Final = 256
"""Steps that run at once, over all workers: most wait for a model or a command, and hold some hundred KiB meanwhile."""
TENANT_PLACES_KEPT_FROM: Final = 8
"""Of so many places, of executions or of steps, one tenant leaves one to the others."""
EXECUTION_LOOK_SECONDS: Final = 0.5
"""A worker that was not woken looks for executions this often."""
EXECUTION_DEATHS_MAX: Final = 10
"""Workers that may die in one state of an execution. After that its task counts as one that cannot be run."""
EXECUTION_PAUSE_SECONDS_MAX: Final = 16
"""The pause before an execution goes on doubles with each death after the first: if it kills its workers, others get on meanwhile."""
EXECUTIONS_KEPT_MAX: Final = 1_000
"""Of those that have ended."""

LOOP_SILENCE_TOLD_SECONDS: Final = 5
"""After so long without a turn the log names what the API's event loop does: clients begin to give up."""
LOOP_SILENCE_REMEMBERED_SECONDS: Final = 300
STOP_LOOP_SECONDS_MAX: Final = 10
"""How long a loop that does not turn is waited for when the stack is told to end."""
STACK_SILENCE_SECONDS_MAX: Final = 60
"""A stack whose event loop does not turn for so long ends, as a child of it would; as a service it is started again."""
STACK_START_SECONDS_MAX: Final = 1800
"""systemd waits so long for the first start: it fetches what sandboxes and the egress proxy run with (1 GB on a slow line)."""
STOP_REQUESTS_SECONDS_MAX: Final = 5
STOP_TASKS_SECONDS_MAX: Final = 5
"""How long a stop waits for a start that is under way, for requests, and for what goes on behind them. With the children's own time
(``local/children.py``) a stop takes 40 seconds at most, whatever hangs."""

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
FILE_URL_CHARS_MAX: Final = 8_192
INPUT_FILE_NAME_CHARS_MAX: Final = 1_024
PATCH_PATH_CHARS_MAX: Final = 4_096
"""A path that ``apply_patch`` names (Linux ``PATH_MAX``)."""
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
PAGE_BYTES_MAX: Final = 8 * MIB
"""Of one page of a list whose entries may be as large as a body: beyond them it has fewer entries than it was asked for, and one at
least. A process that made a hundred such entries into one answer would have no memory for others."""

EVENTS_PAGE_MAX: Final = 1_000
"""Events of one page of a log: a few hundred kilobytes, where none is large."""
EVENTS_READ_BATCHES: Final = 64
"""Batches of a log that are read together. One holds about 4 KB before compression, so a query of them stays below DynamoDB's 1 MB."""
EVENTS_FOLD_BATCHES: Final = 256
"""Batches of a long log that are read and added up before others have their turn: some 10,000 events, 0.1 s."""
EVENTS_PAGE_BATCHES_MAX: Final = 1_024
"""Batches that one page of a log looks at: a filter for a rare type must not read a log of days in one request."""

LIST_READ_ENTRIES: Final = 2_000
"""Entries of the list of responses that are read together where a filter leaves many out."""
LIST_ENTRIES_MAX: Final = 10_000
"""Entries of that list that one page looks at, about 3 MB of the index; a page that finds nothing there says where to go on."""
LIST_FIRST_ENTRIES: Final = 500
"""Of which a filter reads at first; where there are more, it asks where to look."""
LIST_STRETCH_GAP_ROWS: Final = 20
"""Entries between two that are wanted, which are read with them rather than by two queries."""
LIST_STRETCH_ROWS_MAX: Final = 400
"""Of a part of the list that is read by one query among others."""
LIST_DAYS_TOGETHER: Final = 31
"""Of which a filter asks at once where to look."""
LIST_READ_RESPONSES_MAX: Final = 500
"""Responses that one page reads whole, for a filter by what only they say."""
LIST_FOREGROUND_SECONDS: Final = 3600
"""How old a response in the foreground may be to be looked for among those that run."""
TREE_DEPTH_MAX: Final = 100
"""More levels than a path of 4,096 bytes is likely to have; a request for more is a mistake."""
USAGE_READ_ENTRIES: Final = 2_000
"""Entries of the list of responses that are added up by one query; about 600 KB of the index, of the 1 MB that a query gives."""
USAGE_DAY_READS_MAX: Final = 100
"""Queries that adding up one day takes at most: 200,000 responses."""
USAGE_KEPT_ROWS_MIN: Final = 100
"""Of an hour or a day whose sums are kept: fewer are read as quickly as the sums."""
USAGE_OPEN_SECONDS: Final = 120
"""How long after its end an hour may get a response that nothing shows to run: one in the foreground is listed after 15 seconds."""
USAGE_SETTLED_SECONDS: Final = 60
"""Between two looks at it, of which the second is kept: the index follows the table within seconds."""
USAGE_KEPT_BYTES_MAX: Final = 256 * KIB
"""Sums of one hour or day, packed: several thousand models and keys. A record has 400 KB."""
USAGE_DAYS_MAX: Final = 100
USAGE_DAYS_DEFAULT: Final = 30
CONSOLE_CODE_SECONDS: Final = 120
"""Of a code in an address: until the browser has come up."""
CONSOLE_SECONDS: Final = 12 * 3600
"""Of a console's own key: a day's work."""
CONSOLE_READ_SECONDS: Final = 15 * 60
"""Of one that only reads, which is for showing somebody something."""
LISTED_PREVIEW_CHARS: Final = 160
"""First words of a request, and of its answer, in a list."""
LISTED_PREVIEW_READ_CHARS: Final = 8 * LISTED_PREVIEW_CHARS
"""Read for them, white space included: a text may have a megabyte."""
LISTED_MODEL_CHARS_MAX: Final = 200
"""Of a model's name in the key of a list's entry, which takes 1,024 bytes in all (DynamoDB's limit for sort keys)."""
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

ANSWER_CHECKED_CHARS_MAX: Final = 2_000_000
"""Of an answer that is compared with its schema. Parsing holds the interpreter, about 10 ms for this."""
ANSWER_CHECKED_HERE_CHARS_MAX: Final = 16_384
ANSWER_STEPS_HERE_MAX: Final = 4_000
"""Comparisons on the event loop, about 5 ms; what needs more has a thread."""
ANSWER_STEPS_MAX: Final = 300_000
ANSWER_DEPTH_MAX: Final = 128
"""Of schemas within each other, references counted."""
ANSWER_SCHEMA_CHARS_TOLD_MAX: Final = 16_384
"""Of a schema that its model is reminded of: servers that pass over it may never have shown it."""

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

assert WEBSOCKET_RECENT_MAX > WEBSOCKET_STREAM_IDS_MAX
assert WEBSOCKET_SECONDS_MAX < WEBSOCKET_GATEWAY_SECONDS_MAX
assert WEBSOCKET_SIGN_SECONDS * 3 < WEBSOCKET_HOLD_SECONDS < 60
assert REQUEST_BODY_BYTES_MAX <= WEBSOCKET_WAITING_BYTES_MAX
assert DOMAIN_SECRET_CHARS_MAX <= EGRESS_HEADER_BYTES_MAX // 2

assert 11 * EXECUTION_ROUNDS_MAX + 7 * CALLS_PER_ROUND_MAX * EXECUTION_ROUNDS_MAX < 22_000
assert TOOL_STEP_SECONDS_MAX < MODEL_STEP_SECONDS_MAX < 900
assert ITEM_INLINE_BYTES_MAX + BATCH_EVENTS_BYTES_MAX < 400 * 1000
assert IMAGE_CALL_SECONDS_MAX < TOOL_STEP_SECONDS_MAX
assert INLINE_HEARTBEAT_SECONDS * 3 < INLINE_STALE_SECONDS
assert FILE_BYTES_MAX <= 10_000 * BLOB_PART_BYTES
assert CONTAINER_TOUCH_SECONDS < 60
assert SANDBOX_WAIT_SECONDS < CONTAINER_START_LEASE_SECONDS
