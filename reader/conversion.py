"""Numbers of any stored dtype as float32, float16 or bfloat16: converted while they are copied.

As numpy and torch convert: to the nearest number, ties to even, what is too large to infinity.
Integers go to 16 bits by way of float32, as in both; float64 goes to float16 at once, as in numpy,
and to bfloat16 by way of float32, as in torch. A NaN stays a NaN. Arrays hold bfloat16 as uint16.
"""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any

import msgspec
import numpy as np
from llvmlite import ir

from fieldslab.reader.kernels import AHEAD
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field, Logical
from fieldslab.schemas.jit import inlined, intrinsic, kernel, memcpy, prefetch, types
from fieldslab.schemas.mapping import get_address
from fieldslab.schemas.xxh3 import emit_loop

_LANES = 16
_AT_A_TIME = 16
"""Vectors that are float32 on their way to 16 bits: 1 KiB."""
_TAIL = 4 * _LANES * _AT_A_TIME
_SCRATCH = _TAIL + 8 * _LANES
"""Bytes for those, and for less than a vector of the widest numbers behind them."""
_TARGETS = {"float32": "float32", "float16": "float16", "bfloat16": "uint16"}
"""What can be asked for, and the dtype of the arrays that hold it."""
_FLOAT32, _FLOAT16, _BFLOAT16 = range(3)
"""Targets, as kernels know them."""
_SOURCES = (
    *("float32", "float64", "float16", "bfloat16", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
"""What can be stored; kernels know the place in this list."""

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_F32, _F64 = ir.FloatType(), ir.DoubleType()
_BYTES = {_I8: 1, _I16: 2, _I32: 4, _I64: 8, _F32: 4, _F64: 8}
_Array = np.ndarray


def check_cast(dtypes: Any, fields: Mapping[str, Field]) -> dict[str, str]:
    """Return names of dtypes by field for the arguments of `Slab.cast`. Raises UsageError.

    `fields` are those that are stored; the caller has checked that they have these names.
    """
    names = {}
    for name, dtype in dtypes.items():
        text = str(dtype).removeprefix("torch.")
        if text not in _TARGETS:
            try:
                text = repr(None) if dtype is None else str(np.dtype(dtype))  # numpy: float64
            except TypeError:
                text = repr(dtype)
        if text not in _TARGETS:
            expected = ", ".join(_TARGETS)
            raise UsageError("no such cast", field=name, expected=expected, found=text)
        if name_source(fields[name]) is None:
            description = fields[name].describe()
            raise UsageError("this field has no numbers to cast", field=name, found=description)
        names[name] = text
    return names


def name_source(field: Field) -> str | None:
    """Name the dtype of a stored field's numbers, such as "bfloat16"; None if it has none."""
    if field.kind not in ("fixed", "ragged"):
        return None
    name = field.dtype if field.logical is None else field.logical.type
    if field.logical is not None and name in ("class_label", "enum"):
        name = field.dtype
    return name if name in _SOURCES else None


def cast_field(field: Field, dtype: str) -> Field:
    """Describe a field as it is returned in a dtype of `check_cast`."""
    logical = Logical("bfloat16") if dtype == "bfloat16" else None
    return msgspec.structs.replace(field, dtype=_TARGETS[dtype], logical=logical)


class Conversion:
    """Converts numbers of one dtype to another."""

    def __init__(self, source: str, target: str) -> None:
        """Take what `name_source` and `check_cast` say."""
        self.dtype: np.dtype[Any] = np.dtype(_TARGETS[target])
        self._source = _SOURCES.index(source)
        self._target = list(_TARGETS).index(target)
        self._width = np.dtype("uint16" if source == "bfloat16" else source).itemsize

    def copy_rows(self, *arguments: Any) -> int:
        """Copy rows as `kernels.copy_rows`, with the same arguments, and convert them."""
        scratch = np.empty(_SCRATCH, np.uint8)
        convert_rows: Any = _convert_rows
        rest = self._source, self._width, self._target, get_address(scratch)
        end: int = convert_rows(*arguments, *rest)
        return end

    def convert(self, values: Any, out: np.ndarray | None = None) -> Any:
        """Convert an array in C order, or a scalar, into `out` of the same shape if it is given."""
        array = np.asarray(values)
        result = np.empty(array.shape, self.dtype) if out is None else out
        if array.size:
            zero, count = np.zeros(1, np.int64), np.ones(1, np.int64)
            base, target = np.array([get_address(array)]), get_address(result)
            self.copy_rows(zero, zero, count, array.nbytes, base, target, False)
        return result if array.shape else result[()]


def make_conversion(field: Field, dtype: str) -> Conversion:
    """Make the conversion of a stored field's numbers to a dtype of `check_cast`."""
    source = name_source(field)
    assert source is not None
    return Conversion(source, dtype)


def _make_operation(build: Callable[[Any, Any], Any], kind: Any) -> Callable[..., None]:
    """An operation (out, source, vectors) of kernels, which changes vectors of `kind`.

    Loops are in here, and not around it: to choose an operation takes longer than to change one
    vector.
    """

    def generate(context: Any, b: Any, _: Any, arguments: Sequence[Any]) -> Any:
        vector = _vector(kind)
        out, source, vectors = arguments

        def emit_step(place: Any, index: Any) -> Any:
            begin = b.add(source, b.mul(index, _I64(_LANES * _BYTES[kind])))
            result = build(b, b.load(b.inttoptr(begin, ir.PointerType(vector)), align=1))
            b.store(result, b.inttoptr(place, ir.PointerType(result.type)), align=1)
            return b.add(place, _I64(_LANES * _BYTES[result.type.element]))

        emit_loop(b, vectors, out, emit_step)
        return context.get_dummy_value()

    def typed(*_: Any) -> Any:
        return types.void(types.int64, types.int64, types.int64), generate

    names = ("context", "out", "source", "vectors")
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    typed.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    operation: Callable[..., None] = intrinsic(typed)
    return operation


def _splat(kind: Any, value: Any) -> Any:
    return ir.Constant(ir.VectorType(kind, _LANES), [value] * _LANES)


def _vector(kind: Any) -> Any:
    return ir.VectorType(kind, _LANES)


def _emit_from_float64(b: Any, values: Any) -> Any:
    return b.fptrunc(values, _vector(_F32))


def _emit_odd_from_float64(b: Any, values: Any) -> Any:
    """Float32 whose last bit is 1 where bits were lost: rounded again, it is as if only then."""
    near = b.fptrunc(values, _vector(_F32))
    back = b.fpext(near, values.type)
    bits = b.bitcast(near, _vector(_I32))
    size, wide = _splat(_I64, 2**63 - 1), _vector(_I64)
    beyond = b.icmp_unsigned(
        ">", b.and_(b.bitcast(back, wide), size), b.and_(b.bitcast(values, wide), size)
    )
    down = b.select(beyond, b.sub(bits, _splat(_I32, 1)), bits)
    odd = b.or_(down, _splat(_I32, 1))
    lost = b.fcmp_ordered("!=", back, values)  # not of a NaN
    return b.bitcast(b.select(lost, odd, bits), near.type)


def _emit_from_float16(b: Any, halves: Any) -> Any:
    """In integers: some processors have no instruction for it."""
    bits = b.zext(halves, _vector(_I32))
    size = b.shl(b.and_(bits, _splat(_I32, 0x7FFF)), _splat(_I32, 13))
    scaled = b.fmul(b.bitcast(size, _vector(_F32)), _splat(_F32, 2.0**112))
    special = b.icmp_unsigned(">=", size, _splat(_I32, 0x7C00 << 13))
    exact = b.select(
        special, b.or_(size, _splat(_I32, 0x7F800000)), b.bitcast(scaled, _vector(_I32))
    )
    sign = b.shl(b.and_(bits, _splat(_I32, 0x8000)), _splat(_I32, 16))
    return b.bitcast(b.or_(exact, sign), _vector(_F32))


def _emit_from_bfloat16(b: Any, words: Any) -> Any:
    bits = b.shl(b.zext(words, _vector(_I32)), _splat(_I32, 16))
    return b.bitcast(bits, _vector(_F32))


def _emit_from_bool(b: Any, values: Any) -> Any:
    return b.uitofp(b.icmp_unsigned("!=", values, _splat(_I8, 0)), _vector(_F32))


def _emit_from_signed(b: Any, values: Any) -> Any:
    return b.sitofp(values, _vector(_F32))


def _emit_from_unsigned(b: Any, values: Any) -> Any:
    return b.uitofp(values, _vector(_F32))


def _emit_to_float16(b: Any, values: Any) -> Any:
    bits = b.bitcast(values, _vector(_I32))
    size = b.and_(bits, _splat(_I32, 0x7FFFFFFF))
    odd = b.and_(b.lshr(size, _splat(_I32, 13)), _splat(_I32, 1))
    usual = b.lshr(b.add(b.add(size, _splat(_I32, 0xC8000FFF)), odd), _splat(_I32, 13))
    # Below 2**-14 the mantissa is shifted into place by an addition that rounds.
    half = b.fadd(b.bitcast(size, values.type), _splat(_F32, 0.5))
    small = b.sub(b.bitcast(half, _vector(_I32)), _splat(_I32, 0x3F000000))
    tiny = b.icmp_unsigned("<", size, _splat(_I32, 0x38800000))
    huge = b.icmp_unsigned(">=", size, _splat(_I32, 0x47800000))
    result = b.select(huge, _splat(_I32, 0x7C00), b.select(tiny, small, usual))
    nan = b.or_(b.lshr(size, _splat(_I32, 13)), _splat(_I32, 0x7E00))
    nan = b.and_(nan, _splat(_I32, 0x7FFF))
    result = b.select(b.icmp_unsigned(">", size, _splat(_I32, 0x7F800000)), nan, result)
    sign = b.lshr(b.and_(bits, _splat(_I32, 0x80000000)), _splat(_I32, 16))
    return b.trunc(b.or_(result, sign), _vector(_I16))


def _emit_to_bfloat16(b: Any, values: Any) -> Any:
    bits = b.bitcast(values, _vector(_I32))
    high = b.lshr(bits, _splat(_I32, 16))
    odd = b.and_(high, _splat(_I32, 1))
    usual = b.lshr(b.add(b.add(bits, _splat(_I32, 0x7FFF)), odd), _splat(_I32, 16))
    nan = b.or_(high, _splat(_I32, 0x40))
    is_nan = b.icmp_unsigned(">", b.and_(bits, _splat(_I32, 0x7FFFFFFF)), _splat(_I32, 0x7F800000))
    return b.trunc(b.select(is_nan, nan, usual), _vector(_I16))


_from_float64 = _make_operation(_emit_from_float64, _F64)
_odd_from_float64 = _make_operation(_emit_odd_from_float64, _F64)
_from_float16 = _make_operation(_emit_from_float16, _I16)
_from_bfloat16 = _make_operation(_emit_from_bfloat16, _I16)
_from_bool = _make_operation(_emit_from_bool, _I8)
_from_int8, _from_int16, _from_int32, _from_int64 = (
    _make_operation(_emit_from_signed, kind) for kind in (_I8, _I16, _I32, _I64)
)
_from_uint8, _from_uint16, _from_uint32, _from_uint64 = (
    _make_operation(_emit_from_unsigned, kind) for kind in (_I8, _I16, _I32, _I64)
)
_to_float16 = _make_operation(_emit_to_float16, _F32)
_to_bfloat16 = _make_operation(_emit_to_bfloat16, _F32)


@inlined
def _widen(out: int, address: int, vectors: int, source: int, target: int) -> None:
    """Vectors of numbers as float32."""
    if source == 0:
        memcpy(out, address, 4 * _LANES * vectors)
    elif source == 1 and target == _FLOAT16:
        _odd_from_float64(out, address, vectors)
    elif source == 1:
        _from_float64(out, address, vectors)
    elif source == 2:
        _from_float16(out, address, vectors)
    elif source == 3:
        _from_bfloat16(out, address, vectors)
    elif source == 4:
        _from_bool(out, address, vectors)
    elif source == 5:
        _from_int8(out, address, vectors)
    elif source == 6:
        _from_int16(out, address, vectors)
    elif source == 7:
        _from_int32(out, address, vectors)
    elif source == 8:
        _from_int64(out, address, vectors)
    elif source == 9:
        _from_uint8(out, address, vectors)
    elif source == 10:
        _from_uint16(out, address, vectors)
    elif source == 11:
        _from_uint32(out, address, vectors)
    else:
        _from_uint64(out, address, vectors)


@inlined
def _convert_vectors(
    out: int, address: int, vectors: int, source: int, target: int, scratch: int
) -> None:
    """Some vectors of numbers, by way of `scratch`."""
    if target == _FLOAT32:
        _widen(out, address, vectors, source, target)
        return
    if source != 0:
        _widen(scratch, address, vectors, source, target)
        address = scratch
    if target == _FLOAT16:
        _to_float16(out, address, vectors)
    else:
        _to_bfloat16(out, address, vectors)


@kernel(
    "int64(int64[::1], int64[::1], int64[::1], int64, int64[::1], int64, boolean,"
    "int64, int64, int64, int64)"
)
def _convert_rows(
    shards: _Array,
    places: _Array,
    counts: _Array,
    item: int,
    addresses: _Array,
    out: int,
    stream: bool,
    source: int,
    width: int,
    target: int,
    scratch: int,
) -> int:
    """As `kernels.copy_rows`; numbers of `width` bytes become others.

    `source` and `target` are places in `_SOURCES` and `_TARGETS`. `scratch` has _SCRATCH
    bytes. `stream` plays no part.
    """
    last = len(shards) - 1
    count_mask = 0 if len(counts) == 1 else -1
    narrow = 4 if target == _FLOAT32 else 2
    for i in range(len(shards)):
        coming = min(i + AHEAD, last)
        address = addresses[shards[coming]] + places[coming] * item
        prefetch(address)
        prefetch(address + 64)
        prefetch(address + 128)
        prefetch(address + 192)
        address = addresses[shards[i]] + places[i] * item
        left = counts[i & count_mask] * item // width
        while left > 0:
            begin, to, vectors = address, out, min(left // _LANES, _AT_A_TIME)
            some = vectors * _LANES
            if vectors == 0:  # nothing lies behind the last row, and what follows `out` may matter
                begin, to, vectors, some = scratch + _TAIL, scratch + _TAIL, 1, left
                memcpy(begin, address, some * width)
            _convert_vectors(to, begin, vectors, source, target, scratch)
            if some < _LANES:
                memcpy(out, to, some * narrow)
            address += some * width
            out += some * narrow
            left -= some
    return out
