"""``moorage storage``: what the tenant stores, and what it may."""

import argparse
from collections.abc import Mapping
from typing import Any

from moorage.cli.output import add_json, listing
from moorage.cli.target import answer_of, find

_HEAD = ("WHAT", "BYTES", "GB")
_ROWS = {
    "files": "file_bytes",
    "containers": "container_bytes",
    "vector stores": "vector_store_bytes",
    "together": "used_bytes",
    "at most": "limit_bytes",
}


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "What files, containers and vector stores of the key's tenant take, and what they may take together."
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        storage = answer_of(http.get("/me"))["storage"]
    rows = [storage] if options.json else [{"what": what, "bytes": storage[name]} for what, name in _ROWS.items()]
    return listing(options, rows, _HEAD, _cells)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (row["what"], str(row["bytes"]), f"{row['bytes'] / 1e9:.3f}")
