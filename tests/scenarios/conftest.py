from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from tests.stack import Stack


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-pages", action="store_true", help="write tests/scenarios/console_pages: what the console's pages say")


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One embedded stack for all scenarios of this process."""
    running = Stack(Path(tmp_path_factory.mktemp("stack")), {"MOORAGE_METRICS_PORT": "0"}).start()
    yield running
    assert running.stop() == 0


@pytest.fixture
def client(stack: Stack) -> OpenAI:
    return stack.client()
