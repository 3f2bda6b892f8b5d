"""The SDKs' own view of the Agents API: openai-python's generated tests for agents and vaults, and each method of openai-node.

The tests come with the source archive of openai-python. They check that each answer is what its type says. The tests of openai-node are
in no archive of a registry: ``agents.mjs`` calls each of its methods instead, and ``agent_streams.mjs`` reads streams by its helpers.
"""

import json
import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.conformance.placeholders import serving
from tests.conformance.verdicts import Verdict
from tests.cut_streams import cutting, stories, told
from tests.mcp_servers import LOOPBACK
from tests.stack import Stack, say, script, shell

HERE: Final = Path(__file__).resolve().parent
TESTS: Final = ("tests/api_resources/beta/agents", "tests/api_resources/beta/test_agents.py")
_SECONDS_MAX: Final = 1800
_NO_NODE: Final = "openai-node is not installed; 'make conformance' installs it where the network allows"
LEFT_OUT: Final = {
    "capability_directories": "folders with capabilities are not read: skills are given by 'skills'",
    "desktop": "there is no desktop",
    "packages.npm": "the stack of the tests has no mirror of packages",
    "packages.python": "as packages.npm",
    "packages.system": "commands are not root: the operator puts system packages into the image of sandboxes",
    "compaction.async": "context is compacted between two steps",
    "experimental.time_awareness": "the model is told the time in the input",
    "tools[].async": "functions have their results before the model goes on",
    "prompt_cache_options": "a model's provider sets the lifetime of its cache",
    "run_at": "the automation is a periodic one",
    "stream_options": "the request asks for no stream",
}
"""Fields that the tests send and the service refuses by name, and why."""


def environment(depot_port: int) -> dict[str, str]:
    """Of a stack that the tests are played to; ``depot_port`` is that of a server for tools."""
    return {
        "MOORAGE_FETCH_ALLOWED_NETWORKS": ",".join(LOOPBACK),
        "MOORAGE_EGRESS_PORTS": str(depot_port),
        "MOORAGE_ALLOWED_EGRESS_DOMAINS": "example.com",
    }


def python_tests(stack: Stack, depot_url: str, suite: Path) -> Verdict:
    """``suite`` has the source of the SDK below ``source``, and an environment with the SDK."""
    name = "openai-python: agents and vaults"
    python = suite / "bin" / "python"
    source = next(iter((suite / "source").glob("openai-*/")), None)
    if source is None or not python.exists():
        return Verdict(name, reason="the SDK's tests are not there; 'make conformance' fetches them where the network allows")
    results = suite / "results.xml"
    command = [str(python), "-m", "pytest", "-q", "-o", "addopts=", "--tb=line", f"--junitxml={results}", *TESTS]
    with serving(stack, depot_url) as layer:
        environment = os.environ | {"TEST_API_BASE_URL": layer.url}
        done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, timeout=_SECONDS_MAX)
        if done.returncode not in (0, 1):  # Tests that failed are no trouble of pytest's.
            return Verdict(name, failures=(f"no results: {(done.stdout + done.stderr)[-2000:]}",))
        return _verdict(name, _outcomes(results), layer.refused)


def node_methods(stack: Stack, depot_url: str, node: Path) -> Verdict:
    """``node`` has openai among its modules."""
    name = "openai-node: agents and vaults"
    if shutil.which("node") is None or not (node / "node_modules" / "openai").exists():
        return Verdict(name, reason=_NO_NODE)
    shutil.copy(HERE / "agents.mjs", node)
    with serving(stack, depot_url) as layer:
        environment = os.environ | {"OPENAI_BASE_URL": layer.url, "OPENAI_API_KEY": "sk-none"}
        done = subprocess.run(["node", "agents.mjs"], cwd=node, env=environment, capture_output=True, text=True, timeout=_SECONDS_MAX)
        if done.returncode != 0:
            return Verdict(name, failures=(f"no results: {(done.stdout + done.stderr)[-2000:]}",))
        outcomes = {operation: [(operation, reason)] for operation, reason in json.loads(done.stdout).items()}
        return _verdict(name, outcomes, layer.refused)


