"""Hosted computers under blows: each click of a call reaches its page once, unless the output says that it may not have.

A server in the container notes each click by the page that it came from, and each call has a page of its own.
"""

import json
import random
import secrets
import shutil
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from tests.stack import SHELL, say, script, shell

HAS_BROWSER: Final = shutil.which("chromium") is not None
COMPUTER: Final = {"type": "computer", "container": {"type": "container_auto"}}
CLICKS: Final = 2
"""Of a call."""
SITE: Final = "http://localhost:3000/"
SERVER: Final = r"""
import http.server
class Shop(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b'''<button style="position: fixed; left: 0; top: 0; width: 200px; height: 100px"
            onclick="fetch('/', {method: 'POST', body: location.pathname})">Add</button>''')
    def do_POST(self):
        said = self.rfile.read(int(self.headers["content-length"])).decode()
        with open("/mnt/data/clicks", "a") as log:
            log.write(said + "\n")
        self.send_response(204)
        self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", 3000), Shop).serve_forever()
"""
UNSERVED: Final = "site of the test is not up"
"""What a command says that could not start it: a fault of the test."""
SERVE: Final = (
    f"is_up() {{ curl -s {SITE} >/dev/null; }}; for i in $(seq 30); do is_up && break; cat > /tmp/server.py <<'END'\n{SERVER}\nEND\n"
    "setsid nohup python3 /tmp/server.py >/dev/null 2>&1 & for j in $(seq 10); do is_up && break; sleep 0.1; done; done; "
    f"is_up || echo {UNSERVED!r}"
)
"""It is written again until it is up: a blow may have filled the disk, or killed what had begun."""
COUNT: Final = "sleep 1; echo counted; cat /mnt/data/clicks"
GAVE_UP: Final = "could not be run"
MARKED: Final = ("has been started again", "was not run again", GAVE_UP)
"""What a response says whose sandbox was lost, and with it perhaps what the server has noted."""
REST_SECONDS_MAX: Final = 90


@dataclass
class ComputerTold:
    response_id: str
    pages: list[str] = field(default_factory=list)
    """One of each call."""


class ComputerClient:
    """Whoever has a model click in a browser."""

    def __init__(self, told: list[ComputerTold], dice: random.Random, stopped: threading.Event) -> None:
        self._told, self._dice, self._stopped = told, dice, stopped

    def drive(self, http: httpx.Client) -> None:
        """One response, to its end."""
        pages = [f"pg_{secrets.token_hex(6)}" for _ in range(self._dice.randint(2, 4))]
        steps = [step for page in pages for step in (shell(SERVE), _clicks(page, self._dice.randint(100, 800)))]
        body = {"model": "demo", "tools": [SHELL, COMPUTER], "background": True, "input": script(*steps, shell(COUNT), say("The end."))}
        answer = http.post("/responses", json=body)
        answer.raise_for_status()
        self._told.append(ComputerTold(answer.json()["id"], pages))
        deadline = time.monotonic() + REST_SECONDS_MAX
        while time.monotonic() < deadline and not self._stopped.wait(0.5):
            answer = http.get(f"/responses/{self._told[-1].response_id}")
            answer.raise_for_status()
            if answer.json()["status"] not in ("queued", "in_progress"):
                return


def _clicks(page: str, ms: int) -> dict[str, Any]:
    click = {"type": "click", "x": 100, "y": 50}
    actions = [{"type": "navigate", "url": f"{SITE}{page}"}, click, {"type": "wait", "ms": ms}, click]
    return {"call": {"name": "computer", "arguments": {"actions": actions}}}


def clicked_wrong(response: dict[str, Any], told: ComputerTold) -> list[str]:
    """Calls whose page heard of more clicks than it has, of fewer than it was said to have, or of one that was said to be none."""
    said = [item for item in response["output"] if item["type"] == "shell_call_output"]
    counted = _stdout(said[-1]) if said else ""
    everything = json.dumps(response["output"])
    is_whole = counted.startswith("counted\n") and not any(words in everything for words in MARKED)
    outputs = {item["call_id"]: item for item in response["output"] if item["type"] == "computer_call_output"}
    found: list[str] = []
    for page in told.pages:
        heard = counted.count(f"/{page}\n")
        call = next((item for item in response["output"] if item["type"] == "computer_call" and page in json.dumps(item)), None)
        output = outputs.get(call["call_id"]) if call else None
        is_said = output is not None and output["status"] == "completed" and all(each["ok"] for each in output["actions"])
        notes = output["page"]["notes"] if output is not None and is_said else []
        if heard > CLICKS:
            found.append(f"{told.response_id}: {page} was clicked {heard} times, and not {CLICKS}")
        elif heard and output is not None and GAVE_UP in json.dumps(output):
            found.append(f"{told.response_id}: {page} was clicked {heard} times, and is said not to have been")
        elif is_said and is_whole and not notes and heard != CLICKS:
            assert output is not None
            refused = json.dumps(output["page"]["refused"])
            fault = " A fault of the test: its site was not up." if UNSERVED in everything else ""
            is_told = heard == 0 and "listens on port 3000" in refused  # The page was a refusal, and the model reads it.
            if fault or not is_told:
                found.append(
                    f"{told.response_id}: {page} was clicked {heard} times, and is said to have been {CLICKS} times; "
                    f"refused: {refused}.{fault}"
                )
    return found


def _stdout(output: dict[str, Any]) -> str:
    return "".join(part["stdout"] for part in output["output"])
