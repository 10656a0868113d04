"""Which peers need not be measured again: the tables would say the same."""

from collections.abc import Mapping
from statistics import median
from typing import Any

from fieldslab.bench.peers.figures import LOADERS, ROW, SEQUENTIAL, seconds_so_far
from fieldslab.bench.peers.peer import CEILING, US

ENOUGH = 3
"""Rounds that everybody takes part in; of random batches, which matter most, there are more."""
FAR = 10.0
"""Who is so many times slower than fieldslab rests after these; a loader after its first round.

To start the workers of some loaders takes longer than all else that is measured of them.
"""
CLEAR = 1.5
"""A loader that is so many times slower than with another number of workers rests at once."""


def may_rest(results: Mapping[str, dict[str, Any]], peer: str, what: str, turn: int) -> bool:
    """Tell whether a peer (of `results`: peer -> measure -> figures) can sit out round `turn`.

    Who rested once rests until the end, so that figures of two peers at one place are of one
    round.
    """
    seconds = seconds_so_far(results, peer, what)
    if seconds is None:
        return False
    if len(seconds) < turn:
        return True
    if what in (ROW, SEQUENTIAL) and turn >= ENOUGH:
        return True
    own = median(seconds)
    if what in LOADERS:
        others = [seconds_so_far(results, peer, other) for other in LOADERS if other != what]
        if any(other is not None and own > CLEAR * median(other) for other in others):
            return True
    ours = seconds_so_far(results, US, what)
    if peer in (US, CEILING) or ours is None:
        return False
    enough = 1 if what in LOADERS else ENOUGH
    return turn >= enough and own > FAR * median(ours)
