"""Text -> values: which type a column has, and its values without losing any.

A type is inferred only where each value of the sample can be written again as it was: an integer
with a leading zero or a plus stays text, as do integers that do not fit into 64 bits.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NULLS = ("", "NA", "N/A", "n/a", "NULL", "null", "#N/A")
"""What stands for a missing value, but in columns of text."""

_NULL_STARTS = np.isin(np.arange(256), [ord(text[0]) for text in NULLS if text])
"""Whether a byte begins what stands for a missing value: bool[256]."""

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
    present = texts.filter(pc.invert(_are_null(texts)))
    if not len(present):
        return pa.string()
    for kind in TYPES:
        if pa.types.is_floating(kind) and pc.any(pc.match_substring_regex(present, _CODE)).as_py():
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
    if _may_have_nulls(texts):
        texts = pc.if_else(_are_null(texts), pa.scalar(None, pa.string()), texts)
    if pa.types.is_large_string(kind):  # to be cast: text with nulls
        return texts.cast(kind)
    if pa.types.is_boolean(kind):
        _check(pc.is_in(texts.drop_null(), value_set=pa.array(_TRUE + _FALSE)))
        is_true = pc.is_in(texts, value_set=pa.array(_TRUE))
        return pc.if_else(pc.is_null(texts), pa.scalar(None, pa.bool_()), is_true)
    values = texts.cast(kind)
    if pa.types.is_integer(kind):
        if not _are_plain_integers(texts):
            _check(pc.equal(values.cast(pa.string()), texts))
    elif pa.types.is_floating(kind):
        infinite = pc.fill_null(pc.is_inf(values), False)
        if pc.any(infinite).as_py():
            infinities = texts.filter(infinite)
            _check(pc.match_substring_regex(infinities, _INFINITE))
        long = texts.filter(pc.greater(pc.binary_length(texts), 15))
        _check(pc.invert(pc.match_substring_regex(long, r"^-?[0-9]+$")))
    return values


def _are_null(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.is_in(texts, value_set=pa.array(NULLS))


def _may_have_nulls(texts: pa.ChunkedArray) -> bool:
    """Return False where no value is empty or begins as those do that stand for missing ones."""
    for chunk in texts.chunks:
        starts, data = _get_starts(chunk)
        if (starts[1:] == starts[:-1]).any() or _NULL_STARTS[data[starts[:-1]]].any():
            return True
    return False


def _are_plain_integers(texts: pa.ChunkedArray) -> bool:
    """Return whether integers have no sign but a minus, no leading zero and no space around.

    That is quicker than to write each of them again. Null and -0 are not plain.
    """
    for chunk in texts.chunks:
        if chunk.null_count:
            return False
        starts, data = _get_starts(chunk)
        first, last, lengths = data[starts[:-1]], data[starts[1:] - 1], np.diff(starts)
        minus = first == ord("-")
        leading = np.where(minus, data[np.minimum(starts[:-1] + 1, len(data) - 1)], first)
        single = (lengths == 1) & (first == ord("0"))
        plain = (leading > ord("0")) & (leading <= ord("9"))
        are_plain = (plain | single) & (last >= ord("0")) & (last <= ord("9"))
        if not are_plain.all():
            return False
    return True


def _get_starts(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return where each value begins and ends, int32[rows + 1], and the bytes of all."""
    _, offsets, data = texts.buffers()
    starts = np.frombuffer(offsets, np.int32, len(texts) + 1, 4 * texts.offset)
    return starts, np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)


def _check(are_valid: pa.ChunkedArray) -> None:
    """Raise pa.ArrowInvalid unless all are true, or null."""
    if not pc.all(are_valid, min_count=0).as_py():
        raise pa.ArrowInvalid("a value would change")
