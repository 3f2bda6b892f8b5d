"""Large files pass a MicroVM's endpoint of 1 MB/s by: its exec server gets and puts them in the bucket, by signed URLs."""

import hashlib
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from openai import OpenAI

from tests.ministack import Ministack
from tests.stack import Stack, at_endpoint, outputs, say, script, shell
from tests.twin.microvms.machine import Image
from tests.twin.microvms.service import MicrovmTwin

BYTES = 20_000_000
"""Twenty seconds through the endpoint."""
CONTENT = bytes(range(256)) * (BYTES // 256)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Ministack]:
    server = Ministack.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def bucket_twin(image: Image, bucket: Ministack) -> Iterator[MicrovmTwin]:
    with MicrovmTwin(image, bucket_port=urlsplit(bucket.endpoint).port or 0) as twin:
        yield twin


@pytest.fixture(scope="module")
def stack(bucket_twin: MicrovmTwin, bucket: Ministack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    environment = {**at_endpoint(bucket.endpoint), **bucket_twin.environment, **at_endpoint(bucket.endpoint)}
    running = Stack(tmp_path_factory.mktemp("bucket"), environment, module="tests.twin.microvms.up").start()
    yield running
    assert running.stop() == 0


def test_large_files_go_in_and_out_by_the_bucket(client: OpenAI, bucket_twin: MicrovmTwin) -> None:
    uploaded = client.files.create(file=("large.bin", CONTENT), purpose="user_data")
    make = f"sha256sum large.bin; head -c {BYTES} /dev/urandom > made.bin; cp large.bin same.bin; sha256sum made.bin"
    response = client.responses.create(
        model="demo",
        input=script(shell(make), say("done")),
        tools=[{"type": "shell", "environment": {"type": "container_auto", "file_ids": [uploaded.id]}}],
    )
    (said,) = outputs(response.output)[0]
    came, made = (line.split()[0] for line in said[0].splitlines())
    assert came == hashlib.sha256(CONTENT).hexdigest()
    container_id = response.tools[0].environment.container_id  # type: ignore[union-attr]
    listed = {each.path: each for each in client.containers.files.list(container_id).data}
    assert {path: each.bytes for path, each in listed.items()} == {
        f"/mnt/data/{name}": BYTES // 256 * 256 if name != "made.bin" else BYTES for name in ("large.bin", "made.bin", "same.bin")
    }
    stored = client.containers.files.content.retrieve(listed["/mnt/data/made.bin"].id, container_id=container_id).read()
    assert hashlib.sha256(stored).hexdigest() == made
    assert bucket_twin.happened["bucket"] >= 2
    assert bucket_twin.endpoint_bytes < 1_000_000


def test_a_revived_container_has_its_large_files(client: OpenAI, bucket_twin: MicrovmTwin) -> None:
    first = client.responses.create(
        model="demo",
        input=script(shell(f"head -c {BYTES} /dev/urandom > made.bin; sha256sum made.bin"), say("x")),
        tools=[{"type": "shell", "environment": {"type": "container_auto"}}],
    )
    bucket_twin.crash(bucket_twin.alive()[-1])
    again = client.responses.create(
        model="demo",
        input=script(shell("sha256sum made.bin"), say("x")),
        tools=[{"type": "shell", "environment": {"type": "container_auto"}}],
        previous_response_id=first.id,
    )
    before, after = (outputs(each.output)[0][0][0] for each in (first, again))
    assert after.endswith(before), outputs(again.output)
    assert bucket_twin.endpoint_bytes < 1_000_000
