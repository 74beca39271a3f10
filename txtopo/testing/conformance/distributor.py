"""The conformance tests of every code distributor, yours and txtopo's: a test class to subclass.

::

    class TestMyDistributor(CodeDistributorConformance):
        @pytest.fixture
        def place(self, tmp_path):
            with MyPlace(tmp_path) as place:
                yield place
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import attrs
import pytest

from txtopo.cluster.code.distribution import CodeDistributor
from txtopo.cluster.code_store import CodeFile, CodeStore, Manifest, damage, describe
from txtopo.errors import CodeUnavailable

TOPOLOGY = "words-1-900"
FILES = {"code.zip": bytes(range(256)) * 9000, "topology.json": b"{}", "empty": b""}


@attrs.frozen
class DistributorNimbus:
    """A nimbus in a test: its store of code, and its prepared distributor."""

    address: str
    store: CodeStore
    distributor: CodeDistributor


class DistributorPlace(ABC):
    """A cluster of nimbuses. It closes at the end what it has opened."""

    @abstractmethod
    def nimbus(self) -> DistributorNimbus:
        """Return one more nimbus, with an empty store."""

    @abstractmethod
    def publish(self, nimbus: DistributorNimbus, manifest: Manifest) -> None:
        """Publish a manifest, and that the nimbus holds the code, as a leader does."""

    @abstractmethod
    def hold(self, nimbus: DistributorNimbus, topology: str) -> None:
        """Say that a nimbus holds the code of a topology."""

    @abstractmethod
    def leave(self, nimbus: DistributorNimbus) -> None:
        """End a nimbus' announcement; its record of holding code stays."""


class CodeDistributorConformance:
    """The promises of :class:`~txtopo.cluster.CodeDistributor`, as tests.

    Subclass it, and define a fixture ``place`` that returns a new :class:`DistributorPlace`.
    """

    @pytest.fixture
    def leader(self, place: DistributorPlace) -> DistributorNimbus:
        """A nimbus that has uploaded and published a topology."""
        leader = place.nimbus()
        with leader.store.draft() as draft:
            for name, content in FILES.items():
                (draft / name).write_bytes(content)
            manifest = describe(TOPOLOGY, draft)
            leader.store.keep(draft, manifest)
        leader.distributor.upload(leader.store.path(TOPOLOGY), manifest)
        place.publish(leader, manifest)
        return leader

    def test_download(self, place: DistributorPlace, leader: DistributorNimbus, tmp_path: Path) -> None:
        """Another nimbus gets every file, byte by byte, in order of the manifest."""
        manifest = leader.store.manifest(TOPOLOGY)
        assert manifest is not None
        paths = place.nimbus().distributor.download(manifest, tmp_path)
        assert paths == [tmp_path / name for name in sorted(FILES)]
        assert {path.name: path.read_bytes() for path in paths} == FILES
        assert damage(manifest, tmp_path) is None

    def test_replication_count(self, place: DistributorPlace, leader: DistributorNimbus) -> None:
        """It counts the leader, and everyone alive who says that it holds the code; 0 for what nobody holds."""
        other = place.nimbus()
        assert other.distributor.get_replication_count("unknown-2-900") == 0
        assert [nimbus.distributor.get_replication_count(TOPOLOGY) for nimbus in (leader, other)] == [1, 1]
        place.hold(other, TOPOLOGY)
        assert [nimbus.distributor.get_replication_count(TOPOLOGY) for nimbus in (leader, other)] == [2, 2]
        place.leave(leader)
        assert [nimbus.distributor.get_replication_count(TOPOLOGY) for nimbus in (leader, other)] == [1, 1]

    def test_download_of_what_has_another_content(
        self, place: DistributorPlace, leader: DistributorNimbus, tmp_path: Path
    ) -> None:
        """It is refused, whether the size is another or only the content."""
        manifest = leader.store.manifest(TOPOLOGY)
        assert manifest is not None
        other = place.nimbus()
        changes: tuple[dict[str, Any], ...] = ({"sha256": "0" * 64}, {"size_bytes": 5})
        for number, change in enumerate(changes):
            folder = tmp_path / str(number)
            folder.mkdir()
            files = tuple(attrs.evolve(file, **change) for file in manifest.files)
            with pytest.raises(CodeUnavailable):
                other.distributor.download(attrs.evolve(manifest, files=files), folder)

    def test_download_of_what_nobody_has(self, place: DistributorPlace, tmp_path: Path) -> None:
        """It raises CodeUnavailable."""
        wanted = Manifest("lost-3-900", (CodeFile("code.zip", 4, "0" * 64),))
        with pytest.raises(CodeUnavailable):
            place.nimbus().distributor.download(wanted, tmp_path)

    def test_cleanup_and_close(self, place: DistributorPlace, leader: DistributorNimbus) -> None:
        """Both may be called again."""
        leader.distributor.cleanup(TOPOLOGY)
        leader.distributor.cleanup(TOPOLOGY)
        other = place.nimbus()
        other.distributor.close()
        other.distributor.close()
