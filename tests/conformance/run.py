"""``make conformance``: the public suites of the protocol against the embedded stack and its demo model.

* **Open Responses** (openresponses.org), cloned at the commit below, because it is on no registry; OPENRESPONSES_SUITE names a
  checkout to take instead. It runs under Bun, which comes from npm, because Node's older releases have no WebSocket.
* **llm-comply** (PyPI), which carries its own copy of the specification.
* **@modelcontextprotocol/conformance** (npm) tries the client of remote servers (``remote_client.py``), under Bun too, because it wants
  a newer Node. Its scenarios of OAuth and of elicitation are not played: tokens come with requests, and nobody is there to ask.
* The public **reference servers** of that protocol, used by the stack (``reference_servers.py``).
* The **Agents API**: the generated tests of openai-python, and each method of openai-node (``agents_suite.py``).
* **openai-agents**: the live test of its ``OpenAIHostedMultiAgentModel`` (``hosted_team.py``).

``--agents`` plays only the last two. A suite that is not there is skipped with the reason. Nothing of them is kept here: they run under
``.build/``.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.conformance import agents_suite, hosted_team, reference_servers  # noqa: E402  (the folder of the tests is no package of this environment)
from tests.conformance.verdicts import Verdict  # noqa: E402
from tests.mcp_servers import Depot, depot_beside  # noqa: E402
from tests.stack import Stack  # noqa: E402

HERE = Path(__file__).resolve().parent
BUILD = ROOT / ".build" / "conformance"
NODE = BUILD / "node"
SUITE = "OPENRESPONSES_SUITE"
REPOSITORY = "https://github.com/openresponses/openresponses.git"
COMMIT = "92c12d96d7b61d6d15e2214daa5e9c6000ab6e1c"
"""15 July 2026: 17 tests, WebSocket among them."""
SCENARIOS = ("initialize", "tools_call", "sse-retry")
"""Of the conformance package for clients."""
PROGRAM = Path("bin", "compliance-test.ts")
_SECONDS_MAX = 300
_CLONE_SECONDS_MAX = 120


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the stack is stopped too
    bun = _install_node()
    verdicts = agents() if "--agents" in sys.argv[1:] else [*protocol(bun), *agents()]
    return 1 if any(verdict.failures for verdict in verdicts) else 0


def protocol(bun: Path | None) -> list[Verdict]:
    with (
        tempfile.TemporaryDirectory(prefix="moorage-conformance-") as name,
        reference_servers.running(BUILD / "servers", NODE, Path(name)) as there,
    ):
        verdicts = [remote_tools(bun, Path(name) / "results").report()]
        stack = Stack(Path(name) / "state", there.environment(Path(name) / "models.toml")).start()
        try:
            verdicts += [verdict.report() for verdict in reference_servers.tried(stack, there)]
            verdicts += [open_responses(stack, bun).report(), llm_comply(stack).report()]
        finally:
            stack.stop()
    return verdicts


def agents() -> list[Verdict]:
    with tempfile.TemporaryDirectory(prefix="moorage-agents-") as name, depot_beside(Depot()) as depot:
        stack = Stack(Path(name) / "state", agents_suite.environment(depot.port)).start()
        depot_url = f"{depot.url}/mcp"
        try:
            verdicts = [
                agents_suite.python_tests(stack, depot_url, BUILD / "agents"),
                agents_suite.node_methods(stack, depot_url, NODE),
                agents_suite.node_streams(stack, depot_url, NODE),
                hosted_team.live_test(BUILD / "agents", Path(name) / "team"),
            ]
            return [verdict.report() for verdict in verdicts]
        finally:
            stack.stop()


def open_responses(stack: Stack, bun: Path | None) -> Verdict:
    name = "Open Responses"
    named = os.environ.get(SUITE)
    checkout = Path(named) if named else _clone(BUILD / "openresponses.git")
    if checkout is None:
        return Verdict(name, reason=f"{REPOSITORY} could not be cloned, and {SUITE} names no checkout of it")
    if not (checkout / PROGRAM).exists():
        return Verdict(name, reason=f"{checkout} has no {PROGRAM}")
    suite = NODE
    if bun is None:
        return Verdict(name, reason="Bun could not be installed from npm")
    for part in ("bin", "src"):
        shutil.rmtree(suite / part, ignore_errors=True)
    (suite / "bin").mkdir()
    shutil.copy(checkout / PROGRAM, suite / "bin")
    for part in ("lib", "generated"):
        shutil.copytree(checkout / "src" / part, suite / "src" / part)
    shutil.copy(checkout / "tsconfig.json", suite)
    command = [str(bun), "run", "bin/compliance-test.ts", "-u", stack.url, "-k", stack.key, "-m", "demo", "--json"]
    done = subprocess.run(command, cwd=suite, capture_output=True, text=True, timeout=_SECONDS_MAX)
    return _verdict(name, done)


def _clone(folder: Path, repository: str = REPOSITORY, commit: str = COMMIT) -> Path | None:
    """A checkout of exactly this commit; None where the network does not allow it."""
    git = ["git", "-C", str(folder)]
    quietly: dict[str, Any] = {"check": True, "capture_output": True, "timeout": _CLONE_SECONDS_MAX}
    quietly["env"] = os.environ | {"GIT_TERMINAL_PROMPT": "0"}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "init", "--quiet", str(folder)], **quietly)
        if subprocess.run([*git, "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True).returncode != 0:
            subprocess.run([*git, "fetch", "--quiet", "--depth", "1", repository, commit], **quietly)
        subprocess.run([*git, "checkout", "--quiet", "--force", "--detach", commit], **quietly)
    except (OSError, subprocess.SubprocessError):
        return None
    return folder


def _install_node() -> Path | None:
    """Bun, with the packages beside it; None where the network does not allow it."""
    NODE.mkdir(parents=True, exist_ok=True)
    bun, lock = NODE / "node_modules" / ".bin" / "bun", (HERE / "package-lock.json").read_bytes()
    is_current = (NODE / "package-lock.json").exists() and (NODE / "package-lock.json").read_bytes() == lock
    if is_current and bun.exists() and subprocess.run([str(bun), "--version"], capture_output=True).returncode == 0:
        return bun
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, NODE)
    try:
        subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=NODE, check=True, timeout=_SECONDS_MAX)
        # npm may hold install scripts back; this one only puts the right binary in place.
        subprocess.run(["node", "node_modules/bun/install.js"], cwd=NODE, capture_output=True, timeout=_SECONDS_MAX)
        subprocess.run([str(bun), "--version"], check=True, capture_output=True, timeout=_SECONDS_MAX)
    except (OSError, subprocess.SubprocessError):
        return None
    return bun


def remote_tools(bun: Path | None, results: Path) -> Verdict:
    name = "MCP conformance"
    program = NODE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    if bun is None or not program.exists():
        return Verdict(name, reason="its packages could not be installed from npm")
    client = f"{sys.executable} {HERE / 'remote_client.py'}"
    for scenario in SCENARIOS:
        command = [str(bun), str(program), "client", "--command", client, "--scenario", scenario, "--output-dir", str(results)]
        subprocess.run(command, cwd=NODE, capture_output=True, text=True, timeout=_SECONDS_MAX)
    checks = [check for path in sorted(results.glob("*/checks.json")) for check in json.loads(path.read_text())]
    counts = Counter(check["status"] for check in checks)
    failures = [f"{check['id']}: {check.get('errorMessage', '')}" for check in checks if check["status"] == "FAILURE"]
    missing = len(SCENARIOS) - len(list(results.glob("*/checks.json")))
    return Verdict(name, counts["SUCCESS"], missing, tuple(failures if counts["SUCCESS"] else [*failures, "no scenario was played"]))


def llm_comply(stack: Stack) -> Verdict:
    program = BUILD / "python" / "bin" / "llm-comply"
    if not program.exists():
        return Verdict("llm-comply", reason="it is not installed; 'make conformance' installs it where the network allows")
    command = [str(program), "-u", stack.url, "-k", stack.key, "-m", "demo", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_MAX)
    return _verdict("llm-comply", done)


def _verdict(name: str, done: "subprocess.CompletedProcess[str]") -> Verdict:
    """Both suites print their results in the same form."""
    try:
        results = json.loads(done.stdout)["results"]
    except (ValueError, KeyError) as error:
        return Verdict(name, failures=(f"no results ({error}): {(done.stdout + done.stderr)[-2000:]}",))
    counts = Counter(result["status"] for result in results)
    failures = [
        f"{result['id']}: {'; '.join(map(str, result.get('errors') or ()))}" for result in results if result["status"] == "failed"
    ]
    return Verdict(name, passed=counts["passed"], skipped=counts["skipped"], failures=tuple(failures))


if __name__ == "__main__":
    sys.exit(main())
