"""How kernels are compiled: the one decorator, and the intrinsics that touch memory by address.

A kernel has exactly one signature. Its machine code is looked for when it is first called: what
came with the package, what an earlier process kept (see `kernelcache`), or else numba compiles it
(see `compiling`). Numba is imported for that alone. A kernel runs without the interpreter lock and
on one thread: threads are made in Python.
"""

import functools
import uuid
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir

from fieldslab.schemas import kernelcache, machinecode
from fieldslab.schemas.announcement import announce_compiling

_Function = TypeVar("_Function", bound=Callable[..., Any])

_I8, _I16, _I32, _I64 = map(ir.IntType, (8, 16, 32, 64))
_POINTER = ir.PointerType(_I8)
_LINE = ir.VectorType(_I64, 8)


class Type:
    """A type of numba that is created on first use; its text is part of a kernel's cache key."""

    def __init__(self, text: str, make: Callable[[], Any]) -> None:
        self._text = text
        self._make = make

    @cached_property
    def numba_type(self) -> Any:
        """The type itself, as numba defines it."""
        return self._make()

    @property
    def _numba_type_(self) -> Any:
        return self.numba_type  # of functions of the C library, which kernels name as globals

    def __repr__(self) -> str:
        return self._text

    def __getitem__(self, index: Any) -> "Type":
        return Type(f"{self}[{index}]", lambda: self.numba_type[index])

    def __call__(self, *parameters: Any) -> "Type":
        """Make the signature of a function that returns this type."""
        return Type(f"{self}{parameters}", lambda: self.numba_type(*_make_numba_type(parameters)))


class _Types:
    def __getattr__(self, name: str) -> Type:
        return Type(name, lambda: getattr(_import_numba().types, name))


types: Any = _Types()
"""Numba's types, for signatures."""


def _make_numba_type(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_make_numba_type, value))
    return value.numba_type if isinstance(value, Type) else value


def _import_numba() -> Any:
    from fieldslab.schemas.numbaimport import numba

    return numba


def _import_cgutils() -> Any:
    return _import_numba().core.cgutils


class InlinedFunction:
    """A function that numba inlines into the kernels that call it."""

    def __init__(self, function: Any) -> None:
        self.__name__, self.__module__ = function.__name__, function.__module__
        self.__doc__ = function.__doc__
        self._function = function

    @cached_property
    def dispatcher(self) -> Any:
        """The object by which numba calls it."""
        return _get_compiler().make_dispatcher(self._function, forceinline=True)

    @property
    def _numba_type_(self) -> Any:
        return _import_numba().types.Dispatcher(self.dispatcher)


class Kernel(InlinedFunction):
    """A compiled function. Python calls it with positional arguments of exactly its types."""

    def __init__(self, function: Any, signature: Any) -> None:
        super().__init__(function)
        self.signature = signature
        self._run: Callable[..., Any] = self._load_and_run

    def __call__(self, *arguments: Any) -> Any:
        """Run it."""
        return self._run(*arguments)

    def _load_and_run(self, *arguments: Any) -> Any:
        self.load()
        return self._run(*arguments)

    @cached_property
    def dispatcher(self) -> Any:
        """The object by which numba calls it from other kernels, whose arguments are cast."""
        dispatcher = _get_compiler().make_dispatcher(self._function)
        dispatcher.compile(_make_numba_type(self.signature))
        dispatcher.disable_compile()
        return dispatcher

    def load(self) -> bool:
        """Load the machine code, or compile it; return True if it was compiled.

        Raises UsageError where NUMBA_DISABLE_JIT forbids to compile.
        """
        with machinecode.loading.lock:
            key = self.find_key()
            symbol = key.symbol if key else f"kernel_{uuid.uuid4().hex}"
            kept = kernelcache.read_code(key) if key else None
            code = kept or self.compile(symbol)
            if key and not kept:
                kernelcache.keep_code(key, code)
            self._run = machinecode.load_function(code, symbol)
            return not kept

    def find_key(self) -> kernelcache.KernelKey | None:
        """Return the key of its machine code in the cache; None if it has no source."""
        return kernelcache.make_key(self._function, str(self.signature))

    def compile(self, symbol: str) -> bytes:
        """Compile an object file for the target, with a function `symbol` that Python calls."""
        announce_compiling()
        code: bytes = _get_compiler().compile(self.dispatcher, symbol)
        return code


