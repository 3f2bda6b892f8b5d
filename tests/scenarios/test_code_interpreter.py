"""The code interpreter: Python whose variables stay, in the container that the shell uses too."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from websockets.sync.client import connect

from tests.processes import kill_all
from tests.stack import SHELL, Stack, assert_well_formed, outputs, raw_events, say, script, shell

AUTO: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
INCLUDED: Any = ["code_interpreter_call.outputs"]


def python(code: str) -> dict[str, Any]:
    return {"python": code}


def calls(response: Any) -> list[Any]:
    return [item for item in response.output if item.type == "code_interpreter_call"]


def logs(response: Any) -> list[str]:
    """What each call printed, for a response that includes outputs."""
    return ["".join(output.logs for output in call.outputs if output.type == "logs") for call in calls(response)]


def ask(client: OpenAI, *steps: dict[str, Any], **fields: Any) -> Any:
    return client.responses.create(**{"model": "demo", "input": script(*steps), "tools": [AUTO], "include": INCLUDED, **fields})


def test_variables_stay_from_call_to_call_and_from_response_to_response(client: OpenAI) -> None:
    first = ask(client, python("x = 6"), python("print(x * 7)"), say("It is {{output}}"))
    assert logs(first) == ["", "42\n"]
    assert first.output_text == "It is 42"
    second = ask(client, python("print(x + 1)"), say("end"), previous_response_id=first.id)
    assert logs(second) == ["7\n"]
    assert {call.container_id for call in [*calls(first), *calls(second)]} == {calls(first)[0].container_id}


def test_what_is_printed_comes_before_the_value_of_the_last_expression(client: OpenAI) -> None:
    response = ask(client, python("import sys\nprint('out')\nprint('err', file=sys.stderr)\n[1, 2]"), say("{{output}}"))
    assert logs(response) == ["out\nerr\n[1, 2]"]
    assert response.output_text == "out\nerr\n[1, 2]"


def test_an_exception_is_told_with_its_traceback_and_ends_nothing_else(client: OpenAI) -> None:
    response = ask(client, python("y = 1\n1 / 0"), python("y"), say("end"))
    traceback, after = logs(response)
    assert traceback.startswith("Traceback (most recent call last):\n")
    assert traceback.endswith("ZeroDivisionError: division by zero\n")
    assert after == "1"
    assert [call.status for call in calls(response)] == ["completed", "completed"]


def test_a_session_that_the_code_ends_begins_anew_and_says_so(client: OpenAI) -> None:
    response = ask(client, python("z = 1\nimport os; os._exit(3)"), python("'z' in globals()"), say("end"))
    died, after = logs(response)
    assert died == "[Python ended with exit code 3.]"
    assert after == "False\n[The Python session was started anew: variables and imports of earlier calls are gone.]"


def test_a_figure_shows_chinese_japanese_and_korean(client: OpenAI) -> None:
    if not Path("/usr/share/fonts/truetype/wqy/wqy-microhei.ttc").exists():
        pytest.skip("no font for Chinese, Japanese and Korean (fonts-wqy-microhei) is installed")
    response = ask(client, python('import matplotlib.pyplot as plt\nplt.title("北京 東京 서울")\nplt.show()'), say("end"))
    assert logs(response) == ["[figure: /mnt/data/figure-1.png]"]


def test_a_figure_comes_as_an_image_and_as_a_file_that_is_cited(client: OpenAI) -> None:
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    response = ask(client, python(code), say("Look at figure-1.png."))
    (call,) = calls(response)
    text, image = call.outputs
    assert text.logs == "[figure: /mnt/data/figure-1.png]"
    content = base64.b64decode(image.url.removeprefix("data:image/png;base64,"))
    assert content.startswith(b"\x89PNG")
    (citation,) = response.output[-1].content[0].annotations
    assert (citation.type, citation.filename, citation.container_id) == (
        "container_file_citation",
        "figure-1.png",
        call.container_id,
    )
    stored = client.containers.files.content.retrieve(citation.file_id, container_id=citation.container_id)
    assert stored.read() == content


def test_outputs_are_shown_on_request_and_always_read_by_the_model(stack: Stack, client: OpenAI) -> None:
    response = ask(client, python("print('seen')"), say("I read: {{output}}"), include=[])
    assert response.output_text == "I read: seen"
    assert calls(response)[0].outputs is None
    assert calls(client.responses.retrieve(response.id))[0].outputs is None
    assert logs(client.responses.retrieve(response.id, include=INCLUDED)) == ["seen\n"]
    following = ask(client, say("{{output}}"), include=[], previous_response_id=response.id)
    with stack.http() as http:
        events = raw_events(http.get(f"/responses/{response.id}", params={"stream": "true"}).iter_lines())
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["outputs"] for item in done if item["type"] == "code_interpreter_call"] == [None]
    assert following.status == "completed"


def test_a_conversation_lists_outputs_only_where_they_are_asked_for(client: OpenAI) -> None:
    conversation = client.conversations.create()
    response = ask(client, python("print('kept')"), say("end"), conversation=conversation.id)
    call_id = calls(response)[0].id
    plain = client.conversations.items.retrieve(call_id, conversation_id=conversation.id)
    whole = client.conversations.items.retrieve(call_id, conversation_id=conversation.id, include=INCLUDED)
    assert (plain.outputs, whole.outputs[0].logs) == (None, "kept\n")  # type: ignore[union-attr, index]


def test_a_call_can_be_sent_back_as_input(client: OpenAI) -> None:
    first = ask(client, python("print('once')"), say("end"))
    history = [item.model_dump() for item in first.output]
    user = {"role": "user", "content": "Go on."}
    second = client.responses.create(model="demo", input=[*history, user], tools=[AUTO])  # type: ignore[list-item]
    assert second.status == "completed"
    listed = client.responses.input_items.list(second.id, order="asc", include=INCLUDED).data
    assert listed[0].to_dict() == first.output[0].to_dict()
    assert client.responses.input_items.list(second.id, order="asc").data[0].outputs is None  # type: ignore[union-attr]


def test_a_call_that_comes_back_without_its_outputs_gets_them_back_from_the_store(client: OpenAI) -> None:
    first = ask(client, python("print('once')"), say("end"), include=[])
    sent: Any = [item.model_dump() for item in first.output] + [{"role": "user", "content": "Go on."}]
    assert sent[0]["outputs"] is None
    second = client.responses.create(model="demo", input=sent, tools=[AUTO])
    listed: Any = client.responses.input_items.list(second.id, order="asc", include=INCLUDED).data[0]
    assert listed.outputs[0].logs == "once\n"


def test_the_events_of_a_call_come_in_their_order(stack: Stack) -> None:
    body = {"model": "demo", "input": script(python("print(1)"), say("end")), "tools": [AUTO], "stream": True, "include": INCLUDED}
    with stack.http() as http, http.stream("POST", "/responses", json=body) as answer:
        events = raw_events(answer.iter_lines())
    assert_well_formed(events)
    assert events[0]["response"]["tools"] == [AUTO]
    ours = [event for event in events if event.get("output_index") == 0]
    assert [event["type"].removeprefix("response.") for event in ours] == [
        "output_item.added",
        "code_interpreter_call.in_progress",
        "code_interpreter_call_code.delta",
        "code_interpreter_call_code.done",
        "code_interpreter_call.interpreting",
        "code_interpreter_call.completed",
        "output_item.done",
    ]
    item = ours[-1]["item"]
    assert item == {
        "id": item["id"],
        "type": "code_interpreter_call",
        "status": "completed",
        "code": "print(1)",
        "container_id": item["container_id"],
        "outputs": [{"type": "logs", "logs": "1\n"}],
    }
    assert ours[0]["item"] == item | {"status": "in_progress", "code": "", "outputs": []}
    assert item["container_id"].startswith("cntr_")


def test_the_sdk_adds_the_stream_up(client: OpenAI) -> None:
    with client.responses.stream(model="demo", input=script(python("print(2)"), say("end")), tools=[AUTO], include=INCLUDED) as stream:
        types = [event.type for event in stream]
        response = stream.get_final_response()
    assert "response.code_interpreter_call.interpreting" in types
    assert logs(response) == ["2\n"]


def test_shell_and_python_share_a_container(client: OpenAI) -> None:
    response = ask(
        client,
        {**shell("echo from the shell > note.txt"), **python("open('other.txt', 'w').write('from python')")},
        {**shell("cat other.txt"), **python("print(open('note.txt').read(), end='')")},
        say("end"),
        tools=[SHELL, AUTO],
    )
    assert outputs(response.output)[1] == [("from python", "", 0)]
    assert logs(response)[1] == "from the shell\n"
    environment = response.tools[0].environment
    assert {call.container_id for call in calls(response)} == {environment.container_id}
    assert response.status == "completed"


def test_a_container_can_be_named(client: OpenAI) -> None:
    container = client.containers.create(name="mine")
    tool = {"type": "code_interpreter", "container": container.id}
    response = ask(client, python("a = 1"), say("end"), tools=[tool])
    assert calls(response)[0].container_id == container.id
    assert response.tools[0].to_dict() == tool


def test_files_are_there_before_the_code(client: OpenAI) -> None:
    uploaded = client.files.create(file=("in.txt", b"hello"), purpose="user_data")
    tool = {"type": "code_interpreter", "container": {"type": "auto", "file_ids": [uploaded.id]}}
    assert logs(ask(client, python("open('in.txt').read()"), say("end"), tools=[tool])) == ["'hello'"]


def test_a_shell_of_the_client_stays_the_clients(client: OpenAI) -> None:
    response = ask(client, shell("ls"), tools=[{"type": "shell"}, AUTO])
    (call,) = response.output
    assert (call.type, call.environment.type) == ("shell_call", "local")


def test_calls_over_the_maximum_are_not_run_and_say_so(client: OpenAI) -> None:
    response = ask(client, python("print(1)"), python("print(2)"), max_tool_calls=1)
    assert logs(response)[0] == "1\n"


def test_a_container_that_is_not_there_is_a_404(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        ask(client, tools=[{"type": "code_interpreter", "container": "cntr_" + "0" * 48}], input="x")
    assert refused.value.param == "tools[0].container"


# --- A stack whose code may run for two seconds ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    running = Stack(Path(tmp_path_factory.mktemp("hasty")), {"MOORAGE_CODE_SECONDS_MAX": "2", "MOORAGE_WEB_SEARCH": "ignore"}).start()
    yield running
    assert running.stop() == 0


def test_code_over_its_time_is_stopped_and_the_session_begins_anew(hasty: Stack) -> None:
    response = ask(
        hasty.client(),
        python("kept = 1\nprint('before', flush=True)\nimport time; time.sleep(600)"),
        python("'kept' in globals()"),
        python("'kept' in globals()"),
        say("end"),
    )
    stopped, after, later = logs(response)
    assert stopped == (
        "before\n[The code ran for the longest time that it may. It was stopped, and its Python session with it: "
        "all variables are gone.]"
    )
    assert after == "False\n[The Python session was started anew: variables and imports of earlier calls are gone.]"
    assert later == "False"
    assert [call.status for call in calls(response)] == ["failed", "completed", "completed"]


def test_a_revived_container_has_its_files_but_not_the_variables_and_says_so(hasty: Stack) -> None:
    client = hasty.client()
    first = ask(client, python("v = 1; open('kept.txt', 'w').write('kept')"), say("end"))
    assert hasty.process is not None
    assert kill_all(hasty.process.pid, lambda line: "exec_server" in line)
    look = "'v' in globals(), open('kept.txt').read()"
    second = ask(client, python(look), python(look), say("end"), previous_response_id=first.id)
    told, after = logs(second)
    assert told.startswith("[The container has been started again since it was last used: the files in /mnt/data are as they were")
    assert told.endswith("(False, 'kept')\n[The Python session was started anew: variables and imports of earlier calls are gone.]")
    assert after == "(False, 'kept')"


def test_an_operator_can_have_web_search_left_out(hasty: Stack, client: OpenAI) -> None:
    tools: Any = [{"type": "web_search"}]
    answer = hasty.client().responses.with_raw_response.create(model="demo", input=script(say("ok")), tools=tools)
    assert "'web_search' was left out" in answer.headers["x-moorage-notice"]
    assert answer.parse().tools == []
    frame = {"type": "response.create", "model": "demo", "input": script(say("ok")), "tools": tools}
    with connect(
        hasty.url.replace("http", "ws", 1) + "/responses", additional_headers={"authorization": f"Bearer {hasty.key}"}
    ) as socket:
        socket.send(json.dumps(frame))
        created = json.loads(socket.recv(30))
    assert (created["type"], created["response"]["tools"]) == ("response.created", [])
    with pytest.raises(openai.BadRequestError, match="does not search the web"):
        client.responses.create(model="demo", input="x", tools=tools)
