"""A damaged file in a run's folder: its own part of the page says so, and all others show what they have."""

import json
import shutil
import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.ui.runs import EVIL, run_in
from txtopo.files.places import folder_at
from txtopo.inspect.backend import FACTS_SECS, FolderBackend
from txtopo.inspect.run.slugs import slug_of
from txtopo.ui.app import Page, application
from txtopo.ui.security import Sessions, hosts_of

SLUG = slug_of(EVIL)
DAMAGES = {
    "cut": lambda content: content[: len(content) // 2],
    "a list": lambda _: b"[]",
    "too deep": lambda _: b"[" * 100_000,
}
ALWAYS = [
    "/part/topologies",
    f"/part/{SLUG}/header",
    f"/t/{SLUG}",
    f"/t/{SLUG}/tx/3",
    f"/t/{SLUG}@1",
    "/health",
    "/metrics",
]
PARTS = [f"/part/{SLUG}/{part}" for part in ("plots", "graph", "states", "errors", "settings", "transaction/3", "runs")]
TIMELINE = f"/api/v1/topology/{SLUG}/timeline"
OWN = {  # what may say of a file that it can't be read, instead of what is in it
    "records": {TIMELINE},
    "samples": {f"/part/{SLUG}/plots"},
    "errors": {f"/part/{SLUG}/errors"},
    "run": {f"/part/{SLUG}/graph", f"/part/{SLUG}/settings"},
}


@pytest.fixture(scope="module")
def output(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("whole")
    run_in(output, until=3)
    run_in(output)
    return output


def client_of(output: Path) -> tuple[FolderBackend, TestClient]:
    backend = FolderBackend(folder_at(output))
    page = Page(backend, Sessions())
    app = application(page, hosts_of(["127.0.0.1"], 8123), 8123)
    client = TestClient(app, base_url="http://127.0.0.1:8123", raise_server_exceptions=False)
    client.get(f"/?token={page.sessions.invite()}")
    return backend, client


def one_of_each_kind(output: Path) -> list[Path]:
    """Return the newest file of each kind and folder."""
    files = sorted(path for path in output.rglob("*") if path.is_file())
    return list({(file.parent, file.suffix): file for file in files}.values())


@pytest.mark.slow
@pytest.mark.parametrize("damage", [*DAMAGES, "a folder"])
def test_each_file(output, tmp_path, damage):
    """However a file is damaged, the page and all parts but its own are there."""
    shutil.copytree(output, tmp_path / "copy")
    for path in one_of_each_kind(tmp_path / "copy"):
        content = path.read_bytes()
        path.unlink()
        if damage == "a folder":
            path.mkdir()
        else:
            path.write_bytes(DAMAGES[damage](content))
        backend, client = client_of(tmp_path / "copy")
        own = set() if "past" in path.parts else OWN.get(path.suffix.removeprefix("."), set())
        for address in [*ALWAYS, *PARTS, TIMELINE]:
            answer = client.get(address)
            place = f"{address} with {path}: {answer.status_code} {answer.text:.300}"
            if answer.status_code != 200:
                assert answer.status_code == 503, place
                assert address in own, place
                assert path.name in answer.text, place
        backend.close()
        if damage == "a folder":
            path.rmdir()
        path.write_bytes(content)


@pytest.mark.parametrize("file", ["run-*.json", "timeline-*/*.run", "timeline-*/*.errors", "timeline-*/*.samples"])
def test_the_header_says_what_is_damaged(output, tmp_path, file):
    """By its path; and the run, of which the other files tell, is no other one by that."""
    shutil.copytree(output, tmp_path / "copy")
    (path,) = (tmp_path / "copy" / "_txtopo").glob(file)
    path.write_bytes(b"{")
    backend, client = client_of(tmp_path / "copy")
    header = backend.header(SLUG)
    (said,) = header.damage
    assert str(path) in said
    assert (header.status, header.committed) == ("ended", 6)
    assert path.name in client.get(f"/part/{SLUG}/header").text
    backend.close()


def test_transaction_with_a_damaged_journal(output, tmp_path):
    """The timeline still knows its attempts, and the story says why the journal tells nothing."""
    shutil.copytree(output, tmp_path / "copy")
    for part in (tmp_path / "copy" / "_txtopo" / "journal").rglob("*.jsonl"):
        lines = part.read_bytes().splitlines(keepends=True)
        part.write_bytes(b"".join([*lines[:-1], b"{}\n", *lines[-1:]]))
    backend, _ = client_of(tmp_path / "copy")
    story = backend.transaction(SLUG, 3)
    assert [attempt.outcome for attempt in story.attempts] == ["failed", "visible"]
    assert "journal" in story.story[0].text
    backend.close()


def test_transaction_that_nothing_is_known_of(output, tmp_path):
    """Without a timeline and with a damaged journal, or without any record: it is not there, and the answer says why."""
    shutil.copytree(output, tmp_path / "copy")
    for part in (tmp_path / "copy" / "_txtopo" / "journal").rglob("*.jsonl"):
        lines = part.read_bytes().splitlines(keepends=True)
        part.write_bytes(b"".join([*lines[:-1], b"{}\n", *lines[-1:]]))
    for folder in (tmp_path / "copy" / "_txtopo").glob("timeline-*"):
        shutil.rmtree(folder)
    backend, client = client_of(tmp_path / "copy")
    answer = client.get(f"/api/v1/topology/{SLUG}/transaction/3")
    assert (answer.status_code, "journal" in answer.json()["errorMessage"]) == (404, True)
    for part in (tmp_path / "copy" / "_txtopo" / "journal").rglob("*.jsonl"):
        part.unlink()
    for snapshot in (tmp_path / "copy" / "_txtopo").glob("run-*"):
        snapshot.unlink()
    time.sleep(FACTS_SECS)
    answer = client.get(f"/api/v1/topology/{SLUG}/transaction/3")
    assert (answer.status_code, "there is no topology" in answer.json()["errorMessage"]) == (404, True)
    backend.close()


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "graph", [{}, {"components": [{}], "edges": []}, {"components": [], "edges": [{"source": "a"}]}, []]
)
def test_a_run_whose_graph_is_another(output, tmp_path, graph):
    """As one that another version has written: the graph says so, and the rest is there."""
    shutil.copytree(output, tmp_path / "copy")
    (path,) = (tmp_path / "copy" / "_txtopo").glob("timeline-*/*.run")
    path.write_text(json.dumps({**json.loads(path.read_text()), "graph": graph}))
    backend, client = client_of(tmp_path / "copy")
    answer = client.get(f"/part/{SLUG}/graph")
    assert (answer.status_code, path.name in answer.text) == (503, True)
    assert {client.get(each).status_code for each in ALWAYS} == {200}
    backend.close()
