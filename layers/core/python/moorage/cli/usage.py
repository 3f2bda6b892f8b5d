"""``moorage usage``: what the tenant has used, by day, model, key or tool."""

import argparse
from collections.abc import Mapping
from typing import Any

from moorage.cli.output import add_json, listing
from moorage.cli.target import answer_of, find

_GROUPS = ("day", "model", "key", "tool")
_TOKENS = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "embedding_tokens")
_COUNTED = ("responses", "tool_calls", *_TOKENS, "cost_usd")


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "Responses, calls and tokens of the key's tenant, added up. What was not stored (store: false) is not counted."
    parser.add_argument("--by", choices=_GROUPS, default="day", help="what to add up by; by default the day (UTC)")
    parser.add_argument("--from", dest="since", metavar="DAY", help="2026-11-01; by default 30 days ago")
    parser.add_argument("--to", dest="until", metavar="DAY", help="2026-11-30; by default today")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    query = {"group_by": options.by, "from": options.since, "to": options.until}
    with find(environ).http() as http:
        groups = answer_of(http.get("/usage", params={name: value for name, value in query.items() if value}))["data"]
    head = (options.by.upper(), *(name.upper().replace("_", " ") for name in _COUNTED), "FAILED")
    return listing(options, groups, head, _cells)


def _cells(group: dict[str, Any]) -> tuple[str, ...]:
    counted = group | {"embedding_tokens": group.get("embeddings", {}).get("tokens", "")}
    return (group["id"], *(str(counted.get(name, "")) for name in _COUNTED), str(group["by_status"].get("failed", 0)))
