import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-verdicts", action="store_true", help="write tests/judges/verdicts.json: what DynamoDB Local says")