class Subkernel(Kernel):
    """A kernel that only kernels call, tests apart."""


@cache
def _get_compiler() -> Any:
    from fieldslab.schemas.compiling import Compiler

    return Compiler(kernelcache.describe_target())


def kernel(signature: Any) -> Callable[[_Function], _Function]:
    """Make a kernel of a function at the top of a module.

    The signature is a string in numba's words, or built from `types`, `make_record_type`
    and `make_tuple_type`.
    """
    decorate: Any = functools.partial(Kernel, signature=signature)
    return decorate


def subkernel(signature: Any) -> Callable[[_Function], _Function]:
    """Make a kernel that only kernels call: `fieldslab warm` and wheels leave it out."""
    decorate: Any = functools.partial(Subkernel, signature=signature)
    return decorate


def inlined(function: _Function) -> _Function:
    """Decorate a function that is inlined into each kernel that calls it."""
    result: Any = InlinedFunction(function)
    return result


class Intrinsic:
    """An operation that kernels can use.

    `define` takes numba's types of the arguments, the first for numba's own use; it returns the
    signature and a function that emits the LLVM instructions.
    """

    def __init__(self, define: Any) -> None:
        self._define = define

    @cached_property
    def _numba_type_(self) -> Any:
        numba = _import_numba()

        @functools.wraps(self._define)
        def with_real_types(*parameters: Any) -> Any:
            signature, emit = self._define(*parameters)
            return _make_numba_type(signature), emit

        operation = numba.extending.intrinsic(with_real_types)
        context = numba.core.registry.cpu_target.typing_context
        context.refresh()
        return context.resolve_value_type(operation)


intrinsic: Any = Intrinsic
"""Makes an operation of kernels from LLVM's instructions."""


def make_record_type(layout: np.dtype) -> Any:
    """Make the type of a record for signatures. Kernels that get a record share its memory.

    `layout` is a structured dtype with `align=True`. A record does not keep alive the array that
    it is an item of: in kernels, make one with `make_record_maker`.
    """
    return Type(f"record({layout})", lambda: _import_numba().from_dtype(layout))


def make_record_maker(layout: np.dtype) -> Callable[[], Any]:
    """Make a function that gives kernels a new record, all 0, which lasts until they return."""

    def define(_: Any) -> Any:
        record, cgutils = make_record_type(layout).numba_type, _import_cgutils()

        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address = cgutils.alloca_once(builder, context.get_data_type(record))
            address.align = layout.alignment
            cgutils.memset(builder, address, _I64(record.size), 0)
            return address

        return record(), emit

    make: Callable[[], Any] = intrinsic(define)
    return make


def make_zero_record(layout: np.dtype) -> Any:
    """Make a record with all fields 0 that Python passes to kernels; its fields are attributes."""
    return np.zeros(1, layout).view(np.recarray)[0]


def make_tuple_type(named: type[tuple[Any, ...]], *fields: Any) -> Any:
    """Make the type of a NamedTuple for signatures, from the types of its fields."""
    text = f"{named.__module__}.{named.__qualname__}{fields}"
    return Type(
        text, lambda: _import_numba().types.BaseTuple.from_types(_make_numba_type(fields), named)
    )


