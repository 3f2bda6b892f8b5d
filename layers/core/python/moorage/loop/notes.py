"""The content of a ``compaction`` item, and the model's view of a conversation that has one.

Its content is sealed (``store/sealed.py``), so that clients pass it on as it is. Besides the notes it carries the latest items that
were to stay as they are: a client may drop all that came before it, and they would be lost otherwise.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

import orjson

from moorage import limits
from moorage.dataclass import dataclass
from moorage.errors import invalid_encrypted_content
from moorage.loop.context import answered_at_once, trimmed
from moorage.loop.team_items import known_to_root
from moorage.loop.truncate import stays
from moorage.model.tokens import estimate_item
from moorage.parallel import worked
from moorage.stores import Stores
from moorage.wire.types import Item

_FORM: Final = "compaction.2:"
"""Before the content; what was sealed by the version before this one is the text alone."""
_HEADING: Final = "Notes on the conversation so far, which are all that is left of its earlier part:\n\n"
_LEFT_OUT: Final = "[An earlier part of this conversation has been left out.]"


@dataclass(frozen=True, slots=True)
class Notes:
    text: str
    recent: tuple[Item, ...] = ()
    """The items that follow the notes, as they were."""
    user_tokens: int = limits.COMPACTION_KEPT_TOKENS
    """As much of the user's latest messages stands before them."""
    is_cut: bool = False
    """Something was left out of which the text says nothing."""

    def packed(self) -> str:
        fields = {"text": self.text, "recent": self.recent, "user_tokens": self.user_tokens, "is_cut": self.is_cut}
        return _FORM + orjson.dumps(fields).decode()

    @classmethod
    def unpacked(cls, content: str, check: Callable[[bytes], Mapping[str, Any]] = orjson.loads) -> Self:
        """``check`` reads content that was not sealed here, and raises for what :meth:`packed` never makes."""
        if not content.startswith(_FORM):
            return cls(content)
        fields = check(content[len(_FORM) :].encode())
        return cls(fields["text"], tuple(fields["recent"]), fields["user_tokens"], fields["is_cut"])

    def told(self) -> str:
        """The model's text in place of the item."""
        return "\n\n".join([*([_HEADING + self.text] if self.text else []), *([_LEFT_OUT] if self.is_cut else [])])


Reader = Callable[[Item], Notes | None]
"""Opens a ``compaction`` item; None for one that was not made here."""


def reader(stores: Stores, tenant_id: str) -> Reader:
    def read(item: Item) -> Notes | None:
        content = stores.sealer.open(tenant_id, item["encrypted_content"])
        return None if content is None else Notes.unpacked(content)

    return read


def check_readable(items: Sequence[Item], read: Reader, native_tools: frozenset[str], *, param: str | None = None) -> None:
    """Raises 400 for a ``compaction`` item that neither this deployment nor the upstream can read: it would be lost silently. ``param``
    is the field that leads to the items; without it they are the ``input``."""
    if "compaction" in native_tools:
        return
    for index, item in enumerate(items):
        if item["type"] == "compaction" and "encrypted_content" in item and read(item) is None:
            raise invalid_encrypted_content(param or f"input[{index}].encrypted_content")


def visible(items: Sequence[Item], read: Reader) -> list[Item]:
    """The model's view of a conversation: of the part before its last compaction only the user's latest messages, the developer's
    messages, and the items that the compaction carries.

    It is opened: the model reads its ``text``. Parts of older items that tools have left out are gone.
    """
    items = answered_at_once(known_to_root(items))
    last = max((index for index, item in enumerate(items) if item["type"] == "compaction"), default=None)
    if last is None:
        return trimmed(items)
    notes = read(items[last])
    if notes is None:
        kept = latest_of_user(items[:last], tokens_max=limits.COMPACTION_KEPT_TOKENS)
        return trimmed([*_before(items[:last], kept, read), *items[last:]])
    kept = latest_of_user(items[:last], notes.recent, tokens_max=notes.user_tokens)
    opened = {"id": items[last].get("id"), "type": "compaction", "text": notes.told()}
    return trimmed([*_before(items[:last], kept, read), opened, *notes.recent, *items[last + 1 :]])


async def model_view(items: Sequence[Item], read: Reader) -> list[Item]:
    """As :func:`visible`; on a thread if there are many items: a conversation has no bound."""
    return visible(items, read) if len(items) <= limits.LOWERED_HERE_MAX else await worked(lambda: visible(items, read))


def carried(items: Sequence[Item], read: Reader) -> list[Item]:
    """The part of a conversation that must be kept so that :func:`visible` stays as it is while it goes on: its last compaction, the
    items before it that the compaction keeps, and all behind it.

    The next compaction finds the user's latest messages.
    """
    last = max((index for index, item in enumerate(items) if item["type"] == "compaction"), default=None)
    if last is None:
        return list(items)
    latest = latest_of_user(items[:last], tokens_max=limits.COMPACTION_KEPT_TOKENS)
    wanted = {id(item) for item in [*visible(items, read), *latest]}
    first = next((index for index, item in enumerate(items[:last]) if item.get("role") == "user" and id(item) in wanted), last)
    # Messages behind the first one are compared with what the compaction carries, shown or not.
    return [
        item
        for index, item in enumerate(items)
        if index >= last or id(item) in wanted or (item.get("role") == "user" and index > first)
    ]


def _before(items: Sequence[Item], kept: Sequence[Item], read: Reader) -> list[Item]:
    """The kept part of the items before a compaction. It speaks for those before it, but for items that only an upstream can read."""
    seen = {id(item) for item in kept}
    return [item for item in items if id(item) in seen or (stays(item) and (item["type"] != "compaction" or read(item) is None))]


def latest_of_user(items: Sequence[Item], recent: Sequence[Item] = (), *, tokens_max: int) -> list[Item]:
    """The user's latest messages, in their own words; those that are among ``recent`` are left to it."""
    there = [_bare(item) for item in recent if item.get("role") == "user"]
    kept: list[Item] = []
    room = tokens_max
    for item in reversed([item for item in items if item.get("role") == "user"]):
        if _bare(item) in there:
            there.remove(_bare(item))
            continue
        room -= estimate_item(item)
        if room < 0:
            break
        kept.append(item)
    return kept[::-1]


def _bare(item: Item) -> dict[str, Any]:
    """A message without the fields that differ when its client sends it again."""
    return {name: value for name, value in item.items() if name not in ("id", "status")}
