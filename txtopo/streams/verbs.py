"""The words that users say: a mistake is reported with the user's line, and the word that was meant."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from txtopo.api.arguments import checked_arguments
from txtopo.errors import RuleError, UnknownWord
from txtopo.text.suggestions import did_you_mean, said_here
from txtopo.topology.user_code.place import Place, is_located

_F = TypeVar("_F", bound=Callable[..., Any])

_SAID = {"__init__": "Flow", "__getitem__": "stream[…]", "_config": "run"}
"""What errors call methods that users call by other words."""


class Verbs:
    """What has words that users say: one that is not there is an error with the line, and what may be meant."""

    if not TYPE_CHECKING:  # type checkers find such words by themselves

        def __getattr__(self, word: str) -> Any:
            """Raise an error with the nearest word."""
            if word.startswith("_"):  # asked for by libraries, such as those that show or copy things
                raise AttributeError(word)
            verbs = [each for each in dir(type(self)) if not each.startswith("_")]
            near = said_here(word) or did_you_mean(word, verbs)
            if "fields" in verbs and word in self.fields:
                near = f"; a field is {word!r}, or pl.col({word!r}) in an expression"
            kind, near = type(self).__name__, near or f"; it has {', '.join(verbs)}"
            mistake = f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind} has no {word!r}{near}"
            raise UnknownWord(str(Place.here().says(mistake)))


def step(function: _F) -> _F:
    """Let a method that users call report mistakes with their line, and refuse arguments of other types."""
    checked, signature = checked_arguments(function), inspect.signature(function)
    word = _SAID.get(function.__name__, function.__name__)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            signature.bind(*arguments, **named)
        except TypeError as error:
            unknown = re.search(r"unexpected keyword argument '(.*)'", str(error))
            near = did_you_mean(unknown[1], signature.parameters) if unknown else ""
            if "too many" in str(error):
                near = f"; it takes {', '.join([*signature.parameters][1:])}, those after the first by name"
            raise Place.here().says(f"{word}: {error}{near}") from None
        try:
            return checked(*arguments, **named)
        except RuleError as error:
            if is_located(error):  # it was reported by a step that this one is made of
                raise
            raise Place.here().says(f"{word}: {error}") from error

    return call  # type: ignore[return-value] # it is called like the function
