"""``/console/`` and its keys: files for anybody, and for what they show a key that a code is exchanged for once."""

import gzip
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI
from moorage import limits
from moorage.api.app import create_app
from moorage.api.console import POLICY, Console
from moorage.api.routers import ROUTERS
from moorage.store.api_keys import ApiKeys
from moorage.store.console_codes import ConsoleCodes

from tests.unit.loop.lab import Lab

# --- the files ---


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    own, vendor = tmp_path / "console", tmp_path / "vendor"
    (own / "pages").mkdir(parents=True)
    vendor.mkdir()
    (own / "index.html").write_text('<link href="{{assets}}/app.css">{{preloads}}<script src="{{assets}}/main.js"></script>')
    (own / "main.js").write_text("import './pages/runs.js';\n" * 100)
    (own / "pages" / "runs.js").write_text("export const Runs = 1;\n")
    (own / "app.css").write_text("body {}\n")
    (own / "notes.txt").write_text("not served\n")
    (vendor / "preact.js").write_text("export {};\n")
    (vendor / "LICENSES.txt").write_text("MIT\n")
    return own, vendor


async def ask(console: Console, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    app = FastAPI()
    console.add_to(app)
    transport = httpx.ASGITransport(app)
    sent = {name.replace("_", "-"): value for name, value in {"accept_encoding": "", **headers}.items()}
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as http:
        return await http.request(method, path, headers=sent)


async def named_in(console: Console) -> str:
    """The address of ``main.js``, as the page has it."""
    return (await ask(console, "/console/")).text.split('<script src="')[1].split('"')[0]


async def test_the_page_names_its_files_by_what_they_hold(folders: tuple[Path, Path]) -> None:
    own, vendor = folders
    before = await named_in(Console(own, [vendor]))
    (own / "pages" / "runs.js").write_text("export const Runs = 2;\n")
    after = await named_in(Console(own, [vendor]))
    assert before.startswith("a/")
    assert before.split("/")[2:] == after.split("/")[2:] == ["main.js"]
    assert before != after


async def test_files_are_kept_for_ever_and_the_page_that_names_them_is_asked_for_anew(folders: tuple[Path, Path]) -> None:
    console = Console(folders[0], folders[1:])
    page = await ask(console, "/console/")
    assert (page.status_code, page.headers["cache-control"]) == (200, "no-cache")
    again = await ask(console, "/console/", if_none_match=page.headers["etag"])
    assert (again.status_code, again.content) == (304, b"")
    file = await ask(console, f"/console/{await named_in(console)}")
    assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert file.headers["content-type"] == "text/javascript; charset=utf-8"


async def test_a_page_from_before_an_upgrade_gets_new_files_uncached(folders: tuple[Path, Path]) -> None:
    answer = await ask(Console(folders[0], folders[1:]), "/console/a/0123456789abcdef/main.js")
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")


async def test_what_can_be_packed_is_packed(folders: tuple[Path, Path]) -> None:
    console = Console(folders[0], folders[1:])
    path = f"/console/{await named_in(console)}"
    plain, packed = await ask(console, path), await ask(console, path, accept_encoding="br, gzip")
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.text == plain.text
    assert int(packed.headers["content-length"]) == len(gzip.compress(plain.content, mtime=0)) < len(plain.content)


@pytest.mark.parametrize(
    "path",
    ["notes.txt", "a/x/notes.txt", "a/x/../../../etc/passwd", "a/x/%2e%2e/index.html", "a/x/", "main.js", "a/x/vendor", "a/x//main.js"],
)
async def test_nothing_else_is_served(folders: tuple[Path, Path], path: str) -> None:
    lab = Lab()
    app = create_app(lab.runtime, ROUTERS)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as http:
        assert (await http.get(f"/console/{path}")).status_code in (401, 404, 503)


async def test_licences_come_along(folders: tuple[Path, Path]) -> None:
    console = Console(folders[0], folders[1:])
    digest = (await named_in(console)).split("/")[1]
    assert (await ask(console, f"/console/a/{digest}/vendor/LICENSES.txt")).text == "MIT\n"


async def test_every_answer_has_the_policy_that_lets_nothing_in(folders: tuple[Path, Path]) -> None:
    console = Console(folders[0], folders[1:])
    for path in ("/console/", f"/console/{await named_in(console)}"):
        headers = (await ask(console, path)).headers
        assert headers["content-security-policy"] == POLICY
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';")


async def test_the_address_without_its_slash_leads_there_by_a_relative_one(folders: tuple[Path, Path]) -> None:
    answer = await ask(Console(folders[0], folders[1:]), "/console")
    assert (answer.status_code, answer.headers["location"]) == (308, "console/index.html")


async def test_without_its_libraries_it_says_which_command_fetches_them(folders: tuple[Path, Path], tmp_path: Path) -> None:
    answer = await ask(Console(folders[0], [tmp_path / "none"]), "/console/")
    assert answer.status_code == 503
    assert "make setup" in answer.text
    assert answer.headers["cache-control"] == "no-store"


async def test_the_page_and_errors_name_the_command_as_the_stacks_owner_types_it(folders: tuple[Path, Path]) -> None:
    own, vendor = folders
    (own / "index.html").write_text('<meta name="moorage-command" content="{{command}}"><p>\'moorage ls\' shows it.</p>')
    page = await ask(Console(own, [vendor], "'a <b>/bin/moorage'"), "/console/")
    assert page.text == (
        '<meta name="moorage-command" content="&#x27;a &lt;b&gt;/bin/moorage&#x27;">'
        "<p>'&#x27;a &lt;b&gt;/bin/moorage&#x27; ls' shows it.</p>"
    )
    lab = Lab()
    lab.runtime.command = ".venv/bin/moorage"
    app = create_app(lab.runtime, ROUTERS)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as http:
        refused = (await http.get("/v1/models")).json()["error"]["message"]
        welcome = (await http.get("/")).text
    assert "'.venv/bin/moorage keys create' makes one." in refused
    assert "'.venv/bin/moorage console' opens it." in welcome


async def test_it_needs_no_key_and_takes_no_other_method() -> None:
    lab = Lab()
    app = create_app(lab.runtime, ROUTERS)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as http:
        assert (await http.get("/console/")).status_code in (200, 503)
        assert (await http.post("/console/")).status_code == 405
        assert (await http.get("/consolation")).status_code == 401
        assert (await http.get("/v1/me")).status_code == 401


# --- its keys ---


@dataclass
class Deployment:
    lab: Lab
    keys: ApiKeys
    key: str

    @classmethod
    async def made(cls) -> "Deployment":
        lab = Lab()
        keys = ApiKeys(cast("Any", lab.table), clock=lambda: lab.now)
        lab.runtime.identity = replace(lab.runtime.identity, api_keys=keys)
        _, key = await keys.create("acme", name="laptop")
        return cls(lab, keys, key)

    async def code(self, *, reads_only: bool = False) -> str:
        code = await self.codes.make(self.key, reads_only=reads_only)
        assert code is not None
        return code

    @property
    def codes(self) -> ConsoleCodes:
        return ConsoleCodes(cast("Any", self.lab.table), self.keys, lambda: self.lab.now)

    async def ask(self, method: str, path: str, by: str, body: Any = None) -> httpx.Response:
        app = create_app(self.lab.runtime, ROUTERS)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api/v1") as http:
            return await http.request(method, path, headers={"authorization": f"Bearer {by}"}, json=body)

    async def session(self, **options: bool) -> str:
        answer = await self.ask("POST", "/console/session", await self.code(**options))
        assert answer.status_code == 200, answer.text
        return str(answer.json()["key"])


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_code_is_exchanged_once_for_a_key_of_its_own() -> None:
    deployment = await Deployment.made()
    code = await deployment.code()
    first, second = [await deployment.ask("POST", "/console/session", code) for _ in range(2)]
    assert first.json() == {"object": "console.session", "key": first.json()["key"]}
    assert first.json()["key"] not in (code, deployment.key)
    assert code_of(second) == (401, "invalid_api_key")
    me = (await deployment.ask("GET", "/me", first.json()["key"])).json()
    own = (await deployment.ask("GET", "/me", deployment.key)).json()
    assert (me["tenant"], me["key"]["id"]) == ("acme", own["key"]["id"])
    assert me["key"]["expires_at"] == deployment.lab.now + limits.CONSOLE_SECONDS


async def test_a_code_opens_nothing_else() -> None:
    deployment = await Deployment.made()
    code = await deployment.code()
    assert code_of(await deployment.ask("GET", "/me", code)) == (403, "one_time_code")
    assert code_of(await deployment.ask("POST", "/responses", code, {})) == (403, "one_time_code")


async def test_a_key_is_no_code() -> None:
    deployment = await Deployment.made()
    answer = await deployment.ask("POST", "/console/session", deployment.key)
    assert answer.status_code == 400


async def test_a_code_runs_out_and_so_does_the_key() -> None:
    deployment = await Deployment.made()
    code, key = await deployment.code(), await deployment.session()
    deployment.lab.now += limits.CONSOLE_CODE_SECONDS
    assert code_of(await deployment.ask("POST", "/console/session", code)) == (401, "invalid_api_key")
    assert (await deployment.ask("GET", "/me", key)).status_code == 200
    deployment.lab.now += limits.CONSOLE_SECONDS
    assert code_of(await deployment.ask("GET", "/me", key)) == (401, "invalid_api_key")


async def test_a_consoles_key_ends_with_the_one_that_it_was_made_of() -> None:
    deployment = await Deployment.made()
    key = await deployment.session()
    (laptop,) = [each for each in await deployment.keys.page() if each.name == "laptop"]
    assert await deployment.keys.revoke(laptop.key_id)
    deployment.lab.now += 60
    assert code_of(await deployment.ask("GET", "/me", key)) == (401, "invalid_api_key")


async def test_a_key_that_only_reads_changes_nothing() -> None:
    deployment = await Deployment.made()
    key = await deployment.session(reads_only=True)
    me = (await deployment.ask("GET", "/me", key)).json()["key"]
    assert (me["scope"], me["expires_at"]) == ("read", deployment.lab.now + limits.CONSOLE_READ_SECONDS)
    assert (await deployment.ask("GET", "/responses", key)).status_code == 200
    changing = [("POST", "/responses"), ("DELETE", "/files/file-1"), ("POST", "/responses/resp_1/cancel"), ("POST", "/console/session")]
    for method, path in changing:
        assert code_of(await deployment.ask(method, path, key, {})) == (403, "read_only_key"), path


async def test_the_table_tells_neither_code_nor_key() -> None:
    deployment = await Deployment.made()
    code = await deployment.code()
    said = repr(deployment.lab.table.__dict__)
    key = (await deployment.ask("POST", "/console/session", code)).json()["key"]
    assert code not in said
    assert key not in said
    assert sorted(each.name for each in await deployment.keys.page()) == ["console", "laptop"]


async def test_an_unknown_key_gets_no_code() -> None:
    deployment = await Deployment.made()
    assert await deployment.codes.make("sk-moorage-unknown", reads_only=False) is None


# --- how large it is ---

BYTES_MAX = 100_000


def _here() -> Console:
    console = Console.beside_the_package()
    if not console._has_libraries:
        pytest.skip("the console's libraries are not here: 'make setup' fetches them")
    return console


def test_what_a_first_visit_loads_is_a_hundred_kilobytes_at_most() -> None:
    """The modules of the first page, and what the page itself names."""
    console = _here()
    named = [name for name in console._assets if name.endswith((".js", ".css")) and f"/{name}" in console._index.body.decode()]
    assert set(named) > console.first_modules
    sizes = {name: len(console._assets[name].zipped) for name in named}
    assert sum(sizes.values()) + len(console._index.zipped) <= BYTES_MAX, sizes


def test_pages_that_are_looked_at_later_come_later() -> None:
    console = _here()
    early = {"pages/runs.js", "pages/run.js", "ui/timeline.js", "vendor/preact.js"}
    late = {"pages/usage.js", "pages/playground.js", "pages/containers.js", "vendor/marked.js"}
    assert early <= console.first_modules
    assert late <= set(console._assets)
    assert not late & console.first_modules


def test_a_module_begins_with_what_it_imports_and_not_with_what_it_asks_for_later(folders: tuple[Path, Path]) -> None:
    own, vendor = folders
    (own / "main.js").write_text('import { Runs } from "./pages/runs.js";\nconst later = () => import("./pages/late.js");\n')
    (own / "pages" / "runs.js").write_text('import "../vendor/preact.js";\nexport { a } from "./gone.js";\n')
    (own / "pages" / "late.js").write_text("export const late = 1;\n")
    assert Console(own, [vendor]).first_modules == {"main.js", "pages/runs.js", "vendor/preact.js"}


def test_each_file_is_read_at_a_sitting() -> None:
    folder = Path(__file__).parents[3] / "layers" / "core" / "python" / "moorage" / "console"
    own = [path for path in folder.rglob("*") if path.suffix in (".js", ".css", ".html")]
    lengths = {str(path.relative_to(folder)): path.read_text().count("\n") for path in own}
    assert {name: lines for name, lines in lengths.items() if lines > 300} == {}


def test_no_code_of_the_console_makes_markup_or_programs_of_strings() -> None:
    folder = Path(__file__).parents[3] / "layers" / "core" / "python" / "moorage" / "console"
    makers = ("innerHTML", "outerHTML", "insertAdjacentHTML", "dangerouslySetInnerHTML", "document.write", "eval(", "new Function")
    found = [f"{path.name}: {maker}" for path in folder.rglob("*.js") for maker in makers if maker in path.read_text()]
    assert found == []
