"""The hosted shell: commands run in a container, and the model reads what they print."""

from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.stack import SHELL, Stack, assert_well_formed, outputs, raw_events, say, script, shell

TOOLS: Any = [SHELL]


def test_commands_run_side_by_side_and_their_output_comes_back(client: OpenAI) -> None:
    response = client.responses.create(
        model="demo",
        input=script(shell("echo out; echo err >&2; exit 3", "pwd; whoami"), say("It said:\n{{output}}")),
        tools=TOOLS,
    )
    assert outputs(response.output) == [[("out\n", "err\n", 3), ("/mnt/data\nuser\n", "", 0)]]
    assert [item.type for item in response.output] == ["shell_call", "shell_call_output", "message"]
    assert "exit code 3" in response.output_text
    assert response.status == "completed"


def test_the_stream_shows_commands_and_their_output_while_they_run(stack: Stack) -> None:
    body = {"model": "demo", "input": script(shell("echo a; sleep 0.4; echo b"), say("end")), "tools": TOOLS, "stream": True}
    with stack.http() as http, http.stream("POST", "/responses", json=body) as answer:
        events = raw_events(answer.iter_lines())
    assert_well_formed(events)
    environment = events[0]["response"]["tools"][0]["environment"]
    assert environment["type"] == "container_reference"
    assert environment["container_id"].startswith("cntr_")
    assert [event["type"].removeprefix("response.") for event in events[2:13]] == [
        "output_item.added",
        "shell_call_command.added",
        "shell_call_command.delta",
        "shell_call_command.done",
        "output_item.done",
        "output_item.added",
        "shell_call_output_content.delta",
        "shell_call_output_content.delta",
        "shell_call_output_content.done",
        "output_item.done",
        "output_item.added",
    ]
    assert [event["delta"] for event in events[8:10]] == [{"stdout": "a\n"}, {"stdout": "b\n"}]


def test_several_shell_calls_of_one_turn_run_at_once(stack: Stack) -> None:
    calls = {"shells": [{"commands": ["sleep 1; echo first"]}, {"commands": ["sleep 1; echo second"]}]}
    body = {"model": "demo", "input": script(calls, say("end")), "tools": TOOLS, "stream": True}
    with stack.http() as http, http.stream("POST", "/responses", json=body) as answer:
        events = raw_events(answer.iter_lines())
    assert_well_formed(events)
    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["shell_call", "shell_call", "shell_call_output", "shell_call_output", "message"]
    assert [item["output"][0]["stdout"] for item in output[2:4]] == ["first\n", "second\n"]
    assert [output[2]["call_id"], output[3]["call_id"]] == [output[0]["call_id"], output[1]["call_id"]]


def test_the_container_and_its_files_stay_along_the_chain(client: OpenAI) -> None:
    first = client.responses.create(model="demo", input=script(shell("echo kept > note.txt"), say("a")), tools=TOOLS)
    second = client.responses.create(
        model="demo", input=script(shell("cat note.txt"), say("b")), tools=TOOLS, previous_response_id=first.id
    )
    assert outputs(second.output) == [[("kept\n", "", 0)]]
    assert first.tools[0].environment == second.tools[0].environment  # type: ignore[union-attr]


def test_workspace_is_the_folder_of_the_containers_files(client: OpenAI) -> None:
    response = client.responses.create(
        model="demo",
        input=script(
            shell("cd /workspace && mkdir out && echo kept > out/note.txt && ls /mnt/data/out"),
            shell("echo more >> /workspace/out/note.txt; mv /workspace/out/note.txt /mnt/data/moved.txt; cat /workspace/moved.txt"),
            shell("touch /workspace2 || rm /workspace || echo closed"),
            say("It is in /workspace/moved.txt."),
        ),
        tools=TOOLS,
    )
    first, second, third = outputs(response.output)
    assert [first, second] == [[("note.txt\n", "", 0)], [("kept\nmore\n", "", 0)]]
    assert third[0][0] == "closed\n"
    (citation,) = response.output[-1].content[0].annotations  # type: ignore[union-attr, index]
    container_id = response.tools[0].environment.container_id  # type: ignore[union-attr]
    assert citation.to_dict()["filename"] == "moved.txt"
    assert [file.path for file in client.containers.files.list(container_id)] == ["/mnt/data/moved.txt"]


