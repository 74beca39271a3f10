"""What commands print of a cluster."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from txtopo.cli.cluster.asking import list_command

REASON = (
    "UserCodeError: the bolt 'count' failed\n  File \"words.py\", line 3\n    raise ValueError\nValueError: it broke"
)


def topology(name: str, **changes: Any) -> dict[str, Any]:
    """Return a topology as the API shows it."""
    return {
        "id": f"{name}-1-9",
        "name": name,
        "topologyId": name,
        "status": "ACTIVE",
        "uptimeSeconds": 9,
        "settings": {"shop.discount": "3"},
        "reason": None,
        "secondsLeft": None,
        "replicationCount": 2,
        "holders": ["127.0.0.1:1", "127.0.0.1:2"],
        "assignment": {"supervisor": "s1", "slot": 0, "number": 1},
        "heartbeat": {"stage": "running", "detail": "", "pid": 7, "count": 3, "figures": {"committedTxid": 4}},
        **changes,
    }


STARTING = {"stage": "starting", "detail": "starting Spark, for 95 s", "pid": 7, "count": 3, "figures": {}}
TOPOLOGIES = {
    each["name"]: each
    for each in (
        topology("words"),
        topology("failed", status="FAILED", reason=REASON, assignment=None, heartbeat=None),
        topology("slow", heartbeat=STARTING),
        topology("waiting", assignment=None, heartbeat=None),
        topology("silent", heartbeat=None),
        topology("summary"),
    )
}


class _Nimbus(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert self.path == "/api/v1/topology/summary"
        content = {"topologies": list(TOPOLOGIES.values())}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """The configuration of a cluster with some topologies."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Nimbus) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (tmp_path / "token").touch(mode=0o600)
        (tmp_path / "token").write_text("token")
        path = tmp_path / "cluster.toml"
        path.write_text(
            f'"nimbus.seeds" = ["127.0.0.1:{server.server_port}"]\n"cluster.token.file" = "{tmp_path / "token"}"\n'
        )
        yield path
        server.shutdown()


def run(*arguments: str) -> Result:
    """Run ``txtopo list``, which must succeed."""
    done = CliRunner().invoke(list_command, arguments)
    assert done.exit_code == 0, done.output
    return done


def test_list_has_a_line_for_each_topology(config: Path) -> None:
    """Also for one whose reason is a traceback: its first line, and the command that prints the rest."""
    lines = run("--config", str(config)).output.splitlines()
    assert len(lines) == 1 + len(TOPOLOGIES)
    shown = dict(zip(TOPOLOGIES, lines[1:], strict=True))
    assert "the bolt 'count' failed (all of it: txtopo list failed)" in shown["failed"]
    assert "starting: starting Spark, for 95 s" in shown["slow"]
    assert "no slot is free" in shown["waiting"]
    assert "no heartbeat yet" in shown["silent"]
    assert "committedTxid 4" in shown["words"]


def test_list_of_one_topology(config: Path) -> None:
    """All that is known of it, with all lines of the reason; as JSON, what the API says."""
    shown = run("failed", "--config", str(config)).output
    assert [line.strip() for line in REASON.splitlines()] == [
        line.strip().removeprefix("reason").strip() for line in shown.splitlines()[4:8]
    ]
    assert "shop.discount=3" in shown
    for name in ("words", "summary"):  # the API lists all at .../topology/summary
        assert json.loads(run(name, "--format", "json", "--config", str(config)).output) == TOPOLOGIES[name]
