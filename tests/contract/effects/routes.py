"""The stories that drive each route at least once."""

import io
import zipfile
from functools import partial

from tests.contract.effects.items import SAID
from tests.contract.effects.parameters import approvals
from tests.contract.effects.world import TABLE, Check, Json, World, row
from tests.processes import until
from tests.scenarios.test_cli import lines
from tests.unit.skills.archives import skill, zip_of


def called_routes(world: World) -> None:
    """Every route in the order of a life; the scenarios look at each more closely."""
    response = world.create()
    path = f"/responses/{response['id']}"
    assert world.get(path) == response
    assert world.get(f"{path}/input_items")["data"][0]["role"] == "user"
    assert world.http.post(f"{path}/cancel").json()["error"]["message"] == "Cannot cancel a synchronous response."
    assert world.post(f"{path}/pause")["status"] == world.post(f"{path}/resume")["status"] == "completed"
    queued = world.create(background=True)
    assert world.post(f"/responses/{queued['id']}/cancel")["status"] in ("cancelled", "completed")
    assert world.post("/responses/input_tokens", {"model": "native", "input": "hi"})["input_tokens"] > 0
    assert world.post("/responses/compact", {"model": "plain", "input": "hi"})["object"] == "response.compaction"
    assert world.http.get("/responses", headers={"upgrade": "websocket"}).status_code == 426
    assert world.get("/responses", limit=1, order="asc")["object"] == "list"
    assert [each["event"]["type"] for each in world.get(f"{path}/events", types="response.completed")["data"]] == ["response.completed"]
    assert [each["type"] for each in world.get(f"{path}/steps")["data"]] == ["model"]
    assert world.http.post(f"{path}/budget", json={"tool_calls": 1}).json()["error"]["message"].startswith("The response has ended")
    assert world.post(f"{path}/fork", {"input": "again"})["forked_from"]["response_id"] == response["id"]
    assert world.get(path, at=1)["as_of"]["sequence_number"] == 1
    agent = world.post("/agents", {"model": "native"})
    archive = world.http.get(f"/agents/{agent['id']}/export").content
    file = world.http.post("/files", data={"purpose": "user_data"}, files={"file": ("a.tar", archive)}).json()
    assert world.post("/agents/import", {"file_id": file["id"]})["imported_from"] == agent["id"]
    assert world.get("/me")["tenant"] == "default"
    assert world.get("/usage", group_by="model")["data"][0]["responses"] > 0
    assert world.http.delete(path).json() == {"id": response["id"], "object": "response", "deleted": True}
    assert world.http.get(path).status_code == 404
    assert {"native", "demo"} <= {entry["id"] for entry in world.get("/models")["data"]}
    assert world.get("/models/native")["id"] == "native"
    assert world.http.delete("/models/native").status_code == 405


def conversation_routes(world: World) -> None:
    made = world.post("/conversations", {"metadata": {"a": "1"}, "items": [SAID]})
    path = f"/conversations/{made['id']}"
    assert world.get(path) == made
    assert world.post(path, {"metadata": {"b": "2"}})["metadata"] == {"b": "2"}
    (added,) = world.post(f"{path}/items", {"items": [{"role": "user", "content": "more"}]})["data"]
    assert world.get(f"{path}/items")["first_id"] == added["id"]
    assert world.get(f"{path}/items/{added['id']}")["content"][0]["text"] == "more"
    assert world.http.delete(f"{path}/items/{added['id']}").json()["object"] == "conversation"
    assert len(world.get(f"{path}/items")["data"]) == 1
    assert world.http.delete(path).json()["deleted"] is True
    assert world.http.get(path).status_code == 404


