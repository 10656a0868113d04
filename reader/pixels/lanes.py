"""Operations on 16 numbers at once, by address: what the resizing kernels are made of.

Each is written in LLVM's vectors, which every processor has in one width or another, because
numba does not reliably turn loops into them. Arguments are addresses (int64) unless said
otherwise, and need no alignment. Weights are uint16 with 65536 for one; samples are uint8, or
uint16 that holds 256 times a value ("words").
"""

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

from llvmlite import ir

from fieldslab.schemas.jit import intrinsic, types

LANES = 16

_Operation = Callable[..., Any]
_I8, _I16, _I32, _F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.FloatType()


def _make_operation(arguments: int) -> Callable[[Callable[..., None]], _Operation]:
    """Make a function that writes instructions into one that kernels may call."""

    def wrap(emit: Callable[..., None]) -> _Operation:
        signature = types.void(*[types.int64] * arguments)

        def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:
            emit(builder, *values)
            return context.get_dummy_value()

        def define(*_: Any) -> Any:
            return signature, generate

        names = ["context", *(f"argument{i}" for i in range(arguments))]
        parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        define.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        operation: _Operation = intrinsic(define)
        return operation

    return wrap


def _emit_load(b: Any, address: Any, kind: Any, count: int = LANES) -> Any:
    pointer = b.inttoptr(address, ir.PointerType(ir.VectorType(kind, count)))
    return b.load(pointer, align=1)


def _emit_store(b: Any, vector: Any, address: Any) -> None:
    b.store(vector, b.inttoptr(address, ir.PointerType(vector.type)), align=1)


def _emit_offset(b: Any, address: Any, bytes_: int) -> Any:
    return b.add(address, ir.Constant(address.type, bytes_))


def _make_splat(value: Any, kind: Any) -> Any:
    return ir.Constant(ir.VectorType(kind, LANES), [value] * LANES)


def _emit_load_repeated(b: Any, address: Any, kind: Any) -> Any:
    """Load one number and repeat it in every lane."""
    number = b.load(b.inttoptr(address, ir.PointerType(kind)), align=1)
    nothing = ir.Constant(ir.VectorType(kind, LANES), ir.Undefined)
    vector = b.insert_element(nothing, number, _I32(0))
    return _emit_shuffle(b, vector, vector, [0] * LANES)


def _emit_shuffle(b: Any, first: Any, second: Any, order: list[int]) -> Any:
    return b.shuffle_vector(first, second, ir.Constant(ir.VectorType(_I32, len(order)), order))


