"""Submissions: what a leader does between the upload of a topology's code and the topology's first moment.

How one goes, and what is left when the leader dies after each step:

======================================  ==========================================================
1. the archive is uploaded to a draft   a draft, which the next start removes
2. take a number, and so an id          a number that nobody uses
3. keep the code on this disk           code that is not published, which the next sync removes
4. give it to the distributor           the same; a shared folder may keep files
5. publish the manifest                 a manifest without a topology, which the next leader removes
6. a supervisor builds the topology     the same
7. wait for replication                 the same
8. write the topology's record          a topology that runs; its client may not know it
======================================  ==========================================================
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from txtopo.cluster.code.distribution import ClusterConnection
from txtopo.cluster.code.submission import ARCHIVE_NAME, DESCRIPTION_NAME, Submission, check_archive
from txtopo.cluster.code_store import describe
from txtopo.cluster.decisions.lifecycle import Status, Topology
from txtopo.cluster.nimbus.code_check import CodeCheck
from txtopo.cluster.nimbus.lead import Lead, Leadership
from txtopo.cluster.settings import ClusterConfig
from txtopo.errors import AlreadyAlive
from txtopo.failpoints import durable_step

_LOG = logging.getLogger(__name__)


@attrs.frozen
class Submitted:
    """What came of a submission."""

    topology: Topology
    warning: str | None
    """What the submission did without: a check, or some replicas."""


class Submissions:
    """Takes topologies in; ``on_end`` is called after each submission, failed or not."""

    def __init__(
        self,
        config: ClusterConfig,
        connection: ClusterConnection,
        leadership: Leadership,
        code_check: CodeCheck,
        on_end: Callable[[], None],
    ) -> None:
        self._config = config
        self._state, self._store, self._distributor = connection.state, connection.store, connection.distributor
        self._leadership = leadership
        self._code_check = code_check
        self._on_end = on_end
        self.under_way: set[str] = set()
        """The name, ``id:`` with the topology id, and the cluster's id of each submission under way. No other
        submission may use them, and no loop removes their code."""

    def submit(self, submission: Submission, archive: Path) -> Submitted:
        """Take in a topology, and return when it is active; may wait for minutes.

        ``archive`` is the uploaded file, in a draft of this nimbus' store.

        Raises:
            NotLeader: this nimbus does not lead, or stopped leading before the topology began.
            SubmissionError: the archive is bad, or its code does not build the topology.
            AlreadyAlive: the name or the topology id is in use.
        """
        lead = self._leadership.required()
        check_archive(archive)
        with self._reserved(lead, submission) as topology:
            (archive.parent / DESCRIPTION_NAME).write_bytes(submission.to_bytes())
            archive.rename(archive.parent / ARCHIVE_NAME)
            manifest = describe(topology.id, archive.parent)
            with durable_step("nimbus.keep"):
                self._store.keep(archive.parent, manifest)
            with durable_step("nimbus.upload"):
                self._distributor.upload(self._store.path(topology.id), manifest)
            with durable_step("nimbus.publish"):
                lead.writes.publish(manifest)
            with durable_step("nimbus.check"):
                unchecked = self._code_check.check(lead, topology, topology.settings)
            with durable_step("nimbus.replicate"):
                unreplicated = self._wait_for_replication(lead, topology.id)
            with self._leadership.decisions:
                replaced = self._check_free(submission)  # again: a failed topology may be back since, with its name
                with durable_step("nimbus.start"):
                    for ended in replaced:  # before its manifest goes, by which alone code without a topology is found
                        lead.clean_up(ended)
                    lead.writes.start(topology, replaced)
        _LOG.info("%s was submitted and is %s", topology.id, topology.status.value)
        return Submitted(topology, "; ".join(filter(None, (unchecked, unreplicated))) or None)

    @contextmanager
    def _reserved(self, lead: Lead, submission: Submission) -> Iterator[Topology]:
        """Take a number, and reserve name, topology id and code for this submission until it is over."""
        keys = (submission.name, f"id:{submission.topology_id}")
        with self._leadership.decisions:
            self._check_free(submission)
            if not self.under_way.isdisjoint(keys):
                raise AlreadyAlive(f"{submission.name!r} or its topology id is being submitted already")
            self.under_way.update(keys)
        topology_id = ""
        try:
            with durable_step("nimbus.number"):
                number = lead.writes.next_number()
            now = time.time()
            topology_id = f"{submission.name}-{number}-{int(now)}"
            self.under_way.add(topology_id)  # before any code is kept under that id
            status = Status.ACTIVE if submission.is_active else Status.INACTIVE
            yield Topology(
                topology_id,
                submission.name,
                submission.topology_id,
                status,
                now,
                wait_secs=submission.wait_secs,
                settings=dict(submission.settings),
            )
        finally:
            # The loops remove what a failed submission leaves, as after a crash: one way to clean up, used often.
            with self._leadership.decisions:
                self.under_way.difference_update((*keys, topology_id))
            self._on_end()

    def _check_free(self, submission: Submission) -> list[str]:
        """Return the ended topologies that a submission replaces; AlreadyAlive if one of that name or id lives."""
        namesakes = [
            topology
            for topology in self._state.topologies().values()
            if submission.name == topology.name or submission.topology_id == topology.topology_id
        ]
        for topology in namesakes:
            if topology.holds_name:
                part = (
                    f"name {topology.name!r}"
                    if topology.name == submission.name
                    else f"topology id {topology.topology_id!r}"
                )
                raise AlreadyAlive(
                    f"the {part} is in use by {topology.id}, which is {topology.status.value}: "
                    "kill it first, or wait until it is gone"
                )
        return [topology.id for topology in namesakes]

    def _wait_for_replication(self, lead: Lead, topology: str) -> str | None:
        """Wait until enough nimbuses hold the code; return a warning if the time is over before."""
        holders_min, wait_secs = (
            self._config["topology.min.replication.count"],
            self._config["topology.max.replication.wait.time.sec"],
        )
        deadline = float("inf") if wait_secs < 0 else time.monotonic() + wait_secs
        while (count := self._distributor.get_replication_count(topology)) < holders_min:
            if time.monotonic() >= deadline:
                warning = f"{count} of {holders_min} nimbuses hold the code after {wait_secs:g} s"
                _LOG.warning("%s: %s", topology, warning)
                return warning
            self._leadership.wait(lead)
        return None
