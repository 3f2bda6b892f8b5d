import io
from collections.abc import Iterator
from typing import Any

from moorage.cli.main import main
from moorage.cli.tail import TranscriptView

from tests.unit.cli.deployment import Answer, serving


def event(type_: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{type_}", **fields}


def response(status: str) -> dict[str, Any]:
    return {"id": "resp_1", "status": status, "usage": {"input_tokens": 20, "output_tokens": 7}}


def said(index: int, command: int, stream: str, text: str) -> dict[str, Any]:
    return event("shell_call_output_content.delta", output_index=index, command_index=command, delta={stream: text})


RUN = [
    event("created", response=response("queued"), sequence_number=0),
    event("output_item.added", output_index=0, item={"type": "reasoning"}),
    event("reasoning_summary_text.delta", output_index=0, delta="I should "),
    event("reasoning_summary_text.delta", output_index=0, delta="look."),
    event("output_item.added", output_index=1, item={"type": "shell_call"}),
    event("shell_call_command.done", output_index=1, command_index=0, command="ls"),
    said(2, 0, "stdout", "a.txt\nb"),
    said(2, 0, "stderr", "oh\n"),
    said(2, 0, "stdout", ".txt\n"),
    event("shell_call_output_content.done", output_index=2, command_index=0, output=[{"outcome": {"type": "exit", "exit_code": 0}}]),
    event("shell_call_output_content.done", output_index=2, command_index=1, output=[{"outcome": {"type": "timeout"}}]),
    event("output_item.added", output_index=3, item={"type": "function_call", "name": "look"}),
    event("function_call_arguments.delta", output_index=3, delta="{}"),
    event("output_text.delta", output_index=4, delta="Two "),
    event("output_text.delta", output_index=4, delta="files."),
]


def of(agent: str, type_: str, **fields: Any) -> dict[str, Any]:
    return event(type_, agent={"agent_name": agent}, **fields)


def test_who_speaks_of_a_team_is_told() -> None:
    out = io.StringIO()
    asked = {"type": "multi_agent_call", "action": "spawn_agent", "arguments": '{"task_name":"a"}'}
    sent = {"type": "agent_message", "id": "amsg_1", "author": "/root", "recipient": "/root/a"}
    TranscriptView(out).show(
        [
            of("/root", "output_item.added", output_index=0, item=asked),
            of(
                "/root/a",
                "output_item.added",
                output_index=1,
                item=sent | {"content": [{"type": "input_text", "text": "Payload:\nlook"}]},
            ),
            of("/root/a", "output_text.delta", output_index=2, delta="I "),
            of("/root", "output_text.delta", output_index=3, delta="Wait."),
            of("/root/a", "output_text.delta", output_index=2, delta="look."),
        ]
    )
    assert out.getvalue().splitlines() == [
        "/root:",
        'spawn_agent {"task_name":"a"}',
        "/root/a:",
        "/root → /root/a",
        "Payload:",
        "look",
        "I ",
        "/root:",
        "Wait.",
        "/root/a:",
        "look.",
    ]


def test_a_response_reads_like_a_transcript() -> None:
    out = io.StringIO()
    end = event("completed", response=response("completed"), sequence_number=15)
    assert TranscriptView(out).show([*RUN, end]) == 0
    assert out.getvalue().splitlines() == [
        "[0] resp_1 created",
        "I should look.",
        "$ ls",
        "a.txt",
        "b",
        "oh",
        ".txt",
        "[exit 0]",
        "[timed out]",
        "calls look",
        "{}",
        "Two files.",
        "[15] completed, 20 tokens in, 7 out",
    ]


class Watch:
    """A clock that stands still until an event moves it."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def events(self, *steps: tuple[float, dict[str, Any] | None]) -> Iterator[dict[str, Any] | None]:
        for seconds, event in steps:
            self.now += seconds
            yield event


STARTED = {
    "id": "resp_1",
    "status": "in_progress",
    "created_at": 1_000,
    "model": "demo",
    "tools": [{"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_1"}}],
}
COMMAND = event("shell_call_command.done", output_index=1, command_index=0, command="make")
WAITS = event("output_item.added", output_index=2, item={"type": "shell_call_output"})
DONE = event("shell_call_output_content.done", output_index=2, command_index=0, output=[{"outcome": {"type": "exit", "exit_code": 0}}])
LAST = event("completed", response=STARTED | {"status": "completed", "completed_at": 1_042}, sequence_number=9)


def test_a_response_that_is_watched_has_a_clock_and_says_what_it_waits_for() -> None:
    out, watch = io.StringIO(), Watch()
    created = event("created", response=STARTED, sequence_number=0)
    steps = [(0.1, created), (15, None), (0.4, COMMAND), (0, WAITS), (15, None), (11.5, DONE), (0.0, LAST)]
    assert TranscriptView(out, watch).show(watch.events(*steps)) == 0
    assert out.getvalue().splitlines() == [
        "[0] resp_1 created, model demo, container cntr_1  0.1 s",
        "[15 s without a word, waiting for the model]  15.1 s",
        "$ make  15.5 s",
        "[15 s without a word, waiting for the shell_call]  30.5 s",
        "[exit 0]  42.0 s",
        "[9] completed, 42 s in all  42.0 s",
    ]


def test_what_had_been_stored_before_has_no_clock() -> None:
    out, watch = io.StringIO(), Watch()
    created = event("created", response=STARTED, sequence_number=0)
    assert TranscriptView(out, watch).show(watch.events((600, created), (0, COMMAND), (0, WAITS), (3, DONE))) == 1
    assert out.getvalue().splitlines() == [
        "[0] resp_1 created, model demo, container cntr_1",
        "$ make",
        "[exit 0]  603.0 s",
    ]


def test_a_response_that_failed_says_why_and_ends_with_1() -> None:
    out = io.StringIO()
    events = [
        {"type": "error", "error": {"code": "server_error", "message": "It broke."}},
        event("failed", response={"status": "failed", "usage": None}, sequence_number=3),
    ]
    assert TranscriptView(out).show(events) == 1
    assert out.getvalue() == "error server_error: It broke.\n[3] failed\n"


def test_a_stream_that_is_cut_leaves_a_whole_line() -> None:
    out = io.StringIO()
    assert TranscriptView(out).show(RUN) == 1
    assert out.getvalue().endswith("Two files.\n")


def batch(first: int, last: int) -> list[dict[str, Any]]:
    return [event("output_text.delta", sequence_number=number, output_index=0, delta=f"{number} ") for number in range(first, last)]


IN_PROGRESS: Answer = (200, {"status": "in_progress"})
ENDED: Answer = (200, {"status": "completed"})
END = event("completed", response=response("completed"), sequence_number=5)


def test_a_stream_that_ends_before_the_response_is_taken_up_where_it_was(capsys: Any) -> None:
    answers: list[Answer] = [(200, batch(0, 3)), IN_PROGRESS, (200, []), IN_PROGRESS, (200, [*batch(3, 5), END])]
    with serving({"GET /v1/responses/resp_1": answers}) as deployment:
        assert main(["tail", "resp_1"], deployment.environ) == 0
    assert capsys.readouterr().out == "0 1 2 3 4 \n[5] completed, 20 tokens in, 7 out\n"
    asked = [address.partition("starting_after=")[2] for address, _ in deployment.requests if "stream" in address]
    assert asked == ["", "2", "2"]


def test_a_look_behind_the_end_of_a_response_ends(capsys: Any) -> None:
    with serving({"GET /v1/responses/resp_1": [(200, []), ENDED]}) as deployment:
        assert main(["tail", "resp_1", "--from", "7", "--json"], deployment.environ) == 0
    assert capsys.readouterr().out == ""


def test_a_response_that_never_says_anything_is_given_up(capsys: Any) -> None:
    with serving({"GET /v1/responses/resp_1": [*[(200, []), IN_PROGRESS] * 20]}) as deployment:
        assert main(["tail", "resp_1"], deployment.environ) == 1
    assert capsys.readouterr().err.startswith("moorage: The stream of resp_1 ended again and again without an event.")


def test_raw_reasoning_is_shown_once_where_a_summary_repeats_it() -> None:
    out = io.StringIO()
    deltas = [event(f"{kind}.delta", output_index=0, delta="Hm. ") for kind in ("reasoning_text", "reasoning_summary_text")] * 2
    TranscriptView(out).show([*deltas, event("completed", response=response("completed"), sequence_number=5)])
    assert out.getvalue().splitlines()[0] == "Hm. Hm. "
