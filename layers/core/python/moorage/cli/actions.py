"""The actions of a command, such as ``list`` and ``delete`` of ``moorage files``."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from moorage.cli.output import add_json

Run = Callable[[argparse.Namespace, Mapping[str, str]], int]
"""Options and environment; returns the exit code."""


class CommandActions:
    def __init__(self, parser: argparse.ArgumentParser, default: Run | None = None) -> None:
        """``default`` runs without an action; None makes the action required."""
        self._has_default = default is not None
        if default is not None:
            add_json(parser)
            parser.set_defaults(run=default)
        self._parsers = parser.add_subparsers(metavar="ACTION", required=default is None)

    def add(self, name: str, run: Run, does: str, **defaults: Any) -> argparse.ArgumentParser:
        """An action with ``--json``; ``does`` is its line of help, and ``defaults`` are options without an argument."""
        parser = self._parsers.add_parser(name, help=does)
        add_json(parser, is_inherited=self._has_default)
        parser.set_defaults(run=run, **defaults)
        return parser

    def add_plain(self, name: str, does: str) -> argparse.ArgumentParser:
        """An action that sets its own options."""
        return self._parsers.add_parser(name, help=does)
