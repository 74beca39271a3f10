"""Which connections a server keeps."""

from txtopo.network.connections import REQUEST_SECS, STALLED_SECS, Connection, ConnectionLimit


class Door:
    """A limit of eight places, a clock, and what was closed."""

    def __init__(self) -> None:
        self.now = 0.0
        self.closed: list[str] = []
        self.limit = ConnectionLimit(8, lambda: self.now)

    def enter(self, name: str, peer: str = "a") -> Connection | None:
        """Let a connection in, a second after the one before."""
        self.now += 1
        return self.limit.enter(peer, lambda: self.closed.append(name))


def test_one_peer_takes_half_of_all_places() -> None:
    """One more connection of it closes the one that has been silent for longest; no other peer notices."""
    door = Door()
    assert door.enter("other", "b") is not None
    for number in range(6):
        assert door.enter(str(number)) is not None
    assert door.closed == ["0", "1"]


def test_busiest_peer_gives_way() -> None:
    """It does so whoever came first."""
    door = Door()
    door.enter("b", "b")
    for number in range(4):
        door.enter(f"a{number}", "a")
    for peer in "cdef":
        assert door.enter(peer, peer) is not None
    assert door.closed == ["a0"]


def test_idle_one_of_a_less_busy_peer() -> None:
    """It gives way if all connections of the busiest peer are at work."""
    door = Door()
    for number in range(4):
        entered = door.enter(f"a{number}", "a")
        assert entered is not None
        door.limit.works(entered)
    for peer in "bcde":
        door.enter(peer, peer)
    assert door.enter("f", "f") is not None
    assert door.closed == ["b"]


def test_who_asks_for_something_keeps_its_place() -> None:
    """What is under way is never closed for a newcomer; if everything is, the newcomer is refused."""
    door = Door()
    busy = [door.enter(str(number)) for number in range(4)]
    for number, each in enumerate(busy):
        assert each is not None
        (door.limit.works if number % 2 else door.limit.awaits)(each)
    assert door.enter("late") is None
    assert not door.closed
    assert busy[3] is not None
    door.limit.idles(busy[3])
    assert door.enter("later") is not None
    assert door.closed == ["3"]


def test_silence_ends_a_connection() -> None:
    """A head that does not come, and a body or an answer that stalls; work may take as long as it likes."""
    door = Door()
    door.enter("silent", "a")
    stalled, working = door.enter("stalled", "b"), door.enter("working", "c")
    assert stalled is not None
    assert working is not None
    door.limit.awaits(stalled)
    door.limit.works(working)
    door.now += REQUEST_SECS
    door.limit.sweep()
    assert door.closed == ["silent"]
    door.now += STALLED_SECS
    door.limit.sweep()
    door.now += 3600
    door.limit.sweep()
    assert door.closed == ["silent", "stalled"]


def test_progress_renews_the_time() -> None:
    """A request under way has longer than a head, and all of that again with each part of it that comes."""
    door = Door()
    slow = door.enter("slow")
    assert slow is not None
    for _ in range(3):
        door.limit.awaits(slow)
        door.now += STALLED_SECS
        door.limit.sweep()
        assert not door.closed
    door.now += 1
    door.limit.sweep()
    assert door.closed == ["slow"]
