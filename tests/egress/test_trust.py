"""Every tool of this machine, from inside the sandbox: through the proxy, with the CA, by the environment alone.

Each is asked for two hosts: one whose connections the proxy opens (the deployment's CA) and one that is tunnelled unopened (the
host's own CA). A tool that is not installed is skipped by name.
"""

import shutil
import subprocess
from pathlib import Path

import pytest
from moorage.egress.ca import CERTIFICATE_FILE, KEY_FILE, ensure_ca, load_ca, new_ca
from moorage.egress.trust import environment, proxy_url

from tests.egress.conftest import ROOT, TOOLS, ArenaClient, Opened, Sandbox

OPENED, TUNNELLED, FORBIDDEN = "echo.example", "allowed.example", "forbidden.example"
VENV = f"{ROOT}/.venv/bin/python"
TOOLBOX = f"{ROOT}/.venv-toolbox/bin/python"
CARGO = f"CARGO_HOME=/tmp/cargo RUSTUP_HOME={TOOLS.get('rustup')} PATH={TOOLS.get('cargo')}/bin:$PATH"

COMMANDS = {
    "curl": ("curl -sSf https://{host}/", "hello from {host}"),
    "curl with HTTP/2": ("curl -sSf --http2 https://{host}/", "hello from {host}"),
    "wget": ("wget -qO- https://{host}/", "hello from {host}"),
    "git": ("git ls-remote https://{host}/git/repo.git", "refs/heads/main"),
    "python urllib": (
        "python3 -c 'import urllib.request as r; print(r.urlopen(\"https://{host}/\").read().decode())'",
        "hello from {host}",
    ),
    "python requests": (f"{TOOLBOX} -c 'import requests; print(requests.get(\"https://{{host}}/\").text)'", "hello from {host}"),
    "python httpx": (f"{VENV} -c 'import httpx; print(httpx.get(\"https://{{host}}/\").text)'", "hello from {host}"),
    "pip": (
        f"{VENV} -m pip install --quiet --no-cache-dir --target /tmp/pip-{{host}} --index-url https://{{host}}/simple tiny "
        "&& ls /tmp/pip-{host}",
        "tiny.py",
    ),
    "uv": (
        f"{TOOLS.get('uv')} pip install --quiet --no-cache --target /tmp/uv-{{host}} --python /usr/bin/python3 "
        "--index-url https://{host}/simple tiny && ls /tmp/uv-{host}",
        "tiny.py",
    ),
    "npm": ("npm view tiny version --registry https://{host}/npm/ --cache /tmp/npm", "1.2.3"),
    "cargo": (
        CARGO + " CARGO_REGISTRIES_HERE_INDEX=sparse+https://{host}/cargo/ cargo search --registry here tiny",
        'tiny = "1.2.3"',
    ),
    "perl": ("perl -MLWP::UserAgent -e 'print LWP::UserAgent->new(env_proxy => 1)->get(\"https://{host}/\")->content'", "hello"),
    "node fetch": ("node -e 'fetch(\"https://{host}/\").then(r => r.text()).then(console.log)'", "hello from {host}"),
    "go": ("go version", "go"),
}


def why_not(tool: str) -> str | None:
    program = tool.split()[0]
    match tool:
        case "python requests":
            return None if Path(TOOLBOX).exists() else "the toolbox is not installed"
        case "python urllib" | "python httpx" | "pip":
            return None
        case "uv" | "cargo":
            return None if program in TOOLS else f"{program} is not installed"
        case "node fetch":
            return _node_is_too_old()
        case "go":
            return "go is not installed" if shutil.which("go") is None else "go needs a module proxy to show anything"
        case "perl":
            return "LWP is not part of perl here" if not Path("/usr/share/perl5/LWP/UserAgent.pm").exists() else None
        case _:
            return None if shutil.which(program) else f"{program} is not installed"


def _node_is_too_old() -> str | None:
    if shutil.which("node") is None:
        return "node is not installed"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    major, minor = map(int, version.removeprefix("v").split(".")[:2])
    reads = (major, minor) >= (24, 5) or (major == 22 and minor >= 21)
    return None if reads else f"fetch() of node {version} reads no proxy variables (22.21 and 24.5 do)"


@pytest.fixture(scope="module")
def box(arena: ArenaClient) -> Opened:
    secret = {"domain": OPENED, "name": "API_KEY", "value": "sk-trust-0123456789"}
    return arena.open(OPENED, TUNNELLED, secrets=[secret])


