"""What else comes at its bounds: other requests, and what models and remote servers say. Sizes as in ``bounded_requests.py``."""

import base64
import gzip
import json
import socket
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import orjson
from websockets.sync.client import connect

from tests.mcp_servers import Odd
from tests.scenarios.bounded_requests import HI, ITEMS, LINE, Bounds, Json, function, many, properties, schema, zipped
from tests.scenarios.bounded_requests import a_filter as filtered
from tests.scenarios.bounded_requests import a_whole_body as whole_body
from tests.scenarios.bounded_requests import metadata as metadata_of
from tests.scenarios.bounded_requests import tools as tools_of
from tests.scenarios.test_tenants import make_key
from tests.stack import Stack, say, script
from tests.upstream import Call, MockUpstream, Reply, said

_NOTHING = function("f", {"type": "object", "properties": {}})

# --- requests ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """A stack, and what serves it."""

    stack: Stack
    upstream: MockUpstream
    server: Odd
    """A remote MCP server ..."""
    server_url: str
    """... and its address."""

    def post(self, path: str, body: Json, **more: Any) -> httpx.Response:
        with self.stack.http() as http:
            return http.post(path, json=body, timeout=300, **more)


Story = Callable[[Bounds, Site], None]


def answered(answer: httpx.Response, *statuses: int) -> None:
    assert answer.status_code in (statuses or (200,)), answer.text[:2_000]


def packed_body(at: Bounds, site: Site) -> None:
    """A body as large as may be, of which a few packets come: spaces are packed to a thousandth."""
    body = json.dumps({"model": "demo", "input": "hi"}).encode()
    with site.stack.http() as http:
        padded = gzip.compress(body + b" " * (at.REQUEST_BODY_BYTES_MAX - len(body)))
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        answered(http.post("/responses", content=padded, headers=headers, timeout=300))


