"""Changes of the whole process, by contexts that overlap in threads and end in any order."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import ParamSpec

P = ParamSpec("P")


def until_the_last(change: Callable[P, AbstractContextManager[None]]) -> Callable[P, AbstractContextManager[None]]:
    """Make the contexts of a change of the process share it: the first one makes it, the last one undoes it.

    Otherwise, of two runs in threads, the one that begins later would take for the process' state what the first
    one has made of it, and leave that behind.
    """
    lock = threading.Lock()
    users = 0
    undo = contextlib.ExitStack()

    @contextlib.contextmanager
    def shared(*args: P.args, **options: P.kwargs) -> Iterator[None]:
        nonlocal users
        with lock:
            if not users:
                undo.enter_context(change(*args, **options))
            users += 1
        try:
            yield
        finally:
            with lock:
                users -= 1
                if not users:
                    undo.close()

    return shared
