"""The rules that the code is laid out by, held as tests: imports go one way, and each outside thing has one door."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from moorage.settings import unknown_variables

ROOT = Path(__file__).parents[2]
CORE = ROOT / "layers" / "core" / "python"

RANKS: list[tuple[str, tuple[str, ...]]] = [
    (
        "the ground",
        (
            *("codec", "command_hints", "dataclass", "disk", "limits", "errors", "hosts", "ids", "large_bodies", "parallel", "sealing"),
            *("settings", "telemetry", "terminal", "tracing"),
        ),
    ),
    ("the wire", ("wire",)),
    (
        "pure modules",
        (
            "state",
            "egress.policy",
            "egress.client_hello",
            "egress.trust",
            "knowledge.filters",
            "knowledge.index",
            "model.base",
            "model.content",
            "model.sequence",
            "model.tokens",
            "skills.bundle",
            "skills.curated",
            "skills.bounded_yaml",
            "skills.front_matter",
        ),
    ),
    ("transports", ("net",)),
    ("stores, model clients", ("store", "stores", "model", "files", "conversations")),
    ("the way out", ("egress", "identity")),
    ("what files are searched by", ("knowledge",)),
    ("places of sandboxes", ("sandbox",)),
    ("containers", ("containers", "skills", "terminals")),
    ("vector stores", ("vector_stores",)),
    ("what requests bring along", ("inputs", "recount")),
    ("hosted tools", ("tools",)),
    ("the runtime", ("runtime",)),
    ("the loop", ("loop", "approvals", "environments", "vaults", "webhooks")),
    ("sessions of agents", ("agents", "automations")),
    ("the API", ("api",)),
    ("the stack on one machine", ("local",)),
    ("the command line", ("cli", "__main__")),
]
"""From the bottom up. A module belongs to the entry that names it most exactly, and imports nothing from above its own rank."""

RESOURCES = (
    "agents",
    "approvals",
    "automations",
    "containers",
    "conversations",
    "environments",
    "files",
    "skills",
    "terminals",
    "vaults",
    "vector_stores",
    "webhooks",
)
"""Folders with everything about one resource."""

ROLES = {
    "shapes": "the wire",
    "event_types": "the wire",
    "store": "stores, model clients",
    "routes": "the API",
    "cli": "the command line",
}
"""The rank of a module in such a folder, where its name or the end of its name says it (``link_store``, ``upload_routes``)."""

INFRA_MAY_IMPORT = (
    "moorage.settings",
    "moorage.limits",
    "moorage.errors",
    "moorage.hosts",
    "moorage.store.keys",
    "moorage.store.object_keys",
    "moorage.store.schema",
    "moorage.wire.cross_origin",
)
"""The CDK app shares constants and sentences with the code, and no behaviour."""

PURE = ("moorage.loop.decide", "moorage.loop.assemble", "moorage.loop.context", "moorage.loop.fold", "moorage.tools.lowering")
"""Decisions and translations, though they ask the rooms of the tools, which stand higher."""

CLIENTS = {"boto3", "botocore", "httpx", "fastapi", "starlette"}
"""What a pure module has no use for."""


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(CORE).with_suffix("").parts).removesuffix(".__init__")


def nodes(path: Path, *words: str) -> list[ast.AST]:
    """All of the tree of a program that has one of the words. Trees are large, so few are made, and none is kept."""
    text = path.read_text()
    return list(ast.walk(ast.parse(text))) if any(word in text for word in words) else []


def inside(node: ast.AST) -> list[ast.AST]:
    """The statements of a module, or of a statement. Most of a tree is expressions, which are left out."""
    fields = (getattr(node, name, ()) for name in ("body", "orelse", "finalbody", "handlers", "cases"))
    return [each for field in fields if isinstance(field, list) for each in field]


def statements(node: ast.AST) -> Iterator[ast.AST]:
    for each in inside(node):
        yield each
        yield from statements(each)


@cache
def import_statements(path: Path) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Those of a file, and whether they run when it is imported: not inside of a function, and not for types alone."""
    found = list[tuple[ast.Import | ast.ImportFrom, bool]]()

    def visit(node: ast.AST, at_start: bool) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append((node, at_start))
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in names_in(node.test)
        for each in inside(node):
            visit(each, at_start and not is_function and not for_types)

    visit(ast.parse(path.read_text()), at_start=True)
    return found


