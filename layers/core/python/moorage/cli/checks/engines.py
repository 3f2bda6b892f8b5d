"""The search engine and the image model that ``models.toml`` names: whether they answer, and take this deployment's key."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

from moorage.cli.checks.findings import CheckProgress, Finding, fail, ok, warn
from moorage.egress.fetch import Fetcher, FetchError, FetchRefused
from moorage.errors import SettingsConflict
from moorage.local.resource_paths import models_file
from moorage.model.catalog import ModelCatalog
from moorage.model.image_engine import ImageEngine
from moorage.model.search_engine import SearchEngine
from moorage.settings import SettingsError
from moorage.tools.web_search.engines import SearchOrder, search
from moorage.tools.web_search.results import SearchFailed

_QUERY: Final = "weather"
_SECONDS_MAX: Final = 10
_BYTES_MAX: Final = 4 * 1024 * 1024


def of_engines(environ: Mapping[str, str]) -> Iterator[Finding | CheckProgress]:
    """Faults of the file itself are told about its models."""
    try:
        servers = ModelCatalog.load(models_file(environ), environ).remote_servers
    except (SettingsError, SettingsConflict):
        return
    if servers.search is not None:
        yield CheckProgress("the search engine is asked for one result")
        yield asyncio.run(search_finding(servers.search))
    if servers.images is not None:
        yield asyncio.run(image_finding(servers.images))


async def search_finding(engine: SearchEngine) -> Finding:
    """One search: only that shows that a key is taken. If searches cost something, this one does."""
    name = f"the search engine ({engine.kind})"
    try:
        found = await search(Fetcher(), engine, SearchOrder(_QUERY, 1))
    except SearchFailed as failure:
        return fail(f"{name} found nothing: {failure}", "Correct [web_search] in models.toml, or the engine (docs/web_search.md).")
    if not found:
        return warn(f"{name} answers, and finds nothing for '{_QUERY}'", "A SearXNG needs engines of its own that are switched on.")
    return ok(f"{name} answers, and finds pages")


async def image_finding(engine: ImageEngine) -> Finding:
    """Its models are listed: to draw would cost something."""
    name = f"the image model '{engine.model}'"
    if engine.kind == "bedrock":
        return ok(f"{name} is Bedrock's in {engine.region}; it is not asked, because each image is paid for")
    headers = {"authorization": f"Bearer {engine.key}"} if engine.key else {}
    try:
        await Fetcher().ask(f"{engine.url}/models", method="GET", headers=headers, bytes_max=_BYTES_MAX, seconds=_SECONDS_MAX)
    except FetchRefused as refused:
        if refused.status in (401, 403):
            return fail(f"{name}: its server answers {refused.status}", "Correct the key that [image_generation] in models.toml names.")
        return warn(f"{name}: its server answers, and lists no models ({refused.status})", "It may draw all the same.")
    except FetchError as error:
        return fail(f"{name}: no answer: {error}", "Start its server, or correct [image_generation] in models.toml.")
    return ok(f"{name}: its server answers")
