from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from openai import OpenAI

from tests.ministack import Ministack
from tests.stack import Stack, at_endpoint

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser import Console


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-pages", action="store_true", help="write tests/scenarios/console_pages: what the console's pages say")


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    """A module that wants a tenant of its own has another one."""
    return stack.key


@pytest.fixture(scope="module")
def client(stack: Stack, key: str) -> OpenAI:
    return stack.client(key)


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    from tests.browser import chromium

    with chromium() as running:
        yield running


@pytest.fixture
def console(browser: "Browser", stack: Stack) -> Iterator["Console"]:
    """A tab whose page has no error in it."""
    from tests.browser import Console, context_of

    context = context_of(browser)
    opened = Console.opened(context, stack.url.removesuffix("v1") + "console/")
    yield opened
    context.close()
    assert opened.said == []


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
