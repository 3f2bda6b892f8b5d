"""Each bound of an input is driven by a case that watches a neighbour, or has a reason here.

The cases stand in ``tests/scenarios/bounded_requests.py`` and ``bounded_stories.py``; what they take of ``at`` they drive.
"""

import ast
from pathlib import Path

from moorage import limits
from moorage.wire.items import SHAPES

from tests.scenarios.bounded_requests import ITEMS, REFUSED_KINDS
from tests.stack import ROOT

CASES = [ROOT / "tests" / "scenarios" / f"{name}.py" for name in ("bounded_requests", "bounded_stories")]
TIMES = {"SECONDS", "MS", "MINUTES"}
"""In the name of a limit: it bounds a time."""

NOT_DRIVEN: dict[str, str] = {
    "of sandboxes and the disk, which are other processes' work (tests/unit/sandbox, tests/unit/local)": """
        ARCHIVE_BYTES_MAX ARTIFACT_BYTES_MAX ARTIFACTS_BYTES_MAX ARTIFACTS_MAX BATCHES_MAX BATCH_FILES_MAX BATCH_FILE_BYTES_MAX
        CONTAINER_CHANGES_MAX CONTAINER_LENDERS_MAX CONTAINER_LIVES_MAX CONTAINER_OPEN_FILES_MAX CONTAINER_PAST_BYTES_MAX
        CONTAINER_PAST_ROWS_MAX CONTAINER_PROCESSES_MAX CONTAINER_PRUNE_ONE_IN CONTAINER_TRANSFERS_MAX DISK_RESERVE_BYTES
        DISK_SHARE_BYTES_MIN FIGURES_BYTES_MAX FIGURES_MAX LOCAL_MEMORY_GIB_MAX LOCAL_SANDBOXES_MAX MEMORY_LIMITS
        OUTPUT_SPOOL_BYTES_MAX TENANT_MEMORY_GIB_MAX
        SANDBOX_ENTRIES_MAX SANDBOX_FILES_MAX SANDBOX_POLL_GROWTH SANDBOX_RESERVE_BYTES SANDBOX_RESERVE_PROCESSES SANDBOX_SHM_SHARE
        SANDBOX_TERMINALS_MAX SANDBOX_TMP_SHARE SESSIONS_OPEN_MAX TENANT_DISK_BYTES_MAX TENANT_SANDBOXES_MAX VERSION_CHANGES_SHOWN
        VIEWED_IMAGE_BYTES_MAX WARM_SANDBOXES_MAX WORKSPACE_BYTES_MAX""",
    "of the egress proxy, which is a process of its own (tests/egress)": """
        EGRESS_ACCEPTED_AT_ONCE_MAX EGRESS_ALL_CONNECTIONS_MAX EGRESS_CODINGS_MAX EGRESS_CONNECTIONS_MAX
        EGRESS_CONNECTIONS_PER_SECOND_MAX EGRESS_DENIED_BODY_BYTES_MAX EGRESS_HEADER_BYTES_MAX EGRESS_HELLO_BYTES_MAX
        EGRESS_LOG_ENTRIES_PER_FLUSH_MAX EGRESS_PATH_CHARS_MAX EGRESS_PIECE_BYTES_MAX EGRESS_STRANGERS_ALL_MAX EGRESS_STRANGERS_MAX
        EGRESS_STRANGERS_SCARCE_MAX EGRESS_TENANT_CONNECTIONS_MAX EGRESS_WANTED_ENTRIES_MAX EGRESS_WANTED_MAX
        EGRESS_WANTED_PAGES_MAX EGRESS_WINDOWS_MAX EGRESS_WINDOWS_PER_TENANT_MAX EGRESS_ZSTD_WINDOW_BYTES_MAX""",
    "of the steps of the loop, which its workers run and not the API": """
        CALLS_PER_ROUND_MAX CALL_ATTEMPTS_MAX CALL_ROUNDS_MAX END_TRIES_MAX EXECUTIONS_KEPT_MAX EXECUTIONS_PLAYED_MAX
        EXECUTION_DEATHS_MAX EXECUTION_ROUNDS_MAX EXECUTION_STEPS_MAX EXECUTION_WORKERS KNOWN_RESPONSES_MAX RECOVERIES_MAX ROUNDS_MAX
        STEP_ATTEMPTS_MAX STORING_ATTEMPTS_MAX WAITS_MAX CHILD_DEATHS_MAX SWEEP_AT_ONCE RECOUNT_TENANTS RECOUNT_TOGETHER
        TENANT_PLACES_KEPT_FROM ATTACHMENT_READINGS_MAX""",
    "of what hosted tools read, by the workers of the loop": """
        FETCH_REDIRECTS_MAX FILE_SEARCH_BYTES_MAX FILE_SEARCH_CONTEXT_CHARS_MAX IMAGES_PER_ROUND_MAX IMAGE_ANSWER_BYTES_MAX
        IMAGE_BYTES_MAX IMAGE_CALL_BYTES_MAX IMAGE_PROMPT_CHARS_MAX IMAGE_REFUSAL_BYTES_MAX MCP_CONNECTION_BYTES_MAX
        MCP_ERROR_CHARS_MAX MCP_PAGES_MAX TOOLS_FOUND_BYTES_MAX TOOLS_FOUND_MAX WEB_CALL_BYTES_MAX WEB_EXCERPT_CHARS_MAX
        WEB_MATCHES_MAX WEB_MATCH_CONTEXT_CHARS WEB_PAGE_BYTES_MAX WEB_PATTERN_CHARS_MAX WEB_QUERY_CHARS_MAX WEB_QUERY_WORDS_MAX
        WEB_ROBOTS_BYTES_MAX WEB_SEARCH_BYTES_MAX WEB_SITES_MAX WEB_TITLE_CHARS_MAX WEB_URL_CHARS_MAX""",
    "of the reading of documents and of indexes, by executions of their own and on threads (tests/unit/knowledge)": """
        ATTACHMENTS_READ_AT_ONCE ATTACHMENT_CHARS_MAX ATTACHMENT_CHARS_PER_WINDOW_TOKEN ATTACHMENT_TEXT_BYTES_MAX
        BM25_B BM25_K1 DOCUMENT_PIECE_CHARS DOCUMENT_REFUSAL_CHARS_MAX DOCUMENT_TEXT_BYTES_MAX DOCUMENT_TOKENS_MAX EMBEDDED_AT_ONCE
        INDEXING_ATTEMPTS_MAX INDEXING_RESTS_MAX INDEXING_ROUNDS_MAX INDEXING_RUNS_MAX INDEX_BLOCK_CHUNKS INDEX_BUNDLED_BYTES_MAX
        INDEX_BUNDLES_SMALL_MAX INDEX_BUNDLE_BYTES INDEX_CACHE_BYTES_MAX INDEX_LOOSE_MAX INDEX_READS_AT_ONCE INDEX_READ_BYTES
        INDEX_TIDIED_BYTES NEIGHBOURS_ASKED NEIGHBOUR_LOOKS_AT_ONCE NEIGHBOUR_PAGES_MAX NEIGHBOUR_VERSIONS_MAX PARSING_MEMORY_BYTES
        RANKED_DEPTH TITAN_AT_ONCE TITAN_TEXT_CHARS_MAX VECTORS_PUT_AGAIN_MAX VECTORS_WRITTEN_AT_ONCE
        VECTOR_DIMENSION_MAX VECTOR_FILES_LOOKED_UP_AT_ONCE VECTOR_FILES_TOGETHER VECTOR_NUMBERS_PUT_MAX VECTOR_STORES_MAX
        VECTOR_STORE_BYTES_MAX VECTOR_STORE_FILES_MAX""",
    "beyond what a body may have: REQUEST_BODY_BYTES_MAX is met first": """
        FILE_DATA_CHARS_MAX SKILL_INLINE_CHARS_MAX WEBSOCKET_WAITING_BYTES_MAX INPUT_FILE_BYTES_MAX""",
    "of bodies that are streamed in pieces of BLOB_PART_BYTES, whatever their length (a large file)": """
        BLOB_READ_BYTES DOWNLOAD_PART_BYTES_MAX FILE_BYTES_MAX FORM_OVERHEAD_BYTES_MAX SKILL_FILE_BYTES_MAX
        SKILL_FORM_OVERHEAD_BYTES_MAX SKILL_ZIP_BYTES_MAX UPLOAD_PART_BYTES_MAX STORED_BYTES_MAX""",
    "of what is told to a model or a client: small outputs": """
        AGENTS_MD_BYTES_MAX CALL_PIECE_CHARS CITATIONS_MAX FILE_MAP_CHARS_MAX GIVEN_PATHS_MAX INPUT_INLINE_BYTES_MAX
        LISTED_MODEL_CHARS_MAX LISTED_PREVIEW_CHARS LISTED_PREVIEW_READ_CHARS MCP_READ_CHARS_MAX OUTPUT_CHARS_DEFAULT PROGRAMS_CHARS_MAX
        SESSION_OUTPUT_TOKENS_DEFAULT SESSION_OUTPUT_TOKENS_MAX SKILL_CONTEXT_CHARS_MAX TOOLS_DEFERRED_CHARS_MAX
        WEBSOCKET_SHORT_CHARS GRAMMAR_EXPECTED_MAX COMPACTION_NOTES_SHARE COMPACTION_NOTES_TOKENS""",
    "of reading the table: sizes of single requests to it": """
        AGENT_INLINE_BYTES_MAX AGENT_PAGE_BYTES_MAX AGENT_SESSION_TRACES_BYTES_MAX AGENT_SESSION_TURNS_READ
        BATCH_EVENTS_BYTES_MAX CONDITIONAL_WRITES_MAX CONVERSATION_BATCH_INLINE_BYTES_MAX CONVERSATION_REWINDS_MAX
        CONVERSATION_WRITES_MAX EVENTS_FOLD_BATCHES EVENTS_PAGE_BATCHES_MAX EVENTS_READ_BATCHES IDEMPOTENCY_ANSWER_BYTES_MAX
        ITEM_INLINE_BYTES_MAX LIST_ENTRIES_MAX LIST_FIRST_ENTRIES LIST_READ_ENTRIES LIST_READ_RESPONSES_MAX LIST_STRETCH_GAP_ROWS
        LIST_STRETCH_ROWS_MAX LIST_DAYS_TOGETHER
        PACKED_HERE_BYTES_MAX RECORDS_UNPACKED_AT_ONCE REPEAT_CLAIMS_MAX UNPACKED_HERE_BYTES_MAX
        USAGE_DAY_READS_MAX USAGE_KEPT_BYTES_MAX USAGE_KEPT_ROWS_MIN USAGE_READ_ENTRIES""",
    "of what runs side by side, which queues hold": """
        GRAMMAR_CHECKS_MAX GRAMMAR_MEMORY_BYTES_MAX INDEXING_TENANT_MAX OTLP_SPANS_MAX RATE_LIMITED_KEYS_MAX RUNNING_RESPONSES_MAX
        UPSTREAM_IDLE_CONNECTIONS_MAX UPSTREAM_RETRIES_MAX UPSTREAM_URLS_MAX WEBHOOK_ATTEMPTS_AT_ONCE WEBHOOK_ATTEMPTS_MAX
        WEBHOOK_ATTEMPTS_SHOWN WEBHOOK_DUE_READ WEBHOOK_ENDPOINTS_AT_ONCE WEBHOOK_PAUSE_GROWTH WEBHOOK_PENDING_COUNTED_MAX
        WEBSOCKETS_PER_KEY_MAX WEBSOCKET_ACTIVE_MAX WEBSOCKET_RECENT_BYTES_MAX WEBSOCKET_RECENT_MAX WEBSOCKET_STEERS_MAX
        LOCAL_LOG_BYTES_MAX""",
    "of one message at API Gateway, whose functions serve one client at a time": "WEBSOCKET_MESSAGE_BYTES_MAX",
    "numbers, of which a large one is no more work than a small one": """
        ATTRIBUTE_NUMBER_MAX BUDGET_HELD_OUTPUT_TOKENS BUDGET_USD_MIN CHUNK_OVERLAP_DEFAULT CHUNK_TOKENS_DEFAULT CHUNK_TOKENS_MIN
        COMPACTION_KEPT_TOKENS COMPACTION_PARTS_MAX COMPACTION_PART_SHARE COMPACTION_RECENT_SHARE COMPACTION_WINDOW_SHARE
        COMPACT_THRESHOLD_TOKENS_MIN EMBEDDING_DIMENSIONS_MAX LOWERED_HERE_MAX OUTPUT_TOKENS_MIN PAGE_ITEMS_DEFAULT
        QUERY_DIGITS_MAX SEARCH_RESULTS_DEFAULT STORE_SEARCH_RESULTS_DEFAULT TRUNCATION_EXCESS USAGE_DAYS_DEFAULT WORDS_PER_TOKEN
        WORKED_HERE_BYTES_MAX KIB MIB""",
    "of sandboxes, which a tenant has few of and starts one by one": """
        ENVIRONMENT_SIZES SANDBOX_CPU_UNITS TENANT_STARTS_PER_SECOND TENANT_VCPUS_MAX VCPU""",
    "of the comparison of an answer with its schema; the story `an answer by schema` has the longest answer": """
        ANSWER_CHECKED_CHARS_MAX ANSWER_CHECKED_HERE_CHARS_MAX ANSWER_DEPTH_MAX ANSWER_SCHEMA_CHARS_TOLD_MAX ANSWER_STEPS_HERE_MAX
        ANSWER_STEPS_MAX""",
    "each step towards it is a request, and each request is bounded": """
        AGENT_SESSION_INPUTS_MAX AGENT_VERSIONS_MAX CHAIN_RESPONSES_MAX SKILL_VERSIONS_MAX TREE_DEPTH_MAX""",
    "of what an issuer answers, and of its tokens, whose bounds are met before anything is done with them (tests/unit/identity)": """
        ISSUER_ANSWER_BYTES_MAX ISSUER_KEYS_MAX ISSUER_REFRESHES_MAX RSA_BITS_MIN SUBJECT_CHARS_MAX TOKENS_KEPT_MAX TOKEN_CHARS_MAX""",
    "of the audit trail, a line of which follows from a change and not from a length": """
        AUDIT_FILE_BYTES_MAX AUDIT_FILES_MAX AUDIT_OPENINGS_MAX""",
    "of vaults in use, whose sessions no route takes yet; an answer is met by its bound before it is read (tests/unit/api)": """
        OAUTH_ANSWER_BYTES_MAX VAULT_IDS_MAX""",
    "a zip's folders beside its files, which are driven": "SKILL_ZIP_ENTRIES_MAX",
}


