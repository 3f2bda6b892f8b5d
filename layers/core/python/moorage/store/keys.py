"""The table's keys: the only place that knows how records are named.

One table, ``PK`` and ``SK`` strings, TTL in ``ttl`` (Unix seconds), and one index ``GSI1`` (``GSI1PK``, ``GSI1SK``; keys only).
The tenant stands in every key, so that a foreign id cannot be looked up at all.

Access patterns, and the one request each costs:

========================================== ==================================================== ===========================
what                                       key                                                  request
========================================== ==================================================== ===========================
a response with its final batch            ``PK=T#t#R#id``, ``SK`` backwards, 2 items           Query (``META``, last ``EV#``)
a chain of n responses                     ``META`` and final ``EV#`` of each ancestor          n / 50 BatchGets at once
events after number n                      ``SK`` backwards from ``EV#n``, then forwards        Query + Query
start or end a step or a tool call         ``SK=AT#<step>`` or ``AT#<step>#<call>``             UpdateItem
a running response's rounds and items      ``SK`` begins with ``AT#``, from a step on           Query
what a tool call needs                     ``META``, ``AT#<step>``, ``META`` of the container   BatchGet
responses that the loop still owes an end  ``GSI1PK=INFLIGHT``, a tenant's from ``T#t#`` on     Query on GSI1
a tenant's responses, newest first         ``GSI1PK=T#t#L#responses``, ``<created>#<id>#<row>`` Query on GSI1 + BatchGet
a response's approvals                     ``SK`` begins with ``AP#``                           Query
a decision                                 ``SK=AP#<id>``, ``META`` counts it                   TransactWriteItems
approvals that a tenant is to decide       ``GSI1PK=T#t#L#approvals``, ``<created>#<id>``       Query on GSI1 + BatchGet
a file, container, conversation, upload    ``PK=T#t#<K>#id``, ``SK=META``                       GetItem
a tenant's files, containers ...           ``GSI1PK=T#t#L#<kind>``, ``GSI1SK=<created>#<id>``   Query on GSI1 + BatchGet
a container's files                        ``PK=T#t#C#id``, ``SK`` begins with ``FILE#``        Query
a container's skills                       ``PK=T#t#C#id``, ``SK`` begins with ``SKILL#``       Query
how a container's files were at a time     ``FILE#`` rows, and ``PAST#`` rows after that time   Query + Query
the sandboxes that a container has had     ``PK=T#t#C#id``, ``SK`` begins with ``SANDBOX#``     Query
containers due to expire                   ``GSI1PK=ALIVE``, ``GSI1SK`` up to now               Query on GSI1 + BatchGet
a tenant's sandboxes: a sum, and entries   ``PK=T#t#SANDBOXES``, ``SK=TOTAL``, ``<id>#<n>``     TransactWriteItems, Query
the warm pool's slots and claims           ``PK=POOL``, ``SK`` from ``CLAIM#`` or ``SLOT#`` on  Query
claim a sandbox of the warm pool           ``SLOT#…``, ``CLAIM#<id>``, ``WARM#<hash>``          TransactWriteItems
sandboxes without an owner                 ``PK=ORPHANS``, ``SK`` the sandbox's id              Query
MicroVMs without an owner                  ``PK=ORPHANS#MICROVMS``, ``SK`` the machine's id     Query
files, uploads, inputs due to end          ``GSI1PK=DUE#<kind>``, ``GSI1SK`` up to now          Query on GSI1 + BatchGet
a skill's versions                         ``PK=T#t#S#id``, ``SK`` begins with ``VER#``         Query
add a version of a skill                   ``SK=VER#n``, ``META`` counts, the bundle's ``META`` TransactWriteItems
an agent, and its versions                 ``PK=T#t#A#id``, ``SK=META``, ``VER#n``              GetItem + GetItem
a vault's credentials                      ``PK=T#t#VAULT#id``, ``SK`` begins with ``CRED#``    GetItem + Query
put a credential into a vault              ``SK=CRED#id``, ``META`` counts                      TransactWriteItems
an agent's session, its last turn          ``PK=T#t#AS#id``, ``SK=META``, ``TURN#`` backward      GetItem + Query
a session's artifacts                      ``PK=T#t#AS#id``, ``SK`` begins with ``ARTIFACT#``   Query
input that waits for a turn's next step    ``PK=T#t#AS#id``, ``SK`` begins with ``INPUT#``      Query
sessions of imports that have not ended    ``GSI1PK=DUE#agent-sessions``, ``GSI1SK`` up to now  Query on GSI1 + BatchGet
an automation                              ``PK=T#t#AM#id``, ``SK=META``                        GetItem
make an automation, or delete it            ``SK=META``, ``DUE``; ``PK=T#t#AUTOMATIONS``    TransactWriteItems
automations, and invocations, that are due ``GSI1PK=DUE#automations``, ``DUE#invocations``      Query on GSI1 + BatchGet
invoke an automation                       ``SK=INV#id``, ``META``, ``DUE``                     TransactWriteItems
an automation's invocations                ``PK=T#t#AM#id``, ``SK`` begins with ``INV#``        Query
a conversation's items                     ``PK=T#t#V#id``, ``SK`` begins with ``BATCH#``       Query
append to a conversation                   ``SK=BATCH#n``, ``META`` counts n, ``SOURCE#resp``   TransactWriteItems
what an input item's URL gave              ``PK=T#t#I#id``, ``SK=URL#<hash>``                   GetItem
a shared budget                            ``PK=T#t#BUDGETS``, ``SK=<kind>:<id>``              GetItem, UpdateItem
what a tenant stores: a sum, and entries   ``PK=T#t#STORED``, ``SK=TOTAL``, ``<kind>#<id>``     GetItem, TransactWriteItems
an API key                                 ``PK=K#<sha256>``, ``SK=META``                       GetItem
a used code of the console                 ``PK=CODE#<sha256>``, ``SK=META``                    PutItem
a connection that API Gateway holds        ``PK=WS#<id>``, ``SK=META``                        GetItem, UpdateItem
frames that wait for its worker            ``PK=WS#<id>``, ``SK`` begins with ``FRAME#``        Query
a key's connections at API Gateway         ``PK=WS#K#<sha256>``                                 Query
who has an idempotency key                 ``PK=T#t#Q#<sha256>``, ``SK=META``                   GetItem
responses that lost their client           ``PK=T#t#Q#<sha256>``, ``SK`` from ``LEFT#`` on      Query
what is left of an API key's rate          ``PK=RATE#<sha256>``, ``SK=META``                    UpdateItem
a proxy credential's container             ``PK=P#<sha256>``, ``SK=META``                       GetItem
a container's policy and secrets           ``PK=T#t#C#id``, ``SK`` from ``EGRESS#POLICY`` on    Query
a container's egress decisions             ``PK=T#t#C#id``, ``SK`` begins with ``EGRESS#LOG#``  Query
whose an upstream's container is           ``PK=T#t#C#id``, ``SK=UPSTREAM``                     GetItem
what a container's sandboxes begin with    ``PK=T#t#C#id``, ``SK=SETUP``                        GetItem
a template of environments                 ``PK=T#t#ET#id``, ``SK=META``                       GetItem
a container's sessions                     ``PK=T#t#C#id``, ``SK`` begins with ``SESSION#``     Query, GetItem
kept sums of a tenant's usage              ``PK=T#t#USAGE``, ``SK=<seconds>#<start>``            BatchGetItem
where in its list what stands              ``PK=T#t#USAGE``, ``SK=LIST#<seconds>#<start>``       BatchGetItem
tenants whose sums are to be kept          ``GSI1PK=DUE#usage``, ``GSI1SK`` up to now           Query on GSI1
a tenant's webhook endpoints               ``PK=T#t#W``                                         Query
the deliveries of a webhook endpoint       ``PK=T#t#W#id``, ``SK`` begins with ``EVENT#``       Query
deliveries of webhooks that are due        ``GSI1PK=DUE#webhooks``, ``GSI1SK`` up to now        Query on GSI1 + BatchGet
a vector store                             ``PK=T#t#X#id``, ``SK=META``                         GetItem
a vector store's file, a batch of them     ``PK=T#t#X#id``, ``SK=FILE#f``, ``SK=BATCH#b``       GetItem
files that a vector store has to read      ``PK=T#t#X#id``, ``SK`` begins with ``TODO#``        Query
vector stores whose files are being read   ``GSI1PK=INDEXING``                                  Query on GSI1 + BatchGet
the vector stores that a file is in        ``PK=T#t#F#id``, ``SK`` begins with ``HELD#``        Query
========================================== ==================================================== ===========================

``AP`` < ``AT`` < ``EV`` < ``META``: a backward query of a response starts with its record and its last batch.
"""

