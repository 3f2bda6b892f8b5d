"""Vaults on a real stack: a value goes from a vault to the hosts that it is for, and no secret stands in a file of the stack."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests.scenarios.test_operator_secrets import HOST, Host, a_host
from tests.stack import Stack, outputs, say, script, shell


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with a_host(tmp_path_factory.getbasetemp()) as one:
        yield one


@pytest.fixture(scope="module")
def lab(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose proxy knows the host by name, and may reach it on this machine."""
    environment = host.environment | {"MOORAGE_ALLOWED_EGRESS_DOMAINS": f"{HOST},other.lab.test"}
    running = Stack(tmp_path_factory.mktemp("vaults"), environment).start()
    yield running
    assert running.stop() == 0


def test_a_value_goes_from_a_vault_to_its_hosts_and_stays_out_of_the_sandbox(lab: Stack, host: Host) -> None:
    client, word = lab.client(), f"word-{secrets.token_hex(8)}"
    vault = client.beta.agents.vaults.create()
    auth: Any = {
        "type": "environment_variable",
        "secret_name": "DEPOT_KEY",
        "secret_value": word,
        "networking": {"type": "limited", "allowed_hosts": ["other.lab.test", HOST]},
    }
    client.beta.agents.vaults.credentials.create(vault.id, name="depot", auth=auth)
    environment = client.beta.agents.environments.create(
        environment={"type": "openai_hosted", "network": {"access": "restricted", "allowed_domains": [HOST]}}, vault_ids=[vault.id]
    )
    tools: Any = [{"type": "shell", "environment": {"type": "container_reference", "container_id": environment.id}}]
    fetch = f'echo "$DEPOT_KEY"; curl -sS -H "Authorization: Bearer $DEPOT_KEY" https://{HOST}:{host.port}/'
    response = client.responses.create(model="demo", input=script(shell(fetch), say("x")), tools=tools)
    ((stdout, stderr, _),) = outputs(response.output)[0]
    shown, heard = stdout.splitlines()
    assert (stderr, host.received) == ("", [f"Bearer {word}"])
    assert (shown.startswith("MOORAGE_SECRET_DEPOT_KEY_"), heard) == (True, f"you sent Bearer {'*' * len(word)}")
    kept = [path for path in (*lab.state_dir.glob("*"), *(lab.state_dir / "store").rglob("*")) if path.is_file()]
    assert [path for path in kept if word.encode() in path.read_bytes()] == []


def test_no_secret_of_a_vault_stands_in_any_file_of_the_stack(stack: Stack) -> None:
    words = [f"word-{secrets.token_hex(8)}" for _ in range(8)]
    token, access, refresh, client, value, next_token, misplaced, renamed = words
    way = {"type": "client_secret_post", "client_secret": client}
    made = {"client_id": "moorage", "refresh_token": refresh, "token_endpoint": "https://login.example/token"}
    bearer: dict[str, Any] = {"type": "static_bearer", "mcp_server_url": "https://depot.example/mcp"}
    credentials: list[dict[str, Any]] = [
        {**bearer, "token": token},
        {**bearer, "type": "mcp_oauth", "access_token": access, "refresh": {**made, "token_endpoint_auth": way}},
        {
            "type": "environment_variable",
            "secret_name": "KEY",
            "secret_value": value,
            "networking": {"type": "unrestricted"},
        },
    ]
    told: list[str] = []
    with stack.http() as http:
        vault = http.post("/vaults", json={"name": "staging"}).json()["id"]
        place = f"/vaults/{vault}/credentials"
        for auth in credentials:
            headers = {"idempotency-key": f"key-{auth['type']}"}
            for _ in range(2):
                answer = http.post(place, json={"name": "depot", "auth": auth}, headers=headers)
                assert answer.status_code == 200, answer.text
                told.append(answer.text)
        first = http.get(place, params={"order": "asc"}).json()["data"][0]["id"]
        rotation = {"auth": {"type": "static_bearer", "token": next_token}}
        told += [
            http.post(f"{place}/{first}", json=rotation).text,
            http.post(place, json={"name": "depot", "auth": {**bearer, "token": [misplaced]}}).text,
            http.post(place, json={"name": "depot", "auth": {**bearer, "token": f"{renamed}\n"}}).text,
            http.get(place).text,
        ]
        assert len(http.get(place).json()["data"]) == len(credentials)
    kept = [path for path in (*stack.state_dir.glob("*"), *(stack.state_dir / "store").rglob("*")) if path.is_file()]
    assert [(word, path) for path in kept for word in words if word.encode() in path.read_bytes()] == []
    assert [word for word in words if word in "".join(told)] == []
