"""What each page of the console says to a screen reader, and that nobody is kept out of it."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest
from moorage.command_hints import typed_here
from openai import OpenAI
from playwright.sync_api import Browser, expect

from tests.browser import WAIT_MS, Console, context_of
from tests.processes import until
from tests.scenarios import test_tenants
from tests.stack import SHELL, Stack, say, script, shell
from tests.unit.skills.archives import skill

PAGES = {
    "runs": "Runs",
    "playground": "Playground",
    "approvals": "Approvals",
    "sessions": "Sessions",
    "agents": "Agents",
    "automations": "Automations",
    "vaults": "Vaults",
    "environments": "Environments",
    "containers": "Containers",
    "files": "Files",
    "skills": "Skills",
    "vector_stores": "Vector stores",
    "webhooks": "Webhooks",
    "usage": "Usage",
    "keys": "Keys and tenants",
    "doctor": "Doctor",
}
THEMES: tuple[Literal["dark", "light"], ...] = ("dark", "light")
TOLD = Path(__file__).parent / "console_pages"
"""What each page says, as ``pytest tests/scenarios/test_console_pages.py --record-pages`` has written it down."""
_AGAIN_SECONDS = 5
COMMAND = typed_here("'moorage doctor'").split()[0].removeprefix("'")
"""The word that starts moorage in a shell of this folder, where the stack was started too."""


@pytest.fixture(scope="module")
def furnished(browser: Browser, stack: Stack) -> tuple[str, dict[str, str]]:
    """The key of a tenant that has one of everything, and the addresses of what one looks at."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(furnish, stack, "furnished").result()


def furnish(stack: Stack, tenant_id: str) -> tuple[str, dict[str, str]]:
    """The key of a tenant that has one of everything, and the addresses of what one looks at."""
    key = test_tenants.make_key(stack, tenant_id)
    client: OpenAI = stack.client(key)
    tools: Any = [SHELL]
    steps = [
        {"reason": "First the disk.", **shell("printf '\\033[32mgreen\\033[0m\\n'; echo oops >&2; exit 3", "echo x,y > t.csv")},
        shell("echo 1,2 >> t.csv"),
        say("# Done\n\nIt is **well**.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"),
    ]
    file = client.files.create(file=("report.csv", b"name,mark\nAnn,1\n"), purpose="user_data")
    ran = client.responses.create(model="demo", input=f"Look around. {script(*steps)}", tools=tools)
    container: Any = client.containers.list().data[0]
    know_how = client.skills.create(files=list(skill().items()))
    endpoint = client.webhooks.create(name="billing", url="https://hooks.example/", event_types=["response.failed"])
    _wait_for_the_second_after(ran.created_at)
    store = client.vector_stores.create(name="harbour", expires_after={"anchor": "last_active_at", "days": 7})
    tides = ("tides.md", b"Spring tides come with new and full moon.")
    client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=tides)
    agents = client.beta.agents
    agent = agents.create(model="demo", name="clerk", instructions="Answer in one sentence.", metadata={"team": "parcels"})
    agents.update(agent.id, instructions="Answer in two sentences.")
    vault = agents.vaults.create(name="staging")
    bearer: Any = {"type": "static_bearer", "mcp_server_url": "https://depot.example/mcp", "token": "hush"}
    agents.vaults.credentials.create(vault.id, name="depot", auth=bearer)
    agents.environments.templates.create(name="reports", env={"HARBOUR": "north"})
    told = script(say("The tide **turns** at noon."))
    session = agents.sessions.create(agent={"model": "demo"}, environment={"type": "none"}, input=f"When? {told}")
    until(lambda: agents.sessions.retrieve(session.id).status == "idle")
    _wait_for_the_second_after(session.last_active_at)
    target: Any = {"type": "existing_session", "session_id": session.id, "instructions": "And tomorrow?"}
    daily = agents.automations.create(type="periodic", name="tide", expression="0 9 * * *", timezone="Europe/Berlin", target=target)
    agents.automations.pause(daily.id)
    asking: Any = [{**SHELL, "require_approval": "always"}]
    client.responses.create(model="demo", input=f"Ask first. {script(shell('echo asked'))}", tools=asking, background=True)
    _wait_for_the_question(stack, key)
    saved = next(iter(client.containers.files.list(container.id)))
    return key, {
        "run": f"#/runs/{ran.id}",
        "agent": f"#/agents/{agent.id}",
        "automation": f"#/automations/{daily.id}",
        "container": f"#/containers/{container.id}?file={saved.id}",
        "container-commands": f"#/containers/{container.id}?tab=commands",
        "container-facts": f"#/containers/{container.id}?tab=facts",
        "container-processes": f"#/containers/{container.id}?tab=processes",
        "container-sandboxes": f"#/containers/{container.id}?tab=sandboxes",
        "container-versions": f"#/containers/{container.id}?tab=versions",
        "file": f"#/files/{file.id}",
        "session": f"#/sessions/{session.id}",
        "skill": f"#/skills/{know_how.id}",
        "store": f"#/vector_stores/{store.id}",
        "store-search": f"#/vector_stores/{store.id}?tab=search&ask=when+is+the+tide+highest",
        "store-facts": f"#/vector_stores/{store.id}?tab=facts",
        "templates": "#/environments?tab=templates",
        "vault": f"#/vaults/{vault.id}",
        "webhook": f"#/webhooks/{endpoint.id}",
    }


def _wait_for_the_second_after(moment: float) -> None:
    """The newest of a list is the first, and responses and files are told apart by seconds."""
    while time.time() < moment + 1:
        time.sleep(0.05)


