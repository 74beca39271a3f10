"""Every error of txtopo, sorted by who is at fault and by what follows.

::

    TxtopoError
    ├── RuleError                 you broke a rule: nothing was written, mend it and start again
    │   ├── ConfigError             a configuration name or value
    │   ├── TopologyError           a mistake in the graph, found by build()
    │   ├── FieldsError             a value that does not fit its declared fields
    │   ├── StateAccessError        a state asked for in the wrong place or phase
    │   ├── InputError              input that cannot be read, or that changed between two attempts
    │   ├── UserCodeError           an exception in a bolt or spout that is not a FailedException
    │   └── PoisonTransaction       a transaction reached its highest number of attempts (policy WAIT)
    ├── FailedException           the world failed: the whole transaction is replayed
    │   ├── ReportedFailedException the same, and it shows in the error log
    │   ├── TupleTreeFailure        producers' and consumers' tuples of an edge differ
    │   ├── StateFailure            a state's table cannot be read or written just now
    │   └── JobFailure              Spark could not run a job
    ├── StopError                 stop: going on would lose or double something
    │   ├── LostLead                another coordinator leads this topology now
    │   ├── AlreadyRunning          a live process holds this topology
    │   ├── StalledCommit           a commit phase made no progress within topology.message.timeout.secs
    │   └── DivergenceError         coordinator state and tables do not belong together
    └── InternalError             our bug: an invariant of txtopo does not hold

Errors carry what is known of their origin (``component``, ``txid``, ``attempt``, ``cause``), and they
pickle, because executors send them home.
"""

from __future__ import annotations

from typing import Any

from txtopo.attempts import attempt_words

__all__ = [
    "AlreadyRunning",
    "ConfigError",
    "DivergenceError",
    "FailedException",
    "FieldsError",
    "InputError",
    "InternalError",
    "JobFailure",
    "LostLead",
    "PoisonTransaction",
    "ReportedFailedException",
    "RuleError",
    "SharedStateWarning",
    "StalledCommit",
    "StateAccessError",
    "StateFailure",
    "StopError",
    "TopologyError",
    "TupleTreeFailure",
    "TxtopoError",
    "UserCodeError",
]


class TxtopoError(Exception):
    """The root of all errors of txtopo.

    Args:
        message: what happened, where, and what to do.
        component: id of the spout or bolt it happened in.
        txid: transaction it happened in.
        attempt: attempt number of that transaction.
        cause: text of the exception below it (a traceback where there is one).

    Attributes:
        story: what happened to the transaction before, in a few lines; set by the run that the error stops.
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
        super().__init__(message)
        self.message = message
        self.component = component
        self.txid = txid
        self.attempt = attempt
        self.cause = cause

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by message and origin, whatever the subclass."""
        return _rebuild, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        """Return the message, with the origin in front and the cause below it."""
        origin = [
            f"{name} {value}"
            for name, value in (
                ("component", self.component and repr(self.component)),
                ("txid", self.txid),
            )
            if value is not None
        ]
        if self.attempt is not None:
            origin.append(attempt_words(self.attempt))
        text = f"[{', '.join(origin)}] {self.message}" if origin else self.message
        return "\n".join(part for part in (text, self.cause, self.story) if part)


def _rebuild(kind: type[TxtopoError], args: tuple[Any, ...], state: dict[str, Any]) -> TxtopoError:
    error = kind.__new__(kind, *args)
    Exception.__init__(error, *args)
    error.__dict__.update(state)
    return error


class RuleError(TxtopoError):
    """You broke a rule: nothing was written; mend it and start again."""


class ConfigError(RuleError):
    """A configuration name or value is wrong."""


class TopologyError(RuleError):
    """The graph of a topology has a mistake."""


class FieldsError(RuleError):
    """A value does not fit the fields that were declared for it."""


class StateAccessError(RuleError):
    """A state was asked for in the wrong place or in the wrong phase."""


class InputError(RuleError):
    """Input cannot be read, or changed between two attempts of its transaction."""


class UserCodeError(RuleError):
    """A spout or bolt raised something that is not a FailedException: a bug in it."""


class PoisonTransaction(RuleError):
    """A transaction failed as often as ``topology.transaction.max.attempts`` allows."""


class FailedException(TxtopoError):
    """Raise it in a spout or bolt to have the whole transaction replayed."""


class ReportedFailedException(FailedException):
    """A FailedException that also shows in the error log."""


class TupleTreeFailure(FailedException):
    """The tuples sent on an edge are not the tuples received on it."""


class StateFailure(FailedException):
    """A state's table cannot be read or written: it is tried again, and the run stops if that does not help."""


class JobFailure(FailedException):
    """Spark could not run a job."""


class StopError(TxtopoError):
    """Going on would lose or double something: the run stops."""


class LostLead(StopError):
    """Another coordinator leads this topology now; this one writes nothing more."""


class AlreadyRunning(StopError):
    """A live process runs this topology already."""


class StalledCommit(StopError):
    """A commit phase made no progress within ``topology.message.timeout.secs``; ``cause`` is its thread's stack.

    Nothing of its transaction is written, whatever the thread does later. The next run resumes with it.
    """


class DivergenceError(StopError):
    """Coordinator state and tables do not belong together."""


class SharedStateWarning(UserWarning):
    """A bolt's class has an attribute that can be changed, which all attempts in a process share."""


class InternalError(TxtopoError):
    """An invariant of txtopo does not hold: a bug of ours, please report it."""
