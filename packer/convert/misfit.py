"""What conversion raises while it does not yet know the row."""

from typing import Any


class Misfit(ValueError):
    """A value that does not fit its field; `expected`, `found` and `hint` as in FieldslabError."""

    def __init__(
        self, problem: str, *, expected: Any = None, found: Any = None, hint: str | None = None
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.expected, self.found, self.hint = expected, found, hint


class Undecodable(Misfit):
    """An image that cannot become pixels."""


class InnerNull(ValueError):
    """A null inside a list; in a nested field, `of_list` if it stands for a whole list."""

    def __init__(self, *, of_list: bool = False) -> None:
        super().__init__()
        self.of_list = of_list