def test_a_service_started_in_one_command_answers_in_the_next(client: OpenAI) -> None:
    response = client.responses.create(
        model="demo",
        input=script(
            shell("echo served > index.html; nohup python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 &"),
            shell(
                'for i in $(seq 50); do python3 -c "import urllib.request as u; '
                "print(u.urlopen('http://127.0.0.1:8000/index.html').read().decode())\" 2>/dev/null && break; sleep 0.1; done"
            ),
            say("end"),
        ),
        tools=TOOLS,
    )
    assert outputs(response.output)[1] == [("served\n\n", "", 0)]


def test_an_artifact_is_cited_and_downloaded(client: OpenAI) -> None:
    response = client.responses.create(
        model="demo",
        input=script(shell("printf 'x,y\\n1,2\\n' > table.csv"), say("The table is in /mnt/data/table.csv.")),
        tools=TOOLS,
    )
    answer: Any = response.output[-1]
    (citation,) = answer.content[0].annotations
    assert (citation.type, citation.filename) == ("container_file_citation", "table.csv")
    assert response.output_text[citation.start_index : citation.end_index] == "/mnt/data/table.csv"
    content = client.containers.files.content.retrieve(citation.file_id, container_id=citation.container_id)
    assert content.read() == b"x,y\n1,2\n"


def test_an_uploaded_file_is_there_before_the_first_command(client: OpenAI) -> None:
    uploaded = client.files.create(file=("in.txt", b"hello from outside\n"), purpose="user_data")
    response = client.responses.create(
        model="demo",
        input=script(shell("cat in.txt"), say("end")),
        tools=[{"type": "shell", "environment": {"type": "container_auto", "file_ids": [uploaded.id]}}],
    )
    assert outputs(response.output) == [[("hello from outside\n", "", 0)]]


def test_long_output_keeps_head_and_tail_and_names_the_whole(client: OpenAI) -> None:
    response = client.responses.create(
        model="demo",
        input=script(shell("seq 1 20000", max_output_length=1000), say("end")),
        tools=TOOLS,
    )
    ((stdout, stderr, code),) = outputs(response.output)[0]
    assert (stdout.startswith("1\n2\n"), stdout.endswith("19999\n20000\n"), stderr, code) == (True, True, "", 0)
    assert "chars truncated" in stdout
    assert len(stdout) < 1_200


def test_a_hundred_megabytes_of_output_disturb_nothing(client: OpenAI) -> None:
    response = client.responses.create(
        model="demo",
        input=script(shell("head -c 100000000 /dev/zero | tr '\\0' x", "echo beside"), say("end")),
        tools=TOOLS,
    )
    first, second = outputs(response.output)[0]
    assert second == ("beside\n", "", 0)
    assert (first[2], len(first[0]) < 20_000) == (0, True)


def test_a_command_over_its_time_is_killed_and_keeps_what_it_said(client: OpenAI) -> None:
    response = client.responses.create(
        model="demo",
        input=script(shell("echo before; sleep 600", timeout_ms=700), shell("echo after"), say("end")),
        tools=TOOLS,
    )
    assert outputs(response.output) == [[("before\n", "", "timeout")], [("after\n", "", 0)]]


