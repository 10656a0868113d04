"""Versions of installed packages, as their metadata has them.

`importlib.metadata` is imported where it is used: it takes 5 % of the time until a first batch.
"""

from functools import cache


@cache
def get_installed_version() -> str:
    """Return a version such as `0.1.0`; `unknown` if fieldslab is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fieldslab")
    except PackageNotFoundError:
        return "unknown"


@cache
def get_package_version(name: str) -> str:
    """Return the version of an installed package; cached, since metadata is slow to parse.

    Raises importlib.metadata.PackageNotFoundError.
    """
    from importlib.metadata import version

    return version(name)
