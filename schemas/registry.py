"""Sources, decoders and commands by name: those of fieldslab, and those of other packages."""

import difflib
import importlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.optiontext import mark_option

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def make_unknown_name_error(
    problem: str, name: str, names: Iterable[str], *, field: str | None = None
) -> UsageError:
    """Make the error for a name that is not in `names`; it lists them and suggests the closest."""
    names = list(names)
    close = difflib.get_close_matches(str(name), names, 1)
    hint = f"Did you mean {close[0]!r}?" if close else None
    return UsageError(problem, field=field, expected=", ".join(names) or None, hint=hint)


class Registry:
    """Everything of one kind, by name.

    What comes with fieldslab is listed first, and is imported when it is asked for. A package adds
    more by an entry point in its `pyproject.toml`, but cannot replace what is there:

        [project.entry-points."fieldslab.sources"]
        feather = "its.module:FeatherSource"

    Parameters
    ----------
    kind
        What messages call one of them, such as "source".
    group
        Group of the entry points.
    built_in
        Name -> "module:attribute" of each that comes with fieldslab.
    option
        Python's name of the option that takes such a name, if there is one.
    base
        The abstract class that classes of other packages derive from, if there is one. Their
        attribute `name` is that of the entry point.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        built_in: Mapping[str, str],
        *,
        option: str | None = None,
        base: type | None = None,
    ) -> None:
        self.kind = kind
        self.group = group
        self.built_in = built_in
        self._option = option
        self._base = base

    def __iter__(self) -> Iterator[str]:
        """Yield the names, our own first: to look for others takes longer than a small pack."""
        yield from self.built_in
        yield from self.find_plugins()

    def find_plugins(self) -> "dict[str, EntryPoint]":
        """Find entry points by name, sorted; of two with one name, the first on `sys.path` wins."""
        from importlib.metadata import entry_points  # takes a while

        points = {point.name: point for point in reversed(tuple(entry_points(group=self.group)))}
        return {name: points[name] for name in sorted(points.keys() - self.built_in.keys())}

    def load(self, name: str) -> Any:
        """Import the class of this name.

        Raises UsageError where nothing has this name, or its package cannot be loaded.
        """
        if name in self.built_in:
            module, _, attribute = self.built_in[name].partition(":")
            return getattr(importlib.import_module(module), attribute)
        point = self.find_plugins().get(name)
        if point is None:
            raise self.make_unknown_error(name)
        try:
            loaded = point.load()
            self._check_class(name, loaded)
        except Exception as error:
            raise self.make_broken_error(name, error) from error
        return loaded

    def make_broken_error(self, name: str, error: Exception) -> UsageError:
        """Make the error for a plugin that cannot be used."""
        if isinstance(error, UsageError):
            return error
        point = self.find_plugins()[name]
        package = point.dist.name if point.dist is not None else "its package"
        return UsageError(
            f"the {self.kind} {name!r} cannot be loaded: {type(error).__name__}: {error}",
            found=f"entry point {point.value} of {package}",
            hint=f"Install {package} again, with what it needs, or remove it.",
        )

    def make_unknown_error(self, name: str, also: Iterable[str] = ()) -> UsageError:
        """Make the error for an unknown name; `also` are names that are known beside these."""
        prefix = "" if self._option is None else f"{mark_option(self._option)}: "
        return make_unknown_name_error(
            f"{prefix}no such {self.kind} {name!r}", name, [*also, *self]
        )

    def _check_class(self, name: str, loaded: Any) -> None:
        """Raise TypeError for what is no whole class of its kind."""
        if self._base is None:
            return
        base = f"{self._base.__module__}.{self._base.__qualname__}"
        if not (isinstance(loaded, type) and issubclass(loaded, self._base)):
            raise TypeError(f"it does not derive from {base}, whose docstring says what is needed")
        absent = sorted(getattr(loaded, "__abstractmethods__", ()))
        if absent:
            raise TypeError(f"it does not define {', '.join(absent)}; see {base}")
        if getattr(loaded, "name", None) != name:
            raise TypeError(f"its attribute `name` is not {name!r}")
