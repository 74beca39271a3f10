"""Stores and states that crash at a chosen durable step, before or after it: what is durable stays."""

import attrs

from txtopo.api.state import OpenedState, State
from txtopo.api.store import Lead, Store


class CrashError(Exception):
    """The process dies here."""


@attrs.define(eq=False)
class Fuse:
    """Burns down one durable step at a time.

    Args:
        steps: the step at which it crashes, from 1; 0 for never.
        before: whether it crashes before the step is done, or after.
    """

    steps: int = 0
    before: bool = True
    burnt: int = 0
    is_dead: bool = False

    def step(self, work):
        """Do a durable step, unless the crash comes first."""
        if self.is_dead:
            raise CrashError("dead processes do nothing")
        self.burnt += 1
        if self.burnt == self.steps and self.before:
            self._die()
        result = work()
        if self.burnt == self.steps:
            self._die()
        return result

    def _die(self):
        self.is_dead = True
        raise CrashError(f"at step {self.burnt}, {'before' if self.before else 'after'} it")


class CrashingStore(Store):
    """A store whose writes burn the fuse."""

    def __init__(self, inner: Store, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def read(self, path):
        return self._inner.read(path)

    def children(self, path):
        return self._inner.children(path)

    def take_lead(self, topology_id, owner, epoch_min=1):
        return CrashingLead(self._inner.take_lead(topology_id, owner), self._fuse)

    def close(self):
        pass


class CrashingLead(Lead):
    """A lead whose writes burn the fuse."""

    def __init__(self, inner: Lead, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    @property
    def epoch(self):
        return self._inner.epoch

    def write(self, changes):
        self._fuse.step(lambda: self._inner.write(changes))

    def is_held(self):
        return self._inner.is_held()

    def release(self):
        self._inner.release()


class CrashingState(State):
    """A state whose writes burn the fuse."""

    is_durable = True

    def __init__(self, inner: State, fuse: Fuse) -> None:
        self.inner = inner
        self.key, self.value, self.kind = inner.key, inner.value, inner.kind
        self._fuse = fuse

    def snapshot(self, txid=None):
        return self.inner.snapshot(txid)

    def open(self, topology_id, name, incarnation, epoch):
        return CrashingOpened(self.inner.open(topology_id, name, incarnation, epoch), self._fuse)


class CrashingOpened(OpenedState):
    """An opened state whose writes burn the fuse."""

    def __init__(self, inner: OpenedState, fuse: Fuse) -> None:
        self.declared = inner.declared
        self._inner = inner
        self._fuse = fuse

    @property
    def identity(self):
        return self._inner.identity

    @property
    def last_txid(self):
        return self._inner.last_txid

    def multi_get(self, keys):
        return self._inner.multi_get(keys)

    def write(self, txid, values):
        self._fuse.step(lambda: self._inner.write(txid, values))

    def prepare(self, txid, values):
        return self._fuse.step(lambda: self._inner.prepare(txid, values))

    def publish(self, txid, note):
        self._fuse.step(lambda: self._inner.publish(txid, note))

    def clean_up(self):
        self._fuse.step(self._inner.clean_up)

    def snapshot(self, txid=None):
        return self._inner.snapshot(txid)
