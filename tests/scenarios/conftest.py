import pytest
from openai import OpenAI

from tests.stack import Stack


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-pages", action="store_true", help="write tests/scenarios/console_pages: what the console's pages say")


@pytest.fixture
def client(stack: Stack) -> OpenAI:
    return stack.client()
