"""What the documentation names is there: links, make targets, commands, variables, files; and its TOML and JSON can be read."""

import argparse
import json
import re
import shlex
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import botocore.session
import pytest
from botocore import xform_name
from moorage import limits
from moorage.cli.main import command_line
from moorage.model.catalog import ModelCatalog
from moorage.settings import VARIABLES

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY")),
    *(ROOT / folder / "README.md" for folder in ("localstack", "functions/sandbox", "examples")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_TARGET = re.compile(r"\bmake ([a-z][a-z-]*)\b")
_VARIABLE = re.compile(r"\bMOORAGE_[A-Z_]*[A-Z]\b")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FOLDERS = (
    "functions|infra|layers|localstack|tests|requirements|docs|console|"
    "agents|api|approvals|cli|containers|conversations|egress|environments|errors|files|knowledge|limits|local|loop|model|net|sandbox|skills|store|terminals|tools|vaults|vector_stores|webhooks|wire"
)
_FILE = re.compile(rf"`((?:{_FOLDERS})/[\w./]+)`")

parametrize_pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def code_text() -> str:
    """Every program of the project in one string."""
    folders = ("functions", "infra", "layers", "localstack", "tests/bench", "tests/conformance", "tests/clients")
    programs = [path for folder in folders for ending in ("py", "sh", "toml", "yaml") for path in (ROOT / folder).rglob(f"*.{ending}")]
    return "\n".join(path.read_text() for path in [ROOT / "Makefile", *programs])


def code_spans(text: str) -> str:
    """What stands between backticks or in code blocks: commands, not sentences that hold the word 'make'."""
    return "\n".join(["\n".join(block for _, block in _BLOCK.findall(text)), *re.findall(r"`([^`\n]+)`", text)])


@parametrize_pages
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    targets = [target.split("#")[0] for target in _LINK.findall(page.read_text()) if "://" not in target]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


def anchors(page: Path) -> set[str]:
    """What a link may name behind ``#``: the headings, as they are shown by whoever shows Markdown."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@parametrize_pages
def test_every_link_to_a_heading_leads_to_one(page: Path) -> None:
    links = [target.partition("#") for target in _LINK.findall(page.read_text()) if "://" not in target and "#" in target]
    assert [(path, heading) for path, _, heading in links if heading not in anchors(page.parent / path if path else page)] == []


@parametrize_pages
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(_TARGET.findall(code_spans(page.read_text()))) - targets == set()


def test_make_alone_explains_every_target() -> None:
    said = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    explained = re.findall(r"^make ([a-z-]+)  +\S", said, re.MULTILINE)
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    assert set(phony[1].replace("\\\n", " ").split()) - {"help"} == set(explained)
    assert [line for line in said.splitlines() if line and not line.startswith("make ")] == []


@parametrize_pages
def test_every_file_of_ours_that_is_named_exists(page: Path) -> None:
    core = ROOT / "layers" / "core" / "python" / "moorage"
    names = [name.rstrip("./") for name in _FILE.findall(page.read_text())]
    assert [name for name in names if not any((base / name).exists() for base in (ROOT, core, page.parent))] == []


@cache
def names_of_tests() -> set[str]:
    """Of their files and of their functions."""
    tests = list((ROOT / "tests").rglob("test_*.py"))
    return {path.stem for path in tests} | set(re.findall(r"def (test_\w+)", "\n".join(path.read_text() for path in tests)))


@parametrize_pages
def test_every_test_that_is_named_is_there(page: Path) -> None:
    named = set(re.findall(r"\b(test_\w+)", " ".join(re.findall(r"`([^`\n]+)`", page.read_text())))) - {"test_"}
    assert named - names_of_tests() == set()


def test_every_variable_that_is_named_is_read_by_a_program() -> None:
    named = {name for page in PAGES for name in _VARIABLE.findall(page.read_text())}
    text = code_text()
    assert {name for name in named - VARIABLES.keys() if name not in text} == set()


@parametrize_pages
def test_toml_and_json_can_be_read(page: Path) -> None:
    for kind, block in _BLOCK.findall(page.read_text()):
        match kind:
            case "json":
                json.loads(block)
            case "toml":
                tomllib.loads(block)


def test_each_models_file_of_the_documentation_is_accepted(tmp_path: Path) -> None:
    blocks = [block for kind, block in _BLOCK.findall((ROOT / "docs" / "models.md").read_text()) if kind == "toml"]
    path = tmp_path / "models.toml"
    for block in blocks:
        path.write_text(block)
        names = [entry["name"].replace("*", "any") for entry in tomllib.loads(block)["models"]]
        catalog = ModelCatalog.load(path, {"OPENAI_API_KEY": "sk-test", "AWS_REGION": "us-east-1"}, secret=lambda _: "secret")
        assert [catalog.resolve(name).name for name in names] == names


def test_the_recipes_for_contributors_name_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = [path for path in re.findall(r"`([\w./]+/[\w.]+\.\w+|[\w/]+/)`", text) if "<" not in path]
    homes = (ROOT, ROOT / "layers" / "core" / "python" / "moorage")
    assert len(named) > 25
    assert [path for path in named if not any((home / path).exists() for home in homes)] == []
    assert len(text.splitlines()) < 90, "one page"


EXAMPLES: dict[str, tuple[str, set[str]]] = {
    "A model provider": (
        "BedrockConverse",
        {"model/bedrock_converse.py", "tests/unit/model/test_catalog.py", "tests/unit/model/test_sigv4.py"},
    ),
    "A hosted tool": (
        "image_generation_call",
        {
            *("model/openai_responses.py", "tools/image_generation/sources.py", "tests/unit/model/test_lowering.py"),
            *("tests/unit/loop/test_image_generation.py", "tests/unit/loop/test_images_over_the_api.py"),
        },
    ),
    "A record": ("vault(tenant_id", set()),
    "A route": ('{webhook_endpoint_id}/deliveries"', set()),
    "A request parameter": ("prompt_cache_retention", {"wire/chat.py", "tests/unit/wire/test_requests.py"}),
    "A field of a resource": ("signing_secret_hint", {"tests/unit/api/test_webhooks.py"}),
    "A setting": ("automations_max", {"stores.py"}),
}
"""A name for each recipe, and the files beside those of the recipe that have it: the example's own, and those that only use it."""


@pytest.mark.parametrize("recipe", EXAMPLES)
def test_a_recipe_names_each_file_of_its_example(recipe: str) -> None:
    example, users = EXAMPLES[recipe]
    text = re.search(rf"^\*\*{recipe}\.\*\*(.*?)(?=^\*\*|\Z)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL)
    assert text is not None
    named = re.findall(r"`([\w./]+)`", text[1])
    core = ROOT / "layers" / "core" / "python" / "moorage"
    folders = (core, *(ROOT / name for name in ("infra", "docs", "tests/contract", "tests/unit", "tests/infra")))
    files = (path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".toml") and path != Path(__file__))
    holding = [path.relative_to(core if core in path.parents else ROOT) for path in files if example in path.read_text()]
    unnamed = {str(path) for path in holding if not any(name in (str(path), path.name) or f"{path.parent}/" == name for name in named)}
    assert unnamed == users


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 900


def test_the_page_on_the_architecture_can_be_read_at_a_sitting() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    terms = re.findall(r"^\| ([^|]+) \|", text.partition("## Glossary")[2], re.MULTILINE)[1:]
    assert len(text.split()) <= 2_000
    assert 30 <= len(terms) <= 40
    assert len(set(terms)) == len(terms)


def test_each_decision_is_dated_and_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    pages = sorted(folder.glob("[0-9]*.md"))
    row = re.compile(r"^\| (\d{3}) \| (\S+) \| \[(.+)\]\((\d{3})(-[a-z0-9-]+\.md)\) \|$", re.MULTILINE)
    rows = row.findall((folder / "README.md").read_text())
    listed = [(number + name, f"# {title}\n\nDecided on {date}.\n") for number, date, title, _, name in rows]
    assert listed == [(page.name, "".join(page.read_text().splitlines(keepends=True)[:3])) for page in pages]
    assert [name[:3] for name, _ in listed] == [f"{number:03}" for number in range(1, len(pages) + 1)]


def aws_commands(text: str) -> list[list[str]]:
    """The commands of the AWS CLI in code blocks, in words, but for the file commands of ``aws s3``, which are no operations."""
    blocks = "\n".join(block for _, block in _BLOCK.findall(text)).replace("\\\n", " ")
    found = [shlex.split(line, comments=True)[1:] for line in re.findall(r"^\$ (aws .*)$", blocks, re.MULTILINE)]
    return [words for words in found if words[0] != "s3"]


@parametrize_pages
def test_every_aws_command_is_one_that_botocore_knows(page: Path) -> None:
    for service, operation, *words in aws_commands(page.read_text()):
        if operation == "wait":
            continue
        model = botocore.session.get_session().get_service_model(service)
        known = {xform_name(name, "-"): name for name in model.operation_names}
        assert operation in known, f"aws {service} {operation}"
        shape = model.operation_model(known[operation]).input_shape
        members = {xform_name(name, "-") for name in shape.members} if shape is not None else set()
        options = {word.removeprefix("--") for word in words if word.startswith("--")} - {"query"}
        assert options <= members, f"aws {service} {operation}: {options - members}"


def test_the_checklist_for_an_account_has_commands_to_check() -> None:
    assert len(aws_commands((ROOT / "docs" / "aws_tests.md").read_text())) > 6


@parametrize_pages
def test_a_deployment_begins_with_a_setup_that_needs_no_linux(page: Path) -> None:
    """``make setup`` and ``make setup-dev`` ask for bubblewrap, and end with an error where there is none."""
    blocks = [block for _, block in _BLOCK.findall(page.read_text())]
    targets = [re.findall(r"^(?:\$ )?make (setup[a-z-]*|bootstrap|deploy)\b", block, re.MULTILINE) for block in blocks]
    assert {each[0] for each in targets if "bootstrap" in each and each[0] != "bootstrap"} <= {"setup-deploy"}


def commands_of_ours(text: str) -> set[tuple[str, ...]]:
    """What is typed behind ``moorage``: in code blocks at the beginning of a line or behind ``&&``, and between backticks."""
    lines = [re.sub(r"^\$ ", "", line) for line in code_spans(text).replace("\\\n", " ").splitlines()]
    typed = (re.search(r"^(?:.* (?:&&|--from \S+) )?(?:\.venv/bin/)?moorage ([a-z-].*)$", line) for line in lines)
    return {tuple(re.sub(r"[|;#&].*", "", found[1]).split()) for found in typed if found}


def parser_of(words: tuple[str, ...]) -> argparse.ArgumentParser:
    """The parser that answers for these words. Raises for a command or an action that there is not."""
    parser, rest = command_line(words[0]), list(words)
    while rest and (below := [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]):
        if "|" in rest[0] or not re.fullmatch("[a-z][a-z-]*", rest[0]):
            break
        parser = below[0].choices[rest.pop(0)]
    return parser


@parametrize_pages
def test_every_command_of_ours_is_one_that_there_is(page: Path) -> None:
    named = commands_of_ours(page.read_text())
    options = {words: set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", " ".join(words).partition(" -- ")[0])) for words in named}
    assert {words: missing for words in named if (missing := options[words] - parser_of(words)._option_string_actions.keys())} == {}


def test_the_readme_has_commands_to_check() -> None:
    assert {"keys", "doctor", "console", "service"} <= {words[0] for words in commands_of_ours((ROOT / "README.md").read_text())}


def test_the_bounds_that_protect_the_api_are_those_of_the_code() -> None:
    page = (ROOT / "SECURITY.md").read_text()
    told = [
        f"| line and headers of a request | {limits.HEAD_BYTES_MAX // limits.KIB} KiB |",
        f"| time for them, from the connection on | {limits.HEAD_SECONDS_MAX} seconds |",
        f"| an idle connection | {limits.KEEP_ALIVE_IDLE_SECONDS} seconds |",
        f"| a body | {limits.REQUEST_BODY_BYTES_MAX // limits.MIB} MiB, packed or not |",
        f"| WebSockets of a key, in each process | {limits.WEBSOCKETS_PER_KEY_MAX} |",
        f"| responses of a tenant that run at once | {limits.RUNNING_RESPONSES_MAX} |",
        f"| bytes that a tenant stores in files, containers and vector stores | {limits.STORED_BYTES_MAX // 10**9:,} GB |",
        f"| vector stores of a tenant whose files are read at once | {limits.INDEXING_TENANT_MAX} |",
        f"| checks of grammars at once, in each process | {limits.GRAMMAR_CHECKS_MAX} |",
    ]
    assert [line for line in told if line not in page] == []
    for path in re.findall(r"`(tests/[^`]+\.py)`", page):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", [page for page in PAGES if "\n## Agents SDK\n" in page.read_text()], ids=str)
def test_the_agents_sdk_is_told_first_to_send_no_traces_with_our_key(page: Path) -> None:
    section = page.read_text().partition("\n## Agents SDK\n")[2].partition("\n## ")[0].strip()
    assert section.startswith(("The SDK sends traces to OpenAI", "The Agents SDK sends traces to OpenAI"))
    assert "OPENAI_AGENTS_DISABLE_TRACING=1" in section
