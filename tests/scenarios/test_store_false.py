"""``store: false``: nothing of the content survives the response."""

import secrets
import time
import zlib
from typing import Any

import boto3
import openai
import pytest
from botocore.config import Config
from openai import OpenAI

from tests.stack import SHELL, Stack, outputs, say, script, shell

TOOLS: Any = [SHELL]


def everything(stack: Stack) -> bytes:
    """All that the table and the bucket hold, with what is compressed opened."""
    session, access = boto3.Session(), stack.aws()
    table = session.client("dynamodb", **access)
    found = bytearray()
    for page in table.get_paginator("scan").paginate(TableName="moorage"):
        for item in page["Items"]:
            found += repr(item).encode()
            for value in item.values():
                if "B" in value:
                    try:
                        found += zlib.decompress(value["B"])
                    except zlib.error:
                        found += value["B"]
    bucket = session.client("s3", **access, config=Config(s3={"addressing_style": "path"}))
    for listed in bucket.get_paginator("list_objects_v2").paginate(Bucket="moorage"):
        for entry in listed.get("Contents", []):
            found += entry["Key"].encode() + bucket.get_object(Bucket="moorage", Key=entry["Key"])["Body"].read()
    table.close()
    bucket.close()
    return bytes(found)


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
    deadline = time.monotonic() + 20
    while word.encode() in everything(stack) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert word.encode() not in everything(stack)
    assert made.id.encode() not in everything(stack)