from typing import Final

from moorage import limits

META: Final = "META"
EVENT_PREFIX: Final = "EV#"
ATTEMPT_PREFIX: Final = "AT#"
LANE_ATTEMPT_PREFIX: Final = "AL#"
LANE_PREFIX: Final = "AG#"
APPROVAL_PREFIX: Final = "AP#"
FILE_PREFIX: Final = "FILE#"
SESSION_PREFIX: Final = "SESSION#"
TURN_PREFIX: Final = "TURN#"
INPUT_PREFIX: Final = "INPUT#"
ARTIFACT_PREFIX: Final = "ARTIFACT#"
INFLIGHT: Final = "INFLIGHT"
ALIVE: Final = "ALIVE"
SANDBOXES_TOTAL: Final = "TOTAL"
"""Sort key of a tenant's sum; ids of containers begin with small letters, so that the entries come after it."""
KEYS: Final = "KEYS"
API_KEY_PREFIX: Final = "K#"
SETUP: Final = "SETUP"
"""Sort key of the variables and commands that a container's sandboxes begin with."""
UPSTREAM: Final = "UPSTREAM"
"""Sort key of the note that a container lives at a model's upstream."""


def response(tenant_id: str, response_id: str) -> str:
    return f"T#{tenant_id}#R#{response_id}"


