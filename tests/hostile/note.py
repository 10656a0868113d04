"""What a case that fails says of itself."""

import json

from tests.mutations.choices import Mutation

_MOST = 800
"""Characters of a mutation: the case is made again by its number."""


def add_note(problem: BaseException, what: str, mutation: Mutation) -> None:
    """Tell what was done, and with which forged slab."""
    problem.add_note(f"{what}: {json.dumps(mutation)[:_MOST]}")