@cache
def core_files() -> list[Path]:
    """The library; the scripts of curated skills are programs for a sandbox."""
    return sorted(path for path in (CORE / "moorage").rglob("*.py") if "curated_skills" not in path.parts)


@cache
def modules() -> dict[str, Path]:
    return {module_name(path): path for path in core_files()}


@cache
def imports(path: Path) -> list[str]:
    """Every module that a file imports, those inside functions included; ``from package import module`` gives the module."""
    known, found = modules(), list[str]()
    for node, _ in import_statements(path):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif node.module and not node.level:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [name if name in known else node.module for name in inner]
    return found


@cache
def rank(module: str) -> int:
    """The rank of the entry with the longest name that covers the module."""
    local = module.removeprefix("moorage.")
    folder, _, name = local.partition(".")
    for role, title in ROLES.items():
        if folder in RESOURCES and (name == role or name.endswith(f"_{role}")):
            return [title for title, _ in RANKS].index(title)
    matches = [
        (len(entry), number)
        for number, (_, entries) in enumerate(RANKS)
        for entry in entries
        if local == entry or local.startswith(entry + ".")
    ]
    assert matches, f"{module} has no rank: add it to RANKS and to ARCHITECTURE.md"
    return max(matches)[1]


def is_package(path: Path) -> bool:
    return path.name == "__init__.py"


def test_the_page_on_the_architecture_tells_the_same_order() -> None:
    told = re.search(r"^Imports go one way: `([^`]+)`", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE)
    assert told is not None
    order = [sorted(re.split(r",\s*", names.strip())) for names in told[1].split("→")]
    whole = [sorted(set(entries) - {"__main__"}) if title != "pure modules" else [title] for title, entries in RANKS]
    assert order == whole


def folders_in(parent: Path) -> set[str]:
    """What an older checkout has left, and what is made, is none of them."""
    found = (path for path in parent.iterdir() if path.is_dir() and not path.name.startswith((".", "_")))
    return {path.name for path in found if any(each.is_file() and each.suffix != ".pyc" for each in path.rglob("*"))}


def test_the_page_on_the_architecture_has_every_folder() -> None:
    rows = dict(re.findall(r"^\| `([\w/]+)` \| (.*) \|$", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE))
    made = {"dist", "cdk.out", "build"}
    assert {f"{name}/" for name in folders_in(ROOT) - made - {"layers"}} | folders_in(CORE / "moorage") == rows.keys()
    assert {name for name in folders_in(ROOT / "tests") if f"`{name}`" not in rows["tests/"]} == set()


def test_imports_go_one_way() -> None:
    wrong = [
        f"{importer} ({RANKS[rank(importer)][0]}) imports {imported} ({RANKS[rank(imported)][0]})"
        for importer, path in modules().items()
        if not is_package(path)
        for imported in imports(path)
        if imported.startswith("moorage.") and rank(imported) > rank(importer)
    ]
    assert wrong == []


def test_no_module_imports_itself_through_others() -> None:
    graph = {name: {other for other in imports(path) if other in modules()} for name, path in modules().items()}
    finished: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " -> ".join((*way, name))
        if name not in finished:
            for other in sorted(graph[name]):
                visit(other, (*way, name))
            finished.add(name)

    for name in sorted(graph):
        visit(name, ())


def test_pure_modules_know_no_clients() -> None:
    pure = [path for name, path in modules().items() if not is_package(path) and (rank(name) in (1, 2) or name in PURE)]
    assert [(str(path), name) for path in pure for name in imports(path) if name.split(".")[0] in CLIENTS] == []


