import io
from typing import Any

from moorage.cli.main import main
from moorage.cli.tail import View


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


def test_a_response_reads_like_a_transcript() -> None:
    out = io.StringIO()
    end = event("completed", response=response("completed"), sequence_number=15)
    assert View(out).show([*RUN, end]) == 0
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


def test_a_response_that_failed_says_why_and_ends_with_1() -> None:
    out = io.StringIO()
    events = [
        {"type": "error", "error": {"code": "server_error", "message": "It broke."}},
        event("failed", response={"status": "failed", "usage": None}, sequence_number=3),
    ]
    assert View(out).show(events) == 1
    assert out.getvalue() == "error server_error: It broke.\n[3] failed\n"


def test_a_stream_that_is_cut_leaves_a_whole_line() -> None:
    out = io.StringIO()
    assert View(out).show(RUN) == 1
    assert out.getvalue().endswith("Two files.\n")


def test_without_a_deployment_every_command_says_how_to_get_one(tmp_path: Any, capsys: Any) -> None:
    environ = {"MOORAGE_STATE_DIR": str(tmp_path)}
    assert [main(command, environ) for command in (["models"], ["keys", "list"], ["tail", "resp_1"], ["containers"])] == [1, 1, 1, 1]
    assert capsys.readouterr().err.count("Start one with 'moorage up'") == 4
