"""The TurboJPEG libraries of both generations that the tests run with."""

import sys

import pytest

from fieldslab.schemas.codecs.turbolibrary import Library, find_libraries

GENERATIONS = ("2", "3")
_INSTALL = {
    "2": "apt install libturbojpeg0 (Debian 12 and 13; libturbojpeg on Ubuntu); .ci/run does it",
    "3": "pip install pylibjxl, or make setup",
}


def library_of(generation: str) -> Library:
    """The library of this generation; the test fails where there is none, and says what to do.

    On macOS, where 2.1 is no longer to be had, 3.x stands in: it has all functions of 2.1.
    """
    actual = {library.version[0]: library for library in reversed(find_libraries())}
    if generation not in actual and sys.platform == "darwin" and actual:
        return next(iter(actual.values()))
    if generation not in actual:
        pytest.fail(f"no libturbojpeg {generation}.x was found. {_INSTALL[generation]}")
    return actual[generation]