def _emit_transpose(b: Any, rows: list[Any]) -> list[Any]:
    """Transpose n vectors of n lanes by log2 n rounds of interleaving row i with row i + n/2."""
    n = len(rows)
    low = [lane for i in range(n // 2) for lane in (i, n + i)]
    high = [lane + n // 2 for lane in low]
    for _ in range(n.bit_length() - 1):
        pairs = list(zip(rows[: n // 2], rows[n // 2 :], strict=True))
        rows = [_emit_shuffle(b, x, y, order) for x, y in pairs for order in (low, high)]
    return rows


@_make_operation(3)
def transpose_bytes(b: Any, out: Any, rows: Any, x: Any) -> None:
    """transpose_bytes(out, rows, x): bytes x..x+15 (int64) of 16 rows, to uint8[16 bytes][16 rows].

    `rows` is where their addresses stand, int64[16].
    """
    lines = []
    for i in range(LANES):
        pointer = b.inttoptr(_emit_offset(b, rows, 8 * i), ir.PointerType(x.type))
        lines.append(_emit_load(b, b.add(b.load(pointer, align=8), x), _I8))
    for i, column in enumerate(_emit_transpose(b, lines)):
        _emit_store(b, column, _emit_offset(b, out, LANES * i))


@_make_operation(3)
def transpose_words(b: Any, out: Any, stride: Any, columns: Any) -> None:
    """transpose_words(out, stride, columns): words[16 columns][16 rows], to 16 rows of 16.

    The rows lie `stride` bytes apart (int64). Done as four squares of 8, which fit into 128 bits.
    """
    for y in (0, 8):
        for x in (0, 8):
            offsets = [2 * (LANES * (x + i) + y) for i in range(8)]
            addresses = [_emit_offset(b, columns, offset) for offset in offsets]
            rows = _emit_transpose(b, [_emit_load(b, address, _I16, 8) for address in addresses])
            for i, row in enumerate(rows):
                line = b.add(out, b.mul(stride, ir.Constant(stride.type, y + i)))
                _emit_store(b, row, _emit_offset(b, line, 2 * x))


def _make_weighted_sum(kind: Any, taps: int) -> _Operation:
    """Make mix(out, weights, first, ..., last): words[16] of the weighted sum of `taps` samples.

    Each product is cut to 1/256, for which half of that is made good at once.
    """

    def emit(b: Any, out: Any, weights: Any, *sources: Any) -> None:
        long = ir.VectorType(_I32, LANES)
        short = ir.VectorType(_I16, LANES)
        total = _make_splat(taps // 2, _I16)
        for i, source in enumerate(sources):
            sample = _emit_load(b, source, kind)
            if kind is _I8:
                sample = b.shl(b.zext(sample, short), _make_splat(8, _I16))
            weight = _emit_load_repeated(b, _emit_offset(b, weights, 2 * i), _I16)
            product = b.mul(b.zext(sample, long), b.zext(weight, long))
            total = b.add(total, b.trunc(b.lshr(product, _make_splat(16, _I32)), short))
        _emit_store(b, total, out)

    return _make_operation(2 + taps)(emit)


mix2_bytes, mix2_words = _make_weighted_sum(_I8, 2), _make_weighted_sum(_I16, 2)
mix3_bytes, mix3_words = _make_weighted_sum(_I8, 3), _make_weighted_sum(_I16, 3)
mix4_bytes, mix4_words = _make_weighted_sum(_I8, 4), _make_weighted_sum(_I16, 4)
"""mixN_TYPE(out, weights, a, b, ...): words[16] of the weighted sum of 16 samples at each."""


def _make_exact_sum(kind: Any, fresh: bool) -> _Operation:
    def emit(b: Any, sums: Any, weights: Any, *sources: Any) -> None:
        long = ir.VectorType(_I32, LANES)
        total = _make_splat(0, _I32) if fresh else _emit_load(b, sums, _I32)
        for i, source in enumerate(sources):
            weight = b.zext(_emit_load_repeated(b, _emit_offset(b, weights, 2 * i), _I16), long)
            total = b.add(total, b.mul(b.zext(_emit_load(b, source, kind), long), weight))
        _emit_store(b, total, sums)

    return _make_operation(6)(emit)


sum4_bytes, sum4_words = _make_exact_sum(_I8, fresh=True), _make_exact_sum(_I16, fresh=True)
"""sum4_TYPE(sums, weights, a, b, c, d): the weighted sum to uint32[16], for long windows."""
add4_bytes, add4_words = _make_exact_sum(_I8, fresh=False), _make_exact_sum(_I16, fresh=False)
"""add4_TYPE(sums, weights, a, b, c, d): the same, added to what is there."""


def _make_sum_rounding(bits: int) -> _Operation:
    @_make_operation(2)
    def emit(b: Any, out: Any, sums: Any) -> None:
        total = b.add(_emit_load(b, sums, _I32), _make_splat(1 << bits - 1, _I32))
        _emit_store(
            b, b.trunc(b.lshr(total, _make_splat(bits, _I32)), ir.VectorType(_I16, LANES)), out
        )

    return emit


round_sums_of_bytes, round_sums_of_words = _make_sum_rounding(8), _make_sum_rounding(16)
"""round_sums_of_TYPE(out, sums): words[16] of the sums of samples of that type."""


def _emit_load_words(b: Any, address: Any) -> Any:
    """16 words as float32 in 0..255."""
    numbers = b.uitofp(_emit_load(b, address, _I16), ir.VectorType(_F32, LANES))
    return b.fmul(numbers, _make_splat(1 / 256, _F32))


def _emit_multiply_add(b: Any, x: Any, y: Any, plus: Any) -> Any:
    return b.fadd(b.fmul(x, y, flags=("contract",)), plus, flags=("contract",))


def _emit_scale_and_store(b: Any, out: Any, stride: Any, table: Any, channels: list[Any]) -> None:
    """Clamp three channels to 0..255 and store scale * value + bias."""
    for i, value in enumerate(channels):
        low, high = _make_splat(0.0, _F32), _make_splat(255.0, _F32)
        value = b.select(b.fcmp_ordered(">", value, low), value, low)
        value = b.select(b.fcmp_ordered("<", value, high), value, high)
        scale = _emit_load_repeated(b, _emit_offset(b, table, 4 * i), _F32)
        bias = _emit_load_repeated(b, _emit_offset(b, table, 4 * i + 12), _F32)
        line = b.add(out, b.mul(stride, ir.Constant(stride.type, i)))
        _emit_store(b, _emit_multiply_add(b, scale, value, bias), line)


@_make_operation(6)
def convert_ycc(b: Any, out: Any, stride: Any, table: Any, y: Any, cb: Any, cr: Any) -> None:
    """convert_ycc(out, stride, table, y, cb, cr): words of full-range BT.601 (JFIF) to float32 RGB.

    Red, green and blue go to out, out + stride and out + 2 * stride (bytes, int64), as
    table[c] * value + table[3 + c] of values cut to 0..255.
    """
    luma = _emit_load_words(b, y)
    blue, red = (b.fadd(_emit_load_words(b, c), _make_splat(-128.0, _F32)) for c in (cb, cr))
    green = _emit_multiply_add(b, _make_splat(-0.344136, _F32), blue, luma)
    channels = [
        _emit_multiply_add(b, _make_splat(1.402, _F32), red, luma),
        _emit_multiply_add(b, _make_splat(-0.714136, _F32), red, green),
        _emit_multiply_add(b, _make_splat(1.772, _F32), blue, luma),
    ]
    _emit_scale_and_store(b, out, stride, table, channels)


@_make_operation(6)
def convert_rgb(b: Any, out: Any, stride: Any, table: Any, red: Any, green: Any, blue: Any) -> None:
    """convert_rgb(out, stride, table, red, green, blue): the same of words that are RGB."""
    _emit_scale_and_store(
        b, out, stride, table, [_emit_load_words(b, channel) for channel in (red, green, blue)]
    )


def _emit_to_float32(b: Any, value: Any) -> Any:
    return value


def _emit_to_uint8(b: Any, value: Any) -> Any:
    return b.trunc(b.fptosi(value, ir.VectorType(_I32, LANES)), ir.VectorType(_I8, LANES))


def _emit_to_bfloat16(b: Any, value: Any) -> Any:
    """Round to nearest, ties to even."""
    bits = b.bitcast(value, ir.VectorType(_I32, LANES))
    odd = b.and_(b.lshr(bits, _make_splat(16, _I32)), _make_splat(1, _I32))
    bits = b.add(b.add(bits, _make_splat(0x7FFF, _I32)), odd)
    return b.trunc(b.lshr(bits, _make_splat(16, _I32)), ir.VectorType(_I16, LANES))


def _emit_to_float16(b: Any, value: Any) -> Any:
    """Round to nearest, ties to even, in integers: some processors have no instruction for it."""
    words = ir.VectorType(_I32, LANES)
    bits = b.bitcast(value, words)
    size = b.and_(bits, _make_splat(0x7FFFFFFF, _I32))
    odd = b.and_(b.lshr(size, _make_splat(13, _I32)), _make_splat(1, _I32))
    usual = b.lshr(b.add(b.add(size, _make_splat(0xC8000FFF, _I32)), odd), _make_splat(13, _I32))
    # Below 2**-14 the mantissa is shifted into place by an addition that rounds.
    half = b.fadd(b.bitcast(size, value.type), _make_splat(0.5, _F32))
    small = b.sub(b.bitcast(half, words), _make_splat(0x3F000000, _I32))
    tiny = b.icmp_unsigned("<", size, _make_splat(0x38800000, _I32))
    huge = b.icmp_unsigned(">=", size, _make_splat(0x47800000, _I32))
    result = b.select(huge, _make_splat(0x7C00, _I32), b.select(tiny, small, usual))
    sign = b.lshr(b.and_(bits, _make_splat(0x80000000, _I32)), _make_splat(16, _I32))
    return b.trunc(b.or_(result, sign), ir.VectorType(_I16, LANES))


def _emit_round_words(b: Any, words: Any) -> Any:
    """Round words to whole values, halves up."""
    most = _make_splat(255 << 8, _I16)
    words = b.select(b.icmp_unsigned("<", words, most), words, most)
    words = b.lshr(b.add(words, _make_splat(128, _I16)), _make_splat(8, _I16))
    return b.trunc(words, ir.VectorType(_I8, LANES))


def _make_plane_store(convert: Callable[..., Any], kind: Any = _F32) -> _Operation:
    @_make_operation(2)
    def emit(b: Any, out: Any, values: Any) -> None:
        _emit_store(b, convert(b, _emit_load(b, values, kind)), out)

    return emit


def _make_pixel_store(convert: Callable[..., Any], kind: Any = _F32) -> _Operation:
    @_make_operation(3)
    def emit(b: Any, out: Any, values: Any, stride: Any) -> None:
        red, green, blue = (
            convert(
                b, _emit_load(b, b.add(values, b.mul(stride, ir.Constant(stride.type, i))), kind)
            )
            for i in range(3)
        )
        both = _emit_shuffle(b, red, green, list(range(2 * LANES)))
        last = _emit_shuffle(b, blue, blue, [*range(LANES)] * 2)
        order = [lane for i in range(LANES) for lane in (i, LANES + i, 2 * LANES + i)]
        _emit_store(b, _emit_shuffle(b, both, last, order), out)

    return emit


store_plane_uint8, store_plane_float32 = (
    _make_plane_store(_emit_to_uint8),
    _make_plane_store(_emit_to_float32),
)
store_plane_float16, store_plane_bfloat16 = (
    _make_plane_store(_emit_to_float16),
    _make_plane_store(_emit_to_bfloat16),
)
"""store_plane_TYPE(out, values): float32[16] as TYPE[16]."""
store_pixels_uint8, store_pixels_float32 = (
    _make_pixel_store(_emit_to_uint8),
    _make_pixel_store(_emit_to_float32),
)
store_pixels_float16, store_pixels_bfloat16 = (
    _make_pixel_store(_emit_to_float16),
    _make_pixel_store(_emit_to_bfloat16),
)
"""store_pixels_TYPE(out, values, stride): 3 rows of float32[16], `stride` apart, as TYPE[16, 3]."""
store_plane_words, store_pixels_words = (
    _make_plane_store(_emit_round_words, _I16),
    _make_pixel_store(_emit_round_words, _I16),
)
"""store_plane_words(out, words), store_pixels_words(out, words, stride): words as uint8."""


def _make_load_and_store(kind: Any, signed: bool) -> tuple[_Operation, _Operation]:
    """Make load(address) -> int64 and store(address, int64)."""

    def define_load(_: Any, address: Any) -> Any:
        def emit(context: Any, b: Any, signature: Any, values: Any) -> Any:
            number = b.load(b.inttoptr(values[0], ir.PointerType(kind)), align=1)
            wide = ir.IntType(64)
            if kind == wide:
                return number
            return b.sext(number, wide) if signed else b.zext(number, wide)

        return types.int64(types.int64), emit

    @_make_operation(2)
    def store(b: Any, address: Any, value: Any) -> None:
        short = value if kind == value.type else b.trunc(value, kind)
        b.store(short, b.inttoptr(address, ir.PointerType(kind)), align=1)

    return intrinsic(define_load), store


load_i32, store_i32 = _make_load_and_store(_I32, signed=True)
load_u16, store_u16 = _make_load_and_store(_I16, signed=False)
load_i64, store_i64 = _make_load_and_store(ir.IntType(64), signed=True)
