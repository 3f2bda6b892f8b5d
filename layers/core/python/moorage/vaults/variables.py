"""The values of vaults that a container's requests carry: its network policy with them as domain secrets.

The container gets a placeholder under the variable's name, and the egress proxy puts the value in on the way to its hosts
(``egress/secrets.py``).
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from moorage import limits
from moorage.errors import invalid_value
from moorage.stores import Stores
from moorage.vaults.store import CredentialRecord
from moorage.wire.network_policy import DomainSecret, NetworkPolicy


def with_variables(
    stores: Stores,
    policy: NetworkPolicy | None,
    credentials: Iterable[CredentialRecord],
    *,
    taken: Collection[str] = (),
) -> NetworkPolicy | None:
    """The policy of an environment with what its vaults add (``choice.py: credentials_in``). Without a network it stays as it is: no
    value could leave. ``taken`` are names of other variables.

    Raises :class:`~moorage.errors.ApiError` that names the vaults and no value.
    """
    variables = [each for each in credentials if each.type == "environment_variable"]
    if policy is None or policy.type == "disabled" or not variables:
        return policy
    secrets = (*policy.domain_secrets, *(_secret(stores, policy, each) for each in variables))
    names = [secret.name for secret in secrets]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise invalid_value("vault_ids", f"the variable '{twice[0]}' is given by more than one credential.")
    if both := next((name for name in names if name in taken), None):
        raise invalid_value("vault_ids", f"the variable '{both}' stands in 'env' too.")
    if len(secrets) > limits.DOMAIN_SECRETS_MAX:
        raise invalid_value("vault_ids", f"an environment takes at most {limits.DOMAIN_SECRETS_MAX} variables of vaults.")
    if sum(map(_chars, secrets)) > limits.DOMAIN_SECRETS_CHARS_MAX:
        message = f"the variables have more than {limits.DOMAIN_SECRETS_CHARS_MAX} characters in all (values, names, hosts)."
        raise invalid_value("vault_ids", message)
    return replace(policy, domain_secrets=secrets)


def _secret(stores: Stores, policy: NetworkPolicy, credential: CredentialRecord) -> DomainSecret:
    name, networking = credential.shown["secret_name"], credential.shown["networking"]
    hosts = policy.allowed_domains if networking["type"] == "unrestricted" else tuple(networking["allowed_hosts"])
    if "*" in hosts:
        message = f"the variable '{name}' goes wherever the environment may, which is anywhere: list 'allowed_domains', or limit it."
        raise invalid_value("vault_ids", message)
    value = stores.vaults.opened(credential).secrets["secret_value"]
    return DomainSecret(domain=hosts[0], name=name, value=value, more_domains=hosts[1:])


def _chars(secret: DomainSecret) -> int:
    return sum(map(len, (secret.name, secret.value or "", secret.domain, *secret.more_domains)))
