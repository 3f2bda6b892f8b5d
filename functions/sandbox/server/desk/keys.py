"""Keys by the names that models give them: OpenAI's, X's (``xdotool``), and those of the DOM."""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional

ALT, CONTROL, META, SHIFT = 1, 2, 4, 8
"""Bits of ``modifiers`` (Input.dispatchKeyEvent of the DevTools protocol)."""


class Key(NamedTuple):
    key: str
    """The DOM's ``KeyboardEvent.key``."""
    code: str
    number: int
    """The virtual key code of Windows, which pages read as ``keyCode``."""
    text: str = ""
    modifier: int = 0


# Name, key, code, number, text.
_NAMED = (
    ("enter return kp_enter", "Enter", "Enter", 13, "\r"),
    ("tab", "Tab", "Tab", 9, ""),
    ("esc escape", "Escape", "Escape", 27, ""),
    ("backspace", "Backspace", "Backspace", 8, ""),
    ("delete del", "Delete", "Delete", 46, ""),
    ("insert ins", "Insert", "Insert", 45, ""),
    ("space", " ", "Space", 32, " "),
    ("home", "Home", "Home", 36, ""),
    ("end", "End", "End", 35, ""),
    ("pageup page_up pgup prior", "PageUp", "PageUp", 33, ""),
    ("pagedown page_down pgdn pgdown next", "PageDown", "PageDown", 34, ""),
    ("arrowleft left", "ArrowLeft", "ArrowLeft", 37, ""),
    ("arrowup up", "ArrowUp", "ArrowUp", 38, ""),
    ("arrowright right", "ArrowRight", "ArrowRight", 39, ""),
    ("arrowdown down", "ArrowDown", "ArrowDown", 40, ""),
    ("capslock caps_lock", "CapsLock", "CapsLock", 20, ""),
    ("printscreen print", "PrintScreen", "PrintScreen", 44, ""),
    ("pause", "Pause", "Pause", 19, ""),
    ("menu contextmenu", "ContextMenu", "ContextMenu", 93, ""),
)
_MODIFIERS = (
    ("ctrl control control_l control_r", "Control", "ControlLeft", 17, CONTROL),
    ("shift shift_l shift_r", "Shift", "ShiftLeft", 16, SHIFT),
    ("alt option alt_l alt_r", "Alt", "AltLeft", 18, ALT),
    ("meta cmd command super win super_l super_r", "Meta", "MetaLeft", 91, META),
)
# What a key of a US keyboard prints alone and with shift, its code, its number.
_PUNCTUATION = (
    ("-_", "Minus", 189),
    ("=+", "Equal", 187),
    ("[{", "BracketLeft", 219),
    ("]}", "BracketRight", 221),
    ("\\|", "Backslash", 220),
    (";:", "Semicolon", 186),
    ("'\"", "Quote", 222),
    ("`~", "Backquote", 192),
    (",<", "Comma", 188),
    (".>", "Period", 190),
    ("/?", "Slash", 191),
)
_X_NAMES = {"minus": "-", "plus": "+", "equal": "=", "comma": ",", "period": ".", "slash": "/", "semicolon": ";", "underscore": "_"}


def _table() -> Dict[str, Key]:
    table: Dict[str, Key] = {}
    for names, key, code, number, text in _NAMED:
        table.update(dict.fromkeys(names.split(), Key(key, code, number, text)))
    for names, key, code, number, bit in _MODIFIERS:
        table.update(dict.fromkeys(names.split(), Key(key, code, number, "", bit)))
    for number in range(1, 25):
        table[f"f{number}"] = Key(f"F{number}", f"F{number}", 111 + number)
    return table


def _characters() -> Dict[str, Key]:
    table = {" ": Key(" ", "Space", 32, " ")}
    for letter in "abcdefghijklmnopqrstuvwxyz":
        for case in (letter, letter.upper()):
            table[case] = Key(case, f"Key{letter.upper()}", ord(letter.upper()), case)
    for digit, shifted in zip("1234567890", "!@#$%^&*()"):
        for each in (digit, shifted):
            table[each] = Key(each, f"Digit{digit}", ord(digit), each)
    for pair, code, number in _PUNCTUATION:
        for each in pair:
            table[each] = Key(each, code, number, each)
    return table


_BY_NAME = _table()
CHARACTERS = _characters()
"""What a US keyboard types."""
SHIFTED = frozenset(character for character in CHARACTERS if character.isupper() or character in '!@#$%^&*()_+{}|:"~<>?')


def key_of(name: str) -> Optional[Key]:
    """None for a name that no keyboard has."""
    if name in CHARACTERS:
        return CHARACTERS[name]
    lower = name.strip().lower().replace(" ", "_")
    if lower in _BY_NAME:
        return _BY_NAME[lower]
    if lower in _X_NAMES:
        return CHARACTERS[_X_NAMES[lower]]
    # A character that no key prints is typed as text.
    return Key(name, "", 0, name) if len(name) == 1 and name.isprintable() else None
