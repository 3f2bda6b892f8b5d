"""The model's texts about images: its function, its calls, and their results. Models see no pixels by it."""

from collections.abc import Mapping
from typing import Any, Final

from moorage import limits
from moorage.tools.function_items import function
from moorage.wire.types import Item, Tool

_GENERATE: Final = """\
Make an image. The user sees it as soon as it is there: do not say that you cannot show it, and give no link to it.
- prompt: everything that the image shall show, in full sentences. Who draws it knows nothing of this conversation."""
_EDIT: Final = """
- images: only to change images that are there, or to draw on them: their names. An image that was made here has the name that you \
were told, 'ig_...'; the images that the user has sent are 'image_1', 'image_2' and so on, in the order in which they came."""
_MUST_EDIT: Final = """
- The user wants an image changed, and no new one: without names the latest one is taken."""

_PROMPT: Final = {"type": "string", "description": "What the image shall show."}
_IMAGES: Final = {"type": "array", "items": {"type": "string"}, "description": "Names of the images to begin with."}


def offered(name: str, tool: Tool) -> Tool:
    if tool.get("action") == "generate":
        return function(name, _GENERATE, {"prompt": _PROMPT}, ["prompt"])
    must = _MUST_EDIT if tool.get("action") == "edit" else ""
    return function(name, f"{_GENERATE}{_EDIT}{must}", {"prompt": _PROMPT, "images": _IMAGES}, ["prompt"])


# --- calls --------------------------------------------------------------------------------------------------------------------


def call_of(value: Any) -> Item | None:
    """The order in a function call; None if it has none. Small models write nothing but a prompt, or one name for a list."""
    given = {"prompt": value} if isinstance(value, str) else value
    prompt = given.get("prompt") if isinstance(given, dict) else None
    if not isinstance(prompt, str) or not prompt.strip():
        return None
    named = given.get("images") or ()
    names = [named] if isinstance(named, str) else named
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        return None
    kept = [name.strip()[: limits.ITEM_ID_CHARS_MAX] for name in dict.fromkeys(names)][: limits.IMAGES_DRAWN_ON_MAX]
    call: Item = {"revised_prompt": prompt.strip()[: limits.IMAGE_PROMPT_CHARS_MAX], "action": "edit" if kept else "generate"}
    return call | {"input_images": kept} if kept else call


def arguments_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """The same as a model has said it."""
    images = {"images": item["input_images"]} if item.get("input_images") else {}
    return {"prompt": item.get("revised_prompt", ""), **images}


def read(item: Item) -> str:
    """The output of a call."""
    error = item.get("error")
    if error is not None:
        return str(error["message"])
    if item.get("status", "completed") != "completed":
        return "The call was broken off."
    what = " ".join(item[name] for name in ("size", "output_format") if item.get(name))
    return f"The image is there{f' ({what})' if what else ''}, and the user sees it. Its name is '{item['id']}'."
