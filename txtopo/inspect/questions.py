"""What can be asked of a topology, once for all who serve it over HTTP: the page of a folder, and a supervisor.

A nimbus passes questions on to the supervisor of the topology, and the page of a cluster asks a nimbus.

A question has a path below that of its topology, and parameters that come as texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from txtopo.engine.timeline.records import SAMPLES_SECS
from txtopo.errors import RuleError, TxtopoError
from txtopo.inspect import answers

TXID_MAX = 1 << 62
"""Fits 64 bits, as in the timeline's records, and is beyond any topology's."""
LIMIT_MAX = 1_000
"""More rows are no page, and would be in memory several times."""
_SECS_MAX = 1 << 33
"""The year 2242, which every library has."""
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

    def topologies(self) -> answers.Topologies:
        """Return all topologies."""

    def header(self, slug: str) -> answers.Header:
        """Return what a topology's header shows."""

    def answer(self, question: Question, slug: str, given: Mapping[str, Any]) -> Any:
        """Return the answer to a question, given its parameters and what its path names."""

    def metrics(self) -> bytes:
        """Return the metrics of the runs in Prometheus' format, and which of them are alive."""

    def health(self) -> dict[str, str]:
        """Return the status of each run, by topology."""

    def cluster(self) -> answers.Cluster:
        """Return the daemons of a cluster."""

    def change(self, slug: str, what: str, settings: Mapping[str, str]) -> answers.Changed:
        """Activate, deactivate, rebalance or kill a topology of a cluster."""


@attrs.frozen
class Number:
    """A parameter that is a whole number from 0 to ``most``; ``default`` if it is not there, or empty."""

    name: str
    default: int | None
    most: int

    kind = "integer"

    def of(self, texts: Texts) -> int | None:
        """Return it; raise a BadQuestion if it is something else."""
        text = next(iter(texts.get(self.name, ())), "")
        return whole(self.name, text, self.most) if text else self.default


@attrs.frozen
class Text:
    """A parameter that is a text, which may be there several times if it ``is_list``; it is needed otherwise."""

    name: str
    is_list: bool = False

    kind = "string"

    def of(self, texts: Texts) -> Any:
        """Return it; raise a BadQuestion if it is missing."""
        if self.is_list:
            return [each for each in texts.get(self.name, ()) if each]
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
        ask: asks the backend of a folder, given the topology's slug, the parameters by name, and what the path names.
            A timeline comes as JSON text, because many ask for it at the same time.
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
        given = {parameter.name: parameter.of(texts) for parameter in self.parameters}
        if txid is not None:
            given["txid"] = whole("txid", txid)
        return backend.answer(self, slug, given)


def _transactions(backend: Any, slug: str, **given: Any) -> Any:
    return backend.transactions(slug, given["from"], given["to"], given["limit"], failed=given["failed"] == 1)


OF_TRANSACTION = Question(
    "transaction/{txid}",
    "One transaction: story, attempts, writes",
    answers.Transaction,
    lambda backend, slug, txid: backend.transaction(slug, txid),
)

QUESTIONS = (
    Question(
        "",
        "Status, rate, lag, the lowest uncommitted transaction",
        answers.Header,
        lambda backend, slug: backend.header(slug),
    ),
    Question(
        "timeline",
        "Attempts and writes after a record; give `head` as `since` the next time",
        answers.Timeline,
        lambda backend, slug, since: backend.timeline(slug, since),
        (Number("since", 0, TXID_MAX),),
    ),
    Question(
        "transactions",
        "Transactions, newest first",
        answers.Transactions,
        _transactions,
        (
            Number("from", 0, TXID_MAX),
            Number("to", None, TXID_MAX),
            Number("failed", 0, 1),
            Number("limit", 200, LIMIT_MAX),
        ),
    ),
    OF_TRANSACTION,
    Question(
        "errors", "The last hundred errors, in groups", answers.Errors, lambda backend, slug: backend.errors(slug)
    ),
    Question(
        "state", "The states and the size of their tables", answers.States, lambda backend, slug: backend.states(slug)
    ),
    Question(
        "state/rows",
        "Rows of a state, now or as of a transaction; `key` once for each key field",
        answers.Rows,
        lambda backend, slug, **given: backend.rows(slug, given["name"], given["key"], given["txid"], given["limit"]),
        (Text("name"), Text("key", is_list=True), Number("txid", None, TXID_MAX), Number("limit", 50, LIMIT_MAX)),
    ),
    Question("graph", "Components, edges, states, counts", answers.Graph, lambda backend, slug: backend.graph(slug)),
    Question(
        "plots",
        "Samples as lines over the last seconds, or those before a moment in seconds since 1970",
        answers.Plots,
        lambda backend, slug, secs, until: backend.plots(slug, secs or 1, until),
        (Number("secs", 300, SAMPLES_SECS), Number("until", None, _SECS_MAX)),
    ),
    Question(
        "settings",
        "The settings, those that differ from their default first",
        answers.Settings,
        lambda backend, slug: backend.settings(slug),
    ),
    Question(
        "runs",
        "The last run, and earlier ones that are kept: their slugs take the place of the topology's",
        answers.Runs,
        lambda backend, slug: backend.runs(slug),
    ),
)
"""All questions, each once."""


def find(path: str) -> tuple[Question, str | None] | None:
    """Return the question with a path, and the transaction in it; None if there is no such question."""
    before, is_there, txid = path.partition(OF_TRANSACTION.path.partition("{")[0])
    if is_there and not before:
        return OF_TRANSACTION, txid
    return next(((question, None) for question in QUESTIONS if question.path == path), None)
