"""What tests of the pages share."""

import logging
import sys

import pytest

from tests.docs.blocks import PageRun


@pytest.fixture
def page_run(tmp_path, monkeypatch, request):
    """A run of one page in a folder of its own; its modules and what it has set in the logger are gone at the end."""
    known = set(sys.modules)
    logger = logging.getLogger("txtopo.user")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield PageRun(request.node.name, tmp_path)
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]
    for handler in set(logger.handlers) - set(handlers):
        logger.removeHandler(handler)
        handler.close()
    logger.setLevel(level)
    logger.propagate = propagate
