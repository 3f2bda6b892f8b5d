"""Which names the product's own clients dial: ``python -m tests.twin.names VARIABLES REGION...`` prints them as JSON, by region and
service.

A process of its own, because clients read its environment: that of a function, as Lambda completes it. The runtime is the product's,
with whatever clients it makes; each request is noted where botocore hands it to its sender, and goes nowhere.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import boto3
import botocore.loaders
import botocore.session
from moorage.runtime import build_runtime
from moorage.settings import Settings
from moorage.store.blobs import Blobs
from moorage.store.table import Table

SERVICES: Final = ("dynamodb", "s3")
_LOADER: Final = botocore.loaders.create_loader()
"""It keeps the models of services, which take longest to read."""
Names = dict[str, dict[str, list[str]]]


def dialled(variables: Mapping[str, str], regions: list[str]) -> Names:
    """Host names by region and service, for a function with these variables of the template."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MOORAGE_"))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.twin.names", json.dumps(dict(variables)), *regions],
        env=kept,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    names: Names = json.loads(done.stdout)
    return names


class Noted(Exception):
    """In place of an answer; botocore tries nothing again for it."""


async def _nothing() -> AsyncIterator[bytes]:
    yield b""


async def _first(pages: AsyncIterator[Any]) -> None:
    async for _ in pages:
        return


def _asked_of_table(table: Table) -> list[Awaitable[Any]]:
    """What a step in the sandboxes' network asks, once in each way."""
    return [table.get("T#acme", "R#1"), table.put({"PK": "T#acme", "SK": "R#1"}), table.query("T#acme")]


def _asked_of_bucket(blobs: Blobs) -> list[Awaitable[Any]]:
    key = "T/acme/F/file-1"
    return [
        blobs.put_bytes(key, b"x"),
        blobs.put_stream(key, _nothing(), bytes_max=1),
        blobs.get_bytes(key),
        blobs.delete(key),
        _first(blobs.list_sizes("T/acme/")),
    ]


def _names() -> dict[str, set[str]]:
    """Host names by service."""
    core = botocore.session.get_session()
    core.register_component("data_loader", _LOADER)
    session = boto3.DEFAULT_SESSION = boto3.Session(botocore_session=core)
    noted: dict[str, set[str]] = {service: set() for service in SERVICES}

    def note(request: Any, event_name: str, **_: Any) -> None:
        noted[event_name.split(".")[1]].add(str(urlsplit(request.url).hostname))
        raise Noted

    for service in SERVICES:
        # Before the product's own sender, which stands at the same place.
        session.events.register_first(f"before-send.{service}", note)
    runtime = build_runtime(Settings.from_environment())
    asyncio.run(_driven([*_asked_of_table(runtime.stores.table), *_asked_of_bucket(runtime.stores.blobs)]))
    return noted


async def _driven(asked: list[Awaitable[Any]]) -> None:
    came = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in came] == [Noted] * len(asked), f"a request of the product's was not seen: {came}"


def _as_lambda_does(variables: Mapping[str, str], region: str) -> None:
    """https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html"""
    for name in [name for name in os.environ if name.startswith(("AWS_", "MOORAGE_"))]:
        del os.environ[name]
    credentials = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_SESSION_TOKEN": "test"}
    os.environ.update(credentials, **variables, AWS_REGION=region, AWS_DEFAULT_REGION=region)


def main() -> None:
    variables, regions = json.loads(sys.argv[1]), sys.argv[2:]
    found: Names = {}
    for region in regions:
        _as_lambda_does(variables, region)
        found[region] = {service: sorted(hosts) for service, hosts in _names().items()}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
