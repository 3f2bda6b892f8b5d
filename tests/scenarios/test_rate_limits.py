"""Rate limits over both transports."""

import json
from collections.abc import Iterator

import pytest
from websockets.sync.client import connect

from tests.scenarios.test_tenants import make_key
from tests.stack import Stack


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack that answers each key three times a minute, and takes 2,000 tokens from it."""
    settings = {"MOORAGE_REQUESTS_PER_MINUTE": "3", "MOORAGE_TOKENS_PER_MINUTE": "2000"}
    stack = Stack(tmp_path_factory.mktemp("limited"), settings).start()
    try:
        yield stack
    finally:
        stack.stop()


def test_the_fourth_request_is_told_when_to_come_back(limited: Stack) -> None:
    with limited.http() as http:
        answers = [http.post("/responses", json={"model": "demo", "input": "hello"}) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers] == ["2", "1", "0", "0"]
        assert 0 < int(answers[-1].headers["retry-after"]) <= 20
        assert answers[-1].json()["error"]["code"] == "rate_limit_exceeded"
        assert answers[-1].headers["x-request-id"].startswith("req_")
        assert http.get("/models").status_code == 200
    url = limited.url.replace("http", "ws", 1) + "/responses"
    with connect(url, additional_headers={"authorization": f"Bearer {limited.key}"}) as socket:
        socket.send(json.dumps({"type": "response.create", "model": "demo", "input": "hello"}))
        error = json.loads(socket.recv(30))
    assert (error["type"], error["status"], error["error"]["code"]) == ("error", 429, "rate_limit_exceeded")


def test_without_limits_there_are_no_such_headers(stack: Stack) -> None:
    with stack.http() as http:
        answer = http.post("/responses", json={"model": "demo", "input": "hello"})
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("x-ratelimit")]
    assert (answer.headers["openai-version"], answer.headers["openai-processing-ms"].isdigit()) == ("2020-10-01", True)


def test_a_body_in_chunks_counts_like_one_of_a_known_length(limited: Stack) -> None:
    body = json.dumps({"model": "demo", "input": "x " * 2500}).encode()

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(body), 1000):
            yield body[start : start + 1000]

    headers = {"content-type": "application/json"}
    with limited.http(make_key(limited, "in-chunks")) as http:
        answers = [http.post("/responses", content=chunks(), headers=headers) for _ in range(3)]
        assert answers[0].request.headers["transfer-encoding"] == "chunked"
        assert [answer.status_code for answer in answers] == [200, 429, 429]
        assert int(answers[0].headers["x-ratelimit-remaining-tokens"]) < 1000
        assert answers[1].json()["error"]["code"] == "rate_limit_exceeded"
        assert answers[1].json()["error"]["message"].startswith("Rate limit reached for tokens: 2000 a minute.")


@pytest.mark.parametrize("path", ["/responses/compact", "/responses/input_tokens"])
def test_everything_that_works_for_a_model_is_counted(path: str, limited: Stack) -> None:
    key = make_key(limited, f"counted-{path.rpartition('/')[2].replace('_', '-')}")
    with limited.http(key) as http:
        answers = [http.post(path, json={"model": "demo", "input": "hello"}) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[0].headers["x-ratelimit-remaining-requests"] == "2"
