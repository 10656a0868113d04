"""Renews, in forked children, locks that another thread may have held."""

from typing import Protocol
from weakref import WeakSet

from fieldslab.schemas.system import call_after_fork


class ForkAware(Protocol):
    """Something with a lock of its own."""

    def after_fork(self) -> None:
        """Put a new lock in place of the one inherited; called in the child, on one thread."""


_living: WeakSet[ForkAware] = WeakSet()


def register_for_forks(holder: ForkAware) -> None:
    """Have `holder.after_fork()` called in every forked child, for as long as it lives."""
    _living.add(holder)


def _call_after_fork() -> None:
    for holder in list(_living):
        holder.after_fork()


call_after_fork(_call_after_fork)
