"""What daemons share: sockets."""

from __future__ import annotations

import pytest

from txtopo.cluster.daemon import listen
from txtopo.errors import ConfigError


def test_port_that_is_taken() -> None:
    """The error says so, before anything is announced."""
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            listen("127.0.0.1", port)
