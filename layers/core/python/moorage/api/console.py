"""``/console/``: the pages by which people see what runs. Files, and nothing else: what they show they ask of ``/v1`` with a key.

They need no key themselves, and say nothing of anybody. ``index.html`` names the others below ``a/<digest of all of them>``, so that
browsers keep them for ever and never mix two versions. All addresses are relative: at API Gateway a stage's name stands in front.
"""

import gzip
import hashlib
import html
import mimetypes
import posixpath
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request
from starlette.responses import RedirectResponse, Response

from moorage.command_hints import as_typed
from moorage.dataclass import dataclass
from moorage.errors import not_found

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_VENDORS: Final = (_PACKAGE / "console" / "vendor", _PACKAGE.parents[3] / ".build" / "console" / "vendor")
"""Where the libraries lie: in a wheel and in a layer, and in a checkout."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""No markup and no script can come from anywhere but these files, and no code of theirs can make either of a string."""

HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "vary": "accept-encoding",
}
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_TYPES: Final = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8"}
_IMPORT: Final = re.compile(r"""\b(?:from|import)\s*["'](?P<path>\./[^"']+|\.\./[^"']+)["']""")
"""What a module cannot begin without. One that it asks for later, by ``import("./...")``, is none of them."""
_UNFETCHED: Final = """\
The console's libraries are not here: they are dependencies, which are fetched and not copied.

    make setup                  in a checkout, fetches them (with npm, or without)

'moorage up' then serves the console here. The API under /v1 is up and needs none of it. /openapi.json describes it,
'moorage ls' shows what runs.
"""


@dataclass(frozen=True)
class Asset:
    body: bytes
    media_type: str

    @cached_property
    def zipped(self) -> bytes:
        return gzip.compress(self.body, mtime=0)

    @cached_property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'


class Console:
    """The served files, read on first request."""

    def __init__(self, folder: Path, vendors: Sequence[Path], command: str = "moorage", *, has_sign_in: bool = False) -> None:
        """``has_sign_in``: whether people may sign in with an issuer (``api/sign_in.py``)."""
        self._folder = folder
        self._vendors = vendors
        self._command = command
        self._has_sign_in = has_sign_in

    @classmethod
    def beside_the_package(cls, command: str = "moorage", *, has_sign_in: bool = False) -> "Console":
        """``command`` is the word that starts moorage on the reader's machine."""
        return cls(_PACKAGE / "console", _VENDORS, command, has_sign_in=has_sign_in)

    def add_to(self, app: FastAPI) -> None:
        app.add_api_route("/console", _to_the_folder, methods=["GET", "HEAD"])
        app.add_api_route("/console/{path:path}", self._serve, methods=["GET", "HEAD"])

    async def _serve(self, request: Request, path: str) -> Response:
        if not self._has_libraries:
            words = as_typed(_UNFETCHED, self._command)
            return Response(words, 503, HEADERS | {"cache-control": "no-store"}, "text/plain; charset=utf-8")
        if path in ("", "index.html"):
            return _answer(request, self._index, "no-cache")
        start, _, name = path.partition("/")
        digest, _, name = name.partition("/")
        if start != "a" or name not in self._assets:
            raise not_found(f"The console has no '{path[:200]}'.", code="unknown_url")
        # A page that was loaded before an upgrade asks for files of before: it gets those of now, and keeps them for no other page.
        return _answer(request, self._assets[name], _FOR_EVER if digest == self.digest else "no-store")

    @cached_property
    def _has_libraries(self) -> bool:
        return any((vendor / "preact.js").is_file() for vendor in self._vendors)

    @cached_property
    def _assets(self) -> Mapping[str, Asset]:
        """All files by their names below the folder."""
        vendor = next(vendor for vendor in self._vendors if vendor.is_dir())
        own = {str(path.relative_to(self._folder)): path for path in self._folder.rglob("*") if path.suffix in (".js", ".css")}
        libraries = {f"vendor/{path.name}": path for path in vendor.iterdir()}
        return {name: Asset(path.read_bytes(), _type_of(name)) for name, path in sorted({**own, **libraries}.items())}

    @cached_property
    def digest(self) -> str:
        digest = hashlib.sha256()
        for name, asset in self._assets.items():
            digest.update(f"{name}\0{len(asset.body)}\0".encode() + asset.body)
        return digest.hexdigest()[:16]

    @cached_property
    def _index(self) -> Asset:
        """With the address of the files, and the modules of the first page named ahead, so that they come side by side."""
        page = (self._folder / "index.html").read_text()
        preloads = "\n".join(f'<link rel="modulepreload" href="a/{self.digest}/{name}">' for name in sorted(self.first_modules))
        command = html.escape(self._command)
        page = as_typed(page, command)
        sign_in = "yes" if self._has_sign_in else "no"
        told = {"{{command}}": command, "{{sign_in}}": sign_in, "{{assets}}": f"a/{self.digest}", "{{preloads}}": preloads}
        for name, value in told.items():
            page = page.replace(name, value)
        return Asset(page.encode(), _TYPES[".html"])

    @cached_property
    def first_modules(self) -> frozenset[str]:
        """Names of what ``main.js`` begins with. Pages that are seldom looked at first come when somebody goes there."""
        found: set[str] = set()
        wanted = ["main.js"]
        while wanted:
            name = wanted.pop()
            if name in found or name not in self._assets:
                continue
            found.add(name)
            source = self._assets[name].body.decode()
            wanted += [posixpath.normpath(posixpath.join(posixpath.dirname(name), each["path"])) for each in _IMPORT.finditer(source)]
        return frozenset(found)


async def _to_the_folder() -> Response:
    """By its name: a gateway may take the address with a slash behind it for the one without."""
    return RedirectResponse("console/index.html", 308)


def _type_of(name: str) -> str:
    return _TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"


def _answer(request: Request, asset: Asset, cache_control: str) -> Response:
    headers = HEADERS | {"cache-control": cache_control, "etag": asset.etag}
    if asset.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.zipped, headers=headers | {"content-encoding": "gzip"}, media_type=asset.media_type)
    return Response(asset.body, headers=headers, media_type=asset.media_type)
