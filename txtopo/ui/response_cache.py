"""Shares answers: fifty open pages ask the same within a moment, and it is answered once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import attrs
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ENTRIES_MAX = 64
"""How many answers are kept: they are reused within a second only."""


@attrs.frozen
class CachedResponse:
    """An answer, and until when others get the same."""

    messages: tuple[Message, ...]
    until: float


class ResponseCache:
    """Gives those who ask the same the same answer, for as many seconds as ``secs_of`` says of a path."""

    def __init__(self, app: ASGIApp, secs_of: Callable[[str], float]) -> None:
        self._app = app
        self._secs_of = secs_of
        self._entries: dict[tuple[str, bytes], asyncio.Task[CachedResponse]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, once it has been let in."""
        secs = self._secs_of(scope["path"]) if scope["method"] == "GET" else 0.0
        if not secs:
            await self._app(scope, receive, send)
            return
        key = scope["path"], scope["query_string"]
        entry = self._entries.get(key)
        if entry is None or (entry.done() and not self._is_fresh(entry)):
            self._entries.pop(key, None)  # so that the oldest come first
            entry = self._entries[key] = asyncio.create_task(self._made(scope, receive, secs))
            while len(self._entries) > ENTRIES_MAX:
                self._entries.pop(next(iter(self._entries)))
        given = await asyncio.shield(entry)  # a browser that goes away takes nobody's answer with it
        for message in given.messages:
            await send(dict(message))  # the access adds headers to it

    async def _made(self, scope: Scope, receive: Receive, secs: float) -> CachedResponse:
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        await self._app(scope, receive, keep)
        return CachedResponse(tuple(messages), time.monotonic() + secs)

    @staticmethod
    def _is_fresh(entry: asyncio.Task[CachedResponse]) -> bool:
        return not entry.cancelled() and entry.exception() is None and time.monotonic() < entry.result().until
