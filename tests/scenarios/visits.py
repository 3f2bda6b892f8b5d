"""What visitors of the console have, and how they come to what they look at."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from playwright.sync_api import Locator

from tests.browser import Console
from tests.scenarios import test_tenants
from tests.stack import SHELL, Stack


def make_key(stack: Stack, tenant_id: str) -> str:
    """In a thread of its own: an event loop of Playwright's runs in this one."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(test_tenants.make_key, stack, tenant_id).result()


def asking() -> Any:
    """What holds a run until somebody has looked."""
    return [{**SHELL, "require_approval": "always"}]


def run_page(console: Console, run: str, query: str = "") -> None:
    console.go(f"#/runs/{run}{query}")
    console.transcript.wait_for()


def tab_to(console: Console, target: Locator) -> None:
    """As somebody comes there who has no mouse."""
    for _ in range(150):
        if target.evaluate("(element) => element === document.activeElement"):
            return
        console.page.keyboard.press("Tab")
    pytest.fail(f"No key leads to {target}.")
