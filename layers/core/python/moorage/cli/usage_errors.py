"""A parser that names the command of a wrong use, and the meant word."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn


class CommandParser(argparse.ArgumentParser):
    """Its subcommands are of its kind, so each answers for its own unknown words; argparse lets the outermost do that."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:  # type: ignore[override]
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown)
        return options, unknown

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        from moorage.settings import nearest

        name = unknown[0].partition("=")[0]
        if name.startswith("-"):
            self.error(f"{name} is no option of '{self.prog}'{nearest(name, self._option_string_actions)}.")
        self.error(f"'{self.prog}' takes no further argument: {' '.join(unknown)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        from moorage.settings import nearest

        known = list(action.choices)
        near = (nearest(value, known) if isinstance(value, str) else "") or f"; these are: {', '.join(map(str, known))}"
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"'{value}' is no command of '{self.prog}'{near}.")
        raise argparse.ArgumentError(action, f"'{value}' is not known{near}.")

    def error(self, message: str) -> NoReturn:
        from moorage.command_hints import typed_here

        super().error(f"{message}\n" + typed_here(f"'{self.prog} --help' says what there is."))
