from moorage import ids
from moorage.store.responses import Ancestor, pack_ancestors, unpack_ancestors


def test_the_links_of_a_chain_come_back_from_the_table_in_their_order() -> None:
    links = tuple(Ancestor(ids.new_response_id(0), number) for number in (0, 7, 1_000_000))
    assert unpack_ancestors(pack_ancestors(links)) == links


def test_a_link_takes_24_bytes() -> None:
    assert len(pack_ancestors([Ancestor(ids.new_response_id(0), 3)] * 200)) == 200 * 24
