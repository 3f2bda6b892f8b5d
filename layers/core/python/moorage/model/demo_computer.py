"""The other demonstration that the ``demo`` provider can play: build a page by shell, look at it in the browser, and fix what is seen.

Five model turns: write a page with a button and serve it, open it and press the button, mend the page, look again, answer. The page
says its count in its title, which the output of a hosted computer tells (``tools/computer/reading.py``); the answer quotes it.
"""

import re
from typing import Any, Final

from moorage.dataclass import dataclass

_TITLE: Final = re.compile(r'^Page: \S+ "([^"\n]*)"', re.MULTILINE)
_FAILED: Final = re.compile(r"^(?:Action \d+ failed: .*|\[(?:timed out|exit code (?!0\])).*)", re.MULTILINE)
_PORT: Final = 8000
_OPEN: Final = {"type": "navigate", "url": f"http://localhost:{_PORT}/"}
_PRESS: Final = {"type": "click", "button": "left", "x": 180, "y": 252}

_PAGE: Final = """\
<!doctype html>
<html lang=en>
<meta charset=utf-8>
<title>Cart: 0</title>
<style>
  body { margin: 0; padding: 60px 80px; background: #f6f4ee; color: #1d2b33; font: 20px/1.5 sans-serif }
  h1 { margin: 0; font-size: 48px }
  button { position: absolute; left: 80px; top: 220px; width: 200px; height: 64px; border: 0; border-radius: 12px;
           background: #0b6e76; color: #fff; font: inherit }
</style>
<h1>The ship's shop</h1>
<p>Shackles in your cart: <b id=count>0</b></p>
<button onclick="add()">Add a shackle</button>
<script>
  let count = 0
  function add() {
    count + 1
    document.querySelector('#count').textContent = count
    document.title = `Cart: ${count}`
  }
</script>"""

_BUILD: Final = f"cat > /mnt/data/index.html <<'HTML'\n{_PAGE}\nHTML"
_SERVE: Final = (
    f"(setsid nohup python3 -m http.server {_PORT} --directory /mnt/data >/dev/null 2>&1 &)\n"
    f"for try in $(seq 100); do curl -sf http://localhost:{_PORT}/ >/dev/null && break; sleep 0.1; done"
)
_MEND: Final = "sed -i 's/count + 1/count += 1/' /mnt/data/index.html && grep -n 'count +' /mnt/data/index.html"


@dataclass(frozen=True, slots=True)
class ComputerMove:
    """The demonstration in one turn: a remark with commands or actions, or the answer alone."""

    text: str
    commands: tuple[str, ...] = ()
    actions: tuple[dict[str, Any], ...] = ()


def is_asked(text: str) -> bool:
    """Whether a user's message asks for the demonstration."""
    return all(re.search(rf"\b{word}\b", text, re.IGNORECASE) for word in ("page", "button", "browser"))


def next_move(turns: int, outputs: list[str]) -> ComputerMove:
    """The turn after ``turns`` turns, whose tool outputs (as text) were ``outputs``."""
    failed = next((found[0] for output in outputs if (found := _FAILED.search(output))), None)
    if failed is not None:
        return ComputerMove(f"A step failed, so I stop here. It said: {failed}")
    titles = [found[1] for output in outputs if (found := _TITLE.search(output))]
    match turns:
        case 0:
            return ComputerMove("I write the page, and serve it.", commands=(_BUILD, _SERVE))
        case 1:
            return ComputerMove("I open it in the browser, and press the button.", actions=(_OPEN, _PRESS))
        case 2:
            return ComputerMove(
                f"I pressed once, and the title is '{titles[-1] if titles else ''}': the script adds one, and keeps the sum nowhere. "
                "I mend it.",
                commands=(_MEND,),
            )
        case 3:
            return ComputerMove("I open it again, and press the button twice.", actions=(_OPEN, _PRESS, _PRESS))
    return ComputerMove(_answer(titles))


def _answer(titles: list[str]) -> str:
    if len(titles) < 2:
        return "The browser showed no page, so I do not know whether the button counts."
    first, last = titles[0], titles[-1]
    return (
        f"The page is /mnt/data/index.html. Its button did not count at first: after one press the title was '{first}'. Now it "
        f"does: after two presses the title is '{last}'."
        if last == "Cart: 2"
        else f"The page is /mnt/data/index.html. Its button does not count yet: after two presses the title is '{last}'."
    )
