"""An environment that a session asks for, as a container.

The container's record, its files and its skills are all that there is of it: a session keeps the container's id.
"""

import base64
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from moorage import limits
from moorage.containers.containers import Containers, PlacedFile
from moorage.containers.setup import ContainerSetup, SetupCommand
from moorage.containers.store import LINK, WORKSPACE, ContainerFileRecord, ContainerRecord
from moorage.egress.policy import SETTING
from moorage.environments.shapes import HOSTED_ENVIRONMENT, NetworkAnswer
from moorage.errors import ApiError, bad_request, invalid_value
from moorage.hosts import covers
from moorage.parallel import beside
from moorage.runtime import Runtime
from moorage.settings import Settings
from moorage.skills.attach import GivenPlugin, GivenSkill, given_plugins
from moorage.stores import Stores
from moorage.vaults.store import CredentialRecord
from moorage.vaults.variables import with_variables
from moorage.wire.network_policy import NetworkPolicy, parse_network_policy
from moorage.wire.validation import Fields

_FOLDER: Final = LINK.rstrip("/")
_SIZE: Final = "medium"
"""As in OpenAI's reference."""


async def open_environment(
    runtime: Runtime,
    tenant_id: str,
    spec: Mapping[str, Any],
    *,
    param: str,
    kind: Literal["prewarmed", "session"] = "prewarmed",
    credentials: Sequence[CredentialRecord] = (),
) -> ContainerRecord | None:
    """The container of an ``environment`` (``shapes.py: EnvironmentParam``), made or found; None for ``none``. ``param`` is the place
    of ``spec`` in the request, such as ``environment``. A new one has no sandbox yet, and gets the variables of ``credentials``
    (``vaults/choice.py: credentials_in``). One that was found keeps those that it was made with.

    Raises :class:`ApiError` that names the field. Nothing is left behind then.
    """
    containers = runtime.computers.containers
    if spec["type"] == "none":
        return None
    if "environment_id" in spec:
        return await containers.use(tenant_id, spec["environment_id"], param=f"{param}.environment_id")
    if "environment_template_id" in spec:
        spec = await _from_template(runtime.stores, tenant_id, spec, param)
    files = await _placed(runtime.stores, tenant_id, spec.get("files", ()), f"{param}.files")
    skills = await containers.skills.resolve(tenant_id, spec.get("skills", ()), param=f"{param}.skills")
    plugins = await given_plugins(spec.get("plugins", ()), param=f"{param}.plugins")
    record = await _reserved(runtime, tenant_id, spec, skills, plugins, credentials, param, kind)
    try:
        await containers.place(record, files)
    except ApiError:
        await containers.delete(tenant_id, record.id)
        raise
    return await containers.get(tenant_id, record.id)


async def _from_template(stores: Stores, tenant_id: str, spec: Mapping[str, Any], param: str) -> Mapping[str, Any]:
    """The template's fields, and over them those that are given. A network may only be narrower."""
    place = f"{param}.environment_template_id"
    template = (await stores.environment_templates.get(tenant_id, spec["environment_template_id"], param=place)).configuration
    if "network" in spec and not _is_within(spec["network"], template.get("network")):
        raise invalid_value(f"{param}.network", "it reaches more than the network of the template.")
    whole = {**template, **spec}
    return HOSTED_ENVIRONMENT({name: value for name, value in whole.items() if name not in ("name", "environment_template_id")})


def _is_within(network: Mapping[str, Any], outer: Mapping[str, Any] | None) -> bool:
    access = "disabled" if outer is None else outer["access"]
    if network["access"] == "disabled" or access == "enabled":
        return True
    if outer is None or access == "disabled" or network["access"] == "enabled":
        return False
    return all(any(covers(pattern, domain) for pattern in outer["allowed_domains"]) for domain in network["allowed_domains"])


def shown_network(network: Mapping[str, Any] | None) -> NetworkAnswer:
    """As it was asked for."""
    if network is None:
        return {"access": "disabled", "allowed_domains": []}
    return {"access": network["access"], "allowed_domains": network.get("allowed_domains", [])}


async def put_file(stores: Stores, containers: Containers, record: ContainerRecord, file: Fields) -> ContainerFileRecord:
    """Put one file (``shapes.py: EnvironmentFileParam``) into an environment, replacing what is there."""
    placed = await _placed_file(stores, record.tenant_id, file, "")
    there = {row.path for row in await containers.files_of(record.tenant_id, record.id)}
    _check_folders(placed.path, there)
    (row,) = await containers.place(record, [placed])
    return row


def container_path(path: str) -> str:
    """Where a file of an environment lies in its container."""
    return WORKSPACE + path.removeprefix(LINK)


def environment_path(path: str) -> str:
    """And back."""
    return LINK + path.removeprefix(WORKSPACE)


