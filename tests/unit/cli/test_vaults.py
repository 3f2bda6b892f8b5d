"""``moorage vaults`` against answers that a test gives."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from moorage.cli.main import main
from moorage.cli.output import moment

from tests.unit.cli.deployment import refusal, serving

VAULT: dict[str, Any] = {"id": "vault_1", "created_at": 1_000, "name": "staging", "metadata": {"team": "a"}}
BEARER: dict[str, Any] = {
    "id": "cred_2",
    "updated_at": 2_000,
    "name": "depot",
    "auth": {"type": "static_bearer", "mcp_server_url": "https://depot.example/mcp"},
}
VALUE: dict[str, Any] = {
    "id": "cred_1",
    "updated_at": 3_000,
    "name": "key",
    "auth": {"type": "environment_variable", "secret_name": "DEPOT_KEY", "networking": {"type": "unrestricted"}},
}
CREDENTIALS = {"GET /v1/vaults/vault_1/credentials": (200, {"data": [BEARER, VALUE], "has_more": False, "last_id": "cred_1"})}
ROWS = [
    ["CREDENTIAL", "TYPE", "FOR", "UPDATED", "NAME"],
    ["cred_2", "static_bearer", "https://depot.example/mcp", *moment(2_000).split(), "depot"],
    ["cred_1", "environment_variable", "DEPOT_KEY", *moment(3_000).split(), "key"],
]
BODY = {"name": "depot", "auth": {**BEARER["auth"], "token": "hidden-token"}}


def test_vaults_are_listed_and_made(capsys: pytest.CaptureFixture[str]) -> None:
    answers: Any = {
        "GET /v1/vaults": (200, {"data": [VAULT, VAULT | {"name": None}], "has_more": False, "last_id": "vault_1"}),
        "POST /v1/vaults": (200, VAULT),
    }
    with serving(answers) as deployment:
        assert main(["vaults"], deployment.environ) == 0
        assert main(["vaults", "create", "staging"], deployment.environ) == 0
        assert main(["vaults", "create", "--json"], deployment.environ) == 0
    head, named, unnamed, made, told = capsys.readouterr().out.splitlines()
    assert head.split() == ["VAULT", "CREATED", "NAME"]
    assert named.split() == ["vault_1", *moment(1_000).split(), "staging"]
    assert unnamed.split() == ["vault_1", *moment(1_000).split()]
    assert (made, json.loads(told)) == ("vault_1", VAULT)
    assert deployment.requests[1:] == [("POST /v1/vaults", {"name": "staging"}), ("POST /v1/vaults", {})]


def test_a_vault_is_shown_with_its_credentials(capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"GET /v1/vaults/vault_1": (200, VAULT), **CREDENTIALS}) as deployment:
        assert main(["vaults", "show", "vault_1"], deployment.environ) == 0
        assert main(["vaults", "show", "vault_1", "--json"], deployment.environ) == 0
        assert main(["vaults", "credentials", "vault_1"], deployment.environ) == 0
    first, team, empty, *rows, told, head, bearer, value = capsys.readouterr().out.splitlines()
    assert (first, team, empty) == (f"vault_1  {moment(1_000)}  staging", "team: a", "")
    assert [row.split() for row in rows] == [row.split() for row in (head, bearer, value)] == ROWS
    assert json.loads(told) == {**VAULT, "credentials": [BEARER, VALUE]}


def test_a_vault_and_a_credential_are_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    gone: Any = (200, {"deleted": True})
    answers: Any = {"DELETE /v1/vaults/vault_1": gone, "DELETE /v1/vaults/vault_1/credentials/cred_1": gone}
    with serving({**answers, "DELETE /v1/vaults/vault_2": refusal(404, "Not there.")}) as deployment:
        assert main(["vaults", "remove", "vault_1", "cred_1"], deployment.environ) == 0
        assert main(["vaults", "delete", "vault_1"], deployment.environ) == 0
        assert main(["vaults", "delete", "vault_2"], deployment.environ) == 1
    said = capsys.readouterr()
    assert said.out == "cred_1 is deleted.\nvault_1 is deleted.\n"
    assert "Not there." in said.err


def test_a_secret_goes_in_by_a_file_or_by_standard_input_and_is_not_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credential.json").write_text(json.dumps(BODY))
    rotation = {"auth": {"type": "static_bearer", "token": "hidden-next"}}
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(rotation).encode())))
    place = "POST /v1/vaults/vault_1/credentials"
    with serving({place: (200, BEARER), f"{place}/cred_2": (200, BEARER)}) as deployment:
        assert main(["vaults", "add", "vault_1", str(tmp_path / "credential.json")], deployment.environ) == 0
        assert main(["vaults", "rotate", "vault_1", "cred_2"], deployment.environ) == 0
    assert deployment.requests == [(place, BODY), (f"{place}/cred_2", rotation)]
    assert capsys.readouterr().out == "cred_2\ncred_2 is changed.\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b'{"auth": hidden-token}', "is not JSON (line 1, column 10)."),
        (b'["hidden-token"]', "holds no JSON object."),
        (None, "cannot be read: No such file or directory."),
    ],
)
def test_a_file_of_no_use_is_told_without_a_word_of_it(
    text: bytes | None, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "credential.json"
    if text is not None:
        path.write_bytes(text)
    with serving({}) as deployment:
        assert main(["vaults", "add", "vault_1", str(path)], deployment.environ) == 1
    said = capsys.readouterr()
    assert f"{path} {sentence}" in said.err
    assert "hidden" not in said.out + said.err