def is_response(pk: str) -> bool:
    """Whether a partition is a response's."""
    parts = pk.split("#")
    return len(parts) == 4 and (parts[0], parts[2]) == ("T", "R")


def response_of(pk: str) -> tuple[str, str]:
    """Tenant and id back from :func:`response`."""
    _, tenant_id, _, response_id = pk.split("#")
    return tenant_id, response_id


def event(sequence_number: int) -> str:
    """Sort key of the batch that begins with this number."""
    return f"{EVENT_PREFIX}{sequence_number:012d}"


def lane_of(step: int) -> int:
    """The lane of a step, by its number: a lane's steps begin at its own number times a million. ``/root`` is lane 0."""
    return max(0, step) // limits.LANE_STEPS


def attempts_of(lane: int) -> str:
    """The prefix of the sort keys of a lane's steps."""
    return f"{LANE_ATTEMPT_PREFIX}{lane:06d}#" if lane else ATTEMPT_PREFIX


def attempt(step: int, call_id: str | None = None) -> str:
    """Sort key of the record of one step, or of one tool call of it: its runs and its result."""
    named = f"{attempts_of(lane_of(step))}{step % limits.LANE_STEPS:06d}"
    return named if call_id is None else f"{named}#{call_id}"


def attempts_below(step: int) -> str | None:
    """The sort key before the records of a step, its calls, and the steps after it; None for all."""
    return f"{attempt(step - 1)}#\uffff" if step % limits.LANE_STEPS else None


def step_of(sk: str) -> tuple[int, str | None]:
    """Step and call id back from :func:`attempt`."""
    lane = 0
    if sk.startswith(LANE_ATTEMPT_PREFIX):
        named, _, sk = sk.removeprefix(LANE_ATTEMPT_PREFIX).partition("#")
        lane = int(named)
    step, _, call_id = sk.removeprefix(ATTEMPT_PREFIX).partition("#")
    return lane * limits.LANE_STEPS + int(step), call_id or None


def approval(approval_id: str) -> str:
    """Sort key, in a response's partition, of a call that needs a person's word."""
    return f"{APPROVAL_PREFIX}{approval_id}"


def lane(number: int, prefix: str = LANE_PREFIX) -> str:
    """Sort key, in a response's partition, of an agent, its first items (``AB#``), messages (``AM#``) or outputs (``AO#``)."""
    return f"{prefix}{number:06d}"


