"""Text -> values: which type a column has, and its values without losing any.

A type is inferred only where each value of the sample can be written again as it was: an integer
with a leading zero or a plus stays text, as do integers that do not fit into 64 bits.
"""

import pyarrow as pa
import pyarrow.compute as pc

NULLS = ("", "NA", "N/A", "n/a", "NULL", "null", "#N/A")
"""What stands for a missing value, but in columns of text."""

TYPES = (
    pa.int64(),
    pa.float64(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
)
"""Types that are inferred, in the order in which they are tried."""

_TRUE, _FALSE = ["true", "True", "TRUE"], ["false", "False", "FALSE"]
_INFINITE = r"(?i)^[+-]?inf(inity)?$"
_CODE = r"^[+-]?0[0-9]|^\+|^[+-]?[0-9]{16,}$"
"""Numbers that a float cannot give back: with leading zeros or a plus, or with many digits."""


def infer_type(texts: pa.ChunkedArray) -> pa.DataType:
    """Infer the type of a column from some of its values; text where no other holds them all."""
    known = texts.filter(pc.invert(_are_null(texts)))
    if not len(known):
        return pa.string()
    for kind in TYPES:
        if pa.types.is_floating(kind) and pc.any(pc.match_substring_regex(known, _CODE)).as_py():
            continue
        try:
            parse_texts(texts, kind)
        except pa.ArrowInvalid:
            continue
        return kind
    return pa.string()


def parse_texts(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Parse a column of strings. Raises pa.ArrowInvalid where a value would be lost."""
    if pa.types.is_string(kind):
        return texts
    texts = pc.if_else(_are_null(texts), pa.scalar(None, pa.string()), texts)
    if pa.types.is_large_string(kind):  # to be cast: text with nulls
        return texts.cast(kind)
    if pa.types.is_boolean(kind):
        _check(pc.is_in(texts.drop_null(), value_set=pa.array(_TRUE + _FALSE)))
        is_true = pc.is_in(texts, value_set=pa.array(_TRUE))
        return pc.if_else(pc.is_null(texts), pa.scalar(None, pa.bool_()), is_true)
    values = texts.cast(kind)
    if pa.types.is_integer(kind):
        _check(pc.equal(values.cast(pa.string()), texts))
    elif pa.types.is_floating(kind):
        infinite = pc.fill_null(pc.is_inf(values), False)
        if pc.any(infinite).as_py():
            known = texts.filter(infinite)
            _check(pc.match_substring_regex(known, _INFINITE))
        long = texts.filter(pc.greater(pc.binary_length(texts), 15))
        _check(pc.invert(pc.match_substring_regex(long, r"^-?[0-9]+$")))
    return values


def _are_null(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.is_in(texts, value_set=pa.array(NULLS))


def _check(good: pa.ChunkedArray) -> None:
    """Raise pa.ArrowInvalid unless all are true, or null."""
    if not pc.all(good, min_count=0).as_py():
        raise pa.ArrowInvalid("a value would change")