def _define_clear(_: Any, record: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _import_cgutils().memset(builder, arguments[0], _I64(record.size), 0)
        return context.get_dummy_value()

    return types.void(record), emit


def _define_memcpy(_: Any, target: Any, source: Any, size: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        copy = builder.module.declare_intrinsic("llvm.memcpy", [_POINTER, _POINTER, _I64])
        to, start, count = arguments
        pointers = builder.inttoptr(to, _POINTER), builder.inttoptr(start, _POINTER)
        builder.call(copy, [*pointers, count, ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


def _define_stream_line(_: Any, target: Any, source: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, start = (builder.inttoptr(each, ir.PointerType(_LINE)) for each in arguments)
        store = builder.store(builder.load(start, align=1), to, align=64)
        store.set_metadata("nontemporal", builder.module.add_metadata([_I32(1)]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


def _define_fence(_: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), emit


def _define_prefetch(_: Any, address: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        shape = ir.FunctionType(ir.VoidType(), [_POINTER, _I32, _I32, _I32])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [_POINTER], shape)
        read, keep, data = _I32(0), _I32(3), _I32(1)
        builder.call(fetch, [builder.inttoptr(arguments[0], _POINTER), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), emit


def _make_load(item: Any, result: str) -> Any:
    def define(_: Any, address: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.PointerType(item))
            return builder.zext(builder.load(pointer, align=item.width // 8), _I64)

        return getattr(types, result)(types.int64), emit

    return intrinsic(define)


def _define_store_u16(_: Any, address: Any, number: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.PointerType(_I16))
        builder.store(builder.trunc(arguments[1], _I16), pointer, align=2)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


def _define_load_big_u64(_: Any, address: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bswap(
            builder.load(builder.inttoptr(arguments[0], ir.PointerType(_I64)), align=1)
        )

    return types.uint64(types.int64), emit


def _define_count_leading_zeros(_: Any, number: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), emit


def make_foreign_call(signature: str) -> Callable[[int, tuple[Any, ...]], Any]:
    """Make an operation with which kernels call C functions of this signature, by address.

    Parameters
    ----------
    signature
        In numba's words, with int64 for pointers and for structs of two ints, the first of them
        in the low half; one of four ints is two int64 (as x86-64 and arm64 pass them).

    Returns
    -------
    call(address, arguments): an address of no such function crashes the process.
    """

    def define(_: Any, address: Any, arguments: Any) -> Any:
        parameters, result = _import_numba().core.sigutils.normalize_signature(signature)

        def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            shape = [context.get_value_type(parameter) for parameter in parameters]
            function = ir.FunctionType(context.get_value_type(result), shape)
            target = builder.inttoptr(values[0], ir.PointerType(function))
            converted = [
                context.cast(builder, value, passed, wanted)
                for value, passed, wanted in zip(
                    _import_cgutils().unpack_tuple(builder, values[1]),
                    arguments.types,
                    parameters,
                    strict=True,
                )
            ]
            return builder.call(target, converted)

        return result(types.int64.numba_type, arguments), emit

    call: Callable[[int, tuple[Any, ...]], Any] = intrinsic(define)
    return call


clear: Callable[[Any], None] = intrinsic(_define_clear)
"""clear(record): set every field to 0."""
memcpy: Callable[[int, int, int], None] = intrinsic(_define_memcpy)
"""memcpy(target, source, size): addresses and bytes, as int64; a constant size is inlined."""
stream_line: Callable[[int, int], None] = intrinsic(_define_stream_line)
"""stream_line(target, source): copy 64 bytes past the caches; `target` is a multiple of 64.

`fence` must follow before another thread may read them.
"""
fence: Callable[[], None] = intrinsic(_define_fence)
"""fence(): other threads see what was stored before, if they see anything stored after."""
prefetch: Callable[[int], None] = intrinsic(_define_prefetch)
"""prefetch(address): ask for the cache line there; any address is safe."""
load_u64: Callable[[int], Any] = _make_load(_I64, "uint64")
"""load_u64(address) -> uint64: `address` is a multiple of 8."""
load_u8: Callable[[int], int] = _make_load(_I8, "int64")
"""load_u8(address) -> int64 in 0..255."""
load_u16: Callable[[int], int] = _make_load(_I16, "int64")
"""load_u16(address) -> int64 in 0..65535: `address` is a multiple of 2."""
store_u16: Callable[[int, int], None] = intrinsic(_define_store_u16)
"""store_u16(address, number): the low 16 bits of an int64; `address` is a multiple of 2."""
load_big_u64: Callable[[int], Any] = intrinsic(_define_load_big_u64)
"""load_big_u64(address) -> uint64: eight bytes at any address, the first the highest."""
count_leading_zeros: Callable[[Any], int] = intrinsic(_define_count_leading_zeros)
"""count_leading_zeros(uint64) -> int64 in 0..64."""
