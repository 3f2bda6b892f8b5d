"""Vector stores through the SDK's own helpers, on the stack: real executions, a real sandbox, the index that comes along."""

from openai import OpenAI

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
