"""Parts of a slab by what its rows hold: the same rows stay together as data is added.

Each row, or each value of the fields in `by`, gets a hash. A part is an interval of hashes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fieldslab.reader.batch import Batch
from fieldslab.reader.draws.permutation import make_keys, mix_bits
from fieldslab.reader.var_len import Ragged, VarLenValues
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.jit import kernel, load_u8, load_u64
from fieldslab.schemas.mapping import get_address
from fieldslab.schemas.row_batches import read_batches
from fieldslab.schemas.stored_tables import check_codes

_NULL = np.uint64(0x9E3779B97F4A7C15)

Gather = Callable[[range, list[str]], Batch]
"""Gathers fields of a range of rows."""


def check_fractions(parts: Any) -> np.ndarray:
    """Return where each part ends, float64[parts], the last at 1. Raises UsageError."""
    hint = 'Write slab.split({"train": 0.9, "val": 0.1}).'
    if not isinstance(parts, Mapping) or not parts:
        raise UsageError("`parts` must map names to fractions", found=repr(parts), hint=hint)
    try:
        fractions = np.array([float(fraction) for fraction in parts.values()])
    except (TypeError, ValueError):
        raise UsageError("a fraction is not a number", found=repr(parts), hint=hint) from None
    if not (fractions > 0).all() or abs(fractions.sum() - 1) > 1e-9:
        raise UsageError(
            "fractions must be positive, with a sum of 1", found=repr(dict(parts)), hint=hint
        )
    ends = np.cumsum(fractions)
    ends[-1] = 1
    return ends


def split_rows(
    parts: Mapping[str, float],
    seed: int,
    by: Sequence[str],
    stratify: str | None,
    fields: Mapping[str, Field],
    categories: Callable[[str], Sequence[str]],
    gather: Gather,
    total: int,
) -> dict[str, np.ndarray]:
    """Split rows 0..total-1 into parts by name: ascending rows, int64[n] each.

    See `Slab.split`. Memory is 16 bytes a row, and 24 more with `stratify`.
    """
    ends = check_fractions(parts)
    hashes = _hash_rows(by, make_keys("split", seed)[0], fields, categories, gather, total)
    if stratify is None:
        numbers = np.searchsorted(ends[:-1], hashes / 2.0**64, side="right")
    else:
        key = make_keys("stratum", seed)[0]
        labels = _hash_rows([stratify], key, fields, categories, gather, total)
        numbers = _split_by_label(hashes, labels, ends)
    return {name: np.flatnonzero(numbers == number) for number, name in enumerate(parts)}


def _split_by_label(hashes: np.ndarray, labels: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Find the part of each row, int64[n], so that each label is split by the fractions.

    Rows with the same hash stay together; their label is that of the first of them. Where a
    fraction gives no whole number of rows, the label decides whether there is one more: by chance,
    so that many small labels together are split by the fractions, too.
    """
    groups, firsts, group_of_row, sizes = np.unique(
        hashes, return_index=True, return_inverse=True, return_counts=True
    )
    group_labels = labels[firsts]
    sequence = np.lexsort((groups, group_labels))
    sizes, group_labels = sizes[sequence], group_labels[sequence]
    behind = np.cumsum(sizes)
    begins = np.flatnonzero(np.diff(group_labels, prepend=~group_labels[:1]))
    stratum = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(sizes)))
    before = (behind - sizes)[begins]
    rows = np.diff(before, append=len(hashes))
    chance = group_labels / 2.0**64
    places = (behind - sizes * (1 - chance) - before[stratum]) / rows[stratum]
    numbers = np.empty(len(groups), np.int64)
    numbers[sequence] = np.searchsorted(ends[:-1], places, side="right")
    return numbers[group_of_row]


def _hash_rows(
    names: Sequence[str],
    seed: Any,
    fields: Mapping[str, Field],
    categories: Callable[[str], Sequence[str]],
    gather: Gather,
    total: int,
) -> np.ndarray:
    """Hash the values of some fields, row by row: uint64[total].

    Categories count by name, integers of any width by value, so that slabs packed apart agree.
    """
    hashes = np.full(total, seed, np.uint64)
    # The "" behind the categories is for nulls, which have a code even where no category exists.
    names_of_codes = {
        name: _hash_texts([*categories(name), ""])
        for name in names
        if fields[name].kind == "categorical"
    }
    for rows, batch in read_batches(lambda rows: gather(rows, list(names)), total):
        for name in names:
            values, row_hashes = batch[name], hashes[rows.start : rows.stop]
            if name in names_of_codes:
                check_codes(values, len(names_of_codes[name]) - 1, name)
                values = names_of_codes[name][values]
            _hash_values(values, row_hashes, batch.valid.get(name))
    return hashes


def _hash_values(values: Any, hashes: np.ndarray, valid: np.ndarray | None) -> None:
    """Mix the rows of a field into `hashes`, uint64[n]."""
    if isinstance(lists := getattr(values, "values", None), VarLenValues):
        _hash_values(Ragged(lists.values, lists.offsets[values.offsets]), hashes, valid)
        lengths = lists.lengths if lists.valid is None else np.where(lists.valid, lists.lengths, -1)
        _hash_values(Ragged(lengths, values.offsets), hashes, valid)
        return
    if isinstance(values, np.ndarray):
        data = np.ascontiguousarray(values)
        if data.dtype.kind in "biu":
            data = data.astype(np.uint64 if data.dtype.kind == "u" else np.int64)
        flat = data.reshape(-1).view(np.uint8)
        offsets = np.arange(len(data) + 1, dtype=np.int64) * (flat.size // max(len(data), 1))
    else:
        data = np.ascontiguousarray(values.values)
        flat = data.reshape(-1).view(np.uint8)
        offsets = values.offsets * (data.itemsize * int(np.prod(data.shape[1:])))
    before = hashes.copy()
    _mix_bytes(get_address(flat), np.ascontiguousarray(offsets), hashes)
    if valid is not None:
        hashes[~valid] = before[~valid] * _NULL + _NULL


def _hash_texts(texts: Sequence[str]) -> np.ndarray:
    """Hash names of categories: uint64[n]."""
    encoded = [text.encode() for text in texts]
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in encoded])]).astype(np.int64)
    hashes = np.zeros(len(encoded), np.uint64)
    data = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
    _mix_bytes(get_address(data), offsets, hashes)
    return hashes


@kernel("void(int64, int64[::1], uint64[::1])")
def _mix_bytes(address: int, offsets: np.ndarray, hashes: np.ndarray) -> None:
    """Mix the bytes from `offsets[i]` to `offsets[i + 1]` at an address into each hash."""
    for i in range(len(hashes)):
        place = address + offsets[i]
        end = address + offsets[i + 1]
        mixed: Any = mix_bits(hashes[i] ^ np.uint64(end - place))
        while place + 8 <= end:
            mixed = mix_bits(mixed ^ load_u64(place))
            place += 8
        tail: Any = np.uint64(0)
        while place < end:
            tail = (tail << np.uint64(8)) | np.uint64(load_u8(place))
            place += 1
        hashes[i] = mix_bits(mixed ^ tail)
