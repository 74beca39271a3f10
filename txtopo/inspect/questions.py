"""What can be asked of a topology, once for all who serve it over HTTP: the page of a folder, and a supervisor.

A nimbus passes questions on to the supervisor of the topology, and the page of a cluster asks a nimbus.

A question has a path below that of its topology, and parameters that come as texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, get_type_hints

import attrs

from txtopo.errors import RuleError, TxtopoError
from txtopo.inspect.cluster import Changed, Cluster
from txtopo.inspect.run.status import Header, Topologies

TXID_MAX = 1 << 62
"""Fits 64 bits, as in the timeline's records, and is beyond any topology's."""
_NUMBER = re.compile(r"[0-9]{1,19}")

Texts = Mapping[str, Sequence[str]]
"""Parameters of a query: each name may be there several times."""


class BadQuestion(RuleError):
    """A parameter is missing, or not what it must be."""


class NotFound(TxtopoError):
    """There is no such topology, transaction or state."""


class Backend(Protocol):
    """Answers for topologies.

    *An implementation* may be called in any thread, and does not cache what may change within a second.

    All methods raise NotFound for a topology that is not there, and ConfigError for what can't be read.
    """

    def topologies(self) -> Topologies:
        """Return all topologies."""

    def header(self, slug: str) -> Header:
        """Return what a topology's header shows."""

    def answer(self, question: Question, slug: str, given: Mapping[str, Any]) -> Any:
        """Return the answer to a question, given its parameters and what its path names."""

    def metrics(self) -> bytes:
        """Return the metrics of the runs in Prometheus' format, and which of them are alive."""

    def health(self) -> dict[str, str]:
        """Return the status of each run, by topology."""

    def cluster(self) -> Cluster:
        """Return the daemons of a cluster."""

    def change(self, slug: str, command: str, settings: Mapping[str, str]) -> Changed:
        """Activate, deactivate, rebalance or kill a topology of a cluster."""


@attrs.frozen
class Number:
    """A parameter that is a whole number from 0 to ``most``; ``default`` if it is not there, or empty.

    ``keyword`` is what the method calls it that answers.
    """

    name: str
    default: int | None
    most: int = TXID_MAX
    keyword: str = attrs.Factory(lambda self: self.name, takes_self=True)

    kind = "integer"

    def of(self, texts: Texts) -> int | None:
        """Return it; raise a BadQuestion if it is something else."""
        text = next(iter(texts.get(self.name, ())), "")
        return whole(self.name, text, self.most) if text else self.default


@attrs.frozen
class Text:
    """A parameter that is a text, which may be there several times if it ``is_list``; it is needed otherwise."""

    name: str
    keyword: str = attrs.Factory(lambda self: self.name, takes_self=True)
    is_list: bool = False

    kind = "string"

    def of(self, texts: Texts) -> Any:
        """Return it; raise a BadQuestion if it is missing."""
        if self.is_list:
            return list(texts.get(self.name, ()))
        if not texts.get(self.name):
            raise BadQuestion(f"name the state: ?{self.name}=NAME")
        return texts[self.name][0]


def whole(name: str, text: str, most: int = TXID_MAX) -> int:
    """Return a whole number; raise a BadQuestion if the text is none, or it is too large."""
    if _NUMBER.fullmatch(text) is None or int(text) > most:
        raise BadQuestion(f"{name} must be a whole number up to {most}")
    return int(text)


@attrs.frozen
class Question:
    """A question about a topology.

    Args:
        path: below the topology's; empty for its header. ``{txid}`` stands for a transaction.
        summary: what it asks for, in words.
        answer: the type of the answer.
        ask: the method of the backend of a folder that answers, given the topology's slug, the parameters by keyword,
            and what the path names.
        parameters: the parameters.
    """

    path: str
    summary: str
    answer: type
    ask: Callable[..., Any]
    parameters: Sequence[Number | Text] = ()

    def asked(self, backend: Backend, slug: str, texts: Texts, txid: str | None = None) -> Any:
        """Return the answer.

        Raises:
            BadQuestion: a parameter is not what it must be.
            TxtopoError: what the backend raises.
        """
        given = {parameter.keyword: parameter.of(texts) for parameter in self.parameters}
        if txid is not None:
            given["txid"] = whole("txid", txid)
        return backend.answer(self, slug, given)


Method = TypeVar("Method", bound=Callable[..., Any])


def answers(
    path: str, summary: str, *parameters: Number | Text, kind: type | None = None
) -> Callable[[Method], Method]:
    """Declare that a method answers a question, by default with what its annotation says; see :class:`Question`."""

    def declare(method: Method) -> Method:
        method.question = Question(path, summary, kind or get_type_hints(method)["return"], method, parameters)  # type: ignore[attr-defined]
        return method

    return declare


def questions_of(backend: type) -> tuple[Question, ...]:
    """Return the questions that a class answers, in the order of its methods."""
    return tuple(method.question for method in vars(backend).values() if hasattr(method, "question"))
