"""Bounds of vector stores' indexes, of searching them, and of embeddings."""

from typing import Final

from moorage.limits.units import KIB, MIB

FILTER_DEPTH_MAX: Final = 8
FILTER_PARTS_MAX: Final = 200
"""Of a search's filter: how deep ``and`` and ``or`` are nested, and how many comparisons and groups there are in all. Each is looked
at once for each file."""

FILTER_VALUES_MAX: Final = 500
"""Of one ``in`` or ``nin``: as many as a store takes files at once."""

ATTRIBUTES_MAX: Final = 16
ATTRIBUTE_KEY_CHARS_MAX: Final = 64
ATTRIBUTE_TEXT_CHARS_MAX: Final = 512
"""OpenAPI: ``VectorStoreFileAttributes``."""

SEARCH_RESULTS_MAX: Final = 50
SEARCH_RESULTS_DEFAULT: Final = 20
"""``max_num_results`` of the tool; the default is what live responses echo."""

SEARCH_QUERIES_MAX: Final = 8
"""Of one search. Models write three or four paraphrases."""

SEARCH_QUERY_CHARS_MAX: Final = 4_096
"""Of one query; what is longer is no question, and is cut off."""

SEARCH_STORES_MAX: Final = 10
"""That one tool searches; OpenAI's own models take two."""

RANKED_DEPTH: Final = 200
"""The best of each ranking whose scores are known where both are joined: four times the results that a search gives at most."""

BM25_K1: Final = 1.2
BM25_B: Final = 0.75
"""Robertson and Zaragoza, 2009, section 3.2.4; also what Lucene takes."""

INDEX_BLOCK_CHUNKS: Final = 4_096
"""Of a process's picture of a store. When files come or go, the blocks that hold them are made anew: about 30 ms for each."""

INDEX_CACHE_BYTES_MAX: Final = 512 * MIB
"""What a process holds of indexes. 100,000 chunks of 800 tokens take about half of it; a store that takes more than all is searched
block by block, and read from the bucket each time."""


def index_cache_bytes(memory_mib: int | None) -> int:
    """The same of a Lambda function with this much memory: a quarter of it, because the code takes a third, and what is being read as
    much again."""
    return INDEX_CACHE_BYTES_MAX if memory_mib is None else min(INDEX_CACHE_BYTES_MAX, memory_mib * MIB // 4)


INDEX_READS_AT_ONCE: Final = 32
"""Objects of an index that one search reads side by side; the pool of connections has 64."""

INDEX_READ_BYTES: Final = 64 * MIB
"""Of objects of an index that are held while they are read side by side: the index of a file of 5,000,000 tokens has some 30 MiB."""

INDEX_LOOSE_MAX: Final = 32
"""Small objects of an index that stand by themselves: from so many on, they are copied into a bundle, so that whoever reads the index
for the first time asks for few."""

INDEX_BUNDLE_BYTES: Final = 16 * MIB
"""Of a bundle. Whoever writes one holds three times as much."""

INDEX_BUNDLED_BYTES_MAX: Final = MIB
"""Of an object that is copied into bundles; for one that is larger, its bytes take longer than the request."""

INDEX_BUNDLES_SMALL_MAX: Final = 8
"""Bundles that are less than half full; what is beyond is written together."""

INDEX_TIDIED_BYTES: Final = 64 * MIB
"""Copied at once, before anything else of a store's work has its turn."""
assert INDEX_BUNDLED_BYTES_MAX <= INDEX_BUNDLE_BYTES // 2 < INDEX_BUNDLE_BYTES <= INDEX_TIDIED_BYTES

VECTORS_WRITTEN_AT_ONCE: Final = 500
"""In one call that puts or deletes (S3 Vectors, "Limitations and restrictions")."""

VECTOR_NUMBERS_PUT_MAX: Final = 250_000
"""In one call that puts: some 6 MB as JSON, of 20 MiB at most, and as much memory again."""

VECTORS_PUT_AGAIN_MAX: Final = 20
"""Files whose vectors a vector bucket lacks, put at once before anything else of a store's work has its turn."""

VECTOR_DIMENSION_MAX: Final = 4_096
"""Of an index of S3 Vectors. Vectors of a longer model are compared here."""

NEIGHBOURS_ASKED: Final = (RANKED_DEPTH, 800, 3_200, 10_000)
"""``topK`` of one look, and of those after it where so many were found that are no part of the store any more: what writers that died
have left. S3 Vectors gives 10,000 at most."""

NEIGHBOUR_PAGES_MAX: Final = 100
"""Of one look: a page has a hundred, at least of the results that there are."""

NEIGHBOUR_VERSIONS_MAX: Final = 1_000
"""Files that one look is narrowed to: 19 KB of filter. The largest store takes ten looks."""

NEIGHBOUR_LOOKS_AT_ONCE: Final = 16
"""Of one search, over its queries, its stores and their groups of files."""

EMBEDDED_AT_ONCE: Final = 64
"""Texts in one request to an embedding model: some 50,000 tokens, of OpenAI's 300,000 at most."""

EMBEDDING_INPUTS_MAX: Final = 2_048
EMBEDDING_TOKENS_MAX: Final = 300_000
"""OpenAI's own bounds of ``input`` of ``POST /v1/embeddings``: how many texts, and their tokens together."""

EMBEDDING_DIMENSIONS_MAX: Final = 4_096
"""S3 Vectors takes no more, and no model here gives more."""

TITAN_TEXT_CHARS_MAX: Final = 50_000
"""Amazon Titan Text Embeddings V2: 8,192 tokens or 50,000 characters; what is longer would be refused."""

TITAN_AT_ONCE: Final = 8
"""Requests side by side: Titan takes one text in each."""

FILE_SEARCH_SECONDS_MAX: Final = 90
"""One call. The first search of a large store reads its index, which takes seconds."""

FILE_SEARCH_BYTES_MAX: Final = 2 * MIB
"""Of a call's item: fifty chunks of 4,096 tokens are 800 KiB of text, and may double as JSON."""

FILE_SEARCH_CONTEXT_CHARS_MAX: Final = 64 * KIB
"""Of the chunks that a model reads of one call: twenty of 800 tokens. OpenAI's own models get 16,000 tokens."""