def _wait_for_the_question(stack: Stack, key: str) -> None:
    deadline = time.monotonic() + WAIT_MS / 1000
    with stack.http(key) as http:
        while not http.get("/approvals").json()["data"]:
            assert time.monotonic() < deadline, "The run did not come to its question."
            time.sleep(0.05)


def addresses(found: dict[str, str]) -> dict[str, str]:
    return {page: f"#/{page}" for page in PAGES} | {"usage": "#/usage?by=model"} | found


def _opened(browser: Browser, stack: Stack, key: str, **options: Any) -> Console:
    return Console.opened(context_of(browser, **options), stack.url.removesuffix("v1") + "console/").enter(key)


def _ready(console: Console) -> None:
    expect(console.page.get_by_role("status", name="Loading")).to_have_count(0)


def test_every_page_says_what_stands_on_it_and_has_no_barrier(
    browser: Browser, stack: Stack, furnished: tuple[str, dict[str, str]], pytestconfig: pytest.Config
) -> None:
    """In both themes: which one it is, only the style sheets know (``tokens.css``)."""
    key, found = furnished
    console = _opened(browser, stack, key)
    barriers = {}
    for page, where in addresses(found).items():
        console.go(where)
        if page in PAGES:
            expect(console.page.get_by_role("heading", level=1, name=PAGES[page], exact=True)).to_be_visible()
            assert console.page.title() == f"{PAGES[page]} · moorage"
        path = TOLD / f"{page}.yaml"
        if pytestconfig.getoption("record_pages", default=False):
            console.page.wait_for_timeout(3000)
            path.write_text(told(console))
        assert _told_in_the_end(console, path.read_text()) == path.read_text(), page
        for theme in THEMES:
            console.page.emulate_media(color_scheme=theme)
            barriers[page, theme] = console.barriers()
    console.page.context.close()
    assert {where: said for where, said in barriers.items() if said} == {}
    assert console.said == []
    assert {path.stem for path in TOLD.iterdir()} == set(addresses(found))


def _told_in_the_end(console: Console, expected: str) -> str:
    """What a page says comes piece by piece, and some of it only when the page is asked again."""
    deadline = time.monotonic() + WAIT_MS / 1000
    again = time.monotonic() + _AGAIN_SECONDS
    while (said := told(console)) != expected and time.monotonic() < deadline:
        console.page.wait_for_timeout(50)
        if time.monotonic() > again:
            again = time.monotonic() + _AGAIN_SECONDS
            console.page.reload()
            console.page.locator("main h1").first.wait_for(state="attached")
    return said


_ALIKE = (
    (
        r"(resp|cntr|cfile|file|skill|vs|key|session|turn|agent|auto|vault|cred|envtmpl|apr|wh|whsec|call|evt)[_-][0-9a-zA-Z]{4,}…?",
        r"\1_…",
    ),
    (r"whsec_\.\.\.\S+", "whsec_…"),
    (r"[A-Z][a-z]{2} \d+, \d{4}, [\d:]+\s[AP]M", "a moment"),
    (r"\d+:\d\d:\d\d(\.\d+)?", "a moment"),
    (r"\b\d\d-\d\d( \d\d-\d\d)+", "days"),
    (r'(?<=term: tokens embedded\n  - definition: )"\d+"', "some"),
    (r'(row "static-256 [^$]* )\d+(?= \$0)', r"\1some"),
    (r'(cell "static-256"\n(?:.*\n){6}.*cell )"\d+"', r"\1some"),
    (r"(< )?(\d+[mhd] \d\d[smh]|\d+(\.\d)? (ms|s|min|h|d)\b)( ago)?", "a while"),
    (r"(?<=[ \n\"])now\b", "a while"),
    (r"(text: 0 )?a while( a while)+", "a while"),
    (r"version \d\S+", "a version"),
    (r"definition: \d+\.\d+\.\d\S*", "definition: a version"),
    (r"event \d+ / \d+|Events \d+", "an event"),
    (r"(?:\d[\d,.]*k?|thousands) in · \d[\d,.]*k? out", "tokens"),
    (r"\d+(,\d{3})+|\d+(\.\d)?k\b", "thousands"),
)
"""Ids, times and what searches have embedded are others each time, and so is in how many pieces a text came. What a model reads is the
sandbox's to say."""


def told(console: Console) -> str:
    return masked(console.page.get_by_role("main").aria_snapshot() + "\n")


def masked(text: str) -> str:
    text = text.replace(f"{COMMAND} ", "moorage ")
    for pattern, word in _ALIKE:
        text = re.sub(pattern, word, text)
    return text


def test_the_frame_reads_as_it_should(browser: Browser, stack: Stack, furnished: tuple[str, dict[str, str]]) -> None:
    console = _opened(browser, stack, furnished[0])
    expect(console.page.get_by_role("navigation", name="Pages")).to_match_aria_snapshot(
        '- navigation "Pages":\n  - link "moorage"\n'
        + "".join(f'  - link "{title}"\n' for title in PAGES.values()).replace('"Approvals"', '"Approvals 1 waiting"')
    )
    console.page.context.close()


def test_it_can_be_read_on_a_phone(browser: Browser, stack: Stack, furnished: tuple[str, dict[str, str]]) -> None:
    key, found = furnished
    console = _opened(browser, stack, key, viewport={"width": 390, "height": 844})
    for where in addresses(found).values():
        console.go(where)
        _ready(console)
        assert console.evaluate("() => document.documentElement.scrollWidth") <= 390, where
    console.page.context.close()