def file_routes(world: World) -> None:
    made = world.http.post("/files", files={"file": ("a.txt", b"lines")}, data={"purpose": "user_data"}).json()
    assert made["id"] in {entry["id"] for entry in world.get("/files")["data"]}
    assert world.get(f"/files/{made['id']}") == made
    assert world.http.get(f"/files/{made['id']}/content", follow_redirects=True).content == b"lines"
    assert world.http.delete(f"/files/{made['id']}").json()["deleted"] is True
    assert world.http.get(f"/files/{made['id']}").status_code == 404
    begun: Json = {"filename": "b.txt", "bytes": 5, "purpose": "user_data", "mime_type": "text/plain"}
    upload = world.post("/uploads", begun)
    part = world.http.post(f"/uploads/{upload['id']}/parts", files={"data": ("part", b"lines")}).json()
    done = world.post(f"/uploads/{upload['id']}/complete", {"part_ids": [part["id"]]})
    assert (done["status"], done["file"]["bytes"]) == ("completed", 5)
    assert world.post(f"/uploads/{world.post('/uploads', begun)['id']}/cancel")["status"] == "cancelled"


def container_routes(world: World) -> None:
    made = world.post("/containers", {"name": "mine"})
    path = f"/containers/{made['id']}"
    assert made["id"] in {entry["id"] for entry in world.get("/containers")["data"]}
    assert world.get(path)["name"] == "mine"
    added = world.http.post(f"{path}/files", files={"file": ("a.txt", b"lines")}).json()
    assert [entry["id"] for entry in world.get(f"{path}/files")["data"]] == [added["id"]]
    assert world.get(f"{path}/files/{added['id']}")["bytes"] == 5
    assert world.http.get(f"{path}/files/{added['id']}/content", follow_redirects=True).content == b"lines"
    assert [entry["path"] for entry in world.get(f"{path}/tree")["data"]] == ["/mnt/data/a.txt"]
    with zipfile.ZipFile(io.BytesIO(world.http.get(f"/archives/{made['id']}").content)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {"a.txt": b"lines"}
    assert world.http.delete(f"{path}/files/{added['id']}").json()["deleted"] is True
    assert world.get(f"{path}/egress")["data"] == []
    session_routes(world, path)
    screen_routes(world, path)
    assert world.http.delete(path).json()["deleted"] is True
    assert world.http.get(path).status_code == 404


def session_routes(world: World, path: str) -> None:
    session = world.post(f"{path}/sessions", {"command": "cat", "columns": 90})
    assert world.get(f"{path}/sessions")["data"] == [session]
    assert world.get(f"{path}/sessions/{session['id']}")["status"] == "running"
    # A shell starts first, and becomes the command.
    until(lambda: "cat" in {each["command"] for each in world.get(f"/processes/{session['container_id']}")["data"]})
    one = f"/sessions/{session['id']}"
    assert world.post(f"{one}/input", {"text": "lines"})["session_id"] == session["id"]
    assert world.get(f"{one}/output?wait_ms=0")["object"] == "container.session.output"
    assert world.post(f"{one}/resize", {"columns": 70, "rows": 20})["columns"] == 70
    assert world.http.delete(one).json()["deleted"] is True
    assert world.get(f"{path}/sessions")["data"] == []


def screen_routes(world: World, path: str) -> None:
    """Without a browser; ``tests/scenarios/test_screen.py`` has one."""
    assert world.get(f"{path}/screen?wait_ms=0")["status"] == "closed"
    assert world.post(f"{path}/screen/control", {"action": "give", "holder": "x"})["holder"] is None
    refused = world.http.post(
        f"{path}/screen/input", json={"holder": "x", "number": 1, "actions": [{"type": "keypress", "keys": ["A"]}]}
    )
    assert refused.json()["error"]["code"] == "screen_closed"


def skill_routes(world: World) -> None:
    def push(path: str, **fields: str) -> Json:
        answer = world.http.post(path, files={"files": ("tables.zip", zip_of(skill()))}, data=fields)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    made = push("/skills")
    path = f"/skills/{made['id']}"
    assert world.get(path) == made
    assert made["id"] in [each["id"] for each in world.get("/skills")["data"]]
    assert push(f"{path}/versions", default="true")["version"] == "2"
    assert [each["version"] for each in world.get(f"{path}/versions")["data"]] == ["2", "1"]
    assert world.get(f"{path}/versions/latest")["version"] == "2"
    assert world.post(path, {"default_version": 1})["default_version"] == "1"
    contents = {world.http.get(f"{path}{place}/content", follow_redirects=True).content for place in ("", "/versions/2")}
    assert [content[:2] for content in contents] == [b"PK"]
    assert world.http.delete(f"{path}/versions/2").json()["deleted"] is True
    assert world.http.delete(path).json()["deleted"] is True
    assert world.http.get(path).status_code == 404


def vector_store_routes(world: World) -> None:
    """Every route in the order of a life."""
    file = world.http.post("/files", files={"file": ("whales.md", b"The blue whale is large.")}, data={"purpose": "assistants"}).json()
    made = world.post("/vector_stores", {"name": "notes", "file_ids": [file["id"]]})
    path = f"/vector_stores/{made['id']}"
    until(lambda: world.get(path)["status"] == "completed")
    assert world.get(path)["file_counts"] == {"in_progress": 0, "completed": 1, "failed": 0, "cancelled": 0, "total": 1}
    assert made["id"] in {each["id"] for each in world.get("/vector_stores")["data"]}
    assert world.post(path, {"name": "memos"})["name"] == "memos"
    assert world.post(f"{path}/search", {"query": "whale"})["data"][0]["filename"] == "whales.md"
    assert [each["id"] for each in world.get(f"{path}/files", filter="completed")["data"]] == [file["id"]]
    assert world.post(f"{path}/files/{file['id']}", {"attributes": {"n": 1}})["attributes"] == {"n": 1}
    assert world.get(f"{path}/files/{file['id']}/content")["data"][0]["text"] == "The blue whale is large."
    assert world.http.delete(f"{path}/files/{file['id']}").json()["object"] == "vector_store.file.deleted"
    assert world.http.get(f"{path}/files/{file['id']}").status_code == 404
    assert world.post(f"{path}/files", {"file_id": file["id"]})["status"] == "in_progress"
    batch = world.post(f"{path}/file_batches", {"file_ids": [file["id"]]})
    assert world.get(f"{path}/file_batches/{batch['id']}")["file_counts"]["total"] == 1
    assert world.post(f"{path}/file_batches/{batch['id']}/cancel")["status"] == "cancelled"
    assert [each["id"] for each in world.get(f"{path}/file_batches/{batch['id']}/files")["data"]] == [file["id"]]
    assert world.http.delete(path).json()["deleted"] is True
    assert world.http.get(path).status_code == 404


def webhook_routes(world: World) -> None:
    wanted = {"name": "mine", "url": world.page_url, "event_types": ["response.completed"]}
    assert set(wanted["event_types"]) <= set(world.get("/webhook_event_types")["data"])
    made = world.post("/webhook_endpoints", wanted)
    path = f"/webhook_endpoints/{made['id']}"
    assert made["id"] in [each["id"] for each in world.get("/webhook_endpoints")["data"]]
    assert world.get(path)["url"] == world.page_url
    assert world.post(path, {"name": "ours"})["name"] == "ours"
    assert world.post(f"{path}/rotate_secret", {})["signing_secret"] != made["signing_secret"]
    assert world.post(f"{path}/test", {"event_type": "response.completed"})["webhook_endpoint_id"] == made["id"]
    queued = world.create(background=True)
    until(lambda: world.get(f"{path}/deliveries")["data"])
    (delivery,) = world.get(f"{path}/deliveries")["data"]
    assert (delivery["response_id"], delivery["event_type"]) == (queued["id"], "response.completed")
    assert world.post(f"{path}/deliveries/{delivery['id']}/redeliver")["status"] == "pending"
    assert world.http.delete(path).json()["deleted"] is True
    assert world.http.get(path).status_code == 404


def console_route(world: World) -> None:
    """A code is good once."""
    (address,) = lines(world.stack, ["console", "--no-browser"])
    code = address.partition("#k=")[2]
    with world.stack.http(code) as http:
        key = http.post("/console/session").json()["key"]
        assert http.post("/console/session").status_code == 401
    with world.stack.http(key) as http:
        assert http.get("/me").json()["tenant"] == "default"


def absent(path: str, world: World) -> None:
    answer = world.http.get(path.removeprefix("/v1"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")


def chat_route(world: World) -> None:
    answer = world.post("/chat/completions", {"model": "native", "messages": [{"role": "user", "content": "hi"}]})
    assert (answer["object"], answer["choices"][0]["message"]["role"]) == ("chat.completion", "assistant")


def embedding_route(world: World) -> None:
    answer = world.post("/embeddings", {"model": "static-256", "input": ["a", "b"], "encoding_format": "float", "dimensions": 8})
    assert [len(each["embedding"]) for each in answer["data"]] == [8, 8]


def agent_routes(world: World) -> None:
    made = world.post("/agents", {"model": "native", "name": "clerk", "metadata": {"a": "1"}})
    path = f"/agents/{made['id']}"
    assert world.get(path) == made
    changed = world.post(path, {"name": None, "instructions": "Be brief."})
    assert changed == made | {"name": None, "instructions": "Be brief.", "version": 2, "updated_at": changed["updated_at"]}
    assert world.get(path, version=1) == made
    assert changed in world.get("/agents")["data"]
    assert world.http.delete(path).json() == {"id": made["id"], "object": "agent.deleted", "deleted": True}
    assert world.http.get(path).status_code == 404
    assert world.http.post("/agents", json={"model": "unheard-of"}).json()["error"]["code"] == "model_not_found"


def automation_routes(world: World) -> None:
    told = [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
    target = {"type": "new_session", "environment": {"type": "none"}, "agent": {"model": "native"}, "input": told}
    schedule = {"type": "periodic", "expression": "0 9 * * MON", "timezone": "Europe/Berlin"}
    made = world.post("/agents/automations", {**schedule, "name": "weekly", "target": target})
    path = f"/agents/automations/{made['id']}"
    assert (world.get(path), made["status"]) == (made, "active")
    assert made in world.get("/agents/automations")["data"]
    assert made not in world.get("/agents/automations", session_id="session_1")["data"]
    paused = world.post(f"{path}/pause", None)
    assert paused == made | {"status": "paused"}
    assert world.post(path, {"expression": "0 8 * * MON"}) == paused | {"expression": "0 8 * * MON"}
    assert world.post(f"{path}/resume", None)["status"] == "active"
    invocation = world.post(f"{path}/invocations", None)
    assert (invocation["status"], invocation["source"]) == ("completed", {"type": "manual"})
    assert world.get(f"/agents/sessions/{invocation['session_id']}")["object"] == "agent.session"
    assert world.get(f"{path}/invocations")["data"] == [invocation]
    assert world.get(f"{path}/invocations/{invocation['id']}") == invocation
    assert world.http.delete(path).json() == {"id": made["id"], "object": "agent.automation.deleted", "deleted": True}
    assert world.http.get(path).status_code == 404


def vault_routes(world: World) -> None:
    vault = world.post("/vaults", {"name": " staging ", "metadata": {"a": "1"}})
    path = f"/vaults/{vault['id']}"
    assert (vault["name"], world.get(path)) == ("staging", vault)
    assert vault in world.get("/vaults", **{"metadata[a]": "1"})["data"]
    assert world.get("/vaults", status="archived")["data"] == []
    assert world.post(path, {"name": None, "metadata": None}) == vault | {"name": None, "metadata": {}}
    auth = {"type": "static_bearer", "mcp_server_url": "https://depot.example/mcp"}
    made = world.post(f"{path}/credentials", {"name": "depot", "auth": auth | {"token": "word-1"}, "metadata": {"b": "2"}})
    place = f"{path}/credentials/{made['id']}"
    assert made["auth"] == auth
    assert world.get(place) == made
    assert world.get(f"{path}/credentials", **{"metadata[b]": "2"})["data"] == [made]
    assert world.get(f"{path}/credentials", **{"metadata[b]": "3"})["data"] == []
    rotated = world.post(place, {"auth": {"type": "static_bearer", "token": "word-2"}, "metadata": {}})
    assert rotated == made | {"metadata": {}, "updated_at": rotated["updated_at"]}
    assert world.http.delete(place).json() == {"id": made["id"], "object": "vault.credential.deleted", "deleted": True}
    assert world.http.get(place).status_code == 404
    assert world.http.delete(path).json() == {"id": vault["id"], "object": "vault.deleted", "deleted": True}
    assert world.http.get(path).status_code == 404


def environment_routes(world: World) -> None:
    made = world.post("/agents/environments", {"environment": {"type": "openai_hosted"}})
    path = f"/agents/environments/{made['id']}"
    put = world.post(f"{path}/files", {"type": "inline", "path": "/workspace/in/a.txt", "data": "YQ=="})
    assert put == {"object": "agent.environment.file", "environment_id": made["id"], "path": "/workspace/in/a.txt", "size_bytes": 1}
    assert world.get(f"{path}/files?path=/workspace/in", limit=1) == {"object": "page", "data": [put], "next": None, "has_more": False}
    shown = world.get(path)
    assert [file["path"] for file in shown["files"]] == ["/workspace/in/a.txt"]
    assert made["id"] in [each["id"] for each in world.get("/agents/environments")["data"]]
    assert world.get(f"/containers/{made['id']}")["id"] == made["id"]
    template = world.post("/agents/environments/templates", {"name": "a", "env": {"A": "b"}})
    place = f"/agents/environments/templates/{template['id']}"
    assert (template["name"], world.get(place)) == ("a", template)
    assert template in world.get("/agents/environments/templates")["data"]
    changed = world.post(place, {"name": None})
    assert changed == template | {"name": None, "updated_at": changed["updated_at"]}
    again = world.post("/agents/environments", {"environment": {"type": "openai_hosted", "environment_template_id": template["id"]}})
    assert again["files"] == []
    assert world.http.delete(place).json() == {"id": template["id"], "object": "agent.environment.template.deleted", "deleted": True}
    assert world.http.get(place).status_code == 404


_STORIES = {
    "/v1/agents/environments": environment_routes,
    "/v1/agents/automations": automation_routes,
    "/v1/agents": agent_routes,
    "/v1/embeddings": embedding_route,
    "/v1/chat": chat_route,
    "/v1/responses": called_routes,
    "/v1/approvals": approvals,
    "/v1/me": called_routes,
    "/v1/usage": called_routes,
    "/v1/sessions": container_routes,
    "/v1/models": called_routes,
    "/v1/conversations": conversation_routes,
    "/v1/files": file_routes,
    "/v1/skills": skill_routes,
    "/v1/uploads": file_routes,
    "/v1/containers": container_routes,
    "/v1/archives": container_routes,
    "/v1/processes": container_routes,
    "/v1/console": console_route,
    "/v1/webhook": webhook_routes,
    "/v1/vaults": vault_routes,
    "/v1/vector_stores": vector_store_routes,
}


def once(story: Check) -> Check:
    """A story drives all routes of its kind: it is played for the first of their rows, and what came of it holds for the others."""
    came: list[Exception | None] = []

    def check(world: World) -> None:
        if not came:
            try:
                story(world)
            except Exception as error:
                came.append(error)
            else:
                came.append(None)
        if came[0] is not None:
            raise came[0]

    return check


_PLAYED = {story: once(story) for story in _STORIES.values()}
for _line in TABLE["route"]:
    _path = _line["name"].split()[-1]
    _story = next((story for start, story in _STORIES.items() if _path.startswith(start)), None)
    row("route", _line["name"])(_PLAYED[_story] if _story else partial(absent, _path))
