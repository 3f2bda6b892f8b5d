"""``store: false``: nothing of the content survives the response."""

import asyncio
import secrets
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from moorage.store.blobs import Blobs
from moorage.store.file_blobs import FileBlobs
from openai import OpenAI

from tests.stack import SHELL, Stack, outputs, say, script, shell

TOOLS: Any = [SHELL]


def everything(stack: Stack) -> bytes:
    """All that the table and the bucket hold, with what is compressed opened."""
    found = bytearray()
    for record in stack.records():
        found += repr(record).encode()
        for value in record.values():
            if isinstance(value, bytes):
                try:
                    found += zlib.decompress(value)
                except zlib.error:
                    found += value
    with stack.journal() as journal, ThreadPoolExecutor() as executor:
        found += asyncio.run(_objects(FileBlobs(journal, executor)))
    return bytes(found)


async def _objects(blobs: Blobs) -> bytes:
    return b"".join([key.encode() + await blobs.get_bytes(key) async for key, _ in blobs.list_prefix("")])


def test_the_search_finds_what_is_stored(stack: Stack, client: OpenAI) -> None:
    word = f"word-{secrets.token_hex(8)}"
    client.responses.create(model="demo", input=script(say(word)))
    assert word.encode() in everything(stack)


def test_nothing_of_a_plain_response_is_written(stack: Stack, client: OpenAI) -> None:
    word = f"word-{secrets.token_hex(8)}"
    made = client.responses.create(model="demo", input=script(say(word)), store=False)
    assert made.output_text == word
    assert word.encode() not in everything(stack)
    assert made.id.encode() not in everything(stack)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_nothing_of_a_shell_run_remains_when_its_container_is_gone(stack: Stack, client: OpenAI) -> None:
    word = f"word-{secrets.token_hex(8)}"
    made = client.responses.create(
        model="demo", input=script(shell(f"echo {word} | tee file.txt"), say(f"It said {word}.")), tools=TOOLS, store=False
    )
    assert outputs(made.output) == [[(f"{word}\n", "", 0)]]
    client.containers.delete(made.tools[0].environment.container_id)  # type: ignore[union-attr]
    deadline = time.monotonic() + 60
    while word.encode() in everything(stack) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert word.encode() not in everything(stack)
    assert made.id.encode() not in everything(stack)
