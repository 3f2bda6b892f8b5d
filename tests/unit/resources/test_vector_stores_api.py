"""``/v1/vector_stores`` as the SDK drives it, with the index that is really used."""

import asyncio
from dataclasses import replace
from typing import Any

import openai
import pytest
from moorage import limits
from moorage.model.prices import Price
from moorage.store.api_keys import hash_of, key_id_of
from moorage.store.budgets import Scope

from tests.unit.knowledge.vector_service import FakeS3Vectors
from tests.unit.resources.service import Service, build_service
from tests.unit.resources.support import Clock, Store
from tests.unit.resources.vector_stores import BRIDGES, DAY, WHALES, before, found, left_of, run, store_with, upload

# --- Stores ------------------------------------------------------------------------------------------------------------------------


async def test_a_store_is_made_and_read_and_changed(service: Service) -> None:
    made = await service.sdk.vector_stores.create(
        name="contracts", description="Of 2026", metadata={"team": "law"}, expires_after={"anchor": "last_active_at", "days": 7}
    )
    now = int(service.clock())
    expected = {
        "id": made.id,
        "object": "vector_store",
        "created_at": now,
        "name": "contracts",
        "description": "Of 2026",
        "usage_bytes": 0,
        "status": "completed",
        "file_counts": {"in_progress": 0, "completed": 0, "failed": 0, "cancelled": 0, "total": 0},
        "expires_after": {"anchor": "last_active_at", "days": 7},
        "expires_at": now + 7 * DAY,
        "last_active_at": now,
        "metadata": {"team": "law"},
    }
    assert made.to_dict() == expected
    assert (await service.sdk.vector_stores.retrieve(made.id)).to_dict() == expected
    changed = await service.sdk.vector_stores.update(made.id, name="deeds", expires_after=None, metadata=None)
    assert changed.to_dict() == expected | {"name": "deeds", "expires_after": None, "expires_at": None, "metadata": {}}


