"""The recording in the documentation can be read everywhere, and shows what its maker saw on a terminal."""

import xml.etree.ElementTree as ET

from tests.docs.recording import PICTURE

BYTES_MAX = 64 * 1024


def texts_of(svg):
    """Return all that a picture shows, without its spaces."""
    texts = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return "".join("".join(text for element in texts for text in element.itertext()).split())


def test_the_picture_tells_the_story():
    """It is small, asks nothing of other hosts, and shows the kill, the second run, and the audit that finds all."""
    svg = PICTURE.read_text(encoding="utf-8")
    assert len(svg.encode()) <= BYTES_MAX
    assert "url(http" not in svg
    texts = texts_of(svg)
    assert texts.count("$txtoporunexamples.transactional_words") == 2
    assert "Killed" in texts
    assert "✔everytransactionwascommittedonce,inorder,withoutagap" in texts
