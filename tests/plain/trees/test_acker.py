"""The acker: what it tells spout tasks, in whichever order messages come (AC1-AC12 of Storm's acker, derived)."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from txtopo.plain.trees.acker import ACKERS_MAX, ROTATIONS, Acker, Outcome, Settlement, acker_of, draw_root

ROOT, SPOUT = 77, 5
C, D, E = 0x1234_5678_9ABC_DEF0, 0x0FED_CBA9_8765_4321, 0xFFFF_0000_FFFF_0001

Message = Callable[[Acker], None]


def init(value: int, mask: int = 0, root: int = ROOT, spout: int = SPOUT) -> Message:
    return lambda acker: acker.init([root], [value], [mask], spout)


def ack(value: int, mask: int = 0, root: int = ROOT) -> Message:
    return lambda acker: acker.ack([root], [value], [mask])


def fail(root: int = ROOT) -> Message:
    return lambda acker: acker.fail([root])


def reset(root: int = ROOT) -> Message:
    return lambda acker: acker.reset([root])


def died(bit: int) -> Message:
    return lambda acker: acker.worker_died(bit)


def settled(acker: Acker, *messages: Message) -> list[list[Outcome]]:
    """Return what follows from each message."""
    told = []
    for message in messages:
        message(acker)
        outcomes = acker.take_settled()
        assert all((outcome.roots, outcome.spout_task) == ([ROOT], SPOUT) for outcome in outcomes)
        told.append([outcome.outcome for outcome in outcomes])
    return told


ACKED, FAILED, RESET = [Outcome.ACKED], [Outcome.FAILED], [Outcome.RESET]


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        pytest.param((init(C), ack(C)), [[], ACKED], id="AC1: a tree of one tuple"),
        pytest.param((ack(C), init(C)), [[], ACKED], id="AC2: in the other order"),
        pytest.param((fail(), init(C), ack(C), fail()), [[], FAILED, [], []], id="AC5: a failure before init"),
        pytest.param((init(C), fail(), ack(C), fail()), [[], FAILED, [], []], id="AC5: a failure after init"),
        pytest.param((ack(C), fail(), init(C)), [[], [], FAILED], id="W5: a failure beats 0, which Storm acks"),
        pytest.param((fail(), init(0)), [[], FAILED], id="W5: so it does in a tree without tuples"),
        pytest.param((init(0),), [ACKED], id="AC9: a tree that nobody receives"),
        pytest.param((init(C ^ D), ack(C), ack(C), ack(D)), [[], [], [], []], id="AC10: an ack that comes twice"),
        pytest.param((init(C), ack(C ^ D), ack(E)), [[], [], []], id="AC11: a child that was never announced"),
        pytest.param((init(C ^ D), fail(), ack(C), ack(D)), [[], FAILED, [], []], id="AC12: failed, then acked"),
        pytest.param((init(C ^ D), ack(C), fail(), ack(D)), [[], [], FAILED, []], id="AC12: acked, then failed"),
        pytest.param((died(4), init(C), ack(C, 4)), [[], [], FAILED], id="the death of a worker beats 0"),
    ],
)
def test_what_follows_from_each_message(messages, told):
    """A root is settled once, with the message that completes or fails it; what is never complete waits for its timeout."""
    assert settled(Acker(), *messages) == told


def random_tree(rng: random.Random, nodes_max: int) -> tuple[list[int], int]:
    """Return the values of all acks of a random DAG in some order, and that of its init message.

    Each node is a tuple: an edge from one or two earlier nodes, by which it was anchored.
    """
    nodes = rng.randint(1, nodes_max)
    acks = [rng.getrandbits(64)]
    init_value = acks[0]
    for _ in range(nodes - 1):
        own = 0
        for parent in {rng.randrange(len(acks)) for _ in range(rng.randint(1, 2))}:
            edge = rng.getrandbits(64)
            acks[parent] ^= edge
            own ^= edge
        acks.append(own)
    return acks, init_value


@pytest.mark.few(60)
@pytest.mark.parametrize("seed", range(200))
def test_random_trees(seed):
    """AC3, AC4: of many trees that three ackers share, in any interleaving, each is acked once, with its last message."""
    rng = random.Random(seed)
    ackers = [Acker() for _ in range(3)]
    messages: list[tuple[int, Message]] = []
    for root in range(1, rng.randint(2, 6)):
        acks, value = random_tree(rng, 200)
        messages.append((root, init(value, root=root, spout=root + 1000)))
        messages.extend((root, ack(each, root=root)) for each in acks)
    rng.shuffle(messages)
    last = {root: position for position, (root, _) in enumerate(messages)}
    told = []
    for position, (root, message) in enumerate(messages):
        acker = ackers[root % 3]
        message(acker)
        told.extend((position, each) for each in acker.take_settled())
    expected = [
        (position, Settlement(root + 1000, Outcome.ACKED, [root]))
        for root, position in sorted(last.items(), key=lambda item: item[1])
    ]
    assert told == expected
    assert [len(acker) for acker in ackers] == [0, 0, 0]


def test_messages_after_the_end():
    """AC6: whatever comes for a root that was settled changes nothing, and is forgotten after some rotations."""
    acker = Acker()
    assert settled(acker, init(C), ack(C), ack(C), fail(), reset(), ack(D)) == [[], ACKED, [], [], [], []]
    assert len(acker) == 1
    for _ in range(ROTATIONS):
        acker.rotate()
    assert (len(acker), acker.take_settled()) == (0, [])


def test_lost_ack():
    """AC7: a tree whose ack was lost is silent for ever, and leaves with the spout task that gives it up."""
    acker = Acker()
    assert settled(acker, init(C ^ D), ack(C)) == [[], []]
    for _ in range(10):
        acker.rotate()
    assert len(acker) == 1
    acker.forget([ROOT, 12345])
    assert (len(acker), acker.take_settled()) == (0, [])


def test_lost_init():
    """AC7: a tree whose init message was lost is gone after three rotations, in silence."""
    acker = Acker()
    assert settled(acker, ack(C)) == [[]]
    sizes = []
    for _ in range(ROTATIONS):
        acker.rotate()
        sizes.append(len(acker))
    assert (sizes, acker.take_settled()) == ([1, 1, 0], [])


def test_reset():
    """AC8: a reset of a known root is passed on and the root stays; one of an unknown root is ignored."""
    acker = Acker()
    assert settled(acker, reset(), init(C), reset(), reset()) == [[], [], RESET, RESET]
    for _ in range(10):
        acker.rotate()
    assert settled(acker, ack(C), reset()) == [ACKED, []]


def test_death_fails_known_trees():
    """The death of a worker fails at once just those trees that were sent there."""
    acker = Acker()
    acker.init([1, 2, 3], [C, C, C], [0b001, 0b010, 0b011], SPOUT)
    acker.ack([1], [D], [0b100])
    assert acker.take_settled() == []
    acker.worker_died(0b010)
    assert acker.take_settled() == [Settlement(SPOUT, Outcome.FAILED, [2]), Settlement(SPOUT, Outcome.FAILED, [3])]
    acker.worker_died(0b100)
    assert acker.take_settled() == [Settlement(SPOUT, Outcome.FAILED, [1])]
    assert len(acker) == 0


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ((died(4), init(C, 4)), [[], FAILED]),
        ((died(4), init(C), ack(C ^ D, 4)), [[], [], FAILED]),
        ((died(4), ack(C ^ D, 4), init(C)), [[], [], FAILED]),
        ((ack(C ^ D, 4), died(4), init(C)), [[], [], FAILED]),
        ((init(C), died(4), ack(C ^ D, 4), ack(D)), [[], [], FAILED, []]),
        ((died(4), init(C), ack(C ^ D, 8), ack(D)), [[], [], [], ACKED]),
        ((died(4), died(8), init(C), ack(C ^ D, 4)), [[], [], [], FAILED]),
        ((init(C, 4), ack(C), died(4)), [[], ACKED, []]),
        ((ack(C ^ D, 8), init(C, 4), died(4)), [[], [], FAILED]),
        ((ack(C ^ D, 8), init(C, 4), died(8)), [[], [], FAILED]),
    ],
    ids=[
        "init",
        "ack",
        "early ack",
        "death between",
        "late ack",
        "another's bit",
        "another has died since",
        "done before",
        "init after an ack",
        "ack before init",
    ],
)
def test_messages_that_name_a_dead_worker(messages, told):
    """An init or ack that names a worker which died before fails its root, as soon as the root is known."""
    assert settled(Acker(), *messages) == told


def test_size_of_a_tree():
    """SC1, S10: what an acker holds of a root is as large after 100,000 tuples as after 10."""

    def size(tuples: int) -> int:
        rng = random.Random(7)
        acker = Acker()
        acker.init([ROOT], [1 << 63], [1], SPOUT)
        for _ in range(tuples):
            acker.ack([ROOT], [rng.getrandbits(63)], [1])
        assert len(acker) == 1
        return acker.tree_bytes_max()

    assert size(10) == size(100_000)
    assert Acker().tree_bytes_max() == 0


def test_roots_spread_over_ackers():
    """S17: of 100,000 roots each of four ackers gets 24 to 26 %, and no two roots are the same."""
    bits = random.Random(1).getrandbits
    roots: set[int] = set()
    for _ in range(100_000):
        roots.add(draw_root(bits, [0, 1, 2, 3], roots))
    shares = Counter(map(acker_of, roots))
    assert len(roots) == 100_000
    assert sorted(shares) == [0, 1, 2, 3]
    assert all(24_000 <= share <= 26_000 for share in shares.values())


@pytest.mark.parametrize("acker", [0, 1, 500, ACKERS_MAX - 1])
def test_a_root_says_its_acker(acker):
    """Whoever acks a tuple knows the acker of its root from the root alone; a root has 64 bits and is not 0."""
    bits = random.Random(2).getrandbits
    roots = [draw_root(bits, [acker], ()) for _ in range(1000)]
    assert {acker_of(root) for root in roots} == {acker}
    assert all(0 < root < 1 << 64 for root in roots)


def test_ids_in_use_are_not_drawn():
    """W4: a root id that is pending is never given to another root; 0, which means none, never to any."""
    drawn = iter([0, 5, 5, 6])
    taken = {5 << 16}
    assert draw_root(lambda _bits: next(drawn), [0], taken) == 6 << 16