def node_streams(stack: Stack, depot_url: str, node: Path) -> Verdict:
    """Its helpers read a session whose stream is cut at every event, as one that is not cut."""
    name = "openai-node: streams of sessions, cut at every event"
    if shutil.which("node") is None or not (node / "node_modules" / "openai").exists():
        return Verdict(name, reason=_NO_NODE)
    shutil.copy(HERE / "agent_streams.mjs", node)
    weigh = [{"call": {"name": "weigh", "arguments": {"parcel": parcel}}} for parcel in ("a", "b")]
    find = {"call": {"name": "depot__find_part", "arguments": {"sku": "A-7"}}}
    given = {
        "first": script(shell("echo a", "exit 3"), weigh[0], say("It weighs {{output}}.")),
        "second": script(weigh[1], say("{{output}} again.")),
        "third": script(find, say("Found.")),
        "depot": depot_url,
    }
    with cutting(stack) as cuts:
        environment = os.environ | {"OPENAI_BASE_URL": cuts.url, "OPENAI_API_KEY": stack.key}
        command = ["node", "agent_streams.mjs", json.dumps(given)]
        done = subprocess.run(command, cwd=node, env=environment, capture_output=True, text=True, timeout=_SECONDS_MAX)
    if done.returncode != 0:
        return Verdict(name, failures=(f"no results: {(done.stdout + done.stderr)[-2000:]}",))
    read = json.loads(done.stdout)
    heard = [(event_id, type_) for event_id, type_ in read["heard"]]
    # What tells that a turn waits for a person, and that it goes on, stands in no log.
    logged = [(event_id, type_) for event_id, type_ in heard if "_" not in event_id.removeprefix("evt_")]
    failures = []
    if logged != stories(told(stack, read["id"], idles=3)):
        failures.append(f"its events are others: {logged}")
    if len({event_id for event_id, _ in heard}) != len(heard):
        failures.append("an event is there twice")
    if read["weighed"] != [{"parcel": "a"}, {"parcel": "b"}]:
        failures.append(f"its handler was called with {read['weighed']}")
    if read["texts"] != ["It weighs 3 kg.", "3 kg again.", "Found."]:
        failures.append(f"its results are {read['texts']}")
    if cuts.connections < len(heard):
        failures.append(f"{len(heard)} events came by {cuts.connections} connections")
    return Verdict(name, passed=0 if failures else len(heard), failures=tuple(failures))


def _outcomes(results: Path) -> dict[str, list[tuple[str, str | None]]]:
    """The tests of each operation, with the reason of a failure. Skipped ones are left out."""
    found: dict[str, list[tuple[str, str | None]]] = defaultdict(list)
    for case in ElementTree.parse(results).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        test = f"{case.get('classname')}.{case.get('name')}"
        trouble = next((part for part in case if part.tag in ("failure", "error")), None)
        found[operation_of(test)].append((test, None if trouble is None else str(trouble.get("message"))[:300]))
    return found


def operation_of(test: str) -> str:
    """``tests.api_resources.beta.agents.test_vaults.TestVaults.test_raw_response_list[strict]`` is of ``agents.vaults.list``."""
    *folders, module, _, name = test.split("[")[0].removeprefix("tests.api_resources.beta.").split(".")
    method = re.sub(r"^test_(method|raw_response|streaming_response|path_params)_|(_with_all_params)?(_overload_\d+)?$", "", name)
    return ".".join([*folders, module.removeprefix("test_"), method])


def feature_of(param: str) -> str:
    """A field without what it stands in: ``target.agent.tools[0].async`` is ``tools[].async``."""
    return re.sub(r"^(environment|(target\.)?agent)\.", "", re.sub(r"\[\d+\]", "[]", param)).removesuffix(".enabled")


def _verdict(name: str, outcomes: Mapping[str, list[tuple[str, str | None]]], refused: Mapping[tuple[str, str], str]) -> Verdict:
    """The table of the operations is printed on the way."""
    passed_all = 0
    failures: list[str] = [] if outcomes else ["no test was played"]
    for operation in sorted(outcomes):
        failed = [(test, reason) for test, reason in outcomes[operation] if reason is not None]
        passed = len(outcomes[operation]) - len(failed)
        print(f"  {operation}: {passed} passed, {len(failed)} failed", flush=True)
        passed_all += passed
        failures += [f"{test}: {reason}" for test, reason in failed]
    seen = {feature_of(param): (operation, message) for (operation, param), message in refused.items()}
    for feature in sorted(seen):
        print(f"  without {feature}: {LEFT_OUT.get(feature, seen[feature][1])}", flush=True)
        if feature not in LEFT_OUT:
            failures.append(f"{seen[feature][0]} refuses {feature}: {seen[feature][1]}")
    return Verdict(name, passed_all, failures=tuple(failures))
