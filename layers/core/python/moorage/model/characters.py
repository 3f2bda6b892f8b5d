"""Text that comes in pieces of UTF-16, as some servers cut it: a character outside of its first plane may arrive in two halves.

JSON allows such halves (``\\ud83d``); UTF-8, in which everything goes on from here, does not.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Characters:
    _half: str = ""
    """The first half of a character whose second has not come yet."""

    def feed(self, piece: str) -> str:
        """Whole characters; a half without its other half becomes U+FFFD."""
        text = self._half + piece
        self._half = ""
        if text.isascii():
            return text
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
