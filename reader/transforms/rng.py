"""Random numbers of transforms: a stream of its own for each row, whoever computes it.

A stream is SplitMix64 (see `reader.draws.permutation`), started from a hash of the row and its
visit under keys of seed, epoch, the transform's place and the number of the call. Normal numbers
are made by the transform of Box and Muller: G. Box and M. Muller, "A Note on the Generation of
Random Normal Deviates", Annals of Mathematical Statistics 29 (1958). Integers are the upper half
of a product, so that no value comes more often than others by more than its range / 2**64.

What is drawn is frozen: runs resume by it. The tests hold golden values.
"""

import math
from typing import Any

import numpy as np

from fieldslab.reader.draws.permutation import make_keys, mix_bits
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.jit import inlined, kernel

_Array = np.ndarray
_Size = int | tuple[int, ...] | None
_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


class RowGenerator:
    """Draws for the rows of a batch, in the words of `numpy.random.Generator`.

        def jitter(batch, rng):
            scale = rng.uniform(0.9, 1.1)                       # float64[rows]
            noise = rng.normal(0, 0.01, size=batch["x"].shape[1:])   # float64[rows, *shape]
            return {"x": batch["x"] * scale[:, None] + noise}

    Each row has a stream of its own, which depends on (seed, epoch, row, visit) and on nothing
    else: batch size, threads, ranks and resuming do not change it. A call draws one number for
    each row, or an array of shape `size` for each row; parameters broadcast against the result,
    which is [rows, *size]. The n-th call draws the same for a row whatever was drawn before it.

    Attributes
    ----------
    rows
        How many rows there are.
    """

    def __init__(self, subjects: np.ndarray, *key: int) -> None:
        """Take what `make_draw_numbers` returns (uint64[n]), and the numbers of the key.

        Transforms get one: there is no need to make one.
        """
        self.rows = len(subjects)
        self._subjects = subjects
        self._key = key
        self._calls = 0

    def random(self, size: _Size = None, dtype: Any = None, *, lengths: Any = None) -> Any:
        """Draw numbers from [0, 1): [rows, *size], float64 by default, or float32.

        Parameters
        ----------
        size
            Shape for each row; one number a row if not given.
        lengths
            Instead: how many numbers each row gets, int64[rows], for fields of different lengths.
            The result is flat, as `Ragged.values` is.

        Raises UsageError.
        """
        return self._convert_result(
            self._draw_uniform(size, self._convert_float_dtype(dtype), lengths)
        )

    def uniform(
        self,
        low: Any = 0.0,
        high: Any = 1.0,
        size: _Size = None,
        *,
        lengths: Any = None,
        dtype: Any = None,
    ) -> Any:
        """Draw numbers from [low, high): see `random`."""
        drawn = self._draw_uniform(size, self._convert_float_dtype(dtype), lengths)
        return self._convert_result(self._scale_and_shift(drawn, low, np.subtract(high, low)))

    def standard_normal(self, size: _Size = None, dtype: Any = None, *, lengths: Any = None) -> Any:
        """Draw normal numbers of mean 0 and deviation 1: see `random`."""
        return self._convert_result(
            self._draw_normal(size, self._convert_float_dtype(dtype), lengths)
        )

    def normal(
        self,
        loc: Any = 0.0,
        scale: Any = 1.0,
        size: _Size = None,
        *,
        lengths: Any = None,
        dtype: Any = None,
    ) -> Any:
        """Draw normal numbers of mean `loc` and deviation `scale`: see `random`."""
        if np.less(scale, 0).any():
            raise UsageError("`scale` must not be negative", found=scale)
        return self._convert_result(
            self._scale_and_shift(
                self._draw_normal(size, self._convert_float_dtype(dtype), lengths), loc, scale
            )
        )

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: _Size = None,
        dtype: Any = np.int64,
        endpoint: bool = False,
        *,
        lengths: Any = None,
    ) -> Any:
        """Draw integers from low to high - 1, or high with `endpoint`; 0 to low - 1 without high.

        `low` and `high` may be arrays that broadcast against the result, such as int64[rows] for
        one draw a row. int64 if `dtype` is not given. Raises UsageError.
        """
        drawn = self._draw_bits(size, lengths)
        low, high = (0, low) if high is None else (low, high)
        try:
            lows, highs = np.asarray(low), np.asarray(high)
            if lows.dtype.kind not in "iu" or highs.dtype.kind not in "iu":
                raise UsageError("`low` and `high` must be integers", found=(low, high))
            lows, highs = lows.astype(np.int64), highs.astype(np.int64) - (0 if endpoint else 1)
            lows = np.array(np.broadcast_to(lows, drawn.shape))
            highs = np.array(np.broadcast_to(highs, drawn.shape))
        except ValueError:
            raise _make_broadcast_error((low, high), drawn.shape) from None
        if (lows > highs).any():
            raise UsageError("`low` must be below `high`", found=(low, high))
        integers = drawn.reshape(-1)
        _scale_to_range(integers, lows.reshape(-1), highs.reshape(-1))
        wide = integers.view(np.int64).reshape(drawn.shape)
        out = wide.astype(self._convert_dtype(dtype))
        if (out != wide).any():
            raise UsageError("the dtype cannot hold these integers", found=str(dtype))
        return self._convert_result(out)

    def choice(self, a: Any, size: _Size = None, *, p: Any = None, lengths: Any = None) -> Any:
        """Draw elements of `a`, or of 0..a-1, with replacement; `p` are probabilities."""
        options = np.arange(a) if np.ndim(a) == 0 else np.asarray(a)
        if not len(options):
            raise UsageError("nothing to choose from", found=repr(a))
        shares = np.ones(len(options)) if p is None else np.asarray(p, np.float64)
        if shares.shape != (len(options),) or not (shares >= 0).all() or not shares.sum() > 0:
            raise UsageError("`p` must have one probability for each option", found=repr(p))
        ends = np.cumsum(shares)
        drawn = self._draw_uniform(size, _FLOATS[0], lengths) * ends[-1]
        chosen = np.searchsorted(ends, drawn, side="right")
        return self._convert_result(options[np.minimum(chosen, np.searchsorted(ends, ends[-1]))])

    def seeds(self) -> Any:
        """Return an int64 seed for each row, 0 or more, for generators of other libraries."""
        return self._convert_result((self._draw_bits(None, None) >> np.uint64(1)).astype(np.int64))

    def _draw_uniform(self, size: _Size, dtype: np.dtype[Any], lengths: Any) -> np.ndarray:
        bits = self._draw_bits(size, lengths)
        if dtype == np.float32:
            return (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)
        return (bits >> np.uint64(11)) * 2.0**-53

    def _draw_normal(self, size: _Size, dtype: np.dtype[Any], lengths: Any) -> np.ndarray:
        bits = self._draw_bits(size, lengths)
        out = np.empty(bits.shape, np.float64)
        _compute_normals(bits.reshape(-1), out.reshape(-1))
        return out.astype(dtype, copy=False)

    def _draw_bits(self, size: _Size, lengths: Any) -> np.ndarray:
        """Fresh random bits: uint64 [rows, *size], or flat for rows of some lengths."""
        key = make_keys("rng", *self._key, self._calls)
        self._calls += 1
        if lengths is None:
            shape = _check_shape(size)
            counts = np.full(self.rows, math.prod(shape), np.int64)
            out = np.empty((self.rows, *shape), np.uint64)
        else:
            counts = _check_lengths(lengths, size, self.rows)
            out = np.empty(int(counts.sum()), np.uint64)
        _fill_streams(self._subjects, counts, key, out.reshape(-1))
        return out

    def _scale_and_shift(self, drawn: np.ndarray, start: Any, step: Any) -> np.ndarray:
        """`start + step * drawn` in the shape and dtype of `drawn`."""
        try:
            return np.add(np.multiply(drawn, step), start).astype(drawn.dtype).reshape(drawn.shape)
        except ValueError:
            raise _make_broadcast_error((start, step), drawn.shape) from None

    def _convert_float_dtype(self, dtype: Any) -> np.dtype[Any]:
        float_dtype = np.dtype(np.float64) if dtype is None else self._convert_dtype(dtype)
        if float_dtype not in _FLOATS:
            raise UsageError(
                "cannot draw this dtype", expected="float64 or float32", found=str(dtype)
            )
        return float_dtype

    def _convert_dtype(self, dtype: Any) -> np.dtype[Any]:
        from fieldslab.reader.transforms.transform import convert_dtype

        return convert_dtype(dtype)

    def _convert_result(self, array: np.ndarray) -> Any:
        """Convert drawn numbers to arrays or tensors, as the user gets them."""
        return array


