"""All errors of txtopo, grouped by the party at fault and by the consequence.

::

    TxtopoError
    ├── RuleError                 you broke a rule: nothing was written; fix it and start again
    │   ├── ConfigError             a configuration name or value
    │   ├── TopologyError           a mistake in the graph, found by build()
    │   │   └── UnknownWord             a word that streams do not have; an AttributeError, too
    │   ├── FieldsError             a value that does not fit its declared fields
    │   ├── AnchorError             a tuple that was acked or failed is used as an anchor
    │   ├── StateAccessError        a state used in the wrong place or phase
    │   ├── InputError              input that cannot be read, or that changed between two attempts
    │   ├── UserCodeError           an exception in a bolt or spout that is not a FailedException
    │   ├── PoisonTransaction       a transaction failed as often as allowed (policy WAIT)
    │   └── RequestError            a request that a cluster refuses
    │       ├── SubmissionError       a submission: its name, its archive, its code
    │       ├── AlreadyAlive          a name or a topology id that is in use
    │       ├── NotAlive              the cluster has no topology of that name
    │       └── TransitionError       the status of the topology forbids it
    ├── LoadError                 the module of a topology, or its function, fails, at least on this machine
    │   └── NoTopology              there is no such module or attribute, or it is no topology
    ├── FailedException           an external failure: the whole transaction is replayed
    │   ├── ReportedFailedException the same, and it is logged as an error
    │   ├── TupleTreeFailure        an edge's consumers did not receive exactly the tuples sent
    │   ├── StateFailure            a state's table cannot be read or written at the moment
    │   ├── SourceFailure           a source, such as a Kafka broker, does not answer at the moment
    │   └── JobFailure              Spark could not run a job
    ├── StopError                 the run stops, because continuing could lose or duplicate data
    │   ├── LostLead                another coordinator leads this topology now
    │   ├── AlreadyRunning          a live process holds this topology
    │   ├── StalledCommit           a commit phase made no progress within topology.message.timeout.secs
    │   ├── DivergenceError         coordinator state and tables do not belong together
    │   ├── Unreachable             ZooKeeper does not answer; it may have carried out the last write
    │   └── BucketUnreachable       an object store does not answer or refuses; an OSError, too
    ├── ClusterError              the cluster cannot do it now: try again
    │   ├── NotLeader               this nimbus does not lead, or no longer leads: nothing was written
    │   ├── NoLeader                no nimbus leads at the moment
    │   └── CodeUnavailable         nobody reachable has the code of a topology, undamaged
    └── InternalError             a bug of txtopo: an invariant does not hold

Errors carry their origin as far as it is known (``component``, ``txid``, ``attempt``, ``cause``). They pickle, because
executors send them to the driver.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from txtopo.attempts import attempt_words

TEXT_MAX = 1 << 16
"""Characters of an error's message and cause: user code may put a record of 20 MB into one, which goes to every log."""


def _bounded(text: str) -> str:
    """Return a text without its middle, if it is too long."""
    left_out = len(text) - TEXT_MAX
    if left_out <= 0:
        return text
    return f"{text[: TEXT_MAX // 2]} … {left_out:,} characters … {text[-TEXT_MAX // 2 :]}"


