"""``moorage models``: which names a request may use."""

import argparse
from collections.abc import Mapping

from moorage.cli.output import add_json, listing
from moorage.cli.target import answer_of, find


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.description = "List the models of the deployment."
    add_json(parser)
    parser.set_defaults(run=_list)


def _list(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        models = answer_of(http.get("/models"))["data"]
    return listing(options, models, ("MODEL", "OWNER"), lambda model: (model["id"], model["owned_by"]))
