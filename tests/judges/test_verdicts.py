"""The local stack's table says what DynamoDB Local has said of the same stories (``verdicts.json``, which ``make judges`` compares)."""

import json

import pytest

from tests.judges.edges import CREATED, DIFFERENT, STORIES
from tests.judges.judge_table import VERDICTS
from tests.judges.tables import embedded, normal, verdict

WRITTEN: dict[str, list[str]] = json.loads(VERDICTS.read_text())


def test_there_is_a_verdict_for_each_request() -> None:
    assert {name: len(said) for name, said in WRITTEN.items()} == {name: len(story) for name, story in STORIES.items()}


@pytest.mark.parametrize("story", [name for name in STORIES if name not in DIFFERENT["embedded"]])
def test_the_local_table_says_what_dynamodb_local_has_said(story: str) -> None:
    with embedded() as play:
        play(*CREATED)
        said = [verdict(normal(operation, *play(operation, request))) for operation, request in STORIES[story]]
    assert said == WRITTEN[story]