async def _reserved(
    runtime: Runtime,
    tenant_id: str,
    spec: Mapping[str, Any],
    skills: Sequence[GivenSkill],
    plugins: Sequence[GivenPlugin],
    credentials: Sequence[CredentialRecord],
    param: str,
    kind: Literal["prewarmed", "session"],
) -> ContainerRecord:
    try:
        policy = _policy(runtime.settings, spec.get("network"), f"{param}.network")
        return await runtime.computers.containers.reserve(
            tenant_id,
            name="environment" if kind == "prewarmed" else "session",
            memory_limit=limits.ENVIRONMENT_SIZES[spec.get("container_size", _SIZE)],
            network_policy=with_variables(runtime.stores, policy, credentials, taken=spec.get("env", {})),
            # A skill that is given by itself as well is shown as such: the later one of the same counts.
            skills=[*(skill for plugin in plugins for skill in plugin.skills), *skills],
            plugins=[{"name": plugin.name, "description": plugin.description} for plugin in plugins],
            setup=_setup(spec),
            packages=_packages(runtime, spec.get("packages", {}), f"{param}.packages"),
            environment=kind,
            param=f"{param}.",
        )
    except ApiError as error:
        raise _in_its_words(error) from error


def _setup(spec: Mapping[str, Any]) -> ContainerSetup:
    commands = spec.get("setup_commands", ())
    return ContainerSetup(spec.get("env", {}), tuple(SetupCommand(each["command"], each.get("cwd", _FOLDER)) for each in commands))


_MIRRORS: Final = {"python": "MOORAGE_PYTHON_MIRROR", "npm": "MOORAGE_NPM_MIRROR"}


def _packages(runtime: Runtime, asked: Mapping[str, Sequence[str]], param: str) -> dict[str, Sequence[str]]:
    """Those that are asked for. Raises :class:`ApiError` for some that this deployment cannot install."""
    settings = runtime.settings
    there = {"python": settings.python_mirror, "npm": settings.npm_mirror}
    wanted: dict[str, Sequence[str]] = {ecosystem: tuple(asked[ecosystem]) for ecosystem in there if asked.get(ecosystem)}
    for ecosystem in wanted:
        if there[ecosystem] is not None and settings.egress_proxy is not None:
            continue
        lacks = f"names no index to install them from ({_MIRRORS[ecosystem]})"
        if there[ecosystem] is not None:
            lacks = f"runs no egress proxy, by which sandboxes reach its index ({SETTING})"
        raise bad_request(
            f"'{param}.{ecosystem}' cannot be installed: the operator of this deployment {lacks}. Leave it out, or install them by "
            "'setup_commands' from an index that 'network' allows.",
            param=f"{param}.{ecosystem}",
            code="packages_unavailable",
        )
    return wanted


def _policy(settings: Settings, network: Mapping[str, Any] | None, param: str) -> NetworkPolicy | None:
    """``enabled`` is all that the operator lets containers reach."""
    if network is None or network["access"] == "disabled":
        return None
    if network["access"] == "restricted":
        domains = network["allowed_domains"]
        wanted = {"type": "allowlist", "allowed_domains": domains}
        return parse_network_policy(wanted, param)
    ceiling = settings.allowed_egress_domains
    if not ceiling:
        raise bad_request(
            f"'{param}.access' asks for a network, and the operator of this deployment lists no domain that containers may reach "
            f"({SETTING}). Use 'disabled'.",
            param=f"{param}.access",
            code="network_unavailable",
        )
    return NetworkPolicy("allowlist", ceiling)


def _in_its_words(error: ApiError) -> ApiError:
    """A container's ``network_policy`` is an environment's ``network``."""

    def said(text: str) -> str:
        return text.replace("network_policy", "network").replace("{'type': 'disabled'}", "{'access': 'disabled'}")

    return ApiError(error.status, said(error.message), param=said(error.param or "") or None, code=error.code)


async def _placed(stores: Stores, tenant_id: str, files: Sequence[Fields], param: str) -> list[PlacedFile]:
    return [await _placed_file(stores, tenant_id, file, f"{param}[{index}].") for index, file in enumerate(files)]


async def _placed_file(stores: Stores, tenant_id: str, file: Fields, param: str) -> PlacedFile:
    path = container_path(file["path"])
    if file["type"] == "file_id":
        return PlacedFile(path, await stores.files.get(tenant_id, file["file_id"], param=f"{param}file_id"))
    data = file["data"]
    return PlacedFile(path, await beside(len(data), lambda: base64.b64decode(data)))


def _check_folders(path: str, there: set[str]) -> None:
    """A file of the container is no folder, and a folder is no file."""
    above = posixpath.dirname(path)
    while above.startswith(WORKSPACE):
        if above in there:
            raise invalid_value("path", f"'{environment_path(above)}' is a file.")
        above = posixpath.dirname(above)
    if any(each.startswith(f"{path}/") for each in there):
        raise invalid_value("path", f"'{environment_path(path)}' is a folder.")
