"""The client of a cluster: finds the leader from some seeds, and asks it.

The client asks all seeds at once and takes the first sound answer, so a seed that is down or hangs delays nobody. Every
nimbus knows who leads. While nobody leads, as during an election, the client tries again with longer and longer waits,
and raises NoLeader after ``patience_secs``.

A leader may take minutes over a submission. The client waits for as long as the leader answers ``/health`` on another
connection; a leader that hangs does not.

A nimbus that answers "I do not lead" has changed nothing, so the client sends the request again. If the connection
breaks before the answer, the leader may have carried the request out. The client sends a request that names the wanted
status (kill, activate …) again; it does not repeat a submission, whose error says to look at the list.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from txtopo import errors
from txtopo.cluster.asking import NobodyAnswers, ask_in_thread, first_answer, is_answered
from txtopo.cluster.code.submission import Submission
from txtopo.cluster.summaries import NimbusSummary, SubmittedTopology, SupervisorSummary, TopologySummary
from txtopo.errors import ClusterError, NoLeader, NotAlive, NotLeader, TransitionError, TxtopoError, Unreachable
from txtopo.files.records import from_json

T = TypeVar("T")

_RETRY_SECS = 0.2
"""The first pause before all nimbuses are asked again; each next one is twice as long."""
_RETRY_SECS_MAX = 5.0
"""The longest pause: an election takes some seconds, and whoever waits for it asks again soon after."""
_CONNECT_SECS = 3.0
"""A machine that is gone answers nothing: the next nimbus is asked after so long."""
_ANSWER_SECS = 30.0
"""An answer that takes longer, over a slow store as well, does not come."""
_PAGE_TIMEOUT = httpx.Timeout(8.0, connect=1.0)
"""For the page: a browser waits for 10 s."""
_SEEDS_MAX = 32
"""Of more nimbuses those that were named last are remembered: each answer names all that are alive."""
_SIGN_SECS = 3.0
"""How often a leader that works on an answer is asked whether it is alive."""
_SILENT_SECS = 20.0
"""After so long without a sign of life the client gives the leader up."""
_CHUNK_BYTES = 1 << 20
"""How much of a file is in memory at a time."""
_LOG_TAIL_BYTES = 64 << 10
"""With how much of a log ``txtopo logs`` begins: some hundred lines."""
_LOG_SECS = 10.0
"""A supervisor reads logs from its disk; one that is slower counts as unreachable."""
_FOLLOW_SECS = 0.5
"""How often ``--follow`` asks for more: a reader does not notice half a second."""
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout)
"""Errors after which nobody has received a request."""
_UNSOUND = (httpx.TransportError, ClusterError, Unreachable)
"""Errors that leave the question open: another nimbus may know."""


class ClusterClient:
    """A client of a cluster. All methods raise the error that a nimbus answers with, or NoLeader.

    Args:
        seeds: ``host:port`` of some nimbuses.
        token: the cluster's.
        patience_secs: how long to go on while nobody leads.
    """

    def __init__(self, seeds: Sequence[str], token: str, patience_secs: float = 30.0) -> None:
        self._seeds = tuple(seeds)
        self._answered: tuple[str, ...] = ()
        """The nimbus that has answered for the page last."""
        self._patience_secs = patience_secs
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(_ANSWER_SECS, connect=_CONNECT_SECS),
            trust_env=False,  # otherwise httpx goes through the proxy that HTTP_PROXY names
        )

    def __enter__(self) -> ClusterClient:  # noqa: PYI034 - the class is not for subclassing
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    # What any nimbus answers.

    def leader(self) -> str:
        """Return the leader's ``host:port``, as the first seed that answers has it.

        Raises:
            NoLeader: nobody leads, or no seed can be reached: the message says which.
        """

        def leader_by(seed: str) -> str:
            address = self._get(seed, "leader").get("leader")
            if address is None:
                raise ClusterError(f"{seed}: nobody leads at the moment")
            return str(address)

        try:
            return first_answer([partial(leader_by, seed) for seed in self._seeds], _UNSOUND)
        except NobodyAnswers as error:
            seeds = ", ".join(self._seeds)
            raise NoLeader(f"no nimbus of {seeds} says who leads; try again ({error})") from error

    def get(self, path: str) -> Any:
        """Return the JSON at a path below ``/api/v1/``, such as ``cluster/summary``.

        ``txtopo.cluster.nimbus.api`` lists the paths.
        """
        return self._patiently(lambda: self._ask_any(path))

    def nimbuses(self) -> list[NimbusSummary]:
        """Return all live nimbuses."""
        return [from_json(nimbus, NimbusSummary) for nimbus in self.get("nimbus/summary")["nimbuses"]]

    def supervisors(self) -> list[SupervisorSummary]:
        """Return all live supervisors."""
        return [
            from_json(supervisor, SupervisorSummary) for supervisor in self.get("supervisor/summary")["supervisors"]
        ]

    def topologies(self) -> list[TopologySummary]:
        """Return all topologies."""
        return [from_json(topology, TopologySummary) for topology in self.get("topology/summary")["topologies"]]

    def topology(self, name: str) -> TopologySummary:
        """Return a topology by name or id.

        Raises:
            NotAlive: there is none.
        """
        for each in self.topologies():  # a path of its own may be another's: "summary" is that of the list
            if name in {each.id, each.name}:
                return each
        raise NotAlive(f"the cluster has no topology {name!r}")

    def log(self, name: str, *, follows: bool = False) -> Iterator[bytes]:
        """Yield the last 64 KiB of the log of a topology's drivers.

        With ``follows``, go on with every line that is added, on whatever supervisor the topology runs, until the
        topology is gone or the caller stops. If the topology returns to a supervisor, its log continues where it was
        left.

        Raises:
            NotAlive: no topology has that name, or no driver of it has run on a live supervisor.
        """
        topology = self.topology(name)
        place, starts = self._log_place(topology), dict[str, int]()
        if place is None and not follows:
            raise NotAlive(f"no live supervisor has a log of {name!r}; has a driver of it run yet?")
        goes_on = follows
        while True:
            if place is not None:
                # A follower outlasts a supervisor that is away: it comes back, or the topology moves.
                with contextlib.suppress(ClusterError) if follows else contextlib.nullcontext():
                    yield from self._log_parts(place, topology.id, starts)
            if not goes_on:
                return
            time.sleep(_FOLLOW_SECS)
            try:
                shown = self._ask_any(f"topology/{quote(topology.id, safe='')}")
                topology = from_json(shown, TopologySummary)
                place = self._log_place(topology) or place  # between two places, the old one may have unread lines
            except NoLeader:
                continue  # without a nimbus the topology stays where it is, so its log is still the right one
            except NotAlive:
                goes_on = False  # read once more what its drivers wrote last

    def _log_parts(self, place: str, topology: str, starts: dict[str, int]) -> Iterator[bytes]:
        """Yield a supervisor's log from ``starts[place]`` on, and move that forward."""
        while (part := self._log_part(place, topology, starts.get(place, -_LOG_TAIL_BYTES))) is not None:
            starts[place] = int(part.headers["X-Log-Next"])
            if not part.content:
                return
            yield part.content

    def _log_place(self, topology: TopologySummary) -> str | None:
        """Return the address of the supervisor that runs the topology, or of one that has its log."""
        supervisors = {supervisor.id: supervisor.address for supervisor in self.supervisors()}
        if topology.assignment is not None and topology.assignment.supervisor in supervisors:
            return supervisors[topology.assignment.supervisor]

        def address_of_log(address: str) -> str:
            if self._log_part(address, topology.id, -1) is None:
                raise ClusterError(f"{address} has none")
            return address

        try:
            return first_answer([partial(address_of_log, supervisor) for supervisor in supervisors.values()], _UNSOUND)
        except NobodyAnswers:
            return None

    def _log_part(self, supervisor: str, topology: str, start: int) -> httpx.Response | None:
        url = f"http://{supervisor}/api/v1/log/{quote(topology, safe='')}"
        try:
            answer = self._client.get(url, params={"start": start}, timeout=_LOG_SECS)
        except httpx.TransportError as error:
            message = str(error) or type(error).__name__
            raise ClusterError(f"the supervisor at {supervisor} does not answer: {message}") from error
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return None
        if not answer.is_success:
            _content(answer)
        return answer

    def learn(self, nimbuses: Iterable[str]) -> None:
        """Ask these nimbuses, too: a client that lives for long outlives the seeds that it was given."""
        self._seeds = tuple(dict.fromkeys([*self._seeds, *nimbuses]))[-_SEEDS_MAX:]

    def page(self, path: str = "") -> httpx.Response:
        """Return a nimbus' answer for the page, whatever its status; ``path`` is below ``/api/v1/page``.

        The nimbus that has answered last is asked first, and the others only if it does not answer.

        Raises:
            NoLeader: none answers.
        """
        errors = []
        for seed in dict.fromkeys([*self._answered, *self._seeds]):
            try:
                answer = self._client.get(f"http://{seed}/api/v1/page{path}", timeout=_PAGE_TIMEOUT)
            except httpx.TransportError as error:
                errors.append(f"{seed}: {str(error) or type(error).__name__}")
                continue
            self._answered = (seed,)
            return answer
        raise NoLeader(f"no nimbus answers: {'; '.join(errors)}")

    # What the leader does.

    def submit(self, submission: Submission, archive: Path) -> SubmittedTopology:
        """Submit a topology, with a zip of its modules; return it when it is active.

        Waits for the check of the code and for replication, which may take minutes.

        Raises:
            SubmissionError: the cluster refuses it.
            AlreadyAlive: the name or the topology's id is in use.
            ClusterError: the connection broke: it may have been submitted.
        """

        def body() -> Iterator[bytes]:
            yield submission.to_bytes() + b"\n"
            with archive.open("rb") as file:
                while chunk := file.read(_CHUNK_BYTES):
                    yield chunk

        def send(leader: str) -> Any:
            try:
                return self._post(leader, "topology", content=body())
            except _UNSENT as error:  # so it may be sent again
                raise NoLeader(f"the leader {leader} cannot be reached: {error}") from error
            except (httpx.TransportError, Unreachable) as error:
                raise ClusterError(
                    f"the leader {leader} no longer answers ({str(error) or type(error).__name__}): "
                    f"{submission.name!r} may have been submitted; look at the list of topologies before you submit it "
                    "again"
                ) from error

        return from_json(self._patiently(lambda: send(self.leader())), SubmittedTopology)

    def activate(self, name: str) -> TopologySummary:
        """Let a topology begin transactions again; return it."""
        return self.change(name, "activate")

    def deactivate(self, name: str) -> TopologySummary:
        """Let a topology begin no transaction; return it."""
        return self.change(name, "deactivate")

    def rebalance(
        self, name: str, wait_secs: float | None = None, settings: Mapping[str, str] | None = None
    ) -> TopologySummary:
        """Restart a topology after a wait, with changed settings; return it."""
        return self.change(name, "rebalance", wait_secs, settings)

    def kill(self, name: str, wait_secs: float | None = None) -> TopologySummary:
        """End a topology after a wait; return it. A second kill replaces the wait of the first."""
        return self.change(name, "kill", wait_secs)

    def change(
        self, name: str, change: str, wait_secs: float | None = None, settings: Mapping[str, str] | None = None
    ) -> TopologySummary:
        """Ask for what one of the four methods above does, by its name; only ``rebalance`` has settings."""
        body = {"settings": dict(settings or {})} if change == "rebalance" else None
        path = f"topology/{quote(name, safe='')}/{change}" + ("" if wait_secs is None else f"/{wait_secs:g}")
        is_sent_again = False

        def send() -> TopologySummary:
            nonlocal is_sent_again
            leader = self.leader()
            try:
                return from_json(self._post(leader, path, json=body)["topology"], TopologySummary)
            except (httpx.TransportError, Unreachable) as error:  # ZooKeeper may have taken what the leader wrote
                is_sent_again = is_sent_again or not isinstance(error, _UNSENT)
                raise NoLeader(f"the leader {leader} does not answer: {error}") from error
            # 1. The leader carries out a request. 2. Its answer is lost. 3. It refuses the same request when it comes
            # again, because a topology that is REBALANCING, or gone, takes none. So this refusal means success.
            except TransitionError:
                if is_sent_again and change == "rebalance":
                    return self.topology(name)
                raise
            except NotAlive:
                if is_sent_again and change == "kill":
                    return TopologySummary(name, name, status="KILLED", seconds_left=0.0)
                raise

        return self._patiently(send)

    def _ask_any(self, path: str) -> Any:
        try:
            return first_answer([partial(self._get, seed, path) for seed in self._seeds], _UNSOUND)
        except NobodyAnswers as error:
            raise NoLeader(f"no nimbus answers: {error}") from error

    def _get(self, seed: str, path: str) -> Any:
        """Return a seed's JSON; an error that is the seed's own names the seed."""
        try:
            return _content(self._client.get(f"http://{seed}/api/v1/{path}"))
        except _UNSOUND as error:
            raise ClusterError(f"{seed}: {str(error) or type(error).__name__}") from error

    def _post(self, leader: str, path: str, **body: Any) -> Any:
        """Return the leader's JSON, however long it takes, for as long as the leader gives signs of life."""
        no_limit = httpx.Timeout(None, connect=_CONNECT_SECS)
        url = f"http://{leader}/api/v1/{path}"
        answer = ask_in_thread(lambda: self._client.post(url, timeout=no_limit, **body))
        heard_at = time.monotonic()
        while not is_answered(answer, _SIGN_SECS):
            if self._lives(leader):
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at > _SILENT_SECS:
                raise httpx.ReadTimeout(f"no sign of life for {_SILENT_SECS:g} s")
        return _content(answer.result())

    def _lives(self, nimbus: str) -> bool:
        """Whether a nimbus answers at all, if only that ZooKeeper is away."""
        with contextlib.suppress(httpx.TransportError):
            self._client.get(f"http://{nimbus}/health", timeout=_SIGN_SECS)
            return True
        return False

    def _patiently(self, ask: Callable[[], T]) -> T:
        deadline, wait_secs = time.monotonic() + self._patience_secs, _RETRY_SECS
        while True:
            try:
                return ask()
            except (NoLeader, NotLeader, Unreachable):
                if time.monotonic() + wait_secs > deadline:
                    raise
                time.sleep(wait_secs * random.uniform(0.5, 1.0))  # noqa: S311 - so that many clients do not come at once
                wait_secs = min(2 * wait_secs, _RETRY_SECS_MAX)


def _content(answer: httpx.Response) -> Any:
    try:
        content = answer.json()
        _ = content.get  # AttributeError: JSON, but no object
    except (ValueError, AttributeError, RecursionError) as error:
        raise ClusterError(f"{answer.url} answers with {answer.status_code}, and no JSON: is it a nimbus?") from error
    if answer.is_success:
        return content
    message = str(content.get("errorMessage", answer.status_code))
    # A newer nimbus may name a class that this version lacks; then the status decides.
    kind = getattr(errors, str(content.get("error")), None)
    if isinstance(kind, type) and issubclass(kind, TxtopoError):
        raise kind(message)
    if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise ClusterError(message)
    raise errors.RequestError(message)