class TxtopoError(Exception):
    """The base class of all errors of txtopo.

    Args:
        message: what happened, where, and what to do.
        component: the id of the spout or bolt where it happened.
        txid: the transaction in which it happened.
        attempt: the attempt number of that transaction.
        cause: the text of the exception that caused it, with a traceback if available.

    Attributes:
        story: the history of the transaction in a few lines; set by the run that the error stops.
    """

    story: str | None = None

    def __init__(
        self,
        message: str = "",
        *,
        component: str | None = None,
        txid: int | None = None,
        attempt: int | None = None,
        cause: str | None = None,
    ) -> None:
        message = _bounded(str(message))  # user code may raise a failure with another exception in it
        super().__init__(message)
        self.message = message
        self.component = component
        self.txid = txid
        self.attempt = attempt
        self.cause = None if cause is None else _bounded(cause)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle message and origin; works for every subclass."""
        return _rebuild, (type(self), self.args, self.__dict__)

    def hide(self, hide: Callable[[str], str]) -> None:
        """Replace each text of it by what a function makes of that, which hides what is not for everybody.

        If there is something to hide in the errors that it comes from, a single one that quotes them takes their place.
        """
        self.message = hide(self.message)
        self.cause, self.story = self.cause and hide(self.cause), self.story and hide(self.story)
        self.args = (self.message,)
        before = self.__cause__ or (None if self.__suppress_context__ else self.__context__)
        told = "" if before is None else "".join(traceback.format_exception(before))
        if (left := hide(told)) != told:
            self.__cause__ = TxtopoError(left)

    def __str__(self) -> str:
        origin = [
            f"{name} {value}"
            for name, value in (("component", self.component and repr(self.component)), ("txid", self.txid))
            if value is not None
        ]
        if self.attempt is not None:
            origin.append(attempt_words(self.attempt))
        text = f"[{', '.join(origin)}] {self.message}" if origin else self.message
        return "\n".join(part for part in (text, self.cause, self.story) if part)


def _rebuild(kind: type[TxtopoError], args: tuple[Any, ...], state: dict[str, Any]) -> TxtopoError:
    # Not kind(*args): a subclass may have a constructor with other parameters.
    error = kind.__new__(kind, *args)
    Exception.__init__(error, *args)
    error.__dict__.update(state)
    return error


class RuleError(TxtopoError):
    """You broke a rule: nothing was written; fix it and start again."""


class ConfigError(RuleError):
    """A configuration name or value is wrong."""


class TopologyError(RuleError):
    """The graph of a topology has a mistake."""


class UnknownWord(TopologyError, AttributeError):
    """A word that a flow, a stream or a group does not have; an ``AttributeError``, so that ``hasattr`` is false."""


class FieldsError(RuleError):
    """A value does not fit its declared fields."""


class AnchorError(RuleError):
    """A tuple that was acked or failed already is used as an anchor: its tree may be finished."""


class StateAccessError(RuleError):
    """A state was used in the wrong place or in the wrong phase."""


class InputError(RuleError):
    """Input cannot be read, or changed between two attempts of its transaction."""


class UserCodeError(RuleError):
    """A spout or bolt raised an exception that is not a FailedException: a bug in it."""


class PoisonTransaction(RuleError):
    """A transaction failed as often as ``topology.transaction.max.attempts`` allows."""


class RequestError(RuleError):
    """A cluster refuses a request: nothing was changed."""


class SubmissionError(RequestError):
    """A submission has a mistake: its name, its archive, or code that does not build its topology."""


class AlreadyAlive(RequestError):
    """The name or the topology's id is in use by an active topology of the cluster."""


class NotAlive(RequestError):
    """The cluster has no topology of that name."""


class TransitionError(RequestError):
    """The status of the topology forbids the request."""


class LoadError(TxtopoError):
    """The module of a topology cannot be imported, or its function fails. Another machine may have what is missing."""


class NoTopology(LoadError):
    """There is no module or attribute of that name, or it is not a topology."""


class FailedException(TxtopoError):
    """Raise this in a spout or bolt to have the whole transaction replayed."""


class ReportedFailedException(FailedException):
    """A FailedException that is also logged as an error."""


class TupleTreeFailure(FailedException):
    """The tuples received on an edge are not exactly the tuples sent on it."""


class StateFailure(FailedException):
    """A state's table cannot be read or written; txtopo tries again a few times and then stops the run."""


class SourceFailure(FailedException):
    """A source does not answer at the moment, such as a Kafka broker or a schema registry: it is asked again.

    That says nothing of a transaction: it is replayed, and never skipped for it.
    """


class JobFailure(FailedException):
    """Spark could not run a job."""


class StopError(TxtopoError):
    """The run stops, because continuing could lose or duplicate data."""


class LostLead(StopError):
    """Another coordinator leads this topology now; this one must not write any more."""


class AlreadyRunning(StopError):
    """A live process runs this topology already."""


class BucketUnreachable(StopError, OSError):
    """An object store does not answer, or refuses; where a disk may fail, too, it is caught as that."""


class StalledCommit(StopError):
    """A commit phase made no progress within ``topology.message.timeout.secs``; ``cause`` is its thread's stack.

    Nothing of its transaction is written, whatever the thread does later. The next run resumes with it.
    """


class DivergenceError(StopError):
    """Coordinator state and tables do not belong together."""


class Unreachable(StopError):
    """ZooKeeper does not answer; it may have carried out the last write."""


class ClusterError(TxtopoError):
    """The cluster cannot do it now: try again."""


class NotLeader(ClusterError):
    """This nimbus does not lead, or no longer leads: it wrote nothing.

    Attributes:
        leader: the address of the nimbus that leads, if known.
    """

    leader: str | None = None


class NoLeader(ClusterError):
    """No nimbus leads at the moment."""


class CodeUnavailable(ClusterError):
    """Nobody who can be reached has the code of a topology, undamaged."""


class SharedStateWarning(UserWarning):
    """A bolt's class has a mutable attribute, which all attempts in a process share."""


class UnusedStreamWarning(UserWarning):
    """A stream of a flow is taken by nothing, so the steps that make it are left out."""


class InternalError(TxtopoError):
    """An invariant of txtopo does not hold: a bug of txtopo, please report it."""