CONTAINERS: Final = "T#*#C#*"
"""All containers' partitions, as IAM writes a pattern."""


def container(tenant_id: str, container_id: str) -> str:
    return f"T#{tenant_id}#C#{container_id}"


def container_session(session_id: str) -> str:
    """Sort key, in a container's partition, of a terminal that people sit at."""
    return f"{SESSION_PREFIX}{session_id}"


def container_file(file_id: str) -> str:
    return f"{FILE_PREFIX}{file_id}"


def file(tenant_id: str, file_id: str) -> str:
    return f"T#{tenant_id}#F#{file_id}"


def upload(tenant_id: str, upload_id: str) -> str:
    return f"T#{tenant_id}#U#{upload_id}"


def agent(tenant_id: str, agent_id: str) -> str:
    return f"T#{tenant_id}#A#{agent_id}"


def environment_template(tenant_id: str, template_id: str) -> str:
    return f"T#{tenant_id}#ET#{template_id}"


def agent_version(version: int) -> str:
    """Sort key of one version of an agent."""
    return f"{VERSION_PREFIX}{version:08d}"


CREDENTIAL_PREFIX: Final = "CRED#"


def vault(tenant_id: str, vault_id: str) -> str:
    return f"T#{tenant_id}#VAULT#{vault_id}"


def credential(credential_id: str) -> str:
    """Sort key of a credential in a vault; the id begins with its time."""
    return f"{CREDENTIAL_PREFIX}{credential_id}"


def agent_session(tenant_id: str, session_id: str) -> str:
    return f"T#{tenant_id}#AS#{session_id}"


def artifact(artifact_id: str) -> str:
    """Sort key of an artifact; the id begins with its turn."""
    return f"{ARTIFACT_PREFIX}{artifact_id}"


INVOCATION_PREFIX: Final = "INV#"
DUE: Final = "DUE"
"""Sort key of the note of when an automation is due."""


def automation(tenant_id: str, automation_id: str) -> str:
    return f"T#{tenant_id}#AM#{automation_id}"


def automations(tenant_id: str) -> str:
    """The place of a tenant's counts, under :data:`TOTAL`."""
    return f"T#{tenant_id}#AUTOMATIONS"


def automations_made(session_id: str, day: int) -> str:
    """Sort key of how many an agent has made in a session on a day (days since 1970)."""
    return f"MADE#{session_id}#{day}"


def automation_of(pk: str) -> tuple[str, str]:
    """Tenant and id back from :func:`automation`."""
    _, tenant_id, _, automation_id = pk.split("#")
    return tenant_id, automation_id


def invocation(invocation_id: str) -> str:
    """Sort key of an automation's invocation; the id begins with its time."""
    return f"{INVOCATION_PREFIX}{invocation_id}"


def turn(number: int) -> str:
    """Sort key of a session's turn, from 1."""
    return f"{TURN_PREFIX}{number:08d}"


def conversation(tenant_id: str, conversation_id: str) -> str:
    return f"T#{tenant_id}#V#{conversation_id}"


def repeat(tenant_id: str, digest: str) -> str:
    """Of an idempotency key, or of a request that may be tried again."""
    return f"T#{tenant_id}#Q#{digest}"


def api_key(key_sha256: str) -> str:
    """Partition of a key's record and of nothing else: no function of a deployment may write there."""
    return f"{API_KEY_PREFIX}{key_sha256}"


def console_code(key_sha256: str) -> str:
    """Partition of the note that a code of the console was used: the code itself is the operator's, and may not be touched."""
    return f"CODE#{key_sha256}"


def budgets(tenant_id: str) -> str:
    """Partition of the limits of a tenant's keys, of its responses with their forks, and of the tenant itself."""
    return f"T#{tenant_id}#BUDGETS"


def rate(key_sha256: str) -> str:
    """Partition of the rest of a key's rate."""
    return f"RATE#{key_sha256}"


def listing(tenant_id: str, kind: str) -> str:
    """``GSI1PK`` of one tenant's resources of a kind: ``files``, ``containers``, ``conversations``, ``keys``, ``approvals``."""
    return f"T#{tenant_id}#L#{kind}"


def listed(created_at: int, resource_id: str) -> str:
    """``GSI1SK``: oldest first, ties by id, in order within a second (``ids.py``)."""
    return f"{created_at:012d}#{resource_id}"


