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
from moorage.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TenantKey:
    """Keys of a tenant's resources of one kind: ``file("t", "file-1")`` is ``T#t#F#file-1``."""

    kind: str

    def __call__(self, tenant_id: str, resource_id: str) -> str:
        return f"T#{tenant_id}#{self.kind}#{resource_id}"

    def read(self, key: str) -> tuple[str, str]:
        """Tenant and id back from a key."""
        _, tenant_id, _, resource_id = key.split("#")
        return tenant_id, resource_id


@dataclass(frozen=True, slots=True)
class NamedKey:
    """Keys that begin alike and end with a name: ``todo("file-1")`` is ``TODO#file-1``."""

    prefix: str

    def __call__(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def read(self, key: str) -> str:
        """The name back from a key."""
        return key.removeprefix(self.prefix)


@dataclass(frozen=True, slots=True)
class NumberedKey:
    """Keys that begin alike and end with a number, in the order of the numbers: ``turn(1)`` is ``TURN#00000001``."""

    prefix: str
    digits: int

    def __call__(self, number: int) -> str:
        return self.prefix + str(number).zfill(self.digits)

    def read(self, key: str) -> int:
        """The number back from a key."""
        return int(key.removeprefix(self.prefix))


META: Final = "META"
TOTAL: Final = "TOTAL"
"""Sort key of a tenant's sum. Sort keys of entries begin with small letters, so that they come after it."""

# --- Responses ----------------------------------------------------------------------------------------------------------------

ATTEMPT_PREFIX: Final = "AT#"
LANE_ATTEMPT_PREFIX: Final = "AL#"
LANE_PREFIX: Final = "AG#"
INFLIGHT: Final = "INFLIGHT"
response: Final = TenantKey("R")
event: Final = NumberedKey("EV#", 12)
"""Sort key of the batch that begins with this number."""
approval: Final = NamedKey("AP#")
"""Sort key, in a response's partition, of a call that needs a person's word."""
repeat: Final = TenantKey("Q")
"""Partition of an idempotency key, or of a request that may be tried again, by its digest."""
input_item: Final = TenantKey("I")
"""The content of an input item's URLs is kept under the item's id."""
input_url: Final = NamedKey("URL#")
"""Sort key of the content of one URL of an input item."""


def is_response(pk: str) -> bool:
    """Whether a partition is a response's."""
    parts = pk.split("#")
    return len(parts) == 4 and (parts[0], parts[2]) == ("T", "R")


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


def lane(number: int, prefix: str = LANE_PREFIX) -> str:
    """Sort key, in a response's partition, of an agent, its first items (``AB#``), messages (``AM#``) or outputs (``AO#``)."""
    return f"{prefix}{number:06d}"


def inflight(tenant_id: str) -> str:
    """How ``GSI1SK`` begins on the loop's list: a create reads its tenant's part alone, the reaper the whole."""
    return f"T#{tenant_id}#"


# --- Lists --------------------------------------------------------------------------------------------------------------------
#
# A deleted resource leaves ``SK=GONE`` with its place in the listing for an hour (TTL), so that a client that deletes while it
# pages can go on after an id that no longer exists. What has an end of its own (a file with ``expires_after``, an upload, an idle
# container) has a second record, found through the index by the time at which it is due: DynamoDB's own TTL would drop the
# record and leave its bytes in S3.

GONE: Final = "GONE"
PURGE: Final = "PURGE"
gone: Final = NamedKey("GONE#")
"""Sort key of a deleted container file's, or credential's, place in the listing."""
listing: Final = TenantKey("L")
"""``GSI1PK`` of one tenant's resources of a kind: ``files``, ``containers``, ``conversations``, ``keys``, ``approvals``."""
due_list: Final = NamedKey("DUE#")
"""``GSI1PK`` of everything of a kind that ends by itself: ``files``, ``uploads``."""


def listed(created_at: int, resource_id: str) -> str:
    """``GSI1SK``: oldest first, ties by id, in order within a second (``ids.py``)."""
    return f"{created_at:012d}#{resource_id}"


def due(at: int, resource_id: str) -> str:
    """``GSI1SK`` of a record that is due at a time (Unix seconds)."""
    return f"{at:012d}#{resource_id}"


# --- Tenants, and their API keys ----------------------------------------------------------------------------------------------

KEYS: Final = "KEYS"
STORED: Final = "stored"
"""The kind of the sums, in the list of what is due: to be counted again."""
USAGE_FOLLOWED: Final = "FOLLOWED"
"""Sort key of the note that the reaper is to keep a tenant's sums, with ``GSI1PK=DUE#usage``."""
api_key: Final = NamedKey("K#")
"""Partition of a key's record, by its SHA-256, and of nothing else: no function of a deployment may write there."""
console_code: Final = NamedKey("CODE#")
"""Partition of the note that a code of the console was used: the code itself is the operator's, and may not be touched."""
rate: Final = NamedKey("RATE#")
"""Partition of the rest of a key's rate."""


def budgets(tenant_id: str) -> str:
    """Partition of the limits of a tenant's keys, of its responses with their forks, and of the tenant itself."""
    return f"T#{tenant_id}#BUDGETS"


def usage(tenant_id: str) -> str:
    """The partition of a tenant's kept sums of usage."""
    return f"T#{tenant_id}#USAGE"


def usage_span(start: int, seconds: int) -> str:
    """Sort key of an hour's or a day's."""
    return f"{seconds:06d}#{start:012d}"


def usage_digest(start: int, seconds: int) -> str:
    """Sort key of a digest of an hour or a day of the list (``store/list_digest.py``)."""
    return f"LIST#{usage_span(start, seconds)}"


def usage_tenant(pk: str) -> str:
    """The tenant back from :func:`usage`."""
    return pk.removeprefix("T#").removesuffix("#USAGE")


def stored(tenant_id: str) -> str:
    """Partition of what a tenant stores."""
    return f"T#{tenant_id}#STORED"


def holder(kind: str, resource_id: str) -> str:
    return f"{kind}#{resource_id}"


def holder_of(sk: str) -> tuple[str, str]:
    """Kind and id back from :func:`holder`."""
    kind, _, resource_id = sk.partition("#")
    return kind, resource_id


# --- Files, uploads, conversations, skills, vaults, agents ----------------------------------------------------------------------

file: Final = TenantKey("F")
upload: Final = TenantKey("U")
part: Final = NamedKey("PART#")
"""Sort key of one part of an upload."""
conversation: Final = TenantKey("V")
batch: Final = NumberedKey("BATCH#", 10)
"""Sort key of one atomic append to a conversation."""
source: Final = NamedKey("SOURCE#")
"""Sort key of the marker that a response's items have been appended to a conversation."""
skill: Final = TenantKey("S")
skill_bundle: Final = TenantKey("B")
"""Partition of a stored bundle (``SK=META``), by its digest, shared by all versions with the same files."""
version: Final = NumberedKey("VER#", 8)
"""Sort key of one version of a skill, or of an agent."""
vault: Final = TenantKey("VAULT")
credential: Final = NamedKey("CRED#")
"""Sort key of a credential in a vault; the id begins with its time."""
agent: Final = TenantKey("A")
agent_session: Final = TenantKey("AS")
turn: Final = NumberedKey("TURN#", 8)
"""Sort key of a session's turn, from 1."""
INPUT_PREFIX: Final = "INPUT#"
artifact: Final = NamedKey("ARTIFACT#")
"""Sort key of an artifact; the id begins with its turn."""

# --- Automations --------------------------------------------------------------------------------------------------------------

DUE: Final = "DUE"
"""Sort key of the note of when an automation is due."""
automation: Final = TenantKey("AM")
invocation: Final = NamedKey("INV#")
"""Sort key of an automation's invocation; the id begins with its time."""


def automations(tenant_id: str) -> str:
    """The place of a tenant's counts, under :data:`TOTAL`."""
    return f"T#{tenant_id}#AUTOMATIONS"


def automations_made(session_id: str, day: int) -> str:
    """Sort key of how many an agent has made in a session on a day (days since 1970)."""
    return f"MADE#{session_id}#{day}"


# --- Containers, and their sandboxes --------------------------------------------------------------------------------------------

CONTAINERS: Final = "T#*#C#*"
"""All containers' partitions, as IAM writes a pattern."""
ALIVE: Final = "ALIVE"
SETUP: Final = "SETUP"
"""Sort key of the variables and commands that a container's sandboxes begin with."""
UPSTREAM: Final = "UPSTREAM"
"""Sort key of the note that a container lives at a model's upstream."""
PAST_PREFIX: Final = "PAST#"
container: Final = TenantKey("C")
container_file: Final = NamedKey("FILE#")
container_session: Final = NamedKey("SESSION#")
"""Sort key, in a container's partition, of a terminal that people sit at."""
container_skill: Final = NamedKey("SKILL#")
"""Sort key of a skill of a container, by its directory."""
environment_template: Final = TenantKey("ET")
life: Final = NumberedKey("LIFE#", 8)
"""Sort key of the record of one sandbox of a container; it stands until that sandbox is known to be stopped."""
sandbox_life: Final = NumberedKey("SANDBOX#", 4)
"""Sort key, in a container's partition, of the record of a sandbox that has ended."""
lent: Final = NamedKey("LENT#")
"""Sort key of the note that rows of another container name objects of this one."""
warm: Final = NamedKey("WARM#")
"""Sort key, in a container's partition, of the pool's gift to the incarnation with this token's SHA-256: a sandbox, or nothing."""


def sandboxes(tenant_id: str) -> str:
    """Partition of a tenant's live sandboxes."""
    return f"T#{tenant_id}#SANDBOXES"


def live_sandbox(container_id: str, incarnation: int) -> str:
    """Sort key of one of them."""
    return f"{live_sandboxes(container_id)}{incarnation:08d}"


def live_sandboxes(container_id: str) -> str:
    """How those of a container begin."""
    return f"{container_id}#"


def past(at_ms: int, name: str) -> str:
    """Sort key of file rows of a container that were replaced or removed at a time; ``name`` tells several from each other."""
    return f"{PAST_PREFIX}{at_ms:015d}#{name}"


def past_until(at_ms: int) -> str:
    """The sort key before the rows that were replaced later than this time."""
    return past(at_ms, "\uffff")


def past_time(sk: str) -> int:
    """The time back from :func:`past`."""
    return int(sk.removeprefix(PAST_PREFIX).partition("#")[0])


ORPHANS: Final = "ORPHANS"
"""Partition of the sandboxes that run without an owner; the sort key is the sandbox's id."""
LOST_MICROVMS: Final = "ORPHANS#MICROVMS"
"""The same of MicroVMs, which another look finds."""
POOL: Final = "POOL"
"""Partition of the warm pool."""
POOL_SLOT_PREFIX: Final = "SLOT#"
pool_claim: Final = NamedKey("CLAIM#")
"""Sort key of the record of a pool sandbox's container; it exists while the sandbox runs."""


def pool_slots(tier: str) -> str:
    """Prefix of the slots of one memory tier."""
    return f"{POOL_SLOT_PREFIX}{tier}#"


def pool_slot(tier: str, number: int) -> str:
    """Sort key of a sandbox that waits for a container; numbers bound how many there are."""
    return f"{pool_slots(tier)}{number:04d}"


# --- The way out (policy, secrets and log lie in the container's partition, and go with it) ---------------------------------------

EGRESS_POLICY: Final = "EGRESS#POLICY"
EGRESS_SEALED_PREFIX: Final = "EGRESS#SEALED#"
EGRESS_OPERATOR_SECRETS: Final = "EGRESS#SECRETS"
"""Partition of the operator's named secrets; the sort key is the name."""
EGRESS_LIVE: Final = "EGRESS"
"""``GSI1PK`` of the policies that a running sandbox may use."""
EGRESS_CA: Final = "EGRESS#CA"
"""Partition of the deployment's CA (``SK=META``): the certificate in clear, its key sealed."""
egress_credential: Final = NamedKey("P#")
"""Partition of the record that leads from a proxy credential, by its SHA-256, to its container."""
egress_opened: Final = NamedKey("EGRESS#POLICY#OPENED#")
"""Sort key of a host, or of a secret, that a person has allowed: behind the policy, with which it is read."""
egress_entry: Final = NamedKey("EGRESS#LOG#")
"""Sort key of one decision; the id begins with its time."""


def egress_sealed(seal: str, name: str) -> str:
    """Sort key of a container's secret; ``seal`` names the set that was sealed together."""
    return f"{EGRESS_SEALED_PREFIX}{seal}#{name}"


# --- Webhooks -------------------------------------------------------------------------------------------------------------------

webhook_slot: Final = NumberedKey("SLOT#", 4)
"""Sort key of an endpoint; numbers bound how many there are."""
webhook_deliveries: Final = TenantKey("W")
"""Partition of the messages of an endpoint, sent or due."""
webhook_delivery: Final = NamedKey("EVENT#")
"""Sort key of one event for one endpoint; the id begins with its time."""


def webhook_endpoints(tenant_id: str) -> str:
    """Partition of all endpoints of a tenant."""
    return f"T#{tenant_id}#W"


# --- WebSocket connections that API Gateway holds ------------------------------------------------------------------------------------

FRAME_PREFIX: Final = "FRAME#"
socket: Final = NamedKey("WS#")
"""Partition of a WebSocket connection that API Gateway holds, and has named."""
socket_kept: Final = NamedKey("KEPT#")
"""Sort key of an unstored response that can be continued on its connection."""
socket_place: Final = NumberedKey("PLACE#", 4)
"""Sort key of a connection in :func:`socket_places`; numbers bound how many there are."""


def socket_frame(at_ms: int, frame_id: str) -> str:
    """Sort key of a frame that waits: in the order of the gateway."""
    return f"{FRAME_PREFIX}{at_ms:015d}#{frame_id}"


def socket_places(key_sha256: str) -> str:
    """Partition of the connections that a key holds open at API Gateway. No connection's id begins so: ``#`` is in none."""
    return socket(f"K#{key_sha256}")


# --- Vector stores -------------------------------------------------------------------------------------------------------------------

VECTOR_STORES: Final = "vector_stores"
INDEXING: Final = "INDEXING"
"""``GSI1PK`` of the vector stores that have files to read."""
INDEXING_JOB: Final = "JOB"
"""Sort key of what is known of the execution that reads a store's files."""
vector_store: Final = TenantKey("X")
vector_store_files: Final = NamedKey("X#")
"""The kind of a store's files, in the listings of its tenant."""
vector_batch: Final = NamedKey("BATCH#")
"""Sort key of a batch of files that were added to a store together."""
todo: Final = NamedKey("TODO#")
"""Sort key of the note that a store's index does not yet match the record of the file, or its absence."""
held: Final = NamedKey("HELD#")
"""Sort key, in a file's partition, of the note that a vector store holds it."""
