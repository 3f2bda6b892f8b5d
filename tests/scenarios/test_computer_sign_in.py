"""A model signs in with a credential that it never sees: on real Chromium, through the real proxy, at a host of this machine."""

import base64
import json
import secrets
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.scenarios.test_computer import WITH_PICTURES, acts, needs_browser, shown
from tests.scenarios.test_operator_secrets import HOST, Host, a_host
from tests.stack import Stack, say, script

pytestmark = needs_browser


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with a_host(tmp_path_factory.mktemp("host")) as one:
        yield one


@pytest.fixture(scope="module")
def lab(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    running = Stack(tmp_path_factory.mktemp("signing"), host.environment).start()
    yield running
    assert running.stop() == 0


def test_a_model_signs_in_and_its_credential_is_in_no_item_event_log_file_or_prompt(lab: Stack, host: Host) -> None:
    canary = f"canary & {secrets.token_hex(8)}"
    secret = {"domain": HOST, "name": "SHOP_PASSWORD", "value": canary, "places": ["form"]}
    policy = {"type": "allowlist", "allowed_domains": [HOST], "domain_secrets": [secret]}
    tools: Any = [{"type": "computer", "container": {"type": "container_auto", "network_policy": policy}}]
    sign_in: list[dict[str, Any]] = [
        {"type": "navigate", "url": f"https://{HOST}:{host.port}/sign-in"},
        {"type": "click", "x": 50, "y": 20},
        {"type": "type", "text": "ada"},
        {"type": "click", "x": 50, "y": 70},
        {"type": "type", "text": "$SHOP_PASSWORD"},
        {"type": "keypress", "keys": ["ENTER"]},
    ]
    client = lab.client()
    response: Any = client.responses.create(
        model="demo", input=script(acts(*sign_in), say("Signed in.")), tools=tools, include=WITH_PICTURES
    )
    (output,) = shown(response)
    masked = f"Signed in by user=ada&password={'*' * len(quote(canary, safe=''))}"
    assert (output.page["title"], [each["ok"] for each in output.actions]) == (masked, [True] * 8)
    assert host.posted == [f"user=ada&password={quote(canary, safe='')}"]
    with lab.http() as http:
        path = f"/responses/{response.id}"
        places = ["", "/events?limit=1000", "/input_items", "/steps", "/steps/step_0/prompt", "/steps/step_1/prompt", "/trace"]
        told = [http.get(f"{path}{place}") for place in places]
        told.append(http.get(f"/containers/{response.tools[0].container['container_id']}/egress"))
    assert [answer.status_code for answer in told] == [200] * len(told)
    kept = [each for each in (*lab.state_dir.glob("*"), *(lab.state_dir / "store").rglob("*")) if each.is_file()]
    everywhere = [answer.content for answer in told] + [each.read_bytes() for each in kept]
    everywhere.append(base64.b64decode(output.output.image_url.partition(",")[2]))
    forms = [canary, quote(canary, safe=""), canary.replace(" ", "+"), json.dumps(canary), base64.b64encode(canary.encode()).decode()]
    assert [form for form in forms for content in everywhere if form.encode() in content] == []
    assert b"SHOP_PASSWORD" in told[1].content, "the events name the credential"
