"""Bounds of vector stores: of what one holds, and of how long its files are read."""

from typing import Final

from moorage.limits.units import MIB

VECTOR_STORES_MAX: Final = 1_000
"""Of one tenant: each is a listing, and on AWS an index of its own; 10,000 of those fit into a bucket (S3 Vectors quotas)."""

VECTOR_STORE_FILES_MAX: Final = 10_000
"""As many as OpenAI's hold (guide "Retrieval")."""

VECTOR_STORE_BYTES_MAX: Final = 10 * 1024 * MIB
"""Of text and vectors: the size from which a store takes no further file."""

VECTOR_STORE_NAME_CHARS_MAX: Final = 256
VECTOR_STORE_DESCRIPTION_CHARS_MAX: Final = 512
VECTOR_STORE_DAYS_MAX: Final = 365
VECTOR_STORE_FILE_IDS_MAX: Final = 500
"""``file_ids`` of a new store. OpenAPI: ``CreateVectorStoreRequest.file_ids.maxItems``."""

VECTOR_BATCH_FILES_MAX: Final = 2_000
"""OpenAPI: ``CreateVectorStoreFileBatchRequest.file_ids.maxItems``."""

VECTOR_FILES_TOGETHER: Final = 24
"""Files that one transaction adds or cancels: three records of each, the batch that each may have come with before, the store's, the
new batch's and two of what is counted of the tenant; DynamoDB takes 100 writes."""

VECTOR_STORE_TOUCH_SECONDS: Final = 60
"""A store that is used notes it at most so often: what expires by it is counted in days."""

CHUNK_TOKENS_MIN: Final = 100
CHUNK_TOKENS_MAX: Final = 4_096
CHUNK_TOKENS_DEFAULT: Final = 800
CHUNK_OVERLAP_DEFAULT: Final = 400
"""OpenAPI: ``StaticChunkingStrategy``, and what ``auto`` stands for."""

DOCUMENT_TOKENS_MAX: Final = 5_000_000
"""Of one file (OpenAI's guide "File search"): no more of its text is read than this can be."""

DOCUMENT_TEXT_BYTES_MAX: Final = 32 * MIB
"""Of one file's text in UTF-8: 5,000,000 tokens of English are 20 MB, of Chinese 15."""

INDEXING_ATTEMPTS_MAX: Final = 3
"""Runs that begin with a file, crashes included, before it fails."""

INDEXING_RUNS_MAX: Final = 20
"""Executions that break off in a row without a file settled, before those that wait fail."""

INDEXING_TENANT_MAX: Final = 16
"""Stores of one tenant whose files are read at once: each may keep a function busy, of which an account has 1,000 for all."""

INDEXING_SLICE_SECONDS: Final = 240
"""After which a step begins with no further file. One file may take as long again, and a function has 15 minutes."""

INDEXING_ROUNDS_MAX: Final = 1_000
"""Steps of one execution, of at most 24 events each: an execution's history holds 25,000 (Step Functions quotas)."""

INDEXING_REST_SECONDS: Final = 15
"""Between two looks for a sandbox, or an embedding model, that cannot be had now."""

INDEXING_RESTS_MAX: Final = 40
"""In a row: ten minutes, after which what waits fails and says why."""

PARSING_SECONDS_MAX: Final = 120
"""Of one document, in the sandbox."""

PARSING_MEMORY_BYTES: Final = 768 * MIB
"""Of the program that reads documents; sandboxes have a gibibyte."""

DOCUMENT_PIECE_CHARS: Final = 262_144
"""Of a text on its way into the bucket."""

ATTACHMENT_TEXT_BYTES_MAX: Final = 1 * MIB
"""Of a document of the input in UTF-8, for a model whose server takes no documents: 200,000 tokens of English and more."""

ATTACHMENT_CHARS_MAX: Final = 200_000
"""Of such a text, shown to a model: 50,000 tokens of English, and no more than half of the model's context window."""

ATTACHMENT_CHARS_PER_WINDOW_TOKEN: Final = 2
"""Half of a window, at four characters a token."""

ATTACHMENTS_READ_AT_ONCE: Final = 4
"""Requests of one tenant whose documents a process reads at once; further ones wait for them."""

ATTACHMENT_READINGS_MAX: Final = 12
"""How often a model step has documents read elsewhere. Each time may wait for a sandbox twice (``SANDBOX_WAIT_SECONDS``), and reads for
``INDEXING_SLICE_SECONDS``."""

DOCUMENT_REFUSAL_CHARS_MAX: Final = 300
"""Of what the program that reads documents says of one."""

INDEXING_LAST_SECONDS: Final = 900
"""After which a step that ran when its store was erased is over: a function's longest."""
assert INDEXING_SLICE_SECONDS + PARSING_SECONDS_MAX < INDEXING_LAST_SECONDS

VECTOR_FILES_LOOKED_UP_AT_ONCE: Final = 32
"""Of a batch's files."""

STORE_SEARCH_RESULTS_DEFAULT: Final = 10
"""``max_num_results`` of a search by the API. OpenAPI: ``VectorStoreSearchRequest``."""

ATTRIBUTE_NUMBER_MAX: Final = 1e38
"""DynamoDB's numbers go further, and the index's single floats do not."""