def inflight(tenant_id: str) -> str:
    """How ``GSI1SK`` begins on the loop's list: a create reads its tenant's part alone, the reaper the whole."""
    return f"T#{tenant_id}#"


def usage(tenant_id: str) -> str:
    """The partition of a tenant's kept sums of usage."""
    return f"T#{tenant_id}#USAGE"


def usage_span(start: int, seconds: int) -> str:
    """Sort key of an hour's or a day's."""
    return f"{seconds:06d}#{start:012d}"


def usage_digest(start: int, seconds: int) -> str:
    """Sort key of a digest of an hour or a day of the list (``store/list_digest.py``)."""
    return f"LIST#{usage_span(start, seconds)}"


USAGE_FOLLOWED: Final = "FOLLOWED"
"""Sort key of the note that the reaper is to keep a tenant's sums, with ``GSI1PK=DUE#usage``."""


def usage_tenant(pk: str) -> str:
    """The tenant back from :func:`usage`."""
    return pk.removeprefix("T#").removesuffix("#USAGE")


SOCKET_PREFIX: Final = "WS#"
"""Of all partitions of WebSocket connections that API Gateway holds."""


# --- Files, containers, conversations, uploads --------------------------------------------------------------------------------
#
# A deleted resource leaves ``SK=GONE`` with its place in the listing for an hour (TTL), so that a client that deletes while it
# pages can go on after an id that no longer exists. What has an end of its own (a file with ``expires_after``, an upload, an idle
# container) has a second record, found through the index by the time at which it is due: DynamoDB's own TTL would drop the
# record and leave its bytes in S3.

GONE: Final = "GONE"
PURGE: Final = "PURGE"
LIFE_PREFIX: Final = "LIFE#"
PAST_PREFIX: Final = "PAST#"
SANDBOX_PREFIX: Final = "SANDBOX#"
LENT_PREFIX: Final = "LENT#"
PART_PREFIX: Final = "PART#"
BATCH_PREFIX: Final = "BATCH#"


def gone(resource_id: str) -> str:
    """Sort key of a deleted container file's, or credential's, place in the listing."""
    return f"{GONE}#{resource_id}"


def due_list(kind: str) -> str:
    """``GSI1PK`` of everything of a kind that ends by itself: ``files``, ``uploads``."""
    return f"DUE#{kind}"


def sandboxes(tenant_id: str) -> str:
    return f"T#{tenant_id}#SANDBOXES"


def live_sandbox(container_id: str, incarnation: int) -> str:
    """Sort key of one of them."""
    return f"{live_sandboxes(container_id)}{incarnation:08d}"


def live_sandboxes(container_id: str) -> str:
    """How those of a container begin."""
    return f"{container_id}#"


def life(incarnation: int) -> str:
    """Sort key of the record of one sandbox of a container; it stands until that sandbox is known to be stopped."""
    return f"{LIFE_PREFIX}{incarnation:08d}"


def due(at: int, resource_id: str) -> str:
    """``GSI1SK`` of a record that is due at a time (Unix seconds)."""
    return f"{at:012d}#{resource_id}"


def sandbox_life(place: int) -> str:
    """Sort key, in a container's partition, of the record of a sandbox that has ended."""
    return f"{SANDBOX_PREFIX}{place:04d}"


def past(at_ms: int, name: str) -> str:
    """Sort key of file rows of a container that were replaced or removed at a time; ``name`` tells several from each other."""
    return f"{PAST_PREFIX}{at_ms:015d}#{name}"


def past_until(at_ms: int) -> str:
    """The sort key before the rows that were replaced later than this time."""
    return past(at_ms, "\uffff")


def past_time(sk: str) -> int:
    """The time back from :func:`past`."""
    return int(sk.removeprefix(PAST_PREFIX).partition("#")[0])


def lent(container_id: str) -> str:
    """Sort key of the note that rows of another container name objects of this one."""
    return f"{LENT_PREFIX}{container_id}"


def part(part_id: str) -> str:
    """Sort key of one part of an upload."""
    return f"{PART_PREFIX}{part_id}"


