"""What people get wrong first (the address, the method, the key), and what the SDK then tells them."""

import http.client
import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from moorage.api.routers import ROUTERS
from moorage.command_hints import typed_here
from openai import OpenAI

from tests.stack import Stack

RESOURCES = sorted({getattr(route, "path", "").split("/")[1] for router in ROUTERS for route in router.routes})
SERVED = f"This deployment serves {', '.join(f'/v1/{name}' for name in RESOURCES)}."
SEND_A_KEY = typed_here("Send a key of this deployment as 'Authorization: Bearer <key>'; 'moorage keys create' makes one.")


def error(message: str, code: str) -> dict[str, Any]:
    return {"message": message, "type": "invalid_request_error", "param": None, "code": code}


def refusal_of_sdk(base_url: str, key: str) -> Any:
    with OpenAI(base_url=base_url, api_key=key, max_retries=0) as client, pytest.raises(openai.APIStatusError) as raised:
        client.responses.create(model="demo", input="hello")
    return raised.value.body


ADDRESSES = {
    "without /v1": ("", "/responses", "The addresses of this API begin with '/v1': let base_url end with it."),
    "with /v1 twice": ("/v1/v1", "/v1/v1/responses", "It has '/v1' twice: let base_url end with one."),
    "with another path": ("/v1/openai", "/v1/openai/responses", SERVED),
}


@pytest.mark.parametrize(("ending", "path", "advice"), ADDRESSES.values(), ids=ADDRESSES.keys())
def test_a_wrong_base_url_is_told_how_it_ends(ending: str, path: str, advice: str, stack: Stack) -> None:
    base_url = stack.url.removesuffix("/v1") + ending
    assert refusal_of_sdk(base_url, stack.key) == error(f"Invalid URL (POST {path}). {advice}", "unknown_url")


@pytest.mark.parametrize(
    ("sent", "here"),
    [
        ({"messages": [{"role": "user", "content": "hello"}]}, "input"),
        ({"input": "hello", "max_tokens": 50}, "max_output_tokens"),
        ({"input": "hello", "max_completion_tokens": 50}, "max_output_tokens"),
        ({"input": "hello", "response_format": {"type": "json_object"}}, "text.format"),
        ({"input": "hello", "reasoning_effort": "low"}, "reasoning.effort"),
        ({"input": "hello", "verbosity": "low"}, "text.verbosity"),
    ],
)
def test_what_chat_completions_call_otherwise_is_told_its_name_here(sent: dict[str, Any], here: str, stack: Stack) -> None:
    *_, name = sent
    with stack.http() as api:
        answer = api.post("/responses", json={"model": "demo", **sent})
    advice = f"This is a name of chat completions: the Responses API has '{here}' for it."
    refused = error(f"Unknown parameter: '{name}'. {advice}", "unknown_parameter") | {"param": name}
    assert (answer.status_code, answer.json()) == (400, {"error": refused})


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/responses", {"input": "hello", "temprature": 1}),
        ("/chat/completions", {"messages": [{"role": "user", "content": "hello"}], "temprature": 1}),
    ],
)
def test_a_mistyped_parameter_is_told_its_right_name(path: str, sent: dict[str, Any], stack: Stack) -> None:
    with stack.http() as api:
        answer = api.post(path, json={"model": "demo", **sent})
    refused = error("Unknown parameter: 'temprature'. Did you mean 'temperature'?", "unknown_parameter") | {"param": "temprature"}
    assert (answer.status_code, answer.json()) == (400, {"error": refused})


PART = "This is a content part of chat completions: the Responses API has '{}' for it."
OUTPUT = "This is a role of chat completions: the Responses API has an item of type 'function_call_output' for it."


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ({"role": "user", "content": [{"type": "text", "text": "hello"}]}, PART.format("input_text")),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}, PART.format("input_image")),
        ({"role": "tool", "content": "42", "tool_call_id": "call_1"}, OUTPUT),
    ],
)
def test_a_message_of_chat_completions_is_told_what_it_is_here(message: dict[str, Any], advice: str, stack: Stack) -> None:
    with stack.http() as api:
        answer = api.post("/responses", json={"model": "demo", "input": [message]})
    refused = answer.json()["error"]
    assert (answer.status_code, refused["code"], refused["message"].endswith(f". {advice}")) == (400, "invalid_value", True)


