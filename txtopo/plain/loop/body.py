"""What a worker does, as its loop sees it."""

from __future__ import annotations

from typing import Any, Protocol


class Body(Protocol):
    """The work of one worker. Every method is called in the same thread."""

    def set_active(self, *, is_active: bool) -> None:
        """Work, or pause; not called before the worker was welcomed."""

    def set_throttled(self, *, is_throttled: bool) -> None:
        """Begin nothing new in the passes from now on, or begin again: queues are too long, here or at a peer.

        It is called before each pass.
        """

    def run_pass(self) -> bool:
        """Do what there is to do, and return whether there was anything."""

    def idle_secs(self) -> float:
        """Return how long nothing has to be done unless something is received."""

    def receive(self, frame: bytes) -> None:
        """Take a frame of a peer."""

    def worker_replaced(self, worker: int, dead: int, successor: int) -> None:
        """Learn that a peer died.

        Args:
            worker: its number.
            dead: the epoch that died.
            successor: the epoch that follows.
        """

    def queued_bytes(self) -> int:
        """Return about how many bytes of work wait in memory."""

    def is_done(self) -> bool:
        """Return whether all there was to do is done: nothing new will begin, and nothing is pending."""

    def is_idle(self) -> bool:
        """Return whether nothing waits to be worked on or sent."""

    def pending(self) -> int:
        """Return how much of what was begun here is not finished."""

    def busy_with(self) -> str:
        """Return what it is doing, for people; called from another thread."""

    def status(self) -> Any:
        """Return what there is to say of it, for reports; it pickles."""

    def close(self) -> None:
        """End in good order."""