def batch(number: int) -> str:
    """Sort key of one atomic append to a conversation."""
    return f"{BATCH_PREFIX}{number:010d}"


def batch_number(sk: str) -> int:
    """The number back from :func:`batch`."""
    return int(sk.removeprefix(BATCH_PREFIX))


def source(response_id: str) -> str:
    """Sort key of the marker that a response's items have been appended to a conversation."""
    return f"SOURCE#{response_id}"


# --- The way out (all but the credential lie in the container's partition, and go with it) ------------------------------------

ORPHANS: Final = "ORPHANS"
"""Partition of the sandboxes that run without an owner; the sort key is the sandbox's id."""

LOST_MICROVMS: Final = "ORPHANS#MICROVMS"
"""The same of MicroVMs, which another look finds."""

POOL: Final = "POOL"
"""Partition of the warm pool."""
POOL_SLOT_PREFIX: Final = "SLOT#"
POOL_CLAIM_PREFIX: Final = "CLAIM#"


def pool_slots(tier: str) -> str:
    """Prefix of the slots of one memory tier."""
    return f"{POOL_SLOT_PREFIX}{tier}#"


def pool_slot(tier: str, number: int) -> str:
    """Sort key of a sandbox that waits for a container; numbers bound how many there are."""
    return f"{pool_slots(tier)}{number:04d}"


def pool_claim(pool_id: str) -> str:
    """Sort key of the record of a pool sandbox's container; it exists while the sandbox runs."""
    return f"{POOL_CLAIM_PREFIX}{pool_id}"


def warm(token_sha256: str) -> str:
    """Sort key, in a container's partition, of the pool's gift to the incarnation with this token: a sandbox, or nothing."""
    return f"WARM#{token_sha256}"


EGRESS_POLICY: Final = "EGRESS#POLICY"
EGRESS_OPENED_PREFIX: Final = "EGRESS#POLICY#OPENED#"
"""Of what a person has allowed a container: behind its policy, with which it is read."""
EGRESS_SEALED_PREFIX: Final = "EGRESS#SEALED#"
EGRESS_LOG_PREFIX: Final = "EGRESS#LOG#"
EGRESS_OPERATOR_SECRETS: Final = "EGRESS#SECRETS"
"""Partition of the operator's named secrets; the sort key is the name."""
EGRESS_CREDENTIAL_PREFIX: Final = "P#"
EGRESS_LIVE: Final = "EGRESS"
"""``GSI1PK`` of the policies that a running sandbox may use."""
EGRESS_CA: Final = "EGRESS#CA"
"""Partition of the deployment's CA (``SK=META``): the certificate in clear, its key sealed."""


def egress_credential(credential_sha256: str) -> str:
    """Partition of the record that leads from a proxy credential to its container."""
    return f"{EGRESS_CREDENTIAL_PREFIX}{credential_sha256}"


def egress_sealed(seal: str, name: str) -> str:
    """Sort key of a container's secret; ``seal`` names the set that was sealed together."""
    return f"{EGRESS_SEALED_PREFIX}{seal}#{name}"


def egress_opened(opening_key: str) -> str:
    """Sort key of a host, or of a secret, that a person has allowed."""
    return f"{EGRESS_OPENED_PREFIX}{opening_key}"


def egress_entry(entry_id: str) -> str:
    """Sort key of one decision; the id begins with its time."""
    return f"{EGRESS_LOG_PREFIX}{entry_id}"


# --- Skills ---------------------------------------------------------------------------------------------------------------------

VERSION_PREFIX: Final = "VER#"
SKILL_PREFIX: Final = "SKILL#"


def skill(tenant_id: str, skill_id: str) -> str:
    return f"T#{tenant_id}#S#{skill_id}"


def skill_version(version: int) -> str:
    """Sort key of one version of a skill."""
    return f"{VERSION_PREFIX}{version:08d}"


def container_skill(directory: str) -> str:
    """Sort key of a skill of a container."""
    return f"{SKILL_PREFIX}{directory}"


def skill_bundle(tenant_id: str, digest: str) -> str:
    """Partition of a stored bundle (``SK=META``), shared by all versions with the same files."""
    return f"T#{tenant_id}#B#{digest}"


# --- Webhooks -------------------------------------------------------------------------------------------------------------------

