"""Warnings and log records for Python programs; the commands have their own words on stderr.

A warning is a `FieldslabWarning`, for the module `warnings`. The logger `fieldslab` has a record of
each event and warning at level INFO, so that warnings are shown twice only to users who enable
the log as well.
"""

import logging
import sys
import warnings

LOG = logging.getLogger("fieldslab")


class FieldslabWarning(UserWarning):
    """Something odd in the data, or in how it is used, that is not an error."""


def warn(text: str) -> None:
    """Warn with the first line of the call stack that is not fieldslab's own."""
    LOG.info("warning: %s", text)
    level, frame = 2, sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__", "")).startswith("fieldslab."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, FieldslabWarning, stacklevel=level)
