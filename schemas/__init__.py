"""What a slab is: the format, its manifest and its checks. `FORMAT.md` is the normative text."""

from fieldslab.schemas.version import get_installed_version


def __getattr__(name: str) -> str:
    """Look up `__version__` when it is asked for."""
    if name == "__version__":
        return get_installed_version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
