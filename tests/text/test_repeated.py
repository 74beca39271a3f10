"""Messages that come again and again."""

from txtopo.text.repeated import Repeated


def test_the_same_message_over_and_over():
    """Shows at once, and then once in a period with how often it came; others show meanwhile."""
    now = [0.0]
    errors = Repeated(30.0, clock=lambda: now[0])
    assert errors.shown("refused (after 1ms)") == "refused (after 1ms)"
    assert [errors.shown(f"refused (after {number}ms)") for number in range(50)] == [None] * 50
    assert errors.shown("no leader") == "no leader"
    now[0] = 30.0
    assert errors.shown("refused (after 7ms)") == "refused (after 7ms) (and 50 times before, which was not logged)"
    assert errors.shown("refused") == "refused"  # another text
    now[0] *= 2
    assert errors.shown("no leader") == "no leader"


def test_what_is_over_is_shown_at_once():
    """When it comes again."""
    errors = Repeated(30.0, clock=lambda: 0.0)
    assert [errors.due("a"), errors.due("a")] == [0, None]
    errors.clear("a")
    assert errors.due("a") == 0


def test_kinds_of_messages_are_bounded():
    """A message of ever new texts takes no more memory than a thousand."""
    errors = Repeated(30.0, clock=lambda: 0.0)
    texts = ["x" * number for number in range(1, 2_000)]
    assert [errors.shown(text) for text in texts] == texts
    assert errors.shown(texts[-1]) is None
    assert errors.shown(texts[0]) == texts[0]