def taken(path: Path) -> set[str]:
    """What its cases take of ``at``."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "at"
    }


def test_each_bound_of_an_input_is_driven_by_a_case_or_has_a_reason() -> None:
    driven = set().union(*map(taken, CASES))
    reasoned = [name for names in NOT_DRIVEN.values() for name in names.split()]
    known = {name for name in vars(limits) if name.isupper()}
    bounds = {name for name in known if not set(name.split("_")) & TIMES or "PER_SECOND" in name}
    assert sorted(reasoned) == sorted(bounds - driven), "a new limit is driven by a case, or named here with its reason"
    assert driven <= known


def test_each_kind_of_item_is_driven() -> None:
    driven = {item.get("type", "message") for make in ITEMS.values() for item in make(0)}
    assert driven == SHAPES.keys() - REFUSED_KINDS


def test_the_bounds_of_requests_are_limits() -> None:
    """So that the test above sees them. Closed sets and fractions have no need of one."""
    library = ROOT / "layers" / "core" / "python" / "moorage"
    found = [
        f"{path.relative_to(library)}:{node.value.lineno}"
        for folder in ("wire", "tools")
        for path in (library / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.keyword) and node.arg == "max_length" and isinstance(node.value, ast.Constant)
        if node.value.value != 32  # An MD5 in hexadecimal digits.
    ]
    assert found == []