@pytest.mark.parametrize("tool", COMMANDS)
def test_a_tool_reaches_both_kinds_of_hosts(tool: str, arena: ArenaClient, sandbox: Sandbox, box: Opened) -> None:
    reason = why_not(tool)
    if reason is not None:
        pytest.skip(reason)
    command, says = COMMANDS[tool]
    for host in (OPENED, TUNNELLED):
        answer = sandbox.shell(command.replace("{host}", host), box.environment)
        assert says.replace("{host}", host) in answer["stdout"] + answer["stderr"], answer


REFUSED = {
    "curl": "curl -sS https://{host}/",
    "wget": "wget -O- https://{host}/",
    "git": "git ls-remote https://{host}/git/repo.git",
    "python urllib": "python3 -c 'import urllib.request as r; r.urlopen(\"https://{host}/\")'",
}


@pytest.mark.parametrize("tool", REFUSED)
def test_a_tool_fails_at_once_at_a_forbidden_host(tool: str, sandbox: Sandbox, box: Opened) -> None:
    answer = sandbox.shell(REFUSED[tool].replace("{host}", FORBIDDEN), box.environment)
    assert answer["exit_code"] != 0
    assert "403" in answer["stderr"] or "Network access to 'forbidden.example' was refused" in answer["stderr"]


def test_python_and_wget_say_why(sandbox: Sandbox, box: Opened) -> None:
    for tool in ("python urllib", "wget"):
        answer = sandbox.shell(REFUSED[tool].replace("{host}", FORBIDDEN), box.environment)
        assert "is not among this container's allowed domains" in answer["stderr"]


def test_ssh_and_raw_connections_fail_at_once(sandbox: Sandbox, box: Opened) -> None:
    command = "exec 3<>/dev/tcp/93.184.216.34/22"
    answer = sandbox.shell(command, box.environment)
    assert (answer["exit_code"] != 0, "Network is unreachable" in answer["stderr"]) == (True, True)


def test_a_background_process_has_the_same_way_out(sandbox: Sandbox, box: Opened) -> None:
    command = (
        f"(nohup bash -c 'sleep 0.1; curl -sS https://{OPENED}/ > /tmp/later' >/dev/null 2>&1 &) ; "
        "until [ -s /tmp/later ]; do sleep 0.1; done; cat /tmp/later"
    )
    assert sandbox.shell(command, box.environment)["stdout"] == f"hello from {OPENED}\n"


def test_local_servers_are_reached_without_the_proxy(sandbox: Sandbox, box: Opened) -> None:
    command = (
        "cd /tmp && mkdir -p site && echo mine > site/index.html && cd site && (python3 -m http.server 8765 --bind 127.0.0.1 "
        ">/dev/null 2>&1 & echo $! > /tmp/pid); for i in $(seq 300); do curl -sSf http://127.0.0.1:8765/ 2>/dev/null && break; "
        "sleep 0.1; done; kill $(cat /tmp/pid)"
    )
    assert sandbox.shell(command, box.environment)["stdout"] == "mine\n"


def test_every_spelling_of_the_proxy_is_set_and_every_bundle_is_the_same() -> None:
    made = environment(proxy_url("127.0.0.1:3128", "cntr_1", "p@ss:w/rd"), "/b.pem")
    url = "http://cntr_1:p%40ss%3Aw%2Frd@127.0.0.1:3128"
    assert [made[name] for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")] == [url] * 6
    bundles = {name for name, value in made.items() if value == "/b.pem"}
    wanted = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "PIP_CERT")
    assert bundles >= {*wanted, "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE"}


def test_the_ca_is_made_once_and_its_key_is_the_owners_alone(tmp_path: Path) -> None:
    first, second = ensure_ca(tmp_path / "ca"), ensure_ca(tmp_path / "ca")
    assert first.certificate_pem == second.certificate_pem
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in (tmp_path / "ca").iterdir()} == {
        KEY_FILE: "0o600",
        CERTIFICATE_FILE: "0o644",
    }
    assert "PRIVATE" not in repr(first) + first.certificate_pem


def test_a_certificate_that_was_lost_is_made_anew_for_the_same_key(tmp_path: Path) -> None:
    first = ensure_ca(tmp_path)
    (tmp_path / CERTIFICATE_FILE).unlink()
    assert ensure_ca(tmp_path).certificate.public_key() == first.certificate.public_key()


def test_a_key_of_another_ca_is_refused() -> None:
    with pytest.raises(ValueError, match="do not belong together"):
        load_ca(new_ca().certificate_pem.encode(), new_ca().key_pem)
