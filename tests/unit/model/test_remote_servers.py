"""Servers that the operator names in models.toml."""

import pytest
from moorage.errors import SettingsConflict
from moorage.model.catalog import ModelCatalog
from moorage.model.remote_servers import RemoteServer, RemoteServers

SERVER = '[mcp.depot]\nurl = "https://depot.example/mcp"\n'


def test_a_server_has_its_key_by_reference_and_stands_beside_any_model() -> None:
    text = SERVER + 'secret = "env:DEPOT"\nheaders = { "X-Team" = "moorage" }\n'
    catalog = ModelCatalog.load(text, {"DEPOT": "k3y"})
    assert catalog.remote_servers == RemoteServers(
        {"depot": RemoteServer("https://depot.example/mcp", {"X-Team": "moorage", "Authorization": "Bearer k3y"})}
    )
    assert catalog.resolve(None).provider_kind == "demo"
    assert "k3y" not in repr(catalog.remote_servers)


def test_a_key_on_aws_is_read_when_it_is_needed() -> None:
    read: list[str] = []

    def secret(name: str) -> str:
        read.append(name)
        return "k3y"

    catalog = ModelCatalog.load(SERVER + 'secret = "ssm:/depot"\n', {}, secret=secret)
    assert read == []
    assert catalog.remote_servers.by_label["depot"].headers == {"Authorization": "Bearer k3y"}
    assert read == ["ssm:/depot"]


def test_without_servers_there_are_none() -> None:
    assert ModelCatalog.load("", {}).remote_servers == RemoteServers()


def test_hosts_that_requests_may_name_are_patterns() -> None:
    assert ModelCatalog.load('mcp_hosts = ["*.Example.com"]\n', {}).remote_servers.hosts == ("*.example.com",)
    assert ModelCatalog.load("mcp_hosts = []\n", {}).remote_servers.hosts == ()


WRONG = {
    "a label": ('[mcp."7 up"]\nurl = "https://x.example"\n', "a label begins with a letter"),
    "an address": ('[mcp.depot]\nurl = "depot.example"\n', "is not an http or https URL"),
    "no address": ("[mcp.depot]\n", "mcp.depot.url"),
    "hosts": ('mcp_hosts = ["https://x.example"]\n', "mcp_hosts takes names"),
    "another field": (SERVER + 'key = "env:A"\n', "mcp.depot.key"),
    "the key itself": (SERVER + 'secret = "sk-verysecret"\n', "must be a reference"),
    "a variable that is not set": (SERVER + 'secret = "env:NOWHERE"\n', "NOWHERE, which is not set"),
    "a parameter on a laptop": (SERVER + 'secret = "ssm:/depot"\n', "can be read only on AWS"),
}


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_a_server_that_cannot_be_is_said_at_the_start(text: str, words: str) -> None:
    with pytest.raises(SettingsConflict, match=words) as refused:
        ModelCatalog.load(text, {})
    assert "verysecret" not in str(refused.value)
