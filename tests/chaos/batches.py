"""Batches of files that are read while something is killed."""

import time
from collections.abc import Callable

from openai import OpenAI
from openai.types import VectorStore

from tests.processes import until

TEXTS, PAGES = 8, 2
_FILLING = "The harbour master counts the ships that come in with the tide, and those that leave it. " * 120
_TRIES_MAX = 10


def met_in_the_middle(client: OpenAI, store: VectorStore, kill: Callable[[], object]) -> None:
    """Add batches until ``kill`` meets one of which some files have been read, and others not."""
    for attempt in range(_TRIES_MAX):
        batch_id = _add(client, store, f"batch{attempt}x")
        deadline = time.monotonic() + 120
        while not (counts := client.vector_stores.file_batches.retrieve(batch_id, vector_store_id=store.id).file_counts).completed:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if counts.in_progress:
            kill()
            return
    raise AssertionError("no batch was met in the middle")


def _add(client: OpenAI, store: VectorStore, name: str) -> str:
    """Texts with a word of their own each, and pages, which a sandbox reads."""
    texts = {f"{name}{number}.md": f"{name}{number}word. {_FILLING}" for number in range(TEXTS)}
    pages = {f"{name}page{number}.html": f"<body><p>{name}page{number}word.</p></body>" for number in range(PAGES)}
    ids = [client.files.create(file=(path, text.encode()), purpose="assistants").id for path, text in (texts | pages).items()]
    return client.vector_stores.file_batches.create(store.id, file_ids=ids).id


def assert_settled_once_and_found_once(client: OpenAI, store_id: str) -> None:
    until(lambda: client.vector_stores.retrieve(store_id).file_counts.in_progress == 0, 150)
    store = client.vector_stores.retrieve(store_id)
    files = list(client.vector_stores.files.list(store_id, limit=100))
    assert {(file.status, file.last_error) for file in files} == {("completed", None)}
    assert (store.file_counts.completed, store.file_counts.total) == (len(files), len(files))
    assert len(files) >= TEXTS + PAGES
    assert sum(file.usage_bytes for file in files) == store.usage_bytes
    for file in files:
        name = client.files.retrieve(file.id).filename
        word = f"{name.partition('.')[0]}word"
        found = client.vector_stores.search(store_id, query=word, max_num_results=50).data
        assert [hit.filename for hit in found if word in hit.content[0].text] == [name]
