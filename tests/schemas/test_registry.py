"""Things by name: our own and those of other packages."""

from collections.abc import Sized
from pathlib import Path

import pytest
from tests.installed import install

from fieldslab.schemas.errors import MissingLibrary, UsageError
from fieldslab.schemas.registry import Registry

SHAPES = """
from collections.abc import Sized
class Round(Sized):
    name = "round"
    def __len__(self): return 0
class Other(Round):
    name = "another"
class Half(Sized):
    name = "half"
class Stranger:
    name = "stranger"
"""
NEEDY = """
from fieldslab.schemas.errors import MissingLibrary
raise MissingLibrary("needs libneedy", hint="Install it: get libneedy.")
"""
ENTRIES = """
[tests.shapes]
round = toyshapes:Round
named = toyshapes:Other
half = toyshapes:Half
stranger = toyshapes:Stranger
gone = toyshapes:Gone
torn = toyshapes_torn:Round
needy = toyshapes_needy:Round
path = toyshapes:Stranger
"""
OWN = {"path": "pathlib:Path", "abacus": "nowhere:Abacus"}
ANY = Registry("shape", "tests.shapes", OWN)
SIZED = Registry("shape", "tests.shapes", OWN, option="from_", base=Sized)


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with shapes, most of which are no good."""
    modules = {"toyshapes": SHAPES, "toyshapes_torn": "1 / 0", "toyshapes_needy": NEEDY}
    monkeypatch.syspath_prepend(install(tmp_path, "toyshapes", modules, ENTRIES))


def test_our_own_come_first_and_are_not_replaced() -> None:
    """Names are ours in their order, then others sorted; nothing is imported to list them."""
    others = ["gone", "half", "named", "needy", "round", "stranger", "torn"]
    assert list(ANY) == ["path", "abacus", *others]
    assert ANY.load("path") is Path


def test_of_two_packages_the_first_on_the_path_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that two packages offer leads where an import would."""
    (tmp_path / "before").mkdir()
    entries = "[tests.shapes]\nround = collections:deque\n"
    monkeypatch.syspath_prepend(install(tmp_path / "before", "first", {}, entries))
    assert ANY.load("round").__name__ == "deque"


def test_a_class_that_fits_is_loaded() -> None:
    """One that derives from the base and is whole is what `load` returns; without a base, any."""
    assert issubclass(SIZED.load("round"), Sized)
    assert ANY.load("stranger").name == "stranger"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("stranger", "TypeError: it does not derive from collections.abc.Sized"),
        ("half", "TypeError: it does not define __len__; see collections.abc.Sized"),
        ("named", "TypeError: its attribute `name` is not 'named'"),
        ("gone", "AttributeError: module 'toyshapes' has no attribute 'Gone'"),
        ("torn", "ZeroDivisionError: division by zero"),
    ],
)
def test_what_cannot_be_used_is_named(name: str, why: str) -> None:
    """Whatever is wrong with another package's class is one kind of error, with its package."""
    with pytest.raises(UsageError) as caught:
        SIZED.load(name)
    assert str(caught.value).startswith(f"the shape '{name}' cannot be loaded: {why}")
    assert str(caught.value.context["found"]).endswith(" of toyshapes")
    assert caught.value.hint == "Install toyshapes again, with what it needs, or remove it."


def test_a_package_may_say_what_it_needs() -> None:
    """Where its module raises MissingLibrary, that is the error."""
    with pytest.raises(MissingLibrary, match="needs libneedy"):
        SIZED.load("needy")


def test_unknown_names() -> None:
    """The error lists all names, those that go beside these too, and the closest of them."""
    with pytest.raises(UsageError, match=r"^from_: no such shape 'rond'") as caught:
        SIZED.load("rond")
    assert caught.value.option == "from_"
    assert caught.value.context["expected"] == ", ".join(SIZED)
    assert caught.value.hint == "Did you mean 'round'?"
    error = ANY.make_unknown_error("outo", ["auto"])
    assert error.problem == "no such shape 'outo'"
    assert error.hint == "Did you mean 'auto'?"
    assert str(error.context["expected"]).startswith("auto, path, abacus, gone, ")
    assert ANY.make_unknown_error("zzz").hint is None