@pytest.mark.parametrize(
    ("what", "command"),
    [
        ("a fork bomb", ":(){ :|:& };:"),
        ("a command that kills its parent", "kill -9 $PPID; kill -9 -1; sleep 0.2"),
        ("a command that deletes its working directory", "rm -rf /mnt/data; cd /; ls"),
    ],
)
def test_a_hostile_command_disturbs_nothing_else(client: OpenAI, what: str, command: str) -> None:
    response = client.responses.create(
        model="demo",
        input=script(shell(command, timeout_ms=3_000), shell("cd /mnt/data && echo fine"), say("end")),
        tools=TOOLS,
    )
    hostile, after = outputs(response.output)
    assert len(hostile) == 1, what
    assert after[0][0] == "fine\n"
    assert response.status == "completed"
    assert client.responses.create(model="demo", input=script(say("ok"))).output_text == "ok"


def test_arguments_that_do_not_fit_are_told_to_the_model_and_not_to_the_client(client: OpenAI) -> None:
    response = client.responses.create(
        model="demo",
        input=script({"call": {"name": "shell", "arguments": {"commands": 7}}}, say("I see: {{output}}")),
        tools=TOOLS,
    )
    assert response.status == "completed"
    assert "do not fit" in response.output_text


def test_a_function_call_beside_a_shell_call_ends_the_response_after_the_command(client: OpenAI) -> None:
    function: Any = {"type": "function", "name": "ask", "parameters": {"type": "object", "properties": {}}, "strict": False}
    step = {"shell": {"commands": ["echo ran"]}, "call": {"name": "ask", "arguments": {}}}
    first = client.responses.create(
        model="demo",
        input=script(step, say("It said {{output}}")),
        tools=[SHELL, function],  # type: ignore[list-item]
    )
    assert sorted(item.type for item in first.output) == ["function_call", "shell_call", "shell_call_output"]
    assert outputs(first.output) == [[("ran\n", "", 0)]]
    call = next(item for item in first.output if item.type == "function_call")
    second = client.responses.create(
        model="demo",
        previous_response_id=first.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "yes"}],
        tools=[SHELL, function],  # type: ignore[list-item]
    )
    assert "yes" in second.output_text


def test_calls_over_the_maximum_are_not_run_and_say_so(client: OpenAI) -> None:
    response = client.responses.create(
        model="demo",
        input=script({"shells": [{"commands": ["echo one"]}, {"commands": ["echo two"]}]}, say("end")),
        tools=TOOLS,
        max_tool_calls=1,
    )
    ran = {item[0][2]: item[0] for item in outputs(response.output)}
    assert ran[0] == ("one\n", "", 0)
    assert "not run" in ran[1][1]


def test_an_unknown_container_is_a_404(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.responses.create(
            model="demo",
            input="x",
            tools=[{"type": "shell", "environment": {"type": "container_reference", "container_id": "cntr_" + "0" * 48}}],
        )


def test_a_job_that_takes_long_is_left_running_and_looked_at_later(client: OpenAI) -> None:
    response = client.responses.create(
        model="demo",
        input=script(
            shell("setsid nohup sh -c 'echo started; while [ ! -e go ]; do sleep 0.05; done; echo ended' > job.log 2>&1 &"),
            shell("for i in $(seq 100); do [ -s job.log ] && break; sleep 0.05; done; cat job.log; touch go"),
            shell("for i in $(seq 100); do grep -q ended job.log && break; sleep 0.05; done; cat job.log"),
            say("end"),
        ),
        tools=TOOLS,
    )
    assert [output[0] for output in outputs(response.output)] == [("", "", 0), ("started\n", "", 0), ("started\nended\n", "", 0)]


def test_a_file_too_large_to_keep_is_named_to_the_model(client: OpenAI) -> None:
    response = client.responses.create(
        model="demo", input=script(shell("truncate -s 2G sparse.bin; echo kept > small.txt"), say("x")), tools=TOOLS
    )
    ((_, stderr, code),) = outputs(response.output)[0]
    assert (code, "sparse.bin" in stderr, "not saved" in stderr) == (0, True, True)
    container_id = response.tools[0].environment.container_id  # type: ignore[union-attr]
    assert [file.path for file in client.containers.files.list(container_id)] == ["/mnt/data/small.txt"]
