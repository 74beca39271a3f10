"""The page's process: ``txtopo ui``, and the page beside a run, which outlives a run that is killed."""

import contextlib
import errno
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from tests.full_disk import no_file_larger_than
from tests.processes import ROOT, python, ran
from tests.ui.runs import EVIL, run_in
from tests.waiting import DEADLINE_SECS, wait_for
from txtopo.engine.page import PAGE_FILE, PageFile, PageOptions, page_of_run
from txtopo.engine.timeline.records import folder_of
from txtopo.errors import ConfigError
from txtopo.inspect.run.slugs import slug_of
from txtopo.main.group import txtopo

TOPOLOGY = f"/api/v1/topology/{slug_of(EVIL)}"


@contextlib.contextmanager
def browser(url: str) -> Iterator[httpx.Client]:
    """Open an address as a browser does."""
    with httpx.Client(base_url=url.partition("/?")[0], trust_env=False, timeout=DEADLINE_SECS) as client:
        assert client.get(url).status_code == 200
        client.headers["Origin"] = url.partition("/?")[0]
        yield client


@pytest.fixture(scope="module")
def output(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("output")
    run_in(folder)
    return folder


@pytest.mark.slow
def test_without_a_clusters_client():
    """The page of a folder needs only what the extra ``ui`` installs."""
    assert ran("-c", "import sys; sys.modules['httpx'] = None; import txtopo.ui.serving").stderr == ""


@pytest.mark.slow
def test_ui(output):
    """``txtopo ui OUTPUT`` prints one address; an audit that the page begins runs in a process of its own."""
    process = python("-m", "txtopo", "ui", output)
    with process, browser(process.stdout.readline().strip()) as client:
        number = client.post(f"{TOPOLOGY}/audit").json()["check"]
        assert client.post(f"{TOPOLOGY}/audit").status_code == 409
        wait_for("the audit", lambda: client.get(f"/api/v1/check/{number}").json()["state"] != "running")
        check = client.get(f"/api/v1/check/{number}").json()
        assert (check["state"], check["reason"], check["output"]) == ("same", "", "")
        assert check["audit"]["isProved"]
        assert [table["state"] for table in check["audit"]["tables"]]
        assert client.get(TOPOLOGY).json()["check"] == check
        assert client.post(f"{TOPOLOGY}/replay/1").status_code == 404
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECS) == 0


def refusal(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(txtopo, ["ui", *words], prog_name="txtopo")
    return result.exit_code, result.stderr


def test_no_page(output, tmp_path):
    """A folder without a run, and an address that can't be used, are errors in a line."""
    assert "no run has left anything in" in refusal(str(tmp_path))[1]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"on 127.0.0.1:{port}: Address already in use\n" in refusal(str(output), "--at", port)[1]
    assert refusal(str(output), "--at", "x")[0] == 2


def beside_in(output: Path) -> PageOptions:
    return PageOptions(("--version",), {"out": "o"}, str(folder_of(output / "_txtopo", EVIL) / PAGE_FILE))


@pytest.mark.slow
def test_one_page_for_a_folder(output, monkeypatch):
    """A second run finds the page of the first; its file is its user's only; the page ends with the run it is of."""
    monkeypatch.chdir(ROOT)
    beside = beside_in(output)
    with page_of_run(output, ("127.0.0.1", 0), beside) as first:
        assert stat.S_IMODE(Path(beside.page_file).stat().st_mode) == 0o600
        with page_of_run(output, ("127.0.0.1", 0), beside) as second, browser(second) as client:
            assert second.partition("/?")[0] == first.partition("/?")[0]
            assert client.get(f"{TOPOLOGY}/settings").json()["arguments"] == {"out": "o"}
        with browser(first) as client:
            assert client.get(TOPOLOGY).json()["can"]["replay"]
    assert PageFile.read(Path(beside.page_file)) is None
    with pytest.raises(httpx.TransportError), browser(first):
        pass


@pytest.mark.slow
def test_page_of_a_killed_run(output):
    """It goes on, the next run takes it over, and it ends with that one; a run that finds it meanwhile leaves it."""
    launch = (
        "import json, sys, time\n"
        "from pathlib import Path\n"
        "from txtopo.engine.page import PageOptions, page_of_run\n"
        "beside = PageOptions((), {}, sys.argv[2])\n"
        "with page_of_run(Path(sys.argv[1]), ('127.0.0.1', 0), beside) as url:\n"
        "    print(url, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    beside = beside_in(output)
    words = [sys.executable, "-c", launch, str(output), beside.page_file]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as run:
        url = run.stdout.readline().strip()
        run.kill()
    with browser(url) as client, page_of_run(output, ("127.0.0.1", 0), beside) as next_url:
        assert next_url.partition("/?")[0] == url.partition("/?")[0]
        with page_of_run(output, ("127.0.0.1", 1), beside) as third:
            assert third.endswith(" (served there already, not at port 1)")
        assert client.get(TOPOLOGY).status_code == 200
    wait_for("it is gone", lambda: not Path(beside.page_file).exists())


@pytest.mark.slow
def test_page_that_can_not_start(output, monkeypatch):
    """The reason is that of the page's process."""
    monkeypatch.chdir(ROOT)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match="the page could not be started: cannot serve the page on"),
        page_of_run(output, ("127.0.0.1", taken.getsockname()[1]), beside_in(output)),
    ):
        pass


def test_a_page_on_a_full_disk(output):
    """What can't be written is named, and no process is started that could not say why it ends."""
    with (
        no_file_larger_than(0),
        pytest.raises(
            ConfigError, match=r"the page can't write .*page\.log: the disk is full; mend that, or run without"
        ),
        page_of_run(output, ("127.0.0.1", 0), beside_in(output)),
    ):
        pass


def test_a_page_on_a_read_only_disk(output, monkeypatch):
    beside = beside_in(output)

    def refused(*_arguments, **_options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "open", refused)
    with (
        pytest.raises(ConfigError, match=r"the page can't write .*page\.lock: the file system is read-only; "),
        page_of_run(output, ("127.0.0.1", 0), beside),
    ):
        pass
