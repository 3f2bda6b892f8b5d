"""Make docs/openapi.md from docs/openapi.toml: ``python docs/openapi.py``; ``--extract PATH`` compares with OpenAI's document too.

OpenAI's document (github.com/openai/openai-openapi, ``openapi.yaml``, or an extract of it with these resources) is not kept here.
A document is taken apart into *features*: ``POST /v1/containers``, ``POST /v1/containers query limit``, ``... request name`` and
``... answer expires_after.minutes``. What one side has and the other has not is a difference, and docs/openapi.toml has a reason for
each. A difference without a reason fails, and so does a reason without a difference.
"""

import argparse
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import moorage.tools.registry  # noqa: F401  (the rooms declare their tools)
import yaml
from moorage.api import openapi
from moorage.wire.schema import JSON

REASONS = Path(__file__).with_suffix(".toml")
PAGE = Path(__file__).with_suffix(".md")
METHODS = ("get", "post", "delete", "put", "patch")
_DEPTH_MAX = 8
HEAD = "| who has it | feature | compared with | reason |"

Document = Mapping[str, Any]
Difference = tuple[str, str]
"""Who has it (``ours`` or ``theirs``), and the feature."""

INTRODUCTION = """\
# How our OpenAPI document differs from OpenAI's

The service has its OpenAPI document at `/openapi.json`. This page compares it with OpenAI's ({version}): routes, query
parameters, the fields of requests, and the fields of answers. Unions of several objects (tools, input items, content parts) are
compared with the openai SDK instead: [parameters.md](parameters.md).

*theirs* marks a feature that only OpenAI's document has, and *ours* one of our document alone. `*` stands for any text.
{compared} features are in both; each of the {different} differences has a reason below.

`python docs/openapi.py` makes this table from `docs/openapi.toml`. With `--extract PATH` it also fails if a difference has no reason.
OpenAI's SDK is newer than its published document. A test therefore compares our document with the SDK too. The column *compared
with* names the comparison.
"""


class Features:
    """The features of one OpenAPI document."""

    def __init__(self, document: Document, prefix: str = "") -> None:
        self._document = document
        self._prefix = prefix

    def all(self) -> set[str]:
        return set(self._all())

    def _all(self) -> Iterator[str]:
        for path, operations in self._document["paths"].items():
            for method in METHODS:
                if method in operations:
                    route = f"{method.upper()} {self._prefix}{path}"
                    yield route
                    yield from (f"{route} {feature}" for feature in self._operation(operations[method]))

    def _operation(self, operation: Document) -> Iterator[str]:
        for parameter in map(self._resolve, operation.get("parameters", ())):
            if parameter["in"] == "query":
                yield f"query {parameter['name'].partition('[')[0]}"
        for content in operation.get("requestBody", {}).get("content", {}).values():
            yield from (f"request {field}" for field in self._fields(content.get("schema", {})))
        for media_type, content in operation["responses"].get("200", {}).get("content", {}).items():
            if media_type == JSON:
                yield from (f"answer {field}" for field in self._fields(content.get("schema", {})))

    def _resolve(self, schema: Document) -> Document:
        while "$ref" in schema:
            place: Any = self._document
            for part in schema["$ref"].removeprefix("#/").split("/"):
                place = place[part]
            schema = place
        return schema

    def _fields(self, schema: Document, depth: int = 0) -> Iterator[str]:
        """Dotted names of all fields; a list is written like its entry, a union of several objects is not entered."""
        for name, field in self._properties(schema).items():
            path = name.replace("[", ".").replace("]", "")  # a form's expires_after[anchor] is the field of an object
            if "." in path:
                yield path.split(".")[0]
            yield path
            if depth < _DEPTH_MAX:
                yield from (f"{path}.{inner}" for inner in self._fields(field, depth + 1))

    def _properties(self, schema: Document) -> dict[str, Any]:
        objects = list(self._objects(schema))
        return objects[0] if len(objects) == 1 else {}

    def _objects(self, schema: Document) -> Iterator[dict[str, Any]]:
        schema = self._resolve(schema)
        own = dict(schema.get("properties", {}))
        for part in schema.get("allOf", ()):
            own.update(self._properties(part))
        if own:
            yield own
            return
        for variant in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
            yield from self._objects(variant)
        if "items" in schema:
            yield from self._objects(schema["items"])


def ours() -> set[str]:
    return Features(openapi.document("")).all()


def differences(mine: set[str], theirs: set[str]) -> set[Difference]:
    """What only one side has; below a difference nothing more is told."""
    found = {("ours", feature) for feature in mine - theirs} | {("theirs", feature) for feature in theirs - mine}
    return {(side, feature) for side, feature in found if not any((side, above) in found for above in _above(feature))}


def _above(feature: str) -> Iterator[str]:
    route = " ".join(feature.split(" ")[:2])
    if feature != route:
        yield route
    while feature.rpartition(".")[1] and "." in feature.removeprefix(route):
        feature = feature.rpartition(".")[0]
        yield feature


def load() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = tomllib.loads(REASONS.read_text())["difference"]
    return rows


def problems(found: Iterable[Difference], compared_with: str) -> list[str]:
    """Differences without a reason and reasons without a difference; ``compared_with`` is ``document`` or ``sdk``."""
    rows = [row for row in load() if compared_with in row["seen_in"]]
    unexplained = [difference for difference in found if not any(_explains(row, difference) for row in rows)]
    idle = [row for row in rows if not any(_explains(row, difference) for difference in found)]
    return [
        *(f"no reason: {side} {feature}" for side, feature in sorted(unexplained)),
        *(f"no such difference with the {compared_with}: {row['side']} {row['feature']}" for row in idle),
    ]


def _explains(row: Mapping[str, Any], difference: Difference) -> bool:
    side, feature = difference
    return row["side"] == side and fnmatchcase(feature, row["feature"])


def page(theirs: Document, mine: set[str]) -> str:
    """The page's Markdown."""
    features = Features(theirs, "/v1").all()
    version = f"specification {theirs['info']['version']}"
    count = len(differences(mine, features))
    introduction = INTRODUCTION.format(version=version, compared=len(mine & features), different=count)
    return f"{introduction}\n{table()}"


def table() -> str:
    """The page's reasons, in Markdown."""
    rows = (f"| {row['side']} | `{row['feature']}` | {', '.join(row['seen_in'])} | {row['reason']} |" for row in load())
    return "\n".join([HEAD, "|---|---|---|---|", *rows, ""])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--extract", type=Path, help="OpenAI's openapi.yaml, or an extract of it; without it the comparison stays")
    extract = arguments.parse_args().extract
    if extract is None:
        PAGE.write_text(PAGE.read_text().partition(HEAD)[0] + table())
        return
    theirs: Document = yaml.safe_load(extract.read_text())
    mine = ours()
    found = problems(differences(mine, Features(theirs, "/v1").all()), "document")
    if found:
        sys.exit("\n".join(found))
    PAGE.write_text(page(theirs, mine))


if __name__ == "__main__":
    main()
