"""Pictures of the console in both themes: ``make console-screens``. Those of the documentation go to ``docs/console``.

Pages and runs are taken at three widths, because what fits a desk may be ugly on a phone, and no test sees that.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from moorage.local.demonstrations import SALES, sales
from openai import OpenAI
from playwright.sync_api import Browser, expect

from tests.browser import WHOLE, Console, chromium, context_of, skip_without
from tests.stack import ROOT, SHELL, Stack, say, script, shell

SCREENS = ROOT / ".build" / "console" / "screens"
SHOWN = ("run-light", "run-dark", "runs-light", "session-light", "changes-light", "terminal-dark", "store-light")
_OF_AGENTS = ("sessions", "agents", "automations", "vaults", "environments")
_OTHERS = ("containers", "files", "skills", "vector_stores", "webhooks", "usage", "keys", "doctor")
PAGES = ("runs", "playground", "approvals", *_OF_AGENTS, *_OTHERS)
_SIZE = {"width": 1360, "height": 820}
_WIDTHS = {1440: 900, 1024: 768, 390: 844}
"""With their heights."""


def main() -> int:
    if reason := skip_without(WHOLE):
        sys.stderr.write(f"No pictures: {reason}\n")
        return 1
    SCREENS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="moorage-screens-") as folder:
        stack = Stack(Path(folder)).start()
        try:
            run, edited = furnish(stack.client())
            session = furnish_session(stack.client())
            with chromium(WHOLE) as browser:
                for theme in ("light", "dark"):
                    take(browser, stack, run, edited, theme)
                    take_session(browser, stack, session, theme)
                    for width, height in _WIDTHS.items():
                        take_pages(browser, stack, theme, width, height)
        finally:
            stack.stop()
    shown = ROOT / "docs" / "console"
    shown.mkdir(exist_ok=True)
    for name in SHOWN:
        shutil.copy(SCREENS / f"{name}.png", shown)
    return 0


_EDIT = [
    shell("printf 'title: Tides\\nheight: 2.1 m\\nat: 06:12\\n' > tides.yaml; ls -l"),
    shell("sed -i 's/2.1 m/2.4 m/; $a mooring: double' tides.yaml; cat tides.yaml"),
    say("The tide is higher than was written down, so I doubled the mooring."),
]


_NOTES = {
    "tides.md": b"Spring tides come with new and full moon, neap tides with half moon. The tide is highest two days after full moon.",
    "mooring.md": b"Double the lines before a spring tide, and leave them slack enough for three metres.",
    "lights.md": b"The harbour light is green to starboard. At high tide the mole is under water.",
    "chart.png": b"\x89PNG\r\n\x1a\n\0\0",
}


def furnish(client: OpenAI) -> tuple[str, str]:
    """Some responses; the answer is the one to look at, and one whose files were changed."""
    file = client.files.create(file=("sales.csv", sales()[0]), purpose="user_data")
    tools: Any = [{"type": "shell", "environment": {"type": "container_auto", "file_ids": [file.id]}}]
    plain: Any = [SHELL]
    ran = client.responses.create(model="demo", input=SALES.question, tools=tools)
    for question in ("What is a bollard?", "Write a haiku about mooring lines.", "Which knot holds best on a wet rope?"):
        client.responses.create(model="demo", input=question)
    edited = client.responses.create(model="demo", input=f"Mend the tide table. {script(*_EDIT)}", tools=plain)
    failing = script({"fail": {"status": 400, "times": 0}}, say("never"))
    client.responses.create(model="demo", input=f"Ask a model that refuses. {failing}", background=True)
    store = client.vector_stores.create(name="harbour notes", expires_after={"anchor": "last_active_at", "days": 30})
    for name, text in _NOTES.items():
        client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=(name, text), attributes={"year": 2026})
    steps = script(shell("for n in $(seq 600); do echo tick $n; sleep 1; done"), say("done"))
    client.responses.create(model="demo", input=f"Watch the tide for ten minutes. {steps}", tools=plain, background=True)
    return str(ran.id), str(edited.id)


_TIDES = "mkdir -p /workspace/outputs; printf 'day,high\\nMon,2.1\\nTue,2.4\\n' | tee /workspace/outputs/tides.csv"
_TURNS = (
    ("Write the tides of the week.", [shell(_TIDES), say("The highest tide is on Tuesday: **2.4 m**.")]),
    ("Which lines have to be doubled?", [say("All of them, before Tuesday.")]),
    ("Ask the harbour's office.", [{"fail": {"status": 400, "times": 0}}, say("never")]),
    (
        "Then write the plan.",
        [shell("cp /workspace/outputs/tides.csv /workspace/outputs/plan.csv"), say("The plan lies beside the tides.")],
    ),
)


def furnish_session(client: OpenAI) -> str:
    """A session of several turns, and one of each thing that agents have."""
    agents = client.beta.agents
    agent = agents.create(model="demo", name="harbour clerk", instructions="Answer in one sentence.")
    vault = agents.vaults.create(name="harbour")
    bearer: Any = {"type": "static_bearer", "mcp_server_url": "https://depot.example/mcp", "token": "hush"}
    agents.vaults.credentials.create(vault.id, name="depot", auth=bearer)
    session = agents.sessions.create(agent_id=agent.id, environment={"type": "openai_hosted"})
    for question, steps in _TURNS:
        with agents.sessions.stream(session.id, input=f"{question} {script(*steps)}") as stream:
            for _ in stream:
                pass
    target: Any = {"type": "existing_session", "session_id": session.id, "instructions": "Look at the tide again."}
    agents.automations.create(type="periodic", name="tide", expression="0 6 * * *", timezone="Europe/Berlin", target=target)
    return session.id


def take_session(browser: Browser, stack: Stack, session: str, theme: str) -> None:
    context = context_of(browser, viewport=_SIZE, color_scheme=theme)
    console = Console.opened(context, stack.url.removesuffix("v1") + "console/").enter(stack.key, f"#/sessions/{session}?tab=artifacts")
    expect(console.page.get_by_role("region", name="Answer").get_by_role("button", name="plan.csv")).to_be_visible()
    console.page.screenshot(path=SCREENS / f"session-{theme}.png")
    context.close()


def take(browser: Browser, stack: Stack, run: str, edited: str, theme: str) -> None:
    context = context_of(browser, viewport=_SIZE, color_scheme=theme)
    console = Console.opened(context, stack.url.removesuffix("v1") + "console/").enter(stack.key)
    console.go("#/runs")
    expect(console.page.get_by_role("status", name="Loading")).to_have_count(0)
    expect(console.page.get_by_text("ended well")).to_be_visible()
    console.page.screenshot(path=SCREENS / f"runs-{theme}.png")
    console.go(f"#/runs/{run}?step=step_2")
    expect(console.page.get_by_role("tab", name="Step 9")).to_be_visible()
    expect(console.page.get_by_role("region", name="Transcript").get_by_text("exit 0").first).to_be_visible()
    console.evaluate("() => { document.getElementById('main').scrollTop = 0 }")  # the step that was chosen was scrolled to
    console.page.screenshot(path=SCREENS / f"run-{theme}.png")
    console.go(f"#/runs/{edited}?step=step_1")
    console.page.get_by_role("button", name="Prompt as sent").click()
    expect(console.page.get_by_role("list", name="Parts of the prompt").get_by_role("listitem")).to_have_count(4)
    console.page.screenshot(path=SCREENS / f"prompt-{theme}.png")
    console.go(f"#/runs/{edited}?tab=files")
    console.page.get_by_role("button", name="changed: changes of tides.yaml").click()
    expect(console.page.locator(".diff .added")).to_have_count(2)
    console.page.screenshot(path=SCREENS / f"changes-{theme}.png")
    (store,) = stack.client().vector_stores.list().data
    console.go(f"#/vector_stores/{store.id}?tab=search&ask=when+is+the+tide+highest")
    expect(console.page.get_by_role("list", name="Passages").get_by_role("listitem").first).to_be_visible()
    console.page.screenshot(path=SCREENS / f"store-{theme}.png")
    console.go(f"#/vector_stores/{store.id}")
    expect(console.page.get_by_role("row").filter(has_text="chart.png")).to_contain_text("failed")
    console.page.screenshot(path=SCREENS / f"store-files-{theme}.png")
    with stack.http() as http:
        container = http.get(f"/responses/{edited}", params={"at": 0}).json()["as_of"]["container_id"]
    for tab in ("versions", "sandboxes"):
        console.go(f"#/containers/{container}?tab={tab}")
        expect(console.page.get_by_role("row").nth(1)).to_be_visible()
        console.page.screenshot(path=SCREENS / f"{tab}-{theme}.png")
    console.go(f"#/containers/{container}?tab=terminal")
    console.page.get_by_role("button", name="New terminal").click()
    expect(console.page.get_by_role("status").filter(has_text="It runs.")).to_be_visible()
    console.page.keyboard.type("ls -l --color; python3 -c 'import sys; print(sys.version)'\n")
    expect(console.page.locator(".xterm-rows")).to_contain_text("GCC")
    console.page.screenshot(path=SCREENS / f"terminal-{theme}.png")
    context.close()


def take_pages(browser: Browser, stack: Stack, theme: str, width: int, height: int) -> None:
    """Each page, and the latest run of each status."""
    context = context_of(browser, viewport={"width": width, "height": height}, color_scheme=theme)
    console = Console.opened(context, stack.url.removesuffix("v1") + "console/").enter(stack.key)
    with stack.http() as http:
        latest = {run["status"]: f"runs/{run['id']}" for run in reversed(http.get("/responses").json()["data"])}
    for name, where in {**{page: page for page in PAGES}, **{f"run-{status}": run for status, run in latest.items()}}.items():
        console.go(f"#/{where}")
        expect(console.page.get_by_role("status", name="Loading")).to_have_count(0)
        console.page.screenshot(path=SCREENS / f"{name}-{width}-{theme}.png")
    context.close()


if __name__ == "__main__":
    sys.exit(main())
