"""Bounds of containers: their commands, their sandboxes, what is kept of them, and how long they live."""

from typing import Final

from moorage.limits.units import KIB, MIB

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

VCPU: Final = 1024
SANDBOX_CPU_UNITS: Final = {"1g": 512, "4g": 1024, "16g": 4096, "64g": 16384}
"""Fargate pairs memory with CPU: 1 GiB takes up to 0.5 vCPU, 4 GiB 1, 16 GiB 4; 64 GiB is only to be had with 16 vCPU."""

SESSION_WAIT_MS_DEFAULT: Final = 10_000
SESSION_POLL_MS_DEFAULT: Final = 250
"""How long a call of ``exec_command`` or ``write_stdin`` waits for the end of its command, if the model says nothing: what models
were trained on."""

SESSION_WAIT_MS_MIN: Final = 250
SESSION_WAIT_MS_MAX: Final = 240_000
"""The bounds of what it may say. A call has 330 s in all, and its files have to be stored in them too."""

SESSION_OUTPUT_TOKENS_DEFAULT: Final = 10_000
SESSION_OUTPUT_TOKENS_MAX: Final = 100_000
"""Of one call's output, at four bytes a token. It stands in the item, in the log twice, and before the model from then on."""

JAVASCRIPT_MS_DEFAULT: Final = 30_000
"""One call of ``js_repl``, if the model says nothing."""

PROGRAM_RUN_MS_MAX: Final = 20_000
PROGRAM_START_MS_MAX: Final = 15_000
PROGRAM_SECONDS_MAX: Final = 60
assert PROGRAM_RUN_MS_MAX + PROGRAM_START_MS_MAX < PROGRAM_SECONDS_MAX * 1000
"""One run of a program that calls tools; it does not wait for them. A session of Node may have to start first, or end its code."""

PROGRAM_MEMORY_MB_MAX: Final = 256
"""Of the objects of a program, in a sandbox that has 1 GB."""

PROGRAM_CALLS_MAX: Final = 256
PROGRAM_ARGUMENTS_CHARS_MAX: Final = 300_000
PROGRAM_RESULT_CHARS_MAX: Final = 100_000
"""Of one program. What it has come to is one line of ``OUTPUT_CHARS_MAX``, in which JSON may write a character as two."""

PROGRAM_RECORDED_CHARS_MAX: Final = 8_000_000
"""Of the results that a program is given again when it goes on: they are sent to the sandbox with each run."""

VIEWED_IMAGE_BYTES_MAX: Final = 2_560 * KIB
"""Of a picture that a model looks at: as base64 it stands in its call's item, which may have ``MCP_OUTPUT_BYTES_MAX``."""

CODE_SECONDS_MAX: Final = 120
"""One run of the code interpreter, unless the operator says otherwise: its calls have no field for a time-out."""

FIGURES_MAX: Final = 20
FIGURES_BYTES_MAX: Final = 4 * MIB
"""Figures of one code interpreter call that stand in its outputs, all together; others are only named. A plot has 20 to 200 KB, and
stands in the log twice."""

EXEC_CONNECT_SECONDS: Final = 5
EXEC_SILENCE_SECONDS: Final = 30
"""The exec server sends a heartbeat every 5 s; six missing ones mean that the connection or the sandbox is dead."""

SANDBOX_JUST_ANSWERED_SECONDS: Final = 5
"""An exec server that has answered so lately, over a connection that is still open, is not asked whether it lives."""

SANDBOX_CONNECTIONS_KEPT_MAX: Final = 64
"""Sandboxes to which a process keeps a connection open between two commands. The exec server closes one after 75 seconds."""

SANDBOX_START_SECONDS: Final = 20
"""From the start of a local sandbox to its first answer; it takes a tenth of a second on an idle machine."""

SANDBOX_TMP_SHARE: Final = 4
SANDBOX_SHM_SHARE: Final = 8
"""``/tmp`` and ``/dev/shm`` of a local sandbox are memory of the container: a quarter and an eighth of it, so that most is left for
processes when both are full."""

