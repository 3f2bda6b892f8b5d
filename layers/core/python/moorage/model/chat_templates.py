"""What the chat template behind a Chat Completions server takes.

Servers of open models (vLLM, llama.cpp, SGLang, Ollama) hand the messages to a template that came with the model. Templates raise at
what they do not know, or pass over it without a word: a second system message, two messages of one role in a row, a call's id of more
than nine characters, text beside a call, ``null``. What nearly all of them take is how every request is written
(``chat_messages.py``): one system message at the start, later ones as marked text of the user's, contents that are strings, nine
alphanumeric characters as ids. What only some want stands here, by family; the family is told by the upstream model's name, or by
``template`` in ``models.toml`` if the server was given another name.

The facts were read off the templates that llama.cpp collects (``models/templates``), which ``tests/templates`` renders.
"""

import fnmatch
import re
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Literal

from moorage.dataclass import dataclass

Calls = Literal["together", "single", "written"]
"""``together``: the calls of one turn in one message; ``single``: each in a message of its own, followed by its output, because the
template takes one call a message; ``written``: as text, because the template leaves calls out."""

Family = Literal[
    "generic",
    "mistral",
    "ministral",
    "mistral-nemo",
    "gemma",
    "one-call",
    "text-or-calls",
    "text-or-one-call",
    "written-calls",
    "no-tools",
]


@dataclass(frozen=True, slots=True)
class Template:
    folds_system: bool = False
    """It knows no system role: what the system says begins the first message of the user's."""
    alternates: bool = False
    """User and assistant take turns, calls and their outputs not counted, and the user begins."""
    calls: Calls = "together"
    keeps_text_beside_calls: bool = True
    knows_tools: bool = True
    """False: tools are described in the system message, and a call is recognised in what the model writes."""


FAMILIES: Final = MappingProxyType[Family, Template](
    {
        "generic": Template(),
        "mistral": Template(alternates=True, keeps_text_beside_calls=False),
        "ministral": Template(alternates=True),
        "mistral-nemo": Template(folds_system=True, alternates=True, keeps_text_beside_calls=False),
        "gemma": Template(folds_system=True, alternates=True, calls="written", knows_tools=False),
        "one-call": Template(calls="single"),
        "text-or-calls": Template(keeps_text_beside_calls=False),
        "text-or-one-call": Template(calls="single", keeps_text_beside_calls=False),
        "written-calls": Template(calls="written"),
        "no-tools": Template(calls="written", knows_tools=False),
    }
)

_NAMES: Final[tuple[tuple[str, Family], ...]] = (
    ("mistral-nemo", "mistral-nemo"),  # Shows the system message with the last user message only, and none after a call.
    ("ministral", "ministral"),
    ("devstral", "ministral"),
    ("magistral", "ministral"),
    ("*stral", "mistral"),
    ("mixtral", "mistral"),
    ("gemma-[123]", "gemma"),
    ("gemma[123]", "gemma"),
    ("llama-3", "text-or-one-call"),
    ("llama3", "text-or-one-call"),
    ("gpt-oss", "text-or-one-call"),
    ("gigachat", "one-call"),
    ("command-", "text-or-calls"),
    ("cohere", "text-or-calls"),
    ("hermes-[23]", "text-or-calls"),
    ("minimax-m1", "text-or-calls"),
    ("solar-open", "text-or-calls"),
    ("muse-glimmer", "text-or-calls"),
    ("smollm3", "no-tools"),
    ("lfm2", "written-calls"),
    ("granite-3", "written-calls"),
    ("deepseek-r1-0528", "generic"),
    ("deepseek-r1", "no-tools"),
    ("phi-3", "no-tools"),
    ("rwkv", "no-tools"),
)


_WITHOUT_TOOLS: Final[dict[str, Any]] = {"calls": "written", "knows_tools": False}
_COMPLAINTS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("system (role|message)s? (is |are )?not supported|does(n't| not) support (the )?system", {"folds_system": True}),
    ("roles must alternate", {"alternates": True, "keeps_text_beside_calls": False}),
    ("only supports? single tool.?calls?|one tool.?call at (a time|once)", {"calls": "single"}),
    ("tools? (role|message|call)s? (is |are )?not supported|only user.{0,20}assistant roles", _WITHOUT_TOOLS),
)
"""What templates say, and what they then take."""


def after_complaint(template: Template, message: str) -> Template | None:
    """The template as the upstream's refusal makes it look; None if the refusal is about something else, or that was tried."""
    for words, facts in _COMPLAINTS:
        if re.search(words, message, re.IGNORECASE):
            known = replace(template, **facts)
            if known == template and template.alternates and template.knows_tools:
                known = replace(template, **_WITHOUT_TOOLS)  # It counts calls and outputs too.
            if known != template:
                return known
    return None


@lru_cache(maxsize=256)
def family_of(upstream_model: str) -> Family:
    """The family that a model's name tells: ``hub.example/mistralai/Mistral-Nemo-Instruct-2407`` as much as ``mistral-nemo:12b``."""
    name = upstream_model.lower().replace("_", "-")
    return next((family for pattern, family in _NAMES if fnmatch.fnmatchcase(name, f"*{pattern}*")), "generic")