async def test_stores_are_listed_and_deleted_while_they_are(service: Service) -> None:
    made = [(await service.sdk.vector_stores.create(name=str(number))).id for number in range(3)]
    assert [store.id async for store in service.sdk.vector_stores.list(limit=1)] == sorted(made, reverse=True)
    async for store in service.sdk.vector_stores.list(limit=1):
        gone = await service.sdk.vector_stores.delete(store.id)
        assert gone.to_dict() == {"id": store.id, "object": "vector_store.deleted", "deleted": True}
    assert (await service.sdk.vector_stores.list()).data == []
    assert left_of(service) == []


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "an unknown field": ("", {"nmae": "x"}, "nmae"),
    "a strategy without files": ("", {"chunking_strategy": {"type": "auto"}}, "chunking_strategy"),
    "no days": ("", {"expires_after": {"anchor": "last_active_at", "days": 0}}, "expires_after.days"),
    "another anchor": ("", {"expires_after": {"anchor": "created_at", "days": 1}}, "expires_after.anchor"),
    "too many files": ("", {"file_ids": ["file-x"] * 501}, "file_ids"),
    "an unknown file": ("/files", {"file_id": "file-none"}, "file_id"),
    "no file": ("/files", {}, "file_id"),
    "chunks too small": (
        "/files",
        {"file_id": "f", "chunking_strategy": {"type": "static", "static": {"max_chunk_size_tokens": 99, "chunk_overlap_tokens": 0}}},
        "chunking_strategy.static.max_chunk_size_tokens",
    ),
    "too much overlap": (
        "/files",
        {"file_id": "f", "chunking_strategy": {"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 51}}},
        "chunking_strategy.static.chunk_overlap_tokens",
    ),
    "an attribute that is a list": ("/files", {"file_id": "f", "attributes": {"a": [1]}}, "attributes.a"),
    "too many attributes": ("/files", {"file_id": "f", "attributes": {str(n): n for n in range(17)}}, "attributes"),
    "an attribute that is too long": ("/files", {"file_id": "f", "attributes": {"a": "x" * 513}}, "attributes.a"),
    "neither files nor ids": ("/file_batches", {}, "file_ids"),
    "files and ids": ("/file_batches", {"file_ids": ["f"], "files": [{"file_id": "f"}]}, "files"),
    "attributes of all beside files": ("/file_batches", {"files": [{"file_id": "f"}], "attributes": {"a": 1}}, "attributes"),
    "an unknown file in a batch": ("/file_batches", {"file_ids": ["file-none"]}, "file_ids[0]"),
    "no query": ("/search", {}, "query"),
    "an empty query": ("/search", {"query": ""}, "query"),
    "a query that is a number": ("/search", {"query": ["a", 1]}, "query[1]"),
    "too many results": ("/search", {"query": "a", "max_num_results": 51}, "max_num_results"),
    "a filter of no kind": ("/search", {"query": "a", "filters": {"type": "like", "key": "a", "value": "b"}}, "filters.type"),
    "another ranker": ("/search", {"query": "a", "ranking_options": {"ranker": "best"}}, "ranking_options.ranker"),
    "a query to be rewritten": ("/search", {"query": "a", "rewrite_query": True}, "rewrite_query"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_cannot_be_is_refused_by_name(service: Service, what: str) -> None:
    path, body, param = REFUSED[what]
    made = await service.sdk.vector_stores.create(name="x")
    answer = await service.http.post(f"/vector_stores/{made.id}{path}" if path else "/vector_stores", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (404 if "unknown file" in what else 400, param), answer.text
    assert (await service.sdk.vector_stores.retrieve(made.id)).file_counts.total == 0


async def test_one_tenant_holds_so_many_stores(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VECTOR_STORES_MAX", 1)
    await service.sdk.vector_stores.create(name="x")
    with pytest.raises(openai.BadRequestError, match="1 vector stores, the most there may be"):
        await service.sdk.vector_stores.create(name="y")
    await service.stranger.vector_stores.create(name="y")


# --- Files -------------------------------------------------------------------------------------------------------------------------


async def test_a_file_is_read_and_found(service: Service) -> None:
    store = await service.sdk.vector_stores.create(name="notes")
    file_id = await upload(service, "whales.md", WHALES)
    strategy: Any = {"type": "static", "static": {"max_chunk_size_tokens": 200, "chunk_overlap_tokens": 50}}
    added = await service.sdk.vector_stores.files.create(
        store.id, file_id=file_id, attributes={"year": 2026, "kind": "note", "draft": False}, chunking_strategy=strategy
    )
    expected = {
        "id": file_id,
        "object": "vector_store.file",
        "created_at": int(service.clock()),
        "vector_store_id": store.id,
        "filename": "whales.md",
        "status": "in_progress",
        "last_error": None,
        "usage_bytes": 0,
        "attributes": {"year": 2026, "kind": "note", "draft": False},
        "chunking_strategy": strategy,
    }
    assert added.to_dict() == expected
    busy = await service.sdk.vector_stores.retrieve(store.id)
    assert (busy.status, busy.file_counts.in_progress, busy.file_counts.total) == ("in_progress", 1, 1)

    assert await run(service) == ["index", "index"]

    read = await service.sdk.vector_stores.files.retrieve(file_id, vector_store_id=store.id)
    assert read.usage_bytes > 0
    assert read.to_dict() == expected | {"status": "completed", "usage_bytes": read.usage_bytes}
    done = await service.sdk.vector_stores.retrieve(store.id)
    assert (done.status, done.file_counts.completed, done.usage_bytes) == ("completed", 1, read.usage_bytes)
    (part,) = (await service.sdk.vector_stores.files.content(file_id, vector_store_id=store.id)).data
    assert part.to_dict() == {"type": "text", "text": WHALES.decode()}
    (hit,) = (await service.sdk.vector_stores.search(store.id, query="the largest animal")).data
    ranks: Any = hit.to_dict()["ranks"]
    assert hit.to_dict() == {
        "file_id": file_id,
        "filename": "whales.md",
        "score": hit.score,
        "attributes": {"year": 2026, "kind": "note", "draft": False},
        "content": [{"type": "text", "text": WHALES.decode().strip()}],
        "ranks": ranks,
    }
    assert 0 < hit.score <= 1
    assert (ranks["embedding"]["place"], ranks["text"]["place"]) == (1, 1)


async def test_a_search_filters_by_attributes_as_they_are_now(service: Service) -> None:
    store, ids = await store_with(service, whales_md=WHALES, bridges_txt=BRIDGES)
    old: Any = {"type": "lt", "key": "year", "value": 2000}
    assert await found(service, store.id, "bridge", filters=old) == []
    changed = await service.sdk.vector_stores.files.update(ids["bridges_txt"], vector_store_id=store.id, attributes={"year": 1945})
    assert changed.attributes == {"year": 1945}
    assert await found(service, store.id, "bridge", filters=old) == ["bridges.txt"]
    await service.sdk.vector_stores.files.update(ids["bridges_txt"], vector_store_id=store.id, attributes=None)
    assert await found(service, store.id, "bridge", filters=old) == []


async def test_attributes_that_change_while_a_file_is_read_are_those_it_is_found_by(service: Service) -> None:
    file_id = await upload(service, "whales.md", WHALES)
    store = await service.sdk.vector_stores.create(file_ids=[file_id])
    stores = service.runtime.vector_stores

    async def change(*_: Any) -> None:
        await service.sdk.vector_stores.files.update(file_id, vector_store_id=store.id, attributes={"year": 1851})

    before(stores.indexing.knowledge.index, "put_file", change)
    await run(service)
    assert await found(service, store.id, "whale", filters={"type": "eq", "key": "year", "value": 1851}) == ["whales.md"]


async def test_a_removed_file_is_not_found_any_more_and_stays_a_file(service: Service) -> None:
    store, ids = await store_with(service, whales_md=WHALES, bridges_txt=BRIDGES)
    gone = await service.sdk.vector_stores.files.delete(ids["whales_md"], vector_store_id=store.id)
    assert gone.to_dict() == {"id": ids["whales_md"], "object": "vector_store.file.deleted", "deleted": True}
    assert await found(service, store.id, "the largest animal") == ["bridges.txt"]
    with pytest.raises(openai.NotFoundError):
        await service.sdk.vector_stores.files.retrieve(ids["whales_md"], vector_store_id=store.id)
    assert (await service.sdk.files.retrieve(ids["whales_md"])).filename == "whales.md"
    left = await service.sdk.vector_stores.retrieve(store.id)
    assert (left.file_counts.completed, left.file_counts.total) == (1, 1)
    (other,) = (await service.sdk.vector_stores.files.list(store.id)).data
    assert left.usage_bytes == other.usage_bytes


async def test_a_file_that_is_deleted_leaves_every_store(service: Service) -> None:
    first, ids = await store_with(service, whales_md=WHALES)
    second = await service.sdk.vector_stores.create(file_ids=[ids["whales_md"]])
    await run(service)
    await service.sdk.files.delete(ids["whales_md"])
    for store_id in (first.id, second.id):
        assert await found(service, store_id, "whale") == []
        assert (await service.sdk.vector_stores.retrieve(store_id)).file_counts.total == 0
    assert [key for key in service.store.objects() if "whales" in key or ids["whales_md"] in key] == []


async def test_a_file_that_is_added_again_is_read_again(service: Service) -> None:
    store, ids = await store_with(service, whales_md=WHALES)
    again = await service.sdk.vector_stores.files.create(store.id, file_id=ids["whales_md"], attributes={"n": 2})
    assert (again.status, again.attributes) == ("in_progress", {"n": 2})
    await run(service)
    done = await service.sdk.vector_stores.retrieve(store.id)
    assert (done.file_counts.completed, done.file_counts.total) == (1, 1)
    assert done.usage_bytes == (await service.sdk.vector_stores.files.retrieve(ids["whales_md"], vector_store_id=store.id)).usage_bytes
    assert await found(service, store.id, "whale", filters={"type": "eq", "key": "n", "value": 2}) == ["whales.md"]
    assert len([key for key in service.store.objects() if f"/X/{store.id}/{ids['whales_md']}/" in key]) == 1


async def test_files_are_listed_by_status_and_place(service: Service) -> None:
    store, ids = await store_with(service, a_txt=b"one", b_txt=b"two", c_png=b"\x89PNG\r\n\x1a\n")
    files = service.sdk.vector_stores.files
    assert {file.id async for file in files.list(store.id, limit=1)} == set(ids.values())
    assert [file.id async for file in files.list(store.id, filter="failed", limit=1)] == [ids["c_png"]]
    (failed,) = (await files.list(store.id, filter="failed")).data
    assert failed.last_error is not None
    assert failed.last_error.code == "unsupported_file"
    seen = []
    async for file in files.list(store.id, limit=1):
        seen.append(file.id)
        await files.delete(file.id, vector_store_id=store.id)
    assert sorted(seen) == sorted(ids.values())
    with pytest.raises(openai.BadRequestError):
        await files.list(store.id, filter="done")  # type: ignore[arg-type]
    with pytest.raises(openai.BadRequestError):
        await files.list(store.id, after="file-none")


async def test_a_full_store_takes_no_more(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VECTOR_STORE_FILES_MAX", 2)
    store, ids = await store_with(service, a_txt=b"one", b_txt=b"two")
    third = await upload(service, "c.txt", b"three")
    with pytest.raises(openai.BadRequestError, match="at most 2 files"):
        await service.sdk.vector_stores.files.create(store.id, file_id=third)
    again = await service.sdk.vector_stores.files.create(store.id, file_id=ids["a_txt"])
    assert again.status == "in_progress", "one that it has takes no more room"
    monkeypatch.setattr(limits, "VECTOR_STORE_FILES_MAX", 9)
    monkeypatch.setattr(limits, "VECTOR_STORE_BYTES_MAX", 1)
    with pytest.raises(openai.BadRequestError, match="takes 1 bytes or more"):
        await service.sdk.vector_stores.files.create(store.id, file_id=third)


# --- Batches -------------------------------------------------------------------------------------------------------------------------


async def test_a_batch_is_read_and_counted(service: Service) -> None:
    store = await service.sdk.vector_stores.create(name="x")
    ids = [await upload(service, f"{n}.txt", f"number {n}".encode()) for n in range(limits.VECTOR_FILES_TOGETHER + 3)]
    bad = await upload(service, "a.png", b"\x89PNG")
    batch = await service.sdk.vector_stores.file_batches.create(store.id, file_ids=[*ids, bad], attributes={"set": "a"})
    total = len(ids) + 1
    counts = {"in_progress": total, "completed": 0, "failed": 0, "cancelled": 0, "total": total}
    assert batch.to_dict() == {
        "id": batch.id,
        "object": "vector_store.files_batch",
        "created_at": int(service.clock()),
        "vector_store_id": store.id,
        "status": "in_progress",
        "file_counts": counts,
    }
    await run(service)
    done = await service.sdk.vector_stores.file_batches.retrieve(batch.id, vector_store_id=store.id)
    assert done.status == "completed"
    assert done.file_counts.to_dict() == counts | {"in_progress": 0, "completed": len(ids), "failed": 1}
    listed = service.sdk.vector_stores.file_batches.list_files
    assert [file.id async for file in listed(batch.id, vector_store_id=store.id, limit=5, order="asc")] == sorted([*ids, bad])
    assert [file.id async for file in listed(batch.id, vector_store_id=store.id, filter="failed")] == [bad]
    assert {str(file.attributes) async for file in listed(batch.id, vector_store_id=store.id)} == {"{'set': 'a'}"}


async def test_files_of_a_batch_may_be_told_apart(service: Service) -> None:
    store = await service.sdk.vector_stores.create(name="x")
    first, second = await upload(service, "a.txt", b"one"), await upload(service, "b.txt", b"two")
    sizes: Any = {"type": "static", "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 0}}
    batch = await service.sdk.vector_stores.file_batches.create(
        store.id, files=[{"file_id": first, "attributes": {"n": 1}}, {"file_id": second, "chunking_strategy": sizes}]
    )
    files = {file.id: file async for file in service.sdk.vector_stores.file_batches.list_files(batch.id, vector_store_id=store.id)}
    assert (files[first].attributes, files[second].attributes) == ({"n": 1}, {})
    assert files[second].chunking_strategy.to_dict() == sizes  # type: ignore[union-attr]


async def test_a_cancelled_batch_leaves_what_is_read_and_reads_no_more(service: Service) -> None:
    store = await service.sdk.vector_stores.create(name="x")
    ids = [await upload(service, f"{n}.txt", b"one two") for n in range(3)]
    batch = await service.sdk.vector_stores.file_batches.create(store.id, file_ids=ids)
    cancelled = await service.sdk.vector_stores.file_batches.cancel(batch.id, vector_store_id=store.id)
    assert (cancelled.status, cancelled.file_counts.cancelled, cancelled.file_counts.in_progress) == ("cancelled", 3, 0)
    await run(service)
    assert await found(service, store.id, "one") == []
    assert (await service.sdk.vector_stores.retrieve(store.id)).file_counts.cancelled == 3
    again = await service.sdk.vector_stores.file_batches.cancel(batch.id, vector_store_id=store.id)
    assert again.to_dict() == cancelled.to_dict()


async def test_a_file_that_is_cancelled_while_it_is_read_is_not_found(service: Service) -> None:
    store = await service.sdk.vector_stores.create(name="x")
    file_id = await upload(service, "a.txt", WHALES)
    batch = await service.sdk.vector_stores.file_batches.create(store.id, file_ids=[file_id])
    before(
        service.runtime.models.knowledge.index,
        "put_file",
        lambda *_: service.sdk.vector_stores.file_batches.cancel(batch.id, vector_store_id=store.id),
    )
    await run(service)
    assert await found(service, store.id, "whale") == []
    assert (await service.sdk.vector_stores.files.retrieve(file_id, vector_store_id=store.id)).status == "cancelled"


# --- Many at once, and many tenants --------------------------------------------------------------------------------------------------


async def test_files_that_are_added_at_once_are_all_counted(service: Service) -> None:
    store = await service.sdk.vector_stores.create(name="x")
    ids = [await upload(service, f"{n}.txt", b"words") for n in range(8)]
    await asyncio.gather(*(service.sdk.vector_stores.files.create(store.id, file_id=each) for each in ids))
    assert (await service.sdk.vector_stores.retrieve(store.id)).file_counts.in_progress == 8
    assert len(service.runtime.stores.executions.started) == 1, "one execution reads them all"
    await run(service)
    assert (await service.sdk.vector_stores.retrieve(store.id)).file_counts.completed == 8


async def test_tenants_never_meet(service: Service) -> None:
    store, ids = await store_with(service, whales_md=WHALES)
    own = await service.stranger.vector_stores.create(name="mine")
    stranger = service.stranger.vector_stores
    for attempt in (
        lambda: stranger.retrieve(store.id),
        lambda: stranger.search(store.id, query="whale"),
        lambda: stranger.files.content(ids["whales_md"], vector_store_id=store.id),
        lambda: stranger.files.create(own.id, file_id=ids["whales_md"]),
        lambda: stranger.files.retrieve(ids["whales_md"], vector_store_id=own.id),
        lambda: stranger.delete(store.id),
    ):
        with pytest.raises(openai.NotFoundError):
            await attempt()
    assert [each.id async for each in stranger.list()] == [own.id]


# --- Backwards -----------------------------------------------------------------------------------------------------------------------


async def test_a_list_is_read_backwards_from_a_place(service: Service) -> None:
    stores = service.sdk.vector_stores
    made = []
    for number in range(5):
        service.clock.advance(1)
        made.append((await stores.create(name=str(number))).id)

    async def ids(**query: Any) -> tuple[list[str], bool]:
        page = await stores.list(**query)
        return [store.id for store in page.data], bool(page.has_more)

    newest = made[::-1]
    assert await ids(before=newest[3], limit=2) == (newest[1:3], True)
    assert await ids(before=newest[1], limit=2) == (newest[:1], False)
    assert await ids(before=newest[0]) == ([], False)
    assert await ids(before=made[3], limit=2, order="asc") == (made[1:3], True)
    assert await ids(after=newest[0], before=newest[3]) == (newest[1:3], False)
    assert [store.id async for store in stores.list(before=newest[3], limit=2)] == newest[1:3], "the SDK goes on behind the page's end"
    await stores.delete(newest[2])
    assert await ids(before=newest[2]) == (newest[:2], False), "a place that was deleted is still one"
    answer = await service.http.get("/vector_stores", params={"before": "vs_none"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "before")


async def test_files_of_a_store_and_of_a_batch_are_read_backwards(service: Service) -> None:
    ids = [await upload(service, f"{number}.txt", b"text") for number in range(5)]
    store = await service.sdk.vector_stores.create(name="x")
    batch = await service.sdk.vector_stores.file_batches.create(store.id, file_ids=ids)
    await run(service)
    await service.sdk.vector_stores.files.create(store.id, file_id=await upload(service, "no.png", b"GIF8"))
    await run(service)
    listed = [file.id async for file in service.sdk.vector_stores.files.list(store.id, filter="completed")]
    of_batch = sorted(ids, reverse=True)
    files, batches = service.sdk.vector_stores.files, service.sdk.vector_stores.file_batches
    page = await files.list(store.id, before=listed[3], limit=2, filter="completed")
    assert ([file.id for file in page.data], page.has_more) == (listed[1:3], True)
    page = await files.list(store.id, after=listed[0], before=listed[4], filter="completed")
    assert [file.id for file in page.data] == listed[1:4]
    page = await batches.list_files(batch.id, vector_store_id=store.id, before=of_batch[3], limit=2)
    assert ([file.id for file in page.data], page.has_more) == (of_batch[1:3], True)
    page = await batches.list_files(batch.id, vector_store_id=store.id, after=of_batch[0], before=of_batch[2])
    assert [file.id for file in page.data] == of_batch[1:2]
    for path in ("/files", f"/file_batches/{batch.id}/files"):
        answer = await service.http.get(f"/vector_stores/{store.id}{path}", params={"before": "file-none"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "before")


async def test_what_is_embedded_for_files_and_searches_is_counted_for_its_tenant(service: Service) -> None:
    store, _ = await store_with(service, whales_md=WHALES)
    await found(service, store.id, "whale")
    now = int(service.clock())
    (used,) = await service.runtime.stores.embedding_usage.between("ten_a", now, now)
    assert (used.model, used.key_id, used.embedding.requests, used.embedding.nanodollars) == ("static-256", "", 2, 0)
    assert used.embedding.tokens > 10
    assert await service.runtime.stores.embedding_usage.between("ten_b", now, now) == []


async def test_a_keys_budget_in_dollars_bounds_what_is_embedded_for_its_files_and_searches(service: Service) -> None:
    knowledge, key_id = service.runtime.models.knowledge, key_id_of(hash_of("key-a"))
    vars(knowledge)["embeddings"] = replace(knowledge.embeddings, prices={"static-256": Price(input=1_000)})
    await service.runtime.stores.budgets.put("ten_a", Scope("key", key_id), {"usd": 0.001})
    service.runtime.identity.api_keys.budgets["key-a"] = ("key",)
    store, _ = await store_with(service, whales_md=WHALES)
    assert store.file_counts.completed == 1, "a limit is not passed before it is reached"
    await service.sdk.vector_stores.files.create(store.id, file_id=await upload(service, "bridges.txt", BRIDGES))
    await run(service)
    (failed,) = [file async for file in service.sdk.vector_stores.files.list(store.id, filter="failed")]
    assert failed.last_error is not None
    assert failed.last_error.message.startswith(f"The budget of the API key '{key_id}' is used up: usd ")
    with pytest.raises(openai.RateLimitError, match="is used up"):
        await found(service, store.id, "whale")
    standing = await service.runtime.stores.budgets.standing("ten_a", Scope("key", key_id))
    assert (standing.used["usd"] > 0.001, standing.held["usd"]) == (True, 0)
    service.runtime.identity.api_keys.budgets.clear()
    assert await found(service, store.id, "whale") == ["whales.md"], "a key without a budget pays without one"


# --- With a vector bucket ------------------------------------------------------------------------------------------------------------


async def test_by_s3_vectors_the_api_does_what_it_does_without(store: Store, clock: Clock) -> None:
    vectors = FakeS3Vectors()
    service = build_service(store, clock, vector_bucket=vectors.bucket)
    notes, ids = await store_with(service, whales_md=WHALES, bridges_txt=BRIDGES)
    assert (notes.file_counts.completed, len(vectors.vectors())) == (2, 2)
    assert (await found(service, notes.id, "which animal is the biggest?"))[0] == "whales.md"
    await service.sdk.vector_stores.files.update(ids["bridges_txt"], vector_store_id=notes.id, attributes={"year": 1945})
    of_the_war: Any = {"type": "lte", "key": "year", "value": 1945}
    assert await found(service, notes.id, "which animal is the biggest?", filters=of_the_war) == ["bridges.txt"]
    assert [len(asked["filter"]["version"]["$in"]) for asked in vectors.asked if "filter" in asked] == [1]
    with pytest.raises(openai.NotFoundError):
        await service.stranger.vector_stores.search(notes.id, query="animal")
    await service.sdk.files.delete(ids["whales_md"])
    assert [key.split("/")[0] for key in vectors.vectors()] == [ids["bridges_txt"]]
    await service.sdk.vector_stores.files.create(notes.id, file_id=ids["bridges_txt"])
    await run(service)
    assert len(vectors.vectors()) == 1, "what was read again is in place of what was there"
    await service.sdk.vector_stores.delete(notes.id)
    assert (vectors.indexes, [key for key in left_of(service) if "/K/" in key]) == ({}, [])
    await service.http.aclose()
    await service.sdk.close()
    await service.stranger.close()


async def test_what_a_vector_bucket_refuses_is_told_to_who_adds_and_to_who_searches(store: Store, clock: Clock) -> None:
    vectors = FakeS3Vectors()
    service = build_service(store, clock, vector_bucket=vectors.bucket)
    vectors.faults.extend([("PutVectors", "AccessDeniedException"), *[("PutVectors", "ServiceUnavailableException")] * 5])
    ids = [await upload(service, name, content) for name, content in (("whales.md", WHALES), ("bridges.txt", BRIDGES))]
    made = await service.sdk.vector_stores.create(file_ids=ids)
    await run(service)
    assert not vectors.faults
    files = [await service.sdk.vector_stores.files.retrieve(each, vector_store_id=made.id) for each in ids]
    told = [(each.last_error.code, each.last_error.message) for each in files if each.last_error]
    why = "The vector bucket refuses this: its operator finds why in the logs (AccessDeniedException)."
    assert (sorted(each.status for each in files), told) == (["completed", "failed"], [("server_error", why)])
    vectors.faults.append(("QueryVectors", "AccessDeniedException"))
    answer = await service.http.post(f"/vector_stores/{made.id}/search", json={"query": "river"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (502, why)
    await service.http.aclose()
    await service.sdk.close()
    await service.stranger.close()