def test_a_shell_that_the_client_runs_is_told_in_a_header(stack: Stack) -> None:
    with stack.http() as api:
        answer = api.post("/responses", json={"model": "demo", "input": "hello", "tools": [{"type": "shell"}]})
    assert answer.headers["x-moorage-notice"] == (
        "A shell without an environment is run by the client: environment.type 'container_auto' runs it here."
    )


def test_a_file_that_is_too_large_is_told_the_bound(stack: Stack) -> None:
    """The form's length alone tells it, so nothing of it is sent."""
    address = httpx.URL(stack.url)
    connection = http.client.HTTPConnection(address.host, address.port, timeout=20)
    connection.putrequest("POST", "/v1/files")
    for name, value in {
        "authorization": f"Bearer {stack.key}",
        "content-type": "multipart/form-data; boundary=b",
        "content-length": str(600 << 20),
    }.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    refused = error(
        "The request body is larger than 536936448 bytes. A file has at most 512 MiB. Pack it, or send it in several files.",
        "request_too_large",
    )
    assert (answer.status, json.load(answer)) == (413, {"error": refused})
    connection.close()


def test_a_base_url_may_end_with_a_slash(stack: Stack) -> None:
    with OpenAI(base_url=f"{stack.url}/", api_key=stack.key, max_retries=0) as client:
        assert client.models.list().data[0].id == "demo"


