"""Pages of what a session's turns consist of: turns are read one after the other until a page is full, or long."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from moorage import limits
from moorage.agents.session_store import SessionRecord, TurnRecord
from moorage.parallel import as_json
from moorage.store.listing import unknown_after
from moorage.stores import Stores
from moorage.wire.answers import ListOf
from moorage.wire.queries import PageQuery
from moorage.wire.responses import list_object

Entry = TypeVar("Entry", bound=Mapping[str, Any])


async def page_of_turns(
    stores: Stores,
    session: SessionRecord,
    page: PageQuery,
    of_turn: Callable[[TurnRecord], Awaitable[Sequence[Entry]]],
    number_of: Callable[[str], int | None],
) -> ListOf[Entry]:
    """Entries of all turns. One that goes on behind an entry begins with its turn, whose number ``number_of`` tells; None or 0 if that
    is not known. Raises :class:`~moorage.errors.ApiError` for an ``after`` that is no entry."""
    descending = page.order == "desc"
    found: list[Entry] = []
    is_beyond, beyond = page.after is None, None
    size, is_long = 0, False
    if page.after is not None and (number := number_of(page.after)):
        beyond = number + 1 if descending else number - 1
    while len(found) <= page.limit and not is_long:
        turns = await stores.agent_sessions.turns(session, beyond=beyond, descending=descending, limit=limits.AGENT_SESSION_TURNS_READ)
        for turn in turns:
            entries = list(await of_turn(turn))
            entries = entries[::-1] if descending else entries
            named = [entry["id"] for entry in entries]
            if not is_beyond and page.after in named:
                entries = entries[named.index(page.after) + 1 :]
                is_beyond = True
            found += entries if is_beyond else []
            beyond = turn.number
            size += len(await as_json(entries)) if is_beyond else 0
            is_long = size >= limits.PAGE_BYTES_MAX
            if len(found) > page.limit or is_long:
                break
        if len(turns) < limits.AGENT_SESSION_TURNS_READ:
            break
    if not is_beyond:
        assert page.after is not None
        raise unknown_after(page.after)
    return list_object(found[: page.limit], has_more=len(found) > page.limit or is_long)