def test_infra_shares_constants_only() -> None:
    wrong = [
        f"{path.name} imports {name}"
        for path in sorted((ROOT / "infra").rglob("*.py"))
        for name in imports(path)
        if name.startswith("moorage") and not name.startswith(INFRA_MAY_IMPORT)
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", ["infra", "functions", "localstack", "tests"])
def test_the_library_imports_nothing_that_is_built_on_it(folder: str) -> None:
    assert [name for path in core_files() for name in imports(path) if name.split(".")[0] == folder] == []


def test_what_runs_inside_a_sandbox_needs_nothing_but_python() -> None:
    folder = ROOT / "functions" / "sandbox"
    own = {path.stem for path in folder.rglob("*.py")} | {"functions"}
    foreign = {
        f"{path.name} imports {name}"
        for path in sorted(folder.rglob("*.py"))
        for name in imports(path)
        if name.split(".")[0] not in own | sys.stdlib_module_names
    }
    assert foreign == set()


HEAVY = {"numpy", "tokenizers", "wordllama"}
"""They take a tenth of a second to import, and few processes ever search."""


@cache
def imported_at_start(path: Path) -> set[str]:
    """What is imported together with a module: not what its functions import when they are called, and not what only types need."""
    found: set[str] = set()
    for node in [node for node, at_start in import_statements(path) if at_start]:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_what_is_heavy_is_imported_by_those_who_search() -> None:
    """The API, the steps and the command line start as quickly as without it."""
    heavy: set[str] = set(HEAVY)
    while more := {name for name, path in modules().items() if name not in heavy and heavy & imported_at_start(path)}:
        heavy |= more
    assert "moorage.knowledge.object_index" in heavy
    assert {name for name in heavy - HEAVY if not name.startswith("moorage.knowledge.")} == set()


def test_classes_are_made_by_the_quick_decorator() -> None:
    """``dataclasses.dataclass`` does the same, and is a third of what an import costs."""
    others = {
        module_name(path)
        for path in core_files()
        for node, _ in import_statements(path)
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses" and "dataclass" in {alias.name for alias in node.names}
    }
    assert others == {"moorage.dataclass"}


LINES_MAX = 800
FUNCTION_LINES_MAX = 70
"""An alarm. The rule is one noun a file: a noun is not split to meet a number."""


FOLDERS = ("layers", "functions", "infra", "localstack", "docs", "console", "requirements", "examples", "tests")


@cache
def sources() -> list[Path]:
    """All that runs, in whichever language, and what tests are made of; also programs without an ending."""
    found = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.is_file())
    own = [*sorted(ROOT.glob("*.py")), *(path for path in found if not {"node_modules", "__pycache__"} & set(path.parts))]
    return [path for path in own if path.suffix in (".py", ".js", ".mjs", ".css", ".sh") or is_script(path)]


def is_script(path: Path) -> bool:
    return not path.suffix and path.read_bytes()[:2] == b"#!"


@cache
def programs() -> list[Path]:
    return [path for path in sources() if path.suffix == ".py" or (is_script(path) and "python" in path.read_text().partition("\n")[0])]


def test_no_file_is_longer_than_one_reads_at_a_sitting() -> None:
    lengths = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in sources()}
    assert {path: lines for path, lines in lengths.items() if lines > LINES_MAX} == {}


def test_the_sizes_of_all_kinds_of_programs_are_looked_at() -> None:
    names = {str(path.relative_to(ROOT)) for path in sources()}
    assert {
        "hatch_build.py",
        "console/fetch.py",
        "docs/parameters.py",
        "functions/sandbox/bin/moorage-text",
        "infra/stacks.py",
        "layers/core/python/moorage/console/main.js",
        "layers/core/python/moorage/skills/curated_skills/reports/scripts/report.py",
        "localstack/system_packages.sh",
        "tests/contract/test_architecture.py",
    } <= names


_OPENS = re.compile(r"(?:export )?(?:default )?(?:async )?(?:function|const (?=.*=> [{(]$))[* ]*(\w+)")
"""A function of a module of the console begins at the margin, and so does the line that ends it."""


