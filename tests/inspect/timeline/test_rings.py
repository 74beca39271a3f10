"""A ring in memory holds what the file does, however often it was looked at."""

import numpy as np
import pytest

from txtopo.engine.timeline.records import path_of
from txtopo.engine.timeline.ring import BODY_BYTES, RingHeader, RingWriter
from txtopo.inspect.timeline.rings import EVENTS, Ring

SLOTS = 64
DATA = 9


@pytest.mark.parametrize("count", [1, 24, SLOTS - 1, SLOTS, SLOTS + 1])
def test_the_last_rows_without_a_gap(tmp_path, count):
    """At each look, across the end of the file and of the room in memory."""
    writer = RingWriter(path_of(tmp_path, 1, "records"), RingHeader(SLOTS, "a", 1, 1_000))
    ring, begun = Ring(tmp_path, "records", EVENTS), writer.seq
    assert len(ring.read_on()[0]) == 0
    for _ in range(1, 6 * SLOTS, count):
        for _ in range(count):
            writer.put(DATA, 0, 7, bytes(BODY_BYTES))
        writer.flush()
        new, _ = ring.read_on()
        assert new["seq"].tolist() == [*range(writer.seq - min(count, SLOTS) + 1, writer.seq + 1)]
        first = max(begun + 1, writer.seq - SLOTS + 1)
        assert ring.rows["seq"].tolist() == [*range(first, writer.seq + 1)]
        assert (ring.first, ring.head) == (first, writer.seq)
        assert np.array_equal(ring.after(first), ring.rows[1:])
        assert len(ring.after(writer.seq)) == 0
    ring.close()


def test_texts_stay_as_long_as_their_rows(tmp_path):
    """Of many texts those are forgotten that the ring no longer has, and no other."""
    writer = RingWriter(path_of(tmp_path, 1, "records"), RingHeader(SLOTS, "a", 1, 1_000))
    ring, texts = Ring(tmp_path, "records", EVENTS, texts_max=8), {}
    for number in range(3 * SLOTS):
        texts[writer.text(f"text {number}")] = f"text {number}"
        writer.flush()
        ring.read_on()
        assert ring.texts == {seq: text for seq, text in texts.items() if seq >= ring.first}
    assert ring.text(ring.first) == texts[ring.first]
    assert ring.text(ring.first - 1) == ""
    ring.close()