DESK_MEMORY_GIB: Final = 2
"""Of a sandbox's browser, beside what its commands have. A heavy page takes 1 GiB; of a larger one the kernel ends the process."""
FARGATE_DESK_GIB: Final = {"1g": DESK_MEMORY_GIB, "4g": DESK_MEMORY_GIB, "16g": DESK_MEMORY_GIB, "64g": 8}
"""What a task of Fargate's has for it beside ``MEMORY_LIMITS``: with 16 vCPU memory goes in steps of 8 GiB."""
DESK_DISK_BYTES: Final = 384 * MIB
"""Of a browser's profile and of the files on their way through it. It is memory of the desk."""

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

LOCAL_MEMORY_GIB_MAX: Final = LOCAL_SANDBOXES_MAX
TENANT_MEMORY_GIB_MAX: Final = TENANT_SANDBOXES_MAX
"""On one machine, the memory limits of all sandboxes together and of one tenant's: 1 GiB for each that there may be. So one of 64 GiB
takes the place of 64."""

TENANT_VCPUS_MAX: Final = 64
"""On AWS, of one tenant's sandboxes together: with 0.5 vCPU each, half of them may be larger; four of 64 GiB are the most."""

TENANT_STARTS_PER_SECOND: Final = 5
"""On AWS, of one tenant: a quarter of the 20 tasks that ECS starts a second for the whole account."""

SANDBOX_STARTS_SECONDS: Final = 4
"""So many seconds' worth of its starts a tenant may begin at once."""

AUTO_IDLE_SECONDS_MIN: Final = 30
"""The least after which an operator may have idle sandboxes stopped: three times as often a use is noted."""

SANDBOX_IDLE_SECONDS_MIN: Final = 20
"""Where no other sandbox can be had, the tenant's longest idle one is stopped; but none that was in use a moment ago, and none whose
response runs."""

OUTPUT_FILES_MAX: Final = 100
"""Files that the output of one shell call names; the container's listing has them all."""

FILE_MAP_CHARS_MAX: Final = 8_192
"""What a model is told of the files of its container when a turn begins: about 2,000 tokens."""

GIVEN_PATHS_MAX: Final = 50
"""Files of a request that its model is told by name; a tool's ``file_ids`` are at most as many in OpenAI's API."""

AGENTS_MD_BYTES_MAX: Final = 32 * KIB
"""What a model is told of the ``AGENTS.md`` of its container, all folders together: what Codex CLI reads of a project's."""

TENANT_DISK_BYTES_MAX: Final = 60 * 1024 * MIB
"""What all live sandboxes of one tenant may hold on this machine's disk: three times what one may."""

DISK_RESERVE_BYTES: Final = 1024 * MIB
"""What sandboxes leave of a disk that others use too, the store among them."""

DISK_SHARE_BYTES_MIN: Final = 256 * MIB
"""A sandbox that holds no more than this is never the one that has filled the disk."""

DISK_LOOK_SECONDS: Final = 0.25
"""How often the launcher looks at the disk: a fast one takes 1 GiB in this time at most."""

DISK_GROWTH_SECONDS: Final = 60
"""Of the sandboxes that hold more than their share, the one that grew most in this time is the one that has filled the disk."""

SANDBOX_FILES_MAX: Final = 100_000
"""Files that one listing of a workspace returns; with more, the listing says that it is not complete."""

COMMAND_FILES_LISTED_MAX: Final = 200
"""Files that come with the end of a command: those of most workspaces, in a millisecond. With more they are asked for anew."""

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

ARCHIVE_BYTES_MAX: Final = 1024 * MIB
"""Of a container's files in one zip. API Gateway gives a stream 2 MB a second beyond its first 10 MB, for a quarter of an hour."""

CONTAINER_LIVES_MAX: Final = 100
"""Sandboxes of a container that have ended and are remembered, some 200 bytes each."""

VERSION_CHANGES_SHOWN: Final = 20
"""Paths that a version of a container's files names."""

