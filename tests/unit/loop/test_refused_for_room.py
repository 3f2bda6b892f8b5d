"""A request whose files find no room: it leaves neither a container nor anything in it."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.loop.test_upstream_shell import House, error_of
from tests.unit.resources.support import chunked

SHELL = {"type": "shell", "environment": {"type": "container_auto"}}
FULL = (429, "storage_limit_reached", None)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """Its tenants may store 100 bytes."""
    built = House()
    built.lab.runtime.stores.files.stored.most = 100
    yield built
    await built.a.aclose()
    await built.b.aclose()


async def left(house: House) -> tuple[list[Any], int, int]:
    """The containers of tenant a, what is counted of it, and what lies in the bucket."""
    listed = (await house.a.get("/containers")).json()["data"]
    standing = await house.lab.runtime.stores.files.stored.standing("ten_a")
    return listed, standing.used, await house.lab.runtime.stores.blobs.bytes_under("T/ten_a/")


def sent(*contents: bytes) -> list[dict[str, Any]]:
    parts = [
        {"type": "input_file", "filename": f"{number}.bin", "file_data": f"data:;base64,{base64.b64encode(content).decode()}"}
        for number, content in enumerate(contents)
    ]
    return [{"role": "user", "content": parts}]


async def test_files_of_an_input_that_fit_alone_but_not_together(house: House) -> None:
    answer = await house.a.post("/responses", json={"model": "here", "input": sent(b"a" * 60, b"b" * 60), "tools": [SHELL]})
    assert (error_of(answer), await left(house)) == (FULL, ([], 0, 0))


async def test_content_that_an_input_brings_twice_counts_once(house: House) -> None:
    await house.a.post("/responses", json={"model": "here", "input": sent(b"a" * 60, b"a" * 60), "tools": [SHELL]})
    (container,), used, there = await left(house)
    assert (container["name"], used, there) == ("auto", 60, 60)


@pytest.mark.parametrize("path", ["/containers", "/responses"])
async def test_uploaded_files_of_which_a_container_would_hold_copies(house: House, path: str) -> None:
    file = await house.lab.runtime.stores.files.create("ten_a", filename="a.bin", purpose="user_data", chunks=chunked(b"a" * 60))
    tool = {"type": "shell", "environment": {"type": "container_auto", "file_ids": [file.id]}}
    body = {"name": "c", "file_ids": [file.id]} if path == "/containers" else {"model": "here", "input": "hi", "tools": [tool]}
    answer = await house.a.post(path, json=body)
    assert (error_of(answer), await left(house)) == (FULL, ([], 60, 60))


async def test_a_container_that_was_there_before_stays(house: House) -> None:
    made = (await house.a.post("/containers", json={"name": "c"})).json()
    tool = {"type": "shell", "environment": {"type": "container_reference", "container_id": made["id"]}}
    answer = await house.a.post("/responses", json={"model": "here", "input": sent(b"a" * 60, b"b" * 60), "tools": [tool]})
    listed, used, there = await left(house)
    assert (error_of(answer), [each["id"] for each in listed], used, there) == (FULL, [made["id"]], 0, 0)
