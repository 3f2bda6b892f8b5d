"""Forks from outside: another way from any event, with the files as they were."""

import json
from typing import Any

from openai import OpenAI

from tests.stack import SHELL, Stack, outputs, say, script, shell

PLAN = (shell("echo one > file.txt"), shell("echo two > file.txt; echo more > other.txt"), say("done"))


def test_a_fork_has_the_files_of_its_event_and_the_two_go_their_own_ways(stack: Stack, client: OpenAI) -> None:
    tools: Any = [SHELL]
    first = client.responses.create(model="demo", input=script(*PLAN), tools=tools)
    with stack.http() as http:
        logged = http.get(f"/responses/{first.id}/events", params={"limit": 1000}).json()["data"]
        ends = [
            each["event"]["sequence_number"]
            for each in logged
            if each["event"]["type"] == "response.output_item.done" and each["event"]["item"]["type"] == "shell_call_output"
        ]
        asked = {"input": script(shell("cat file.txt; ls; echo fork > file.txt"), say("forked")), "at": ends[0]}
        answer = http.post(f"/responses/{first.id}/fork", json=asked)
        assert answer.status_code == 200, answer.text
        fork = answer.json()
        assert (fork["forked_from"]["at"], fork["forked_from"]["container"]["files"]) == (ends[0], 1)
    retrieved = client.responses.retrieve(fork["id"])
    (said,) = outputs(retrieved.output)
    assert said[0][0].splitlines()[-2:] == ["one", "file.txt"]
    ours = first.tools[0].environment.container_id  # type: ignore[union-attr]
    theirs = fork["forked_from"]["container"]["container_id"]
    listed = {each.path: each.bytes for each in client.containers.files.list(ours)}
    assert listed == {"/mnt/data/file.txt": 4, "/mnt/data/other.txt": 5}
    client.containers.delete(ours)
    (kept,) = client.containers.files.list(theirs)
    assert client.containers.files.content.retrieve(kept.id, container_id=theirs).content == b"fork\n"
    looked = script(shell("cat file.txt"), say("x"))
    following = client.responses.create(model="demo", input=looked, previous_response_id=fork["id"], tools=tools)
    assert outputs(following.output)[0][0][0] == "fork\n"


def test_a_fork_of_a_conversations_response_begins_with_what_was_there_before(stack: Stack, client: OpenAI) -> None:
    conversation = client.conversations.create(items=[{"role": "user", "content": "before"}])
    first = client.responses.create(model="demo", input=script(say("first")), conversation=conversation.id)
    client.responses.create(model="demo", input=script(say("second")), conversation=conversation.id)
    with stack.http() as http:
        fork = http.post(f"/responses/{first.id}/fork", json={"input": script(say("other")), "stream": True})
        final = json.loads(fork.text.split("data: ")[-1])["response"]
        items = http.get(f"/responses/{final['id']}/input_items", params={"order": "asc"}).json()["data"]
    texts = [part["text"] for item in items for part in item["content"]]
    assert (texts[0], texts[2], "second" in json.dumps(texts), len(texts)) == ("before", "first", False, 4)
    assert len(client.conversations.items.list(conversation.id).data) == 5


def test_a_fork_that_rewinds_takes_the_place_of_what_came_since_when_it_has_ended(stack: Stack, client: OpenAI) -> None:
    conversation = client.conversations.create(items=[{"role": "user", "content": "before"}])
    first = client.responses.create(model="demo", input=script(say("first")), conversation=conversation.id)
    client.responses.create(model="demo", input=script(say("second")), conversation=conversation.id)

    def said() -> list[str]:
        items = client.conversations.items.list(conversation.id, order="asc").data
        texts = [json.loads(item.model_dump_json())["content"][0]["text"] for item in items]
        return ["(script)" if text.startswith("```") else text for text in texts]

    with stack.http() as http:
        path = f"/responses/{first.id}/fork"
        failed = http.post(path, json={"rewind": True, "at": 0, "input": script({"fail": {"status": 400}, "say": "x"})})
        assert (failed.status_code >= 400, said()) == (True, ["before", "(script)", "first", "(script)", "second"])
        fork = http.post(path, json={"rewind": True, "at": 0, "input": script(say("other"))}).json()
        assert (fork["conversation"], said()) == ({"id": conversation.id}, ["before", "(script)", "(script)", "other"])
        again = http.post(f"/responses/{fork['id']}/fork", json={"rewind": True, "input": script(say("more"))}).json()
        assert again["status"] == "completed"
        assert said() == ["before", "(script)", "(script)", "other", "(script)", "more"]
        refused = http.post(f"/responses/{client.responses.create(model='demo', input='x').id}/fork", json={"rewind": True})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "rewind")
    client.responses.create(model="demo", input=script(say("third")), conversation=conversation.id)
    assert said()[-2:] == ["(script)", "third"]