CONTAINER_CHANGES_MAX: Final = 1_000
"""Changes of a container's files that can be gone back behind. One that replaces a few files takes half a KB."""

CONTAINER_PAST_BYTES_MAX: Final = 2 * 1024 * MIB
"""What the bucket keeps for that of content that is not there any more: about five cents a month on S3."""

CONTAINER_PAST_ROWS_MAX: Final = 1_500
"""Of one record, some 120 bytes each once compressed: half of what an item of the table takes."""

CONTAINER_PRUNE_ONE_IN: Final = 64
"""Of the changes: after so many the past is looked through for what is too much, and when a sandbox has stopped."""

CONTAINER_LENDERS_MAX: Final = 20
"""Copies of copies: each container between the first and this one may hold objects that this one names."""

# --- The life of a container ------------------------------------------------------------------------------------------------------

CONTAINER_TOUCH_SECONDS: Final = 10
"""``last_active_at`` is written at most this often; expiry counts in minutes."""

CONTAINER_START_LEASE_SECONDS: Final = 60
"""A starter that gives no sign of life for this long has died, and another may start the same sandbox."""

SWEEP_AT_ONCE: Final = 16
"""Of what is due in a minute, what the reaper looks into side by side: a sandbox takes it about two seconds, so some 500 a minute, and
each has a connection of its own."""

SWEEP_CLAIM_SECONDS: Final = 300
"""So long a sandbox is looked into by one sweep alone: the function that does it lives no longer (``infra/stacks.py``), and another one
begins each minute."""

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

SANDBOX_SILENT_SECONDS_MAX: Final = 600
"""A sandbox that nobody uses, and that does not say whether something runs in it, or does not give its files, is asked again for so
long: on a busy machine that passes. Then it is ended, and what was not stored by then is lost."""

SANDBOX_REPLACED_SECONDS: Final = 1_800
"""A sandbox that its owner ends at a set time, such as a MicroVM after eight hours, is replaced by its next use this long before, if
nothing runs in it ..."""

SANDBOX_STORED_SECONDS: Final = 600
"""... its files are stored every minute from then on, if something runs in it ..."""

SANDBOX_LAST_SECONDS: Final = 120
"""... and this long before the end its commands end, for what they have printed and written to be kept."""

ORPHAN_SECONDS_MIN: Final = 300
"""A sandbox is stopped when nobody has owned it for this long: longer than a start and every step of a deletion take."""

MICROVM_VERSIONS_KEPT: Final = 3
"""The newest versions of a MicroVM image stay. Older ones go before the image has 50, its quota."""

MICROVM_VERSION_SECONDS_MIN: Final = 86_400
"""A version stays for so long after a newer one was made: functions that name it, and executions of theirs, may still start it."""

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

# --- Terminals that people sit at -------------------------------------------------------------------------------------

SESSIONS_OPEN_MAX: Final = 16
"""Of one container; its exec server opens no more either."""

SESSION_SIDE_MAX: Final = 1_000
"""Rows, and columns: a screen of 8K with small letters has 600 by 200."""

SESSION_INPUT_CHARS_MAX: Final = 64 * KIB
"""Of one request: a page that somebody pastes."""

SESSION_INPUT_ID_CHARS_MAX: Final = 64

SESSION_READ_MS_MAX: Final = 20_000
"""How long a reader waits for output: API Gateway gives an answer in one piece 29 s, and a sandbox may have to be looked for first."""

SESSION_SECONDS_MAX: Final = 4 * 3600
"""The exec server ends a session then, as it does a model's."""

SESSION_RECORD_SECONDS: Final = SESSION_SECONDS_MAX + 3600
"""When the table drops the record of one that nobody has closed."""

SESSION_STORE_SECONDS: Final = 8
"""For storing the files when a session ends, in the request that has seen it end; what takes longer is stored by the next command, or
when the container has nothing to do."""

SESSION_CLOSE_MS_MAX: Final = 5_000
"""For what is killed to be gone."""
