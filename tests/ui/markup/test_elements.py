"""Markup can't forget to escape."""

from txtopo.ui.markup.elements import Markup, joined, tag


def test_text_is_escaped_in_content_and_attributes():
    """Quotes and brackets of a text become references; what tag() made stays as it is."""
    inner = tag("b", '<script>"')
    assert inner == "<b>&lt;script&gt;&quot;</b>"
    assert tag("p", inner, " & ", title="'><i>") == f'<p title="&#x27;&gt;&lt;i&gt;">{inner} &amp; </p>'


def test_what_cannot_be_sent_or_deceives_is_spelled_out():
    """Half a surrogate pair is no UTF-8, and a mark that turns the writing shows one name as another; newlines stay."""
    assert tag("pre", "a\ud800b\u202ec\x00\nd") == "<pre>a\\ud800b\\u202ec\\x00\nd</pre>"


def test_attributes():
    """True has no value, False and None are left out; an underscore stands for a dash, and one at the end for nothing."""
    assert tag("input", hidden=True, checked=False, size=None, class_="a", data_key=0) == (
        '<input hidden class="a" data-key="0">'
    )


def test_children():
    """Numbers are written, None and False are nothing, and lists are taken one by one."""
    assert tag("td", 0, None, False, ["<", [tag("br")]]) == "<td>0&lt;<br></td>"
    assert joined() == Markup()