def test_the_sdk_needs_nothing_but_its_two_variables(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", stack.url)
    monkeypatch.setenv("OPENAI_API_KEY", stack.key)
    with OpenAI() as client:
        assert client.responses.create(model=client.models.list().data[0].id, input="hello").status == "completed"


def test_another_api_of_openai_is_told_what_is_served(stack: Stack) -> None:
    assert {"chat", "containers", "conversations", "files", "models", "responses", "skills", "uploads"} < set(RESOURCES)
    with stack.http() as api:
        answer = api.post("/completions", json={"model": "demo", "messages": []})
    assert (answer.status_code, answer.json()) == (
        404,
        {"error": error(f"Invalid URL (POST /v1/completions). {SERVED}", "unknown_url")},
    )


def test_the_address_in_a_browser_says_what_is_there_and_asks_for_no_key(stack: Stack) -> None:
    answer = httpx.get(stack.url.removesuffix("/v1"))
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/plain")
    assert answer.text.startswith("moorage is up.")
    for path in ("/openapi.json", "/console/"):
        assert path in answer.text
        assert httpx.get(stack.url.removesuffix("/v1") + path).status_code < 404


@pytest.mark.parametrize("path", ["/v1", "/v1/"])
def test_the_base_url_itself_tells_what_is_served(path: str, stack: Stack) -> None:
    answer = httpx.get(stack.url.removesuffix("/v1") + path, headers={"authorization": f"Bearer {stack.key}"})
    assert answer.json() == {"error": error(f"Invalid URL (GET {path}). {SERVED}", "unknown_url")}


def test_a_slash_too_many_is_named(stack: Stack) -> None:
    with stack.http() as api:
        answer = api.post("/responses/", json={"model": "demo", "input": "hello"})
    assert answer.json() == {"error": error("Invalid URL (POST /v1/responses/). Leave out its last '/'.", "unknown_url")}


def test_a_wrong_method_is_told_which_are_taken(stack: Stack) -> None:
    with stack.http() as api:
        answer = api.put("/containers/cntr_1", json={})
    assert (answer.status_code, answer.headers.get_list("allow"), answer.json()) == (
        405,
        ["DELETE, GET"],
        {"error": error("Not allowed to PUT on /v1/containers/cntr_1. It takes DELETE, GET.", "method_not_supported")},
    )


KEYS = {
    "none": ({}, "You didn't provide an API key."),
    "in another header": ({"api-key": "sk-moorage-1"}, "You didn't provide an API key."),
    "by another scheme": ({"authorization": "Basic c2s="}, "You didn't provide an API key."),
    "OpenAI's": (
        {"authorization": "Bearer sk-proj-1"},
        "Incorrect API key provided: keys of this deployment begin with 'sk-moorage-', and this one does not.",
    ),
    "unknown or revoked": ({"authorization": "Bearer sk-moorage-1"}, "Incorrect API key provided."),
}


@pytest.mark.parametrize(("headers", "said"), KEYS.values(), ids=KEYS.keys())
def test_a_wrong_key_is_told_what_a_right_one_is(headers: dict[str, str], said: str, stack: Stack) -> None:
    answer = httpx.get(f"{stack.url}/models", headers=headers)
    assert (answer.status_code, answer.json()) == (401, {"error": error(f"{said} {SEND_A_KEY}", "invalid_api_key")})


def test_the_sdk_raises_its_authentication_error(stack: Stack) -> None:
    with OpenAI(base_url=stack.url, api_key="sk-moorage-none", max_retries=0) as client, pytest.raises(openai.AuthenticationError):
        client.models.list()


def test_a_first_setup_without_a_network_says_what_it_needs(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    (tmp_path / "requirements").mkdir()
    for name in ("Makefile", "requirements/uv.txt"):
        shutil.copy(root / name, tmp_path / name)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        index = f"http://127.0.0.1:{nobody.getsockname()[1]}/simple"
        own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # of the make that runs the tests
        environ = own | {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index, "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"}
        done = subprocess.run(["make", ".venv/bin/uv"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()) == (
        2,
        [
            "moorage: Making the environment .venv ...",
            "moorage: pip could not get uv. The first setup needs a network, or an index of packages that PIP_INDEX_URL names.",
        ],
    )


def test_a_setup_behind_a_companys_proxy_says_what_uv_has_to_trust(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    for name in ("requirements/uv.txt", "requirements/local.txt", "pyproject.toml", "Makefile"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(root / name, tmp_path / name)
    uv = tmp_path / ".venv" / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    uv.write_text("#!/bin/sh\necho 'invalid peer certificate: UnknownIssuer' >&2\nexit 1\n")
    uv.chmod(0o755)
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(["make", "demo"], cwd=tmp_path, env=own, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (
        2,
        "moorage: uv could not get the packages. Behind a proxy with certificates of its own: UV_SYSTEM_CERTS=1 make demo",
    )


# --- what is not there ---

ABSENT = {
    "/responses/resp_0": "response_not_found",
    "/files/file-0": "file_not_found",
    "/uploads/upload_0/cancel": "upload_not_found",
    "/containers/cntr_0": "container_not_found",
    "/containers/cntr_0/files/cfile_0": "container_not_found",
    "/conversations/conv_0": "conversation_not_found",
    "/skills/skill_0": "skill_not_found",
    "/vector_stores/vs_0": "vector_store_not_found",
    "/webhook_endpoints/wh_0": "webhook_endpoint_not_found",
    "/agents/agent_0": "agent_not_found",
}


def shell(**environment: Any) -> dict[str, Any]:
    return {"tools": [{"type": "shell", "environment": environment}]}


NAMED: dict[str, tuple[dict[str, Any], str]] = {
    "previous_response_id": ({"previous_response_id": "resp_0"}, "previous_response_not_found"),
    "conversation": ({"conversation": "conv_0"}, "conversation_not_found"),
    "tools[0].environment.container_id": (shell(type="container_reference", container_id="cntr_0"), "container_not_found"),
    "tools[0].environment.file_ids[0]": (shell(type="container_auto", file_ids=["file-0"]), "file_not_found"),
    "tools[0].vector_store_ids[0]": ({"tools": [{"type": "file_search", "vector_store_ids": ["vs_0"]}]}, "vector_store_not_found"),
    "input[0].content[0].file_id": (
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-0"}]}]},
        "file_not_found",
    ),
}


def test_what_is_not_there_has_a_code_of_its_kind_and_no_parameter_in_a_path(stack: Stack) -> None:
    told = {}
    with stack.http() as http:
        for path in ABSENT:
            answer = http.post(path) if path.endswith("/cancel") else http.get(path)
            told[path] = (answer.status_code, answer.json()["error"]["code"], answer.json()["error"]["param"])
    assert told == {path: (404, code, None) for path, code in ABSENT.items()}


def test_an_id_of_nothing_in_a_body_is_told_with_its_parameter(stack: Stack) -> None:
    told = {}
    with stack.http() as http:
        for param, (asked, _) in NAMED.items():
            answer = http.post("/responses", json={"model": "demo", "input": "hi", **asked}).json()["error"]
            told[param] = (answer["code"], answer["param"])
    assert told == {param: (code, param) for param, (_, code) in NAMED.items()}
