"""What is kept in vaults on a real stack: no secret stands in a file of it, however it was sent."""

import secrets
from typing import Any

from tests.stack import Stack


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
