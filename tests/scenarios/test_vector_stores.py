"""Vector stores through the SDK's own helpers, on the stack: real executions, a real sandbox, the index that comes along."""

import os
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from openai import OpenAI

from tests.bench.documents import MB, Peaks, sentences
from tests.stack import Stack
from tests.unit.sandbox import documents


def test_a_file_is_uploaded_read_and_found(client: OpenAI) -> None:
    store = client.vector_stores.create(name="harbour")
    file = client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=("tides.md", b"Spring tides come with new moon."))
    assert (file.status, file.last_error) == ("completed", None)
    again = client.files.create(file=("ships.txt", b"The capstan turns the anchor chain."), purpose="assistants")
    added = client.vector_stores.files.create_and_poll(again.id, vector_store_id=store.id, attributes={"deck": 2})
    assert (added.status, added.attributes) == ("completed", {"deck": 2})
    assert client.vector_stores.search(store.id, query="what turns the anchor?").data[0].filename == "ships.txt"
    client.vector_stores.delete(store.id)


def test_documents_are_read_in_a_sandbox_and_hostile_ones_fail_alone(client: OpenAI) -> None:
    store = client.vector_stores.create(name="papers")
    given = {
        "tides.pdf": documents.pdf("Spring tides come with new moon."),
        "ships.docx": documents.docx("The capstan turns the anchor chain."),
        "talk.pptx": documents.pptx("Lighthouses of the north"),
        "sales.xlsx": documents.xlsx(("harbour", "tons"), ("Bergen", "1200")),
        "page.html": b"<html><body><script>no()</script><p>The ferry leaves at noon.</p></body></html>",
        "latin.txt": "Der Lotse übernimmt das Schiff vor der Mündung. ".encode("cp1252") * 5,
        "bomb.docx": documents.bomb(),
        "laughs.docx": documents.laughs(),
        "deep.pdf": documents.deep_pdf(),
    }
    batch = client.vector_stores.file_batches.upload_and_poll(store.id, files=list(given.items()), max_concurrency=2)
    assert (batch.status, batch.file_counts.completed, batch.file_counts.failed) == ("completed", 6, 3)
    failed = {client.files.retrieve(file.id).filename: file for file in client.vector_stores.files.list(store.id, filter="failed")}
    assert sorted(failed) == ["bomb.docx", "deep.pdf", "laughs.docx"]
    assert {file.last_error.code for file in failed.values() if file.last_error} == {"invalid_file"}
    for query, name in {"lighthouses": "talk.pptx", "tons in Bergen": "sales.xlsx", "when does the ferry leave": "page.html"}.items():
        assert client.vector_stores.search(store.id, query=query).data[0].filename == name
    assert [each.name for each in client.containers.list() if store.id in each.name] == []
    client.vector_stores.delete(store.id)


def test_large_documents_are_read_without_being_held_in_memory(client: OpenAI, stack: Stack, tmp_path: Path) -> None:
    """As seen from outside: the most that each process has held. One is longer than a file may be, the others carry pictures."""
    picture = os.urandom(30 * MB)
    given = {
        "log.txt": b"".join(sentences(64 * MB)),
        "book.pdf": documents.pdf("Spring tides come with new moon.", picture=picture),
        "sales.xlsx": documents.xlsx(("harbour", "tons"), ("Bergen", "1200"), picture=picture),
    }
    assert stack.process is not None
    store = client.vector_stores.create(name="large")
    peaks = Peaks()
    came = {}
    with ThreadPoolExecutor(1) as beside:
        for name, content in given.items():
            (tmp_path / name).write_bytes(content)
            adding = beside.submit(client.vector_stores.files.upload_and_poll, vector_store_id=store.id, file=tmp_path / name)
            while wait([adding], timeout=0.02).not_done:
                peaks.look(stack.process.pid)
            file = adding.result()
            came[name] = file.last_error.message if file.last_error else file.status
    too_long = "The file has more than 5000000 tokens, the most that one file may have."
    assert came == {"log.txt": too_long, "book.pdf": "completed", "sales.xlsx": "completed"}
    assert client.vector_stores.search(store.id, query="tons in Bergen").data[0].filename == "sales.xlsx"
    assert {kind: peaks.mb[kind] for kind in MOST_MB if peaks.mb[kind] > MOST_MB[kind]} == {}
    client.vector_stores.delete(store.id)


MOST_MB = {"worker": 320, "reader": 150}
"""What was measured is 210 and 42."""
