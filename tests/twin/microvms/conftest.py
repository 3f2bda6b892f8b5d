from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.stack import Stack
from tests.twin.microvms.machine import Image, has_freezer, why_no_machines
from tests.twin.microvms.rights import rights
from tests.twin.microvms.service import MicrovmTwin


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    if reason := why_no_machines():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("image")
    folder.chmod(0o755)
    made = Image(folder, uses_freezer=has_freezer())
    yield made
    made.close()


@pytest.fixture(scope="session")
def twin(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MicrovmTwin]:
    with MicrovmTwin(image) as running:
        running.may = rights(tmp_path_factory)
        yield running


@pytest.fixture(scope="session")
def stack(twin: MicrovmTwin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One stack whose sandboxes are machines of the twin."""
    running = Stack(tmp_path_factory.mktemp("stack"), twin.environment, module="tests.twin.microvms.up").start()
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    return stack.key


@pytest.fixture(scope="module")
def client(stack: Stack, key: str) -> OpenAI:
    return stack.client(key)