def test_no_function_of_the_console_is_longer_than_a_screen() -> None:
    wrong = {}
    for path in sources():
        name, began = "", 0
        for number, line in enumerate(path.read_text().splitlines() if path.suffix in (".js", ".mjs") else []):
            if opened := _OPENS.match(line):
                name, began = opened[1], number
            elif name and line[:1] in ("}", ")"):
                if number - began >= FUNCTION_LINES_MAX:
                    wrong[f"{path.relative_to(ROOT)}: {name}"] = number - began + 1
                name = ""
    assert wrong == {}


def test_no_function_is_longer_than_a_screen() -> None:
    wrong = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in programs()
        for node in statements(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX
    }
    assert wrong == set()


def reads_environment(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ("environ", "getenv", "environb") and isinstance(node.value, ast.Name) and node.value.id == "os"
    return isinstance(node, ast.ImportFrom) and node.module == "os" and any(a.name in ("environ", "getenv") for a in node.names)


def test_the_environment_has_one_reader() -> None:
    readers = {
        f"{module_name(path)}:{getattr(node, 'lineno', 0)}"
        for path in core_files()
        for node in nodes(path, "import os", "from os")
        if "/local/" not in path.as_posix() and reads_environment(node)
    }
    assert {reader for reader in readers if not reader.startswith("moorage.settings:")} == set()


OWN_CLIENTS = {
    "functions/custom_resource/handler.py": "runs at a deployment, without the library",
    "functions/egress_proxy/main.py": "says no after a few seconds",
}
"""Which functions make their clients of AWS with time limits of their own."""


def test_functions_make_their_clients_of_aws_in_one_way() -> None:
    makers = {
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "functions").rglob("*.py"))
        for node in nodes(path, "boto3")
        if isinstance(node, ast.Attribute) and node.attr == "client" and isinstance(node.value, ast.Name) and node.value.id == "boto3"
    }
    assert makers == OWN_CLIENTS.keys()


def names_in(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} | {
        inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)
    }


def test_no_code_asks_where_it_runs() -> None:
    """One code path: endpoints and the provisioner differ between a laptop and AWS, and nothing else."""
    places = {"local", "is_local", "LOCAL", "is_aws", "on_aws", "is_lambda", "embedded", "is_embedded"}
    asks = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in [*core_files(), *sorted((ROOT / "functions").rglob("*.py"))]
        if "/cli/" not in path.as_posix()  # the operator's command speaks to both, and says which
        for node in nodes(path, *places)
        if isinstance(node, ast.If | ast.IfExp) and names_in(node.test) & places
    }
    assert asks == set()


def writes_out(call: ast.Call) -> bool:
    """``print(...)``, or ``write`` of one of the process's own streams."""
    return ast.unparse(call.func) in ("print", "sys.stdout.write", "sys.stderr.write")


def test_text_reaches_a_terminal_through_one_door() -> None:
    """What others say could be control codes; ``terminal.say`` shows them."""
    prints = [
        f"{module_name(path)}:{node.lineno}"
        for path in core_files()
        if path.name != "terminal.py"
        for node in nodes(path, "print(", ".write(")
        if isinstance(node, ast.Call) and writes_out(node)
    ]
    assert prints == []


def test_every_variable_of_ours_is_known_so_that_a_mistyped_one_is_named() -> None:
    """``MOORAGE_SECRET_*`` and ``MOORAGE_SANDBOX_CONFIG`` are set inside sandboxes, for sandboxes."""
    named = {
        node.value
        for path in core_files()
        for node in nodes(path, "MOORAGE_")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"MOORAGE_[A-Z_]*[A-Z]", node.value)
    }
    assert {name for name in unknown_variables(dict.fromkeys(named, "")) if "MOORAGE_SANDBOX_CONFIG" not in name} == set()
    environ = {"MOORAGE_UPSTREAM_URI": "x", "MOORAGE_FARGATE_CLUSTER": "x", "MOORAGE_MY_KEY": "x"}
    said = unknown_variables(environ, 'key = "env:MOORAGE_MY_KEY"')
    assert said == ["MOORAGE_UPSTREAM_URI is no setting; MOORAGE_UPSTREAM_URL is."]