def _check_shape(size: _Size) -> tuple[int, ...]:
    shape = () if size is None else (size,) if np.ndim(size) == 0 else tuple(size)  # type: ignore[arg-type]
    if not all(isinstance(side, int | np.integer) and side >= 0 for side in shape):
        raise UsageError("`size` must be the shape of one row's draws", found=size)
    return tuple(int(side) for side in shape)  # type: ignore[arg-type]


def _check_lengths(lengths: Any, size: _Size, rows: int) -> np.ndarray:
    if size is not None:
        raise UsageError("give `size` or `lengths`, not both")
    counts = np.asarray(lengths)
    if counts.shape != (rows,) or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise UsageError("`lengths` must have one count for each row", found=repr(lengths))
    return np.ascontiguousarray(counts, np.int64)


def _make_broadcast_error(parameters: Any, shape: tuple[int, ...]) -> UsageError:
    hint = "For one number a row, write low[:, None] beside a `size`."
    return UsageError(
        "parameters do not broadcast against the draws", expected=shape, found=parameters, hint=hint
    )


@kernel("void(uint64[::1], int64[::1], uint64[::1], uint64[::1])")
def _fill_streams(subjects: _Array, counts: _Array, key: _Array, out: _Array) -> None:
    """Fill `out` with the beginnings of the rows' streams, `counts` of each."""
    step = np.uint64(0x9E3779B97F4A7C15)
    place = 0
    for i in range(len(subjects)):
        state = mix_bits(mix_bits(subjects[i] + key[0]) + key[1])
        for _ in range(counts[i]):
            state += step
            out[place] = mix_bits(state)
            place += 1