DELIVERY_PREFIX: Final = "EVENT#"


def webhook_endpoints(tenant_id: str) -> str:
    """Partition of all endpoints of a tenant."""
    return f"T#{tenant_id}#W"


def webhook_slot(slot: int) -> str:
    """Sort key of an endpoint; numbers bound how many there are."""
    return f"SLOT#{slot:04d}"


def webhook_deliveries(tenant_id: str, endpoint_id: str) -> str:
    """Partition of the messages of an endpoint, sent or due."""
    return f"T#{tenant_id}#W#{endpoint_id}"


def webhook_delivery(event_id: str) -> str:
    """Sort key of one event for one endpoint; the id begins with its time."""
    return f"{DELIVERY_PREFIX}{event_id}"


# --- Inputs ---------------------------------------------------------------------------------------------------------------------


def input_item(tenant_id: str, item_id: str) -> str:
    """The content of an input item's URLs is kept under the item's id."""
    return f"T#{tenant_id}#I#{item_id}"


def input_url(name: str) -> str:
    """Sort key of the content of one URL of an input item."""
    return f"URL#{name}"


# --- What a tenant stores ------------------------------------------------------------------------------------------------------------

STORED: Final = "stored"
"""The kind of the sums, in the list of what is due: to be counted again."""
TOTAL: Final = "TOTAL"
"""Sort key of a tenant's sum; those of entries begin with small letters, so that they come after it."""


def stored(tenant_id: str) -> str:
    return f"T#{tenant_id}#STORED"


def holder(kind: str, resource_id: str) -> str:
    return f"{kind}#{resource_id}"


def holder_of(sk: str) -> tuple[str, str]:
    """Kind and id back from :func:`holder`."""
    kind, _, resource_id = sk.partition("#")
    return kind, resource_id


# --- WebSocket connections that API Gateway holds ------------------------------------------------------------------------------------

FRAME_PREFIX: Final = "FRAME#"


def socket(connection_id: str) -> str:
    """Partition of a WebSocket connection that API Gateway holds, and has named."""
    return f"{SOCKET_PREFIX}{connection_id}"


def connection_of(pk: str) -> str:
    """The connection's id back from :func:`socket`."""
    return pk.removeprefix(SOCKET_PREFIX)


def socket_frame(at_ms: int, frame_id: str) -> str:
    """Sort key of a frame that waits: in the order of the gateway."""
    return f"{FRAME_PREFIX}{at_ms:015d}#{frame_id}"


def socket_kept(response_id: str) -> str:
    """Sort key of an unstored response that can be continued on its connection."""
    return f"KEPT#{response_id}"


def socket_places(key_sha256: str) -> str:
    """Partition of the connections that a key holds open at API Gateway. No connection's id begins so: ``#`` is in none."""
    return f"{SOCKET_PREFIX}K#{key_sha256}"


def socket_place(number: int) -> str:
    """Sort key of one of them; numbers bound how many there are."""
    return f"PLACE#{number:04d}"


# --- Vector stores -------------------------------------------------------------------------------------------------------------------

VECTOR_STORES: Final = "vector_stores"
INDEXING: Final = "INDEXING"
"""``GSI1PK`` of the vector stores that have files to read."""
INDEXING_JOB: Final = "JOB"
"""Sort key of what is known of the execution that reads a store's files."""
TODO_PREFIX: Final = "TODO#"
HELD_PREFIX: Final = "HELD#"


def vector_store(tenant_id: str, store_id: str) -> str:
    return f"T#{tenant_id}#X#{store_id}"


def vector_store_files(store_id: str) -> str:
    """The kind of a store's files, in the listings of its tenant."""
    return f"X#{store_id}"


def vector_batch(batch_id: str) -> str:
    """Sort key of a batch of files that were added to a store together."""
    return f"{BATCH_PREFIX}{batch_id}"


def todo(file_id: str) -> str:
    """Sort key of the note that a store's index does not yet match the record of the file, or its absence."""
    return f"{TODO_PREFIX}{file_id}"


def held(store_id: str) -> str:
    """Sort key, in a file's partition, of the note that a vector store holds it."""
    return f"{HELD_PREFIX}{store_id}"
