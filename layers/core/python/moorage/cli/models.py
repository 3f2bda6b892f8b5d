"""``moorage models``: which names a request may use."""

import argparse
from collections.abc import Mapping
from typing import Any

from moorage.cli.show import table
from moorage.cli.target import answer_of, find


def add_to(commands: Any) -> None:
    commands.add_parser("models", help="list the models of the deployment").set_defaults(run=_list)


def _list(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    with find(environ).http() as http:
        listed = answer_of(http.get("/models"))["data"]
    print(table(("MODEL", "OWNER"), [(model["id"], model["owned_by"]) for model in listed]))
    return 0