@kernel("void(uint64[::1], float64[::1])")
def _compute_normals(bits: _Array, out: _Array) -> None:
    """Compute a normal number from each 64 random bits, by the method of Box and Muller.

    Compiled, because numpy may round the same number differently at another place of an array.
    """
    for i in range(len(bits)):
        state: Any = bits[i]
        radius = np.float64((mix_bits(state) >> np.uint64(11)) + np.uint64(1)) * 2.0**-53  # above 0
        angle = np.float64(state >> np.uint64(11)) * 2.0**-53
        out[i] = math.sqrt(-2.0 * math.log(radius)) * math.cos(2.0 * math.pi * angle)


@inlined
def _multiply_high(left: Any, right: Any) -> Any:
    """Return the upper 64 bits of the product of two numbers: uint64."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    middle = (left >> half) * (right & low) + (((left & low) * (right & low)) >> half)
    rest = (left & low) * (right >> half) + (middle & low)
    return (left >> half) * (right >> half) + (middle >> half) + (rest >> half)


@kernel("void(uint64[::1], int64[::1], int64[::1])")
def _scale_to_range(bits: _Array, lows: _Array, highs: _Array) -> None:
    """Put in place of random bits the bits of an int64 from low to high, both included."""
    for i in range(len(bits)):
        count = np.uint64(highs[i]) - np.uint64(lows[i]) + np.uint64(1)
        drawn = (
            bits[i] if count == np.uint64(0) else _multiply_high(bits[i], count)
        )  # 0: all of 2**64
        bits[i] = np.uint64(lows[i]) + drawn