def chat(at: Bounds, site: Site) -> None:
    turns = [{"role": "user", "content": LINE}, {"role": "assistant", "content": "b"}] * (at.INPUT_ITEMS_MAX // 2 - 1)
    body = {"model": "demo", "messages": [*turns, {"role": "user", "content": "hi"}], "stop": ["s" * 1_000] * at.STOP_WORDS_MAX}
    answered(site.post("/chat/completions", body), 200, 400)


def chat_calls(at: Bounds, site: Site) -> None:
    turns = [
        turn
        for n in range(at.INPUT_ITEMS_MAX // 2 - 1)
        for turn in (
            {
                "role": "assistant",
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "content": "a"},
        )
    ]
    answered(site.post("/chat/completions", {"model": "demo", "messages": turns + HI}))


def counted(at: Bounds, site: Site) -> None:
    answered(site.post("/responses/input_tokens", {"model": "demo", "input": many(ITEMS["messages"], at.INPUT_ITEMS_MAX)}))


def compacted_at_once(at: Bounds, site: Site) -> None:
    answered(site.post("/responses/compact", {"model": "served", "input": many(ITEMS["functions"], at.INPUT_ITEMS_MAX)}))


def escaped_texts(at: Bounds, site: Site) -> None:
    """Of line ends, each of which is two bytes of JSON, by every door that takes a text."""
    text = "\n" * at.TEXT_CHARS_MAX
    turns = [{"role": "user", "content": text}]
    parts_ = [{"role": "user", "content": [{"type": "input_text", "text": text}]}]
    answered(site.post("/chat/completions", {"model": "demo", "messages": turns}), 200, 400)
    answered(site.post("/responses/input_tokens", {"model": "demo", "input": turns}))
    answered(site.post("/responses/compact", {"model": "served", "input": turns}), 200, 400)
    made = site.post("/conversations", {"items": turns})
    answered(made)
    with site.stack.http() as http:
        answered(http.get(f"/conversations/{made.json()['id']}/items"))
    body = {"agent": {"model": "demo", "instructions": "a"}, "environment": {"type": "none"}, "input": parts_}
    session = site.post("/agents/sessions", body)
    answered(session)
    with site.stack.http() as http:
        answered(http.get(f"/agents/sessions/{session.json()['id']}/items"))
        answered(http.delete(f"/agents/sessions/{session.json()['id']}", params={"force": "true"}))
    saved = site.post("/agents", {"model": "demo", "instructions": text})
    answered(saved)
    with site.stack.http() as http:
        answered(http.get("/agents"))
        http.delete(f"/agents/{saved.json()['id']}")


def conversation(at: Bounds, site: Site) -> None:
    each = "word " * ((at.REQUEST_BODY_BYTES_MAX - 100_000) // at.CONVERSATION_ITEMS_PER_CALL_MAX // 5)
    items = [{"role": "user", "content": each}] * at.CONVERSATION_ITEMS_PER_CALL_MAX
    made = site.post("/conversations", {"items": items} | {"metadata": metadata_of(at)["metadata"]})
    answered(made)
    answered(site.post(f"/conversations/{made.json()['id']}/items", {"items": items}))


def embeddings(at: Bounds, site: Site) -> None:
    text = "word " * (at.EMBEDDING_TOKENS_MAX // at.EMBEDDING_INPUTS_MAX // 2)
    body = {"model": "static-256", "input": [text] * at.EMBEDDING_INPUTS_MAX}
    answered(site.post("/embeddings", body), 200, 400, 404)


def attributes(at: Bounds) -> Json:
    key = "k" * (at.ATTRIBUTE_KEY_CHARS_MAX - 2)
    return {f"{key}{n:02}": "v" * at.ATTRIBUTE_TEXT_CHARS_MAX for n in range(at.ATTRIBUTES_MAX)}


def vector_store(at: Bounds, site: Site) -> None:
    body = {
        "name": "n" * at.VECTOR_STORE_NAME_CHARS_MAX,
        "description": "d" * at.VECTOR_STORE_DESCRIPTION_CHARS_MAX,
        "metadata": metadata_of(at)["metadata"],
        "expires_after": {"anchor": "last_active_at", "days": at.VECTOR_STORE_DAYS_MAX},
    }
    made = site.post("/vector_stores", body)
    answered(made)
    store = f"/vector_stores/{made.json()['id']}"
    unknown = [f"file-{n:04}" for n in range(at.VECTOR_STORE_FILE_IDS_MAX)]
    answered(site.post("/vector_stores", body | {"file_ids": unknown}), 404)
    strategy = {"type": "static", "static": {"max_chunk_size_tokens": at.CHUNK_TOKENS_MAX, "chunk_overlap_tokens": 0}}
    each = {"attributes": attributes(at), "chunking_strategy": strategy}
    files = [{"file_id": f"file-{n:04}", **each} for n in range(at.VECTOR_BATCH_FILES_MAX)]
    answered(site.post(f"{store}/file_batches", {"files": files}), 404)
    asked = {
        "query": ["word " * (at.SEARCH_QUERY_CHARS_MAX // 5)] * at.SEARCH_QUERIES_MAX,
        "max_num_results": at.SEARCH_RESULTS_MAX,
        "filters": filtered(at)["tools"][0]["filters"],
    }
    answered(site.post(f"{store}/search", asked))


def upload(at: Bounds, site: Site) -> None:
    begun = site.post(
        "/uploads",
        {"filename": "f" * at.FILE_NAME_BYTES_MAX, "bytes": 10, "purpose": "user_data", "mime_type": "text/plain"},
    )
    answered(begun)
    parts_ = [f"part_{n}".ljust(at.NAME_CHARS_MAX, "p") for n in range(at.UPLOAD_PARTS_MAX)]
    answered(site.post(f"/uploads/{begun.json()['id']}/complete", {"part_ids": parts_}), 400, 404)


def form(at: Bounds, site: Site) -> None:
    fields = {f"f{n}": "v" * at.FORM_FIELD_BYTES_MAX for n in range(at.FORM_PARTS_MAX - 2)}
    with site.stack.http() as http:
        answered(http.post("/files", data=fields | {"purpose": "user_data"}, files={"file": ("a.txt", b"a")}), 400)


def a_large_file(at: Bounds, site: Site) -> None:
    with site.stack.http() as http:
        content = b"x" * (at.BLOB_PART_BYTES * 4)
        answered(http.post("/files", data={"purpose": "user_data"}, files={"file": ("a.bin", content)}))


def skill_of_files(at: Bounds, site: Site) -> None:
    description = f"---\nname: many\ndescription: {'d' * at.SKILL_DESCRIPTION_CHARS_MAX}\n---\n".encode()
    folder = "many/" + "d" * (at.SKILL_NAME_BYTES_MAX - 10)
    files: list[Any] = [("files", ("many/SKILL.md", description))]
    files += [("files", (f"{folder}{n}/a.txt", b"a" * 1_000)) for n in range(at.SKILL_FILES_MAX - 1)]
    with site.stack.http() as http:
        answered(http.post("/skills", files=files, timeout=120))


def skill_in_a_zip(at: Bounds, site: Site) -> None:
    name = "z" * at.SKILL_NAME_CHARS_MAX
    path = "/".join(["d" * 100] * ((at.SKILL_PATH_BYTES_MAX - 200) // 101))
    front = f"---\nname: {name}\ndescription: d\nmetadata:\n"
    lines = "".join(f"  k{n}: v\n" for n in range((at.SKILL_FRONT_MATTER_CHARS_MAX - 200) // 12))
    files = {f"{name}/SKILL.md": f"{front}{lines}---\n".encode()}
    files |= {f"{name}/{path}/f{n}": bytes(at.SKILL_BYTES_MAX // at.SKILL_FILES_MAX // 2) for n in range(at.SKILL_FILES_MAX - 1)}
    with site.stack.http() as http:
        answered(http.post("/skills", files={"files": ("skill.zip", zipped(files), "application/zip")}, timeout=120))


def container(at: Bounds, site: Site) -> None:
    made = site.post("/containers", {"name": "n" * at.CONTAINER_NAME_CHARS_MAX})
    answered(made)
    place = f"/containers/{made.json()['id']}"
    session = site.post(f"{place}/sessions", {"command": "exec cat #".ljust(at.COMMAND_CHARS_MAX, "a")})
    answered(session)
    typed = {"text": "a" * at.SESSION_INPUT_CHARS_MAX, "id": "i" * at.SESSION_INPUT_ID_CHARS_MAX}
    answered(site.post(f"/sessions/{session.json()['id']}/input", typed), 200, 409)
    side = at.SESSION_SIDE_MAX
    answered(site.post(f"/sessions/{session.json()['id']}/resize", {"rows": side, "columns": side}), 200, 409)
    with site.stack.http() as http:
        http.delete(place)


def webhook(at: Bounds, site: Site) -> None:
    url = "https://example.com/".ljust(at.WEBHOOK_URL_CHARS_MAX, "a")
    body = {"name": "n" * at.WEBHOOK_NAME_CHARS_MAX, "url": url, "event_types": ["response.completed"]}
    for _ in range(at.WEBHOOK_ENDPOINTS_MAX + 1):
        answered(site.post("/webhook_endpoints", body), 200, 400)


def agent_session(at: Bounds, site: Site) -> None:
    """Begun with as many messages as one input may have, and given as many inputs as one request may have."""
    message = {"role": "user", "content": [{"type": "input_text", "text": LINE}]}
    messages = [message] * at.AGENT_SESSION_MESSAGES_MAX
    body = {"agent": {"model": "demo"}, "environment": {"type": "none"}, "input": messages}
    made = site.post("/agents/sessions", body)
    answered(made)
    place = f"/agents/sessions/{made.json()['id']}"
    event = {"type": "agent.session.input.message", "input": messages}
    answered(site.post(f"{place}/events", {"events": [event] * at.AGENT_SESSION_EVENTS_MAX}), 202, 400)
    with site.stack.http() as http:
        answered(http.get(f"{place}/items", params={"limit": 100}))
        answered(http.get("/agents/sessions"))
        answered(http.delete(place, params={"force": "true"}))


def automation(at: Bounds, site: Site) -> None:
    """With the longest name, an expression that is looked at for all of its years, and the longest one."""
    message = {"role": "user", "content": [{"type": "input_text", "text": LINE}]}
    messages = [message] * at.AGENT_SESSION_MESSAGES_MAX
    target = {"type": "new_session", "environment": {"type": "none"}, "agent": {"model": "demo"}, "input": messages}
    body = {"type": "periodic", "name": "n" * at.AUTOMATION_NAME_CHARS_MAX, "timezone": "Europe/Berlin", "target": target}
    answered(site.post("/agents/automations", {**body, "expression": "0 0 */32 * MON#5"}), 400)
    longest = ",".join(["59"] * ((at.AUTOMATION_EXPRESSION_CHARS_MAX - len(" 0 1 1 *")) // len("59,"))) + " 0 1 1 *"
    made = site.post("/agents/automations", {**body, "expression": longest})
    answered(made)
    place = f"/agents/automations/{made.json()['id']}"
    answered(site.post(f"{place}/invocations", {}))
    with site.stack.http() as http:
        answered(http.get(f"{place}/invocations"))
        answered(http.get("/agents/automations"))
        answered(http.delete(place))


def agent(at: Bounds, site: Site) -> None:
    """Made, listed and changed with as many bytes of tools as an agent may have."""
    one = {"type": "function", "name": "f0000", "description": "", "parameters": {"type": "object", "properties": {}}}
    count = at.TOOLS_MAX
    words = "d" * max(0, at.AGENT_TOOLS_BYTES_MAX // count - 120)
    tools = [{**one, "name": f"f{number}", "description": words} for number in range(count)]
    made = site.post("/agents", {"model": "demo", "name": "n" * at.AGENT_NAME_CHARS_MAX, "tools": tools})
    answered(made)
    place = f"/agents/{made.json()['id']}"
    answered(site.post(place, {"instructions": "Be brief."}))
    with site.stack.http() as http:
        answered(http.get("/agents"))
        http.delete(place)


def vault(at: Bounds, site: Site) -> None:
    """Filled with the longest credentials, listed, and deleted with them."""
    secret, word, name = "s" * at.VAULT_SECRET_CHARS_MAX, "w" * at.OAUTH_PARAMETER_CHARS_MAX, "n" * at.VAULT_NAME_BYTES_MAX
    basic = {"type": "client_secret_basic", "client_secret": secret}
    client = {"client_id": word, "refresh_token": secret, "token_endpoint": "https://depot.example/token", "scope": word}
    refresh = {**client, "token_endpoint_auth": basic, "resource": word}
    oauth = {"type": "mcp_oauth", "mcp_server_url": "https://depot.example/mcp", "access_token": secret, "refresh": refresh}
    hosts = [f"h{n}.example.com" for n in range(at.VAULT_HOSTS_MAX)]
    limited = {"type": "limited", "allowed_hosts": hosts}
    value = {"type": "environment_variable", "secret_name": "TOKEN", "secret_value": secret, "networking": limited}
    made = site.post("/vaults", {"name": name, "metadata": metadata_of(at)["metadata"]})
    answered(made)
    place = f"/vaults/{made.json()['id']}"
    for n in range(at.VAULT_CREDENTIALS_MAX):
        auth = value if n == 0 else oauth
        answered(site.post(f"{place}/credentials", {"name": name, "auth": auth, "metadata": metadata_of(at)["metadata"]}))
    with site.stack.http() as http:
        answered(http.get(f"{place}/credentials?limit=100"))
        answered(http.delete(place))


def environment(at: Bounds, site: Site) -> None:
    """With as many files as one request puts there, below folders with long names, and listed."""
    folder = "/workspace/" + "a/" * (at.ENVIRONMENT_PATH_CHARS_MAX // 2 - 10)
    files = [{"type": "inline", "path": f"{folder}f{n:04}", "data": ""} for n in range(at.ENVIRONMENT_FILES_MAX)]
    words = "w" * (at.SETUP_BYTES_MAX // (at.ENVIRONMENT_VARIABLES_MAX + at.SETUP_COMMANDS_MAX) - 20)
    env = {f"A{n}": words for n in range(at.ENVIRONMENT_VARIABLES_MAX)}
    commands = [{"command": f"true {words}"}] * at.SETUP_COMMANDS_MAX
    wanted = {"type": "openai_hosted", "files": files, "env": env, "setup_commands": commands}
    for count, status in ((at.VAULT_IDS_MAX, 404), (0, 200)):
        made = site.post("/agents/environments", {"environment": wanted, "vault_ids": ["v"] * count})
        answered(made, status)
    content = {"type": "inline", "path": "/workspace/a", "data": "A" * ((at.ENVIRONMENT_TEMPLATE_BYTES_MAX - 1_000) // 4 * 4)}
    template = site.post("/agents/environments/templates", {"name": "n" * at.AGENT_NAME_CHARS_MAX, "files": [content]})
    answered(template)
    answered(site.post(f"/agents/environments/templates/{template.json()['id']}", {"name": "n"}))
    with site.stack.http() as http:
        answered(http.get("/agents/environments/templates"))
        http.delete(f"/agents/environments/templates/{template.json()['id']}")
        for path in ("", f"/{made.json()['id']}", f"/{made.json()['id']}/files?limit=100"):
            listed = http.get(f"/agents/environments{path}")
            answered(listed)
        assert listed.json()["has_more"]
        assert len(http.get("/agents/environments").json()["data"]) <= at.ENVIRONMENT_PAGE_FILES_MAX
        http.delete(f"/containers/{made.json()['id']}")


def plugins(at: Bounds, site: Site) -> None:
    """Of an environment, with as many skills as a container has, and the largest manifests."""
    asked = []
    for n in range(at.ENVIRONMENT_PLUGINS_MAX):
        described = {"name": f"plugin-{n}", "description": "d" * at.SKILL_DESCRIPTION_CHARS_MAX}
        manifest = orjson.dumps(described | {"keywords": ["k"] * (at.PLUGIN_MANIFEST_BYTES_MAX // 4 - 300)})
        files = {".codex-plugin/plugin.json": manifest}
        for k in range(at.SKILLS_ATTACHED_MAX // at.ENVIRONMENT_PLUGINS_MAX):
            front = f"---\nname: skill-{n}-{k}\ndescription: {'d' * at.SKILL_DESCRIPTION_CHARS_MAX}\n---\n"
            files[f"skills/{k}/SKILL.md"] = front.encode()
        source = {"type": "base64", "media_type": "application/zip", "data": base64.b64encode(zipped(files)).decode()}
        asked.append({"type": "inline", **described, "source": source})
    made = site.post("/agents/environments", {"environment": {"type": "openai_hosted", "plugins": asked}})
    answered(made)
    with site.stack.http() as http:
        shown = http.get(f"/agents/environments/{made.json()['id']}")
        answered(shown)
        assert len(shown.json()["plugins"]) == at.ENVIRONMENT_PLUGINS_MAX
        http.delete(f"/containers/{made.json()['id']}")


def head(at: Bounds, site: Site) -> None:
    headers = {f"x-{n}": "a" for n in range(at.HEAD_BYTES_MAX // 12)}
    with site.stack.http() as http:
        answered(http.get("/models", headers=headers), 200, 431)
    key = {"idempotency-key": "k" * at.IDEMPOTENCY_KEY_CHARS_MAX}
    answered(site.post("/responses", {"model": "demo", "input": "hi"}, headers=key))


def verdict(at: Bounds, site: Site) -> None:
    body = {"approve": True, "reason": "r" * at.APPROVAL_REASON_CHARS_MAX}
    answered(site.post("/responses/resp_a/approvals/mcpr_a", body), 404)
    with site.stack.http() as http:
        form_ = {"reason": "r" * (at.APPROVAL_FORM_BYTES_MAX - 100)}
        answered(http.post(f"{site.stack.url.removesuffix('/v1')}/approve/nobody", data=form_), 303, 400, 403, 404, 405)


def pages(at: Bounds, site: Site) -> None:
    deltas = at.EVENTS_PAGE_MAX
    site.upstream.plays(Reply(text=tuple("word " for _ in range(deltas))))
    made = site.post("/responses", {"model": "served", "input": "hi"})
    answered(made)
    with site.stack.http() as http:
        answered(http.get(f"/responses/{made.json()['id']}/events", params={"limit": at.EVENTS_PAGE_MAX}))
        answered(http.get("/files", params={"limit": at.FILES_LIST_MAX}))
        answered(http.get("/usage", params={"from": 0, "to": at.USAGE_DAYS_MAX * 86_400 - 1}))


def a_late_reader(at: Bounds, site: Site) -> None:
    """Of a response that came in small pieces: all of its events at once, by each door that reads them again."""
    whole = "word " * (at.UPSTREAM_EVENT_BYTES_MAX // MODEL_TEXT_SHARE // 5)
    site.upstream.plays(said(whole, deltas=10_000))
    made = site.post("/responses", {"model": "served", "input": "hi"})
    answered(made)
    with site.stack.http() as http:
        answered(http.get(f"/responses/{made.json()['id']}", params={"stream": "true"}, timeout=300))


def doors(at: Bounds, site: Site) -> None:
    """The same pieces as they come, by each door that shows them."""
    whole = "word " * (at.UPSTREAM_EVENT_BYTES_MAX // MODEL_TEXT_SHARE // 5)
    for path, body in (("/responses", {"input": "hi"}), ("/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})):
        site.upstream.plays(said(whole, deltas=10_000))
        answered(site.post(path, {"model": "served", "stream": True, **body}))
    headers = {"authorization": f"Bearer {site.stack.key}"}
    with connect(site.stack.url.replace("http", "ws", 1) + "/responses", additional_headers=headers, max_size=None) as connection:
        site.upstream.plays(said(whole, deltas=10_000))
        connection.send(json.dumps({"type": "response.create", "model": "served", "input": "hi"}))
        while json.loads(connection.recv(120))["type"] not in ("response.completed", "error"):
            pass


def a_list_of_large_responses(at: Bounds, site: Site) -> None:
    """Of a tenant of its own each time, so that nothing else is in it."""
    key = make_key(site.stack, f"hoarder-{uuid.uuid4().hex}")
    with site.stack.http(key) as http:
        for _ in range(5):
            answered(http.post("/responses", json={"model": "demo", **tools_of(at)}, timeout=300))
        answered(http.get("/responses", params={"limit": at.PAGE_ITEMS_MAX}))


def frames(at: Bounds, site: Site) -> None:
    """Frames that wait for the first, in the most lanes; then one that is as large as a body."""
    with connect(
        site.stack.url.replace("http", "ws", 1) + "/responses",
        additional_headers={"authorization": f"Bearer {site.stack.key}"},
        max_size=None,
    ) as connection:
        for n in range(at.WEBSOCKET_WAITING_MAX):
            lane = f"{n % at.WEBSOCKET_STREAM_IDS_MAX}".ljust(at.WEBSOCKET_STREAM_ID_CHARS_MAX, "l")
            connection.send(json.dumps({"type": "response.create", "model": "demo", "input": f"hi {n}", "stream_id": lane}))
        ends = 0
        while ends < at.WEBSOCKET_WAITING_MAX:
            ends += json.loads(connection.recv(120))["type"] in ("response.completed", "error")
        connection.send(json.dumps({"type": "response.create", "model": "demo", "truncation": "auto", **whole_body(at)}))
        while json.loads(connection.recv(120))["type"] not in ("response.completed", "error"):
            pass


def outputs_of_a_frame(at: Bounds, site: Site) -> None:
    """As many as one may bring to a response that runs, as large together as half a body."""
    url, key = site.stack.url.replace("http", "ws", 1) + "/responses", site.stack.key
    headers = {"authorization": f"Bearer {key}", "openai-beta": "responses_multi_agent=v1"}
    with connect(url, additional_headers=headers, max_size=None) as connection:
        calls = [{"name": "f", "arguments": {}}] * at.TEAM_OUTPUTS_MAX
        request = {"model": "demo", "tools": [_NOTHING], "multi_agent": {"enabled": True}}
        connection.send(json.dumps({"type": "response.create", "input": script({"calls": calls}, say("Done.")), **request}))
        events: list[Json] = []
        while len(called := [event for event in events if event["type"] == "response.function_call_arguments.done"]) < len(calls):
            events.append(json.loads(connection.recv(120)))
        while events[-1]["type"] != "response.output_item.done":
            events.append(json.loads(connection.recv(120)))
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        text = "o" * (at.REQUEST_BODY_BYTES_MAX // 2 // len(called))
        outputs = [{"type": "function_call_output", "call_id": item["call_id"], "output": text} for item in done]
        response_id = next(event["response"]["id"] for event in events if event["type"] == "response.created")
        connection.send(json.dumps({"type": "response.inject", "response_id": response_id, "input": outputs}))
        while (event := json.loads(connection.recv(120)))["type"] != "response.inject.created":
            assert event["type"] != "error", event


def small_frames(at: Bounds, site: Site) -> None:
    """Thousands in each packet, none of which is a request."""
    url = site.stack.url.replace("http", "ws", 1) + "/responses"
    with connect(url, additional_headers={"authorization": f"Bearer {site.stack.key}"}) as connection:
        count = at.WEBSOCKET_WAITING_MAX * 40
        for _ in range(count):
            connection.send("{}")
        for _ in range(count):
            assert json.loads(connection.recv(120))["type"] == "error"


def bodies_that_are_left(at: Bounds, site: Site) -> None:
    """Of clients that all go away at once, each in the middle of its body."""
    url = httpx.URL(site.stack.url)
    assert url.port is not None
    head = (
        f"POST {url.path}/responses HTTP/1.1\r\nhost: {url.netloc.decode()}\r\nauthorization: Bearer {site.stack.key}\r\n"
        f"content-type: application/json\r\ncontent-length: {at.REQUEST_BODY_BYTES_MAX}\r\n\r\n"
    )
    with ExitStack() as clients:
        for _ in range(200):
            connection = clients.enter_context(socket.create_connection((url.host, url.port)))
            connection.sendall(head.encode() + b"{" + b" " * at.WORKED_HERE_BYTES_MAX)
        site.post("/responses", {"model": "demo", "input": "hi"})  # By its answer the others have begun.


# --- what a model says ---------------------------------------------------------------------------------------------------------------

DIALECTS: dict[str, Callable[[int], str]] = {
    "prose": lambda n: "word " * (n // 5),
    "tags": lambda n: '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>' * (n // 60),
    "tags without an end": lambda n: '<tool_call>{"name": "f", "arguments": {"a": "' * (n // 45),
    "doubled braces": lambda n: '<tool_call>{{"' * (n // 14),
    "functions": lambda n: "<function=f><parameter=a>1</parameter></function>" * (n // 50),
    "functions without an end": lambda n: "<function=f><parameter=a>" * (n // 25),
    "fences": lambda n: '```json\n{"name": "f", "arguments": {}}\n```\ntext\n' * (n // 50),
    "an open fence": lambda n: '```json\n{"name": "f", "arguments": {"a": "' + "word " * (n // 5),
    "an open object": lambda n: '{"name": "f", "arguments": {"a": [' + "[1]," * (n // 4),
    "brackets": lambda n: "[" * (n // 2) + "]" * (n // 2),
    "thoughts": lambda n: "<think>" + "word " * (n // 5),
    "openings of thoughts": lambda n: "<think>" * (n // 7),
    "links": lambda n: "[a](sandbox:/mnt/data/a.txt) " * (n // 30),
    "numbers of sources": lambda n: "as it says [1] " * (n // 15),
    "spaces": lambda n: " " * n,
    "line ends": lambda n: "\n" * n,
}
MODEL_TEXT_SHARE = 32
"""Of the largest event: 750 kB, a quarter of a million tokens."""


def spoken(at: Bounds, site: Site, text: Callable[[int], str], pieces: int) -> None:
    whole = text(at.UPSTREAM_EVENT_BYTES_MAX // MODEL_TEXT_SHARE)
    site.upstream.plays(said(whole, deltas=pieces))
    call = {"type": "object", "properties": {"a": {"type": "string"}}}
    answered(site.post("/responses", {"model": "served", "input": "hi", "tools": [function("f", call)]}))


def a_long_call(at: Bounds, site: Site) -> None:
    arguments = json.dumps({"a": [1] * (at.UPSTREAM_EVENT_BYTES_MAX // MODEL_TEXT_SHARE // 3)})
    site.upstream.plays(Reply(calls=(Call("f", arguments),)))
    answered(site.post("/responses", {"model": "served", "input": "hi", "tools": [_NOTHING]}))


def many_calls(at: Bounds, site: Site) -> None:
    site.upstream.plays(Reply(calls=tuple(Call("f", "{}", f"call_{n}") for n in range(at.INPUT_ITEMS_MAX // 4))))
    answered(site.post("/responses", {"model": "served", "input": "hi", "tools": [_NOTHING]}))


def an_answer_by_schema(at: Bounds, site: Site) -> None:
    whole = json.dumps({"a": ["word"] * (at.UPSTREAM_EVENT_BYTES_MAX // MODEL_TEXT_SHARE // 8)})
    site.upstream.plays(said(whole, deltas=100))
    wanted = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}}
    answered(site.post("/responses", {"model": "served", "input": "hi", "text": schema(wanted)}))


# --- what a remote server says -------------------------------------------------------------------------------------------------------


def server(site: Site) -> Json:
    return {"type": "mcp", "server_label": "s", "server_url": site.server_url, "require_approval": "never"}


def assert_called(site: Site) -> None:
    answer = site.post("/responses", {"model": "served", "input": "hi", "tools": [server(site)]})
    answered(answer)
    assert answer.json()["output"][-1]["content"][0]["text"] == "hi", answer.text[:2_000]


def listed_tools(at: Bounds, site: Site) -> None:
    room = at.MCP_LIST_BYTES_MAX // at.MCP_TOOLS_MAX - 200
    site.server.tools = [
        {"name": f"t{n}", "description": "d" * (room // 2), "inputSchema": {"type": "object", "properties": properties(2, room // 40)}}
        for n in range(at.MCP_TOOLS_MAX)
    ]
    site.upstream.plays(said("hi"))
    assert_called(site)


def listed_patterns(at: Bounds, site: Site) -> None:
    pattern = "(?i)" + "[\u0001-\U0010fffe]" * (at.MCP_LIST_BYTES_MAX // 16)
    parameters = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    site.server.tools = [{"name": "t", "inputSchema": parameters}]
    site.upstream.plays(said("hi"))
    assert_called(site)


def a_result(at: Bounds, site: Site, text: str) -> None:
    site.server.tools = [{"name": "t", "inputSchema": {"type": "object", "properties": {}}}]
    site.server.result = {"content": [{"type": "text", "text": text * ((at.MCP_OUTPUT_BYTES_MAX - 1_000) // len(json.dumps(text)))}]}
    site.upstream.plays(Reply(calls=(Call("t", "{}"),)), said("hi"))
    assert_called(site)


def too_much_of_a_result(at: Bounds, site: Site) -> None:
    site.server.tools = [{"name": "t", "inputSchema": {"type": "object", "properties": {}}}]
    for count in (at.MCP_MESSAGE_BYTES_MAX // 40, at.MCP_MESSAGE_VALUES_MAX // 4):
        site.server.result = {"content": [{"type": "text", "text": "é"}] * count}
        site.upstream.plays(Reply(calls=(Call("t", "{}"),)), said("hi"))
        assert_called(site)


STORIES: dict[str, Story] = {
    "a packed body": packed_body,
    "chat": chat,
    "calls of a chat": chat_calls,
    "counted": counted,
    "compacted at once": compacted_at_once,
    "escaped texts": escaped_texts,
    "a conversation": conversation,
    "embeddings": embeddings,
    "a vector store": vector_store,
    "an upload": upload,
    "a form": form,
    "a large file": a_large_file,
    "a skill of many files": skill_of_files,
    "a skill in a zip": skill_in_a_zip,
    "a container": container,
    "webhooks": webhook,
    "an agent": agent,
    "a vault": vault,
    "an environment": environment,
    "plugins of an environment": plugins,
    "a session of an agent": agent_session,
    "an automation": automation,
    "a head": head,
    "a verdict": verdict,
    "pages": pages,
    "a late reader": a_late_reader,
    "doors": doors,
    "a list of large responses": a_list_of_large_responses,
    "frames": frames,
    "outputs of a frame": outputs_of_a_frame,
    "small frames": small_frames,
    "bodies that are left": bodies_that_are_left,
    "a long call": a_long_call,
    "many calls": many_calls,
    "an answer by schema": an_answer_by_schema,
    "listed tools": listed_tools,
    "listed patterns": listed_patterns,
    "a result": partial(a_result, text="word "),
    "a result of control characters": partial(a_result, text="\u0001"),
    "too much of a result": too_much_of_a_result,
    **{f"a model that writes {name}": partial(spoken, text=text, pieces=1) for name, text in DIALECTS.items()},
    **{f"a model that writes {name}, in small pieces": partial(spoken, text=text, pieces=10_000) for name, text in DIALECTS.items()},
}
