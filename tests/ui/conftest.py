"""What tests of the page share: one browser, in which each test ends without a complaint in the console."""

import contextlib
import os
from collections.abc import Iterator

import pytest

from tests.ui.browser import Browser, chromium


@pytest.fixture(scope="session")
def window() -> Iterator[Browser]:
    """One Chromium for all tests: its start takes a second."""
    with contextlib.ExitStack() as stack:
        try:
            browser = stack.enter_context(chromium())
        except FileNotFoundError as missing:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(f"not tested: the page in a browser; {missing}")
        yield browser


@pytest.fixture
def browser(window) -> Iterator[Browser]:
    """The browser, on an empty page; at the end its console must be empty, too."""
    window.driver.get("about:blank")
    window.complaints()
    yield window
    said = window.complaints()
    window.driver.get("about:blank")
    assert said == []
