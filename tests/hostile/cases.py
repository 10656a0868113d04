"""One case: a small slab of some kind is forged, and everything is done with it."""

import random
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.hostile.forgeries import FORGERIES
from tests.hostile.note import add_note
from tests.hostile.verbs import VERBS, Case, try_verb
from tests.mutations.choices import Mutation
from tests.mutations.on_files import copy_whole, mutate


def forge(rng: random.Random, wholes: Mapping[str, Path], slab: Path) -> tuple[str, str, Mutation]:
    """Make a forged slab: the name of the whole one, of the kind of forgery, and what was done."""
    name, kind = rng.choice(sorted(wholes)), rng.choice(sorted(FORGERIES))
    mutation = FORGERIES[kind](rng, wholes[name])
    slab.parent.mkdir(parents=True)
    copy_whole(wholes[name], slab)
    mutate(slab, mutation)
    return name, kind, mutation


def try_case(rng: random.Random, wholes: Mapping[str, Path], folder: Path) -> Counter[str]:
    """Forge a slab and do a few things with it. Raises whatever is a bug, with what was forged."""
    slab, scratch = folder / "x.slab", folder / "scratch"
    names, weights = list(VERBS), [weight for _, weight in VERBS.values()]
    verbs = rng.choices(names, weights, k=rng.choice([1, 1, 2]))
    try:
        name, kind, mutation = forge(rng, wholes, slab)
        counts = Counter({f"forged: {kind}": 1})
        for verb in verbs:
            seed = rng.randrange(2**32)
            scratch.mkdir(exist_ok=True)
            try:
                error = try_verb(verb, Case(slab, wholes[name], scratch, random.Random(seed)))
            except BaseException as problem:
                add_note(problem, f"{verb} of {name}, {kind}", mutation)
                raise
            finally:
                shutil.rmtree(scratch)
            counts[f"{verb}: {'refused' if error else 'read'}"] += 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return counts


def try_whole_slabs(wholes: Mapping[str, Path], scratch: Path) -> None:
    """Do everything with slabs as they were packed, which also loads whatever that takes.

    Raises AssertionError where one is refused, other than for what it cannot be asked.
    """
    for name, whole in wholes.items():
        for verb in VERBS:
            scratch.mkdir()
            error = try_verb(verb, Case(whole, whole, scratch, random.Random(name + verb)))
            assert error in ("", "UsageError"), f"{verb} of {name}: {error}"
            shutil.rmtree(scratch)
