"""YAML of strangers, in bounded time."""

from typing import Any, Final

import yaml

_NESTING_MAX: Final = 20
"""Brackets within brackets. PyYAML's scanner looks at each open one for every token, which makes 16,384 of them a matter of half a
minute."""


class NotYaml(Exception):
    """The text cannot be read."""

    def __init__(self, line: int, problem: str) -> None:
        """``line`` counts from 1; 0 if the place is not known."""
        super().__init__(problem)
        self.line = line
        self.problem = problem


class _Loader(yaml.SafeLoader):
    def fetch_flow_collection_start(self, TokenClass: Any) -> None:
        if self.flow_level >= _NESTING_MAX:
            raise yaml.scanner.ScannerError(None, None, f"brackets are nested more than {_NESTING_MAX} deep", self.get_mark())
        super().fetch_flow_collection_start(TokenClass)


def load(text: str) -> Any:
    """The value of a document. Raises :class:`NotYaml`."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise NotYaml(0 if mark is None else mark.line + 1, str(error.problem)) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise NotYaml(0, str(error)) from error
