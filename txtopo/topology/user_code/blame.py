"""User code: what a spout or bolt raises becomes an error that names the component, in both kinds of topologies."""

from __future__ import annotations

import reprlib
import traceback
from collections.abc import Iterable
from threading import current_thread, get_ident, main_thread
from typing import Any

from txtopo.errors import TxtopoError, UserCodeError
from txtopo.failpoints import ProcessDeath
from txtopo.topology.user_code.forks import end_children_that_return
from txtopo.topology.user_code.output import OutputOrigin, is_worker

end_children_that_return()

REMEDY = "raise FailedException to have a transaction replayed"
"""What the error of an exception in a transaction advises."""


class user_code(OutputOrigin):  # noqa: N801 - it is used like a function: with user_code(…)
    """A context for user code: turns exceptions into txtopo's errors, with their origin.

    Output that this thread prints or logs in the context is attributed to the component. It is a class, not a
    generator, because it is entered for every chunk.

    Raises:
        FailedException: raised by the code; its origin is added.
        TxtopoError: any other error of txtopo; its origin is added.
        UserCodeError: the code raised anything else, including KeyboardInterrupt and GeneratorExit; with the traceback.
            A KeyboardInterrupt in the driver's main thread passes unchanged: it may be a Ctrl-C.
    """

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        running, thread = OutputOrigin.running, get_ident()
        self._before = running.get(thread)
        running[thread] = self

    def __exit__(self, _kind: object, error: BaseException | None, *_: object) -> None:
        if self._before is None:
            OutputOrigin.running.pop(get_ident(), None)  # delivering a line may have removed it
        else:
            OutputOrigin.running[get_ident()] = self._before
        if error is None or is_not_of_the_code(error):
            return
        origin: dict[str, Any] = {"component": self.component}
        if self.attempt is not None:
            origin |= {"txid": self.attempt.txid, "attempt": self.attempt.attempt}
        blamed = blame(error, REMEDY, **origin)
        if blamed is not error:
            raise blamed from None


_TUPLE = "at the tuple "

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 200
_short.maxdict = _short.maxlist = _short.maxtuple = _short.maxset = 16


def record_tuple(error: Exception, fields: Iterable[str], values: Iterable[Any]) -> None:
    """Note in an exception of user code which tuple it is about, in a text of bounded length; see :func:`blame`.

    The first note stands: a bolt of ours that keeps tuples knows which one it was, and it need not be the last.
    """
    if any(note.startswith(_TUPLE) for note in getattr(error, "__notes__", ())):
        return
    named = ", ".join(f"{name}={_short.repr(value)}" for name, value in zip(fields, values, strict=False))
    error.add_note(f"{_TUPLE}({named})")


def blame(error: BaseException, remedy: str, where: str = "", **origin: Any) -> TxtopoError:
    """Return what user code has raised as an error with its origin: the component and, if known, txid and attempt.

    An error of txtopo's is returned itself, with what its origin lacks. The message of another one begins with
    ``where`` and ends with ``remedy``, which says what to do instead of raising it. The tuple is in either.
    """
    at = next((note for note in getattr(error, "__notes__", ()) if note.startswith(_TUPLE)), "")
    if isinstance(error, TxtopoError):
        for name, value in origin.items():
            if getattr(error, name) is None:
                setattr(error, name, value)
        if at:
            error.message += f"\n{at}"  # in a separate line: failures that differ in it alone are one for a display
            del error.__notes__
        return error
    name, message = type(error).__name__, text_of(error)
    summary = f"{name}: {message}" if message else name
    summary = f"{summary}, {at}" if at else summary
    return UserCodeError(f"{where}{summary}; {remedy}", **origin, cause="".join(traceback.format_exception(error)))


def text_of(error: BaseException) -> str:
    """Return the text of an exception of the user's, whose own class may have a bug."""
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - as above
        return f"(its text can't be had: {type(broken).__name__})"


def is_not_of_the_code(error: BaseException) -> bool:
    """Return whether an exception passes user code unchanged: a simulated death of the process, or perhaps Ctrl-C.

    A Ctrl-C arrives in the driver's main thread only; elsewhere the code itself has raised a KeyboardInterrupt.
    """
    if isinstance(error, KeyboardInterrupt):
        return current_thread() is main_thread() and not is_worker()
    return isinstance(error, ProcessDeath)
