"""What a plain response writes, counted in the AWS SDK of the API's process."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ministack import Ministack
from tests.stack import ROOT, Stack, at_endpoint, say, script

_READS = ("GetItem", "Query", "BatchGetItem")
_AT_ONCE = [("BatchWriteItem", 3)]
"""Two records of a unit each, and one entry of the index: what a list of responses is found by."""
_RECORD_FIRST = [("PutItem", 1), ("PutItem", 3)]
"""The batch, which holds the answer, is listed here, and its place in the list makes it larger than a KB."""


@pytest.fixture(scope="module")
def counted(ministack: Ministack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Path]]:
    """A stack whose sandboxes have a price, and the file in which its requests are noted."""
    state_dir = Path(tmp_path_factory.mktemp("counted"))
    counts = state_dir / "counts"
    counting = {"PYTHONPATH": str(ROOT / "tests" / "bench" / "counting"), "MOORAGE_BENCH_COUNTS": str(counts)}
    stack = Stack(
        state_dir, {**at_endpoint(ministack.endpoint), "MOORAGE_TABLE": "counted", "MOORAGE_SANDBOX_PRICE": "0.03,0.004", **counting}
    ).start()
    yield stack, counts
    assert stack.stop() == 0


@pytest.mark.parametrize("is_streamed", [True, False], ids=["streamed", "in one piece"])
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (say("hello"), (_AT_ONCE, _RECORD_FIRST)),  # A busy machine may need longer for it than the record waits.
        ({"delta_ms": 60, "say": "one two three four"}, (_RECORD_FIRST,)),
    ],
    ids=["short", "long"],
)
def test_a_plain_response_is_two_records_and_no_execution(
    counted: tuple[Stack, Path], step: dict[str, Any], expected: tuple[list[tuple[str, int]], ...], is_streamed: bool
) -> None:
    stack, counts = counted
    with stack.http() as http:
        http.get("/models")  # The key has been looked up.
        before = len(counts.read_text().splitlines())
        answer = http.post("/responses", json={"model": "demo", "input": script(step), "stream": is_streamed})
        assert answer.status_code == 200
    seen = [json.loads(line) for line in counts.read_text().splitlines()[before:]]
    writes = [(operation, units) for service, operation, _, units in seen if service == "dynamodb" and operation not in _READS]
    reads = [operation for service, operation, *_ in seen if service == "dynamodb" and operation in _READS]
    assert (writes in expected, reads) == (True, []), writes
