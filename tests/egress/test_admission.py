"""Who is let in to the proxy next: places take turns, each has so many a second, and who has gone is not served."""

import socket
from collections import Counter

from moorage import limits

from functions.egress_proxy.admission import Admission


class Door:
    """An admission on a clock of its own; ``clients`` are the other ends of what came."""

    def __init__(self, room: int = 10_000) -> None:
        self.now = 0.0
        self.served: list[str] = []
        self.clients: list[socket.socket] = []
        self.admission = Admission(lambda place, waiting: waiting[place] < room, lambda: self.now)

    def knock(self, place: str, count: int = 1) -> None:
        for _ in range(count):
            ours, theirs = socket.socketpair()
            self.clients.append(theirs)
            self.admission.knock(ours, place, self._serve)

    def _serve(self, connection: socket.socket, place: str) -> None:
        connection.close()
        self.served.append(place)

    def admit_all(self) -> float | None:
        while (pause := self.admission.admit_one()) == 0.0:
            pass
        return pause

    def close(self) -> None:
        self.admission.close()
        for client in self.clients:
            client.close()


def test_places_take_turns() -> None:
    door = Door()
    door.knock("noisy", 4)
    door.knock("quiet", 2)
    assert door.admit_all() is None
    assert door.served == ["noisy", "quiet", "noisy", "quiet", "noisy", "noisy"]
    door.close()


def test_a_place_that_had_its_burst_waits_and_others_do_not() -> None:
    door = Door()
    burst = limits.EGRESS_CONNECTIONS_MAX
    door.knock("noisy", burst + limits.EGRESS_CONNECTIONS_PER_SECOND_MAX + 10)
    pause = door.admit_all()
    assert pause is not None
    assert 0 < pause <= 1 / limits.EGRESS_CONNECTIONS_PER_SECOND_MAX
    before = len(door.served)
    assert burst <= before <= burst + 1
    door.knock("quiet")
    door.admit_all()
    assert door.served[before:] == ["quiet"]
    door.now += 1
    door.admit_all()
    assert Counter(door.served[before:]) == {"quiet": 1, "noisy": limits.EGRESS_CONNECTIONS_PER_SECOND_MAX}
    door.close()


def test_a_client_that_has_gone_is_not_served_and_costs_its_place_nothing() -> None:
    door = Door()
    door.knock("noisy", 200)
    for client in door.clients:
        client.close()
    door.knock("noisy")
    assert door.admit_all() is None
    assert door.served == ["noisy"]
    door.close()


def test_one_that_finds_no_room_is_closed_at_once() -> None:
    door = Door(room=2)
    door.knock("noisy", 3)
    assert door.clients[2].recv(1) == b""
    assert door.admit_all() is None
    assert door.served == ["noisy", "noisy"]
    door.close()
