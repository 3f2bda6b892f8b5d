"""What the values of vaults become in the network policy of an environment."""

from typing import Any

import pytest
from moorage import limits
from moorage.errors import ApiError
from moorage.vaults.choice import credentials_in
from moorage.vaults.store import CredentialRecord
from moorage.vaults.variables import with_variables
from moorage.wire.network_policy import DomainSecret, NetworkPolicy

from tests.unit.api.served import Served
from tests.unit.loop.lab import Lab

POLICY = NetworkPolicy("allowlist", ("api.example.com", "*.cdn.example"))
ANYWHERE: Any = {"type": "unrestricted"}


async def held(*variables: Any) -> tuple[Served, list[CredentialRecord]]:
    """Credentials of a vault, beside a token of no use here."""
    served = Served.of(Lab())
    vault_id = (await served.post("/vaults", {})).json()["id"]
    bearer = {"type": "static_bearer", "mcp_server_url": "https://depot.example/mcp", "token": "hidden"}
    for auth in (bearer, *variables):
        answer = await served.post(f"/vaults/{vault_id}/credentials", {"name": "x", "auth": auth})
        assert answer.status_code == 200, answer.text
        served.lab.now += 1
    return served, await credentials_in(served.lab.runtime.stores, "t", [vault_id])


def variable(name: str, networking: Any, value: str = "hidden") -> Any:
    return {"type": "environment_variable", "secret_name": name, "secret_value": value, "networking": networking}


def limited(*hosts: str) -> Any:
    return {"type": "limited", "allowed_hosts": list(hosts)}


async def test_a_value_goes_to_its_own_hosts_or_to_all_of_the_policys() -> None:
    served, there = await held(variable("ONE", limited("api.example.com", "files.example.com")), variable("ALL", ANYWHERE, "hidden-2"))
    given = with_variables(served.lab.runtime.stores, POLICY, there)
    assert given == NetworkPolicy(
        "allowlist",
        POLICY.allowed_domains,
        (
            DomainSecret(domain="api.example.com", name="ONE", value="hidden", more_domains=("files.example.com",)),
            DomainSecret(domain="api.example.com", name="ALL", value="hidden-2", more_domains=("*.cdn.example",)),
        ),
    )
    assert "hidden" not in repr(given)


async def test_without_a_network_or_a_variable_a_policy_stays_as_it_is() -> None:
    served, there = await held(variable("ONE", ANYWHERE))
    runtime, disabled = served.lab.runtime, NetworkPolicy("disabled")
    assert with_variables(runtime.stores, None, there) is None
    assert with_variables(runtime.stores, disabled, there) == disabled
    assert with_variables(runtime.stores, POLICY, there[:1]) == POLICY


WRONG: dict[str, tuple[list[Any], NetworkPolicy, str]] = {
    "a name that is given twice": (
        [variable("ONE", ANYWHERE), variable("ONE", limited("a.example"))],
        POLICY,
        "the variable 'ONE' is given by more than one credential.",
    ),
    "a name that something else has": ([variable("TAKEN", ANYWHERE)], POLICY, "the variable 'TAKEN' stands in 'env' too."),
    "a value that would go anywhere": (
        [variable("ONE", ANYWHERE)],
        NetworkPolicy("allowlist", ("*",)),
        "the variable 'ONE' goes wherever the environment may, which is anywhere: list 'allowed_domains', or limit it.",
    ),
    "more than a policy holds": (
        [variable(f"V{n}", ANYWHERE, "v" * limits.VAULT_SECRET_CHARS_MAX) for n in range(17)],
        POLICY,
        "the variables have more than 131072 characters in all (values, names, hosts).",
    ),
}


@pytest.mark.parametrize(("variables", "policy", "sentence"), WRONG.values(), ids=WRONG)
async def test_what_an_environment_cannot_take_is_told(variables: list[Any], policy: NetworkPolicy, sentence: str) -> None:
    served, there = await held(*variables)
    with pytest.raises(ApiError) as refused:
        with_variables(served.lab.runtime.stores, policy, there, taken={"TAKEN": "x"})
    assert (refused.value.status, refused.value.param) == (400, "vault_ids")
    assert refused.value.message == f"Invalid value for 'vault_ids': {sentence}"
