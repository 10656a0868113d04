"""Timing of several calls in turns for a given while, so that a busy machine slows all alike."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

WARM = 3
"""Rounds that go first, and are not counted; fewer where a round takes long."""


class Turn(NamedTuple):
    """What is timed: `call` of the next of `arguments`, which are made beforehand, untimed."""

    arguments: Iterator[Any]
    call: Callable[[Any], Any]


def take_turns(
    turns: Mapping[str, Turn], seconds: float, least: int = 3, most: int = 20_000
) -> dict[str, list[float]]:
    """Time the calls in turns, for about so long in all: seconds of each in each round.

    A round makes every call once, in an order of its own. There are `least` rounds at least, and
    `most` at most. The batch before is held while the next one is made, as a training step does.
    """
    order = list(turns)
    shuffle = random.Random(0).shuffle
    seconds_by_name: dict[str, list[float]] = {name: [] for name in turns}
    held: Any = None
    begun = time.perf_counter()
    warm = 0
    while len(seconds_by_name[order[0]]) < least or (
        len(seconds_by_name[order[0]]) < most and time.perf_counter() < begun + seconds
    ):
        shuffle(order)
        warming = warm < WARM and time.perf_counter() < begun + seconds / 4
        for name in order:
            argument = next(turns[name].arguments)
            started = time.perf_counter()
            batch = turns[name].call(argument)
            stopped = time.perf_counter()
            held = batch if batch is not None else held
            if not warming:
                seconds_by_name[name].append(stopped - started)
        warm += warming
    del held
    return seconds_by_name
