"""A Python that keeps its variables: the session behind ``PUT /v1/python/{id}`` of the exec server.

Started as ``python_session.py REQUESTS_FD ANSWERS_FD``. Each line on the first descriptor is the path of a JSON file ``{"code",
"workspace", "result_chars_max"}``; each is answered by one JSON line ``{"exit_code", "result", "images"}`` on the second. What the
code prints goes to stdout and stderr as usual, a traceback to stderr. Figures that the code left open are saved as PNG files in the
workspace and closed. Standard library only; matplotlib is used if the code has imported it.
"""

import ast
import contextlib
import json
import linecache
import os
import re
import shlex
import subprocess
import sys
import traceback
import types
from typing import Any, Dict, List, Optional, Tuple


def main() -> None:
    requests_fd, answers_fd = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(requests_fd, False)
    os.set_inheritable(answers_fd, False)
    sys.argv = [""]
    sys.path[0] = ""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    with os.fdopen(requests_fd, encoding="utf-8") as requests:
        for number, line in enumerate(requests, 1):
            with open(line.strip(), encoding="utf-8") as file:
                request = json.load(file)
            exit_code, result = run(request["code"], f"<cell {number}>", module.__dict__)
            images = saved_figures(request["workspace"]) + saved_image(result, request["workspace"])
            text = None if result is None else shown(result, request["result_chars_max"])
            flush()
            answer = json.dumps({"exit_code": exit_code, "result": text, "images": images})
            os.write(answers_fd, answer.encode() + b"\n")


def run(code: str, filename: str, namespace: Dict[str, Any]) -> Tuple[int, Optional[object]]:
    """Execute the code; the value of a last expression is the result, as in any interactive Python."""
    linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
    try:
        tree = parsed(code, filename)
        namespace.setdefault(NOTEBOOK, Notebook(namespace))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, filename, "exec"), namespace)
        if isinstance(last, ast.Expr):
            return 0, eval(compile(ast.Expression(last.value), filename, "eval"), namespace)
        return 0, None
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None), None
    except BaseException as error:
        # Without the frames of this file.
        frames = error.__traceback__.tb_next if error.__traceback__ else None
        traceback.print_exception(type(error), error, frames)
        return 1, None


# --- Lines of notebooks, which models write from habit ----------------------------------------------------------------------------

NOTEBOOK = "__notebook__"
LINE = re.compile(r"(?P<indent>[ \t]*)(?:(?P<target>[A-Za-z_]\w*)[ \t]*=[ \t]*)?(?P<mark>!!?|%)(?P<words>.*)", re.DOTALL)
CELL = re.compile(r"\s*%%(\w+)[^\n]*\n?(.*)", re.DOTALL)
VALUE = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)")


def parsed(code: str, filename: str) -> ast.Module:
    """Python as it stands; only a line that is none may be one of a notebook. Line numbers stay."""
    cell = CELL.match(code)
    if cell is not None and cell[1] in ("bash", "sh"):
        return ast.parse(f"{NOTEBOOK}.run({cell[2]!r})", filename)
    lines = code.split("\n")
    while True:
        try:
            return ast.parse("\n".join(lines), filename)
        except SyntaxError as error:
            if not error.lineno or not replaced(lines, error.lineno - 1):
                raise


def replaced(lines: List[str], at: int) -> bool:
    """Whether the line is one of a notebook, and is Python now."""
    match = LINE.fullmatch(lines[at]) if at < len(lines) else None
    if match is None:
        return False
    words, end = match["words"], at + 1
    while words.endswith("\\") and end < len(lines):
        words = words[:-1] + lines[end]
        lines[end] = ""
        end += 1
    target = match["target"]
    call = "magic" if match["mark"] == "%" else "lines" if target else "run"
    lines[at] = match["indent"] + (f"{target} = " if target else "") + f"{NOTEBOOK}.{call}({words.strip()!r})"
    return True


class Notebook:
    """The magic lines of notebooks, as IPython has them."""

    def __init__(self, namespace: Dict[str, Any]) -> None:
        self._namespace = namespace

    def run(self, command: str) -> None:
        """Its output goes to the usual prints; its exit code is ``_exit_code``."""
        flush()
        self._namespace["_exit_code"] = subprocess.run(["/bin/bash", "-c", self._filled(command)]).returncode

    def lines(self, command: str) -> List[str]:
        flush()
        ran = subprocess.run(["/bin/bash", "-c", self._filled(command)], stdout=subprocess.PIPE, errors="replace")
        self._namespace["_exit_code"] = ran.returncode
        return ran.stdout.splitlines()

    def magic(self, line: str) -> Optional[str]:
        name, _, words = line.partition(" ")
        if name == "pwd":
            return os.getcwd()
        if name == "cd":
            os.chdir(os.path.expanduser(self._filled(words).strip() or "~"))
        elif name == "pip":
            self.run(f"{shlex.quote(sys.executable)} -m pip {words}")
        elif name != "matplotlib":  # Figures are saved and shown anyhow.
            raise NameError(f"There is no magic '%{name}' here. %cd, %matplotlib, %pip, %pwd and %%bash are known.")
        return None

    def _filled(self, command: str) -> str:
        """With the values of named variables, ``{name}`` or ``$name``; the rest is the shell's."""

        def value(match: "re.Match[str]") -> str:
            name = match[1] or match[2]
            return str(self._namespace[name]) if name in self._namespace else match[0]

        return VALUE.sub(value, command)


def shown(value: object, chars_max: int) -> str:
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= chars_max else text[:chars_max] + " …"


def saved_figures(workspace: str) -> List[str]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    paths = []
    try:
        for number in pyplot.get_fignums():
            path = free_name(workspace)
            pyplot.figure(number).savefig(path, dpi=150, bbox_inches="tight")
            paths.append(path)
        pyplot.close("all")
    except Exception:
        traceback.print_exc()
    return paths


def saved_image(result: Optional[object], workspace: str) -> List[str]:
    """A result that can show itself as PNG (a PIL image) is an image too."""
    show = getattr(result, "_repr_png_", None)
    if show is None or isinstance(result, type):
        return []
    try:
        data = show()
        if not isinstance(data, bytes):
            return []
        path = free_name(workspace)
        with open(path, "wb") as file:
            file.write(data)
    except Exception:
        traceback.print_exc()
        return []
    return [path]


def free_name(workspace: str) -> str:
    """``figure-1.png`` and so on; created at once so that the next call takes another."""
    number = 1
    while True:
        path = os.path.join(workspace, f"figure-{number}.png")
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        except FileExistsError:
            number += 1
        else:
            return path


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


if __name__ == "__main__":
    import warnings

    # plt.show() under the Agg backend: the figure is saved after the run, so there is nothing to warn of.
    warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")
    main()
