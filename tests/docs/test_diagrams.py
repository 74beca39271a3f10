"""The diagrams that code draws are in the documentation as it draws them today."""

import xml.etree.ElementTree as ET

import pytest

from tests.docs.diagrams import DIAGRAMS, FOLDER
from txtopo.transactional.core.transitions import TRANSITIONS, Status


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_is_current(name):
    """``python -m tests.docs.diagrams`` was run since the table of transitions, or the layout, was changed."""
    assert (FOLDER / name).read_text(encoding="utf-8") == DIAGRAMS[name]()


def test_every_state_and_transition_is_shown():
    """Each state has a box, each transition an arrow with its trigger."""
    texts = [
        element.text
        for element in ET.fromstring(DIAGRAMS["transaction-states.svg"]()).iter("{http://www.w3.org/2000/svg}text")
    ]
    triggers = [trigger.value for _, trigger in TRANSITIONS]
    assert sorted(texts) == sorted([status.value for status in Status] + triggers)
