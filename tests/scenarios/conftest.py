from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.ministack import Ministack
from tests.stack import Stack, at_endpoint


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-pages", action="store_true", help="write tests/scenarios/console_pages: what the console's pages say")


@pytest.fixture
def client(stack: Stack) -> OpenAI:
    return stack.client()


@pytest.fixture(scope="session")
def ministack() -> Iterator[Ministack]:
    server = Ministack.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def aws_stack(ministack: Ministack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose table and bucket are at an emulator of AWS."""
    running = Stack(tmp_path_factory.mktemp("aws-stack"), at_endpoint(ministack.endpoint)).start()
    yield running
    assert running.stop() == 0
