"""What a plain response, and a turn of a session, write, counted in the AWS SDK of the API's process."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ministack import Ministack
from tests.processes import until
from tests.stack import ROOT, Stack, at_endpoint, say, script, shell

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
    counting = {"PYTHONPATH": str(ROOT / "tests" / "scenarios" / "counting"), "AWS_REQUESTS_FILE": str(counts)}
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
    writes = [(operation, units) for service, operation, _, units, _ in seen if service == "dynamodb" and operation not in _READS]
    reads = [operation for service, operation, *_ in seen if service == "dynamodb" and operation in _READS]
    assert (writes in expected, reads) == (True, []), writes


_BACKGROUND = [("BatchWriteItem", 3), ("UpdateItem", 1), ("PutItem", 3), ("UpdateItem", 1)]
"""Its records, the outcome of its step, the batch that ends it and lists it, and that the loop owes it nothing more: eight units."""
_TRIES = 6


def test_a_turn_writes_two_units_more_than_a_background_response_at_most(counted: tuple[Stack, Path]) -> None:
    stack, counts = counted

    def written(ask: Callable[[], tuple[str, ...]], wanted: list[tuple[str, int]]) -> None:
        """Asking, which answers the ids of what it writes to, costs what is wanted. A busy machine may run a step twice."""
        seen: list[list[tuple[str, int]]] = []
        for _ in range(_TRIES):
            before = len(counts.read_text().splitlines())
            ids = ask()

            def writes(before: int = before, ids: tuple[str, ...] = ids) -> list[tuple[str, int]]:
                lines = [json.loads(line) for line in counts.read_text().splitlines()[before:]]
                return [
                    (operation, units) for _, operation, _, units, place in lines if operation not in _READS and place.endswith(ids)
                ]

            until(lambda writes=writes: len(writes()) >= len(wanted))  # type: ignore[misc]
            seen.append(writes())
            if seen[-1] == wanted:
                return
        raise AssertionError(seen)

    hello, (batch, *others) = script(say("hello")), _BACKGROUND
    with stack.http() as http:

        def in_background() -> tuple[str, ...]:
            asked = {"model": "demo", "input": hello, "background": True}
            return (http.post("/responses", json=asked).json()["id"],)

        def newest(session_id: str) -> tuple[str, ...]:
            turn = http.get(f"/agents/sessions/{session_id}/turns", params={"limit": 1}).json()["data"][0]
            return session_id, *turn["response_ids"]

        def in_new_session() -> tuple[str, ...]:
            asked = {"agent": {"model": "demo"}, "environment": {"type": "none"}, "input": hello}
            return newest(http.post("/agents/sessions", json=asked).json()["id"])

        session_id = in_new_session()[0]

        def in_session() -> tuple[str, ...]:
            until(lambda: http.get(f"/agents/sessions/{session_id}").json()["status"] == "idle")
            message = {"role": "user", "content": [{"type": "input_text", "text": hello}]}
            event = {"type": "agent.session.input.message", "input": [message]}
            assert http.post(f"/agents/sessions/{session_id}/events", json={"events": [event]}).status_code == 202
            return newest(session_id)

        written(in_background, _BACKGROUND)
        # The session, with its place in the list, and the turn: it comes behind its response's records.
        written(in_new_session, [("PutItem", 2), batch, ("PutItem", 1), *others])
        # The ids of the responses before it make the record of a response larger than a KB.
        written(in_session, [("BatchWriteItem", 4), ("PutItem", 1), *others])


def test_a_command_writes_one_unit_for_each_small_file_that_it_leaves(counted: tuple[Stack, Path]) -> None:
    stack, counts = counted
    with stack.http() as http:
        container_id = http.post("/containers", json={"name": "counted"}).json()["id"]
        place = {"type": "container_reference", "container_id": container_id}

        def written_by(command: str) -> list[tuple[str, int]]:
            before = len(counts.read_text().splitlines())
            asked = {"model": "demo", "input": script(shell(command), say("done")), "tools": [{"type": "shell", "environment": place}]}
            assert http.post("/responses", json=asked, timeout=60).json()["status"] == "completed"
            lines = [json.loads(line) for line in counts.read_text().splitlines()[before:]]
            return [
                (operation, units)
                for _, operation, _, units, at in lines
                if at.endswith(container_id) and operation in ("PutItem", "BatchWriteItem", "DeleteItem")
            ]

        written_by("true")  # Its sandbox is started.
        made, deleted = written_by("cd /mnt/data; echo a > a.txt; echo b > b.txt"), written_by("rm /mnt/data/a.txt")
    one = ("PutItem", 1)
    # A deletion notes how the file was, marks its place in the list, and ends its row.
    assert (made, deleted) == ([one, one], [one, ("BatchWriteItem", 1), ("DeleteItem", 1)])
