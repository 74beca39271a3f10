"""Lets a supervisor build a topology before its code gets in, where the topology's drivers are to run."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from urllib.parse import quote

import httpx

from txtopo.cluster.asking import NobodyAnswers, first_answer
from txtopo.cluster.decisions.lifecycle import Topology
from txtopo.cluster.logs import RepeatedWarning
from txtopo.cluster.nimbus.lead import Lead, Leadership
from txtopo.cluster.state import ClusterState
from txtopo.errors import ClusterError, SubmissionError
from txtopo.files.records import DAMAGE

_LOG = logging.getLogger(__name__)
_CONNECT_SECS = 3.0
"""A supervisor whose machine is gone answers nothing: the next one is asked after so long."""
_APART_SECS = 10.0
"""After how long a second supervisor is asked: one that hangs must not use up the whole time."""


class CodeCheck:
    """Asks supervisors to build a topology, for up to ``timeout_secs`` altogether."""

    def __init__(self, state: ClusterState, leadership: Leadership, token: str, timeout_secs: float) -> None:
        self._state = state
        self._leadership = leadership
        self._timeout_secs = timeout_secs
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(timeout_secs, connect=_CONNECT_SECS),
            trust_env=False,  # otherwise httpx goes through the proxy that HTTP_PROXY names
        )
        self._reminder = RepeatedWarning(_LOG)

    def close(self) -> None:
        """Close the connections to supervisors."""
        self._client.close()

    def check(self, lead: Lead, topology: Topology, settings: Mapping[str, str]) -> str | None:
        """Let a supervisor build the topology with some settings; return a warning if the cluster has no supervisor.

        Ask again until one answers, for a supervisor may be busy or starting. While the cluster has one, unchecked code
        does not get in.

        Raises:
            SubmissionError: it does not build, or builds another topology.
            ClusterError: no supervisor has checked it in time.
            NotLeader: this nimbus no longer leads.
        """
        deadline = time.monotonic() + self._timeout_secs
        # With every supervisor away for a moment, assignments show that the cluster has some.
        has_supervisors = bool(self._state.assignments())
        why = ""
        while (left_secs := deadline - time.monotonic()) > 0:
            supervisors = list(self._state.supervisors().values())
            has_supervisors |= bool(supervisors)
            if not has_supervisors:
                return "no supervisor is there to check the code"
            asks = [partial(self._built_by, supervisor.address, topology, settings) for supervisor in supervisors]
            try:
                built = first_answer(asks, (ClusterError,), apart_secs=_APART_SECS, secs=left_secs)
            except NobodyAnswers as error:
                # The last round may have only timeouts, for lack of time; an earlier error says more.
                if not why or not all(isinstance(each, TimeoutError) for each in error.errors):
                    why = str(error)
                self._reminder.warn(f"check {topology.id}", "the code of %s was not checked: %s", topology.id, why)
            else:
                if built != topology.topology_id:
                    raise SubmissionError(f"the code builds topology {built!r}, not {topology.topology_id!r}")
                return None
            self._leadership.wait(lead)
        raise ClusterError(
            f"no supervisor has checked the code within {self._timeout_secs:g} s, so it was not let in: "
            f"{why or 'no supervisor is there'}; see that supervisors run, then try again"
        )

    def _built_by(self, supervisor: str, topology: Topology, settings: Mapping[str, str]) -> str:
        """Return the id of the topology that a supervisor builds from the code; ClusterError if it can't say."""
        url = f"http://{supervisor}/api/v1/code/{quote(topology.id, safe='')}/check"
        try:
            answer = self._client.post(url, json={"settings": dict(settings)})
            content = answer.json()
            result = str(content["topologyId"]) if answer.is_success else str(content["errorMessage"])
        except (httpx.HTTPError, *DAMAGE) as error:
            raise ClusterError(f"the supervisor at {supervisor}: {error!r}") from error
        if answer.status_code == HTTPStatus.BAD_REQUEST:
            raise SubmissionError(f"the code does not run where drivers do: {result}")
        if not answer.is_success:
            raise ClusterError(f"the supervisor at {supervisor}: {result}")
        return result
