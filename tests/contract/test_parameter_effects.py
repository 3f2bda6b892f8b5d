"""Each row of docs/parameters.toml, driven over HTTP: what a request holds must show its effect, or be refused in the row's words.

A row that is not refused has a check in ``effects/`` that looks at the response, at what the model's upstream was asked
(``tests/upstream.py`` remembers it), at events, or at what is stored. Rows that are one matter have one check, made once.
A new row without one fails ``test_every_row_has_a_check``; a new field of the SDK fails ``test_parameters.py`` until it has a row.
Every refusal is sent too, and its error compared word by word.

Three upstreams stand behind the models: ``native`` has every tool that OpenAI's newest models have, ``plain`` speaks the Responses API
with functions alone, ``chat`` speaks Chat Completions.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract import agent_bodies
from tests.contract.effects import (  # noqa: F401  (each says which rows it checks)
    agents,
    frames,
    items,
    parameters,
    routes,
    services,
    tools,
)
from tests.contract.effects.world import CHECKS, TABLE, Check, Json, World
from tests.drawing import KEY as DRAWING_KEY
from tests.drawing import MODEL as IMAGE_MODEL
from tests.drawing import Drawing
from tests.mcp_servers import LOOPBACK, Depot, beside, depot_beside, serving
from tests.search_engines import SearchEngines
from tests.stack import Stack
from tests.upstream import MockUpstream

NATIVE = ["custom", "namespace", "additional_tools", "tool_search", "shell", "apply_patch", "local_shell", "computer"]
NATIVE += ["computer_use_preview", "programmatic_tool_calling"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = Path(tmp_path_factory.mktemp("effects"))
    depot = Depot()
    engines = SearchEngines([{"url": "https://tides.example/oslo", "title": "Tides in Oslo", "text": "High at noon."}])
    engines.page("/tides", "<title>Tides</title><p>" + "High at noon. " * 6_000)
    drawing = Drawing()
    with (
        MockUpstream() as upstream,
        depot_beside(depot) as remote,
        beside(lambda: serving(engines)) as web,
        beside(lambda: serving(drawing)) as studio,
    ):
        models = folder / "models.toml"
        models.write_text(
            "".join(
                f'[[models]]\nname = "{name}"\nprovider = "{provider}"\nupstream_model = "upstream-of-{name}"\n'
                f'base_url = "{upstream.url}"\n{more}\n'
                for name, provider, more in (
                    ("native", "openai_responses", f"native_tools = {json.dumps(NATIVE)}"),
                    ("plain", "openai_responses", ""),
                    ("chat", "chat_completions", 'dialect = "openai"'),
                    ("small", "chat_completions", "context_window_tokens = 2000"),
                )
            )
            + '[[models]]\nname = "demo"\nprovider = "demo"\n'
            + f'[web_search]\nkind = "searxng"\nurl = "{web.url}/searxng"\n'
            + f'[image_generation]\nkind = "openai"\nurl = "{studio.url}/v1"\nmodel = "{IMAGE_MODEL}"\nmodels = ["gpt-image-*"]\n'
            + 'key = "env:DRAWING_KEY"\n'
        )
        environment = {
            "MOORAGE_MODELS_FILE": str(models),
            "MOORAGE_ALLOWED_EGRESS_DOMAINS": "api.example.com",
            "DRAWING_KEY": DRAWING_KEY,
            "MOORAGE_FETCH_ALLOWED_NETWORKS": ",".join(LOOPBACK),
            "MOORAGE_EGRESS_PORTS": f"{remote.port},{web.port}",
        }
        stack = Stack(folder / "state", environment).start()
        with stack.http() as http:
            yield World(stack, upstream, http, depot, f"{remote.url}/mcp", engines, drawing, f"{web.url}/tides")
        assert stack.stop() == 0


def checks() -> list[Any]:
    """Each once, by the first of its rows and how many more it looks at."""
    rows: dict[Check, list[str]] = {}
    for key, check in CHECKS.items():
        rows.setdefault(check, []).append(" ".join(key))
    return [pytest.param(check, id=f"{first} and {len(more)} more" if more else first) for check, (first, *more) in rows.items()]


def refusals() -> list[Any]:
    return [
        pytest.param(line["name"] if group == "agent" else None, refusal, id=f"{group} {line['name']} {number}")
        for group in TABLE
        for line in TABLE[group]
        for number, refusal in enumerate(line.get("refusals", ()))
    ]


def test_every_row_has_a_check() -> None:
    accepted = {(group, line["name"]) for group in TABLE for line in TABLE[group] if line["status"] != "refused"}
    refused = {(group, line["name"]) for group in TABLE for line in TABLE[group] if line["status"] == "refused"}
    assert (accepted - CHECKS.keys(), CHECKS.keys() - accepted - refused) == (set(), set())
    without = {key for key in refused - CHECKS.keys() if not next(r for r in TABLE[key[0]] if r["name"] == key[1]).get("refusals")}
    assert without == set()


@pytest.mark.parametrize("check", checks())
def test_rows_have_their_effect(world: World, check: Check) -> None:
    world.upstream.forget()
    check(world)
    for container in world.get("/containers", limit=100)["data"]:  # a tenant has so many sandboxes, and the table more rows
        world.http.delete(f"/containers/{container['id']}")


@pytest.mark.parametrize(("agent_row", "refusal"), refusals())
def test_a_refusal_says_what_is_wrong_and_asks_no_model(world: World, agent_row: str | None, refusal: Json) -> None:
    before, asked = len(world.upstream.requests), json.loads(refusal["request"])
    if agent_row is None:
        answer = world.http.post("/responses", json={"model": "native", "input": "hi", **asked})
    else:
        answer = world.http.post(agents.place_of(world, agent_bodies.body_of(agent_row)), json=asked)
    assert (answer.status_code, answer.json()) == (
        400,
        {
            "error": {
                "message": refusal["message"],
                "type": "invalid_request_error",
                "param": refusal["param"],
                "code": refusal["code"] or None,
            }
        },
    )
    assert len(world.upstream.requests) == before
