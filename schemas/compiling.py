"""Kernels to machine code, by numba: imported only where no machine code is there.

What comes out is an object file that needs nothing of numba. Its one visible function is called by
Python (METH_FASTCALL): it reads the arguments, lets go of the interpreter's lock, and calls the
kernel. Functions that only kernels call are lowered, and optimised as parts of their callers.
"""

import importlib
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.kernelcache import Target
from fieldslab.schemas.machinecode import CALLS
from fieldslab.schemas.numbaimport import numba

_OPTIONS = {
    "nopython": True,
    "nogil": True,
    "boundscheck": False,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
    "no_cpython_wrapper": True,
}
_MEMORY = {"bcmp", "madvise", "memcpy", "memmove", "memset", "mincore"}
_MATHEMATICS = {"ceil", "cos", "exp", "floor", "fmod", "ldexp", "log", "pow", "rint", "sin", "sqrt"}
"""Functions of the C library that code may call: LLVM finds them in every process."""
_POINTER, _I32, _I64 = ir.IntType(8).as_pointer(), ir.IntType(32), ir.IntType(64)
_BUFFER = ir.LiteralStructType(
    [_POINTER, _POINTER, _I64, _I64, _I32, _I32, _POINTER, _I64.as_pointer(), *[_POINTER] * 3]
)
"""Py_buffer: data, owner, bytes, itemsize, readonly, ndim, format, shape, and more."""
_DATA, _BYTES, _ITEMSIZE, _NDIM, _FORMAT, _SHAPE = 0, 2, 3, 5, 6, 7
_ARRAY = 0x4 | 0x38 | 0x1
"""PyBUF_FORMAT, PyBUF_C_CONTIGUOUS and PyBUF_WRITABLE."""
_FORMATS = {"i": "bhilq", "u": "BHILQ", "f": "efd", "b": "?"}
_NATIVE = "<=@"
"""Marks of the order of bytes before the letter of a format: all are that of this processor."""
_codegen: Any = numba.core.codegen
_registry: Any = numba.core.registry
_arrayobj: Any = importlib.import_module("numba.np.arrayobj")
_compile_array_functions: Any = importlib.import_module(
    "numba.core.runtime.nrtdynmod"
).compile_nrt_functions
_as_dtype: Any = importlib.import_module("numba.np.numpy_support").as_dtype
_lock: Any = numba.core.compiler_lock.global_compiler_lock
_types: Any = numba.types


class _Library(_codegen.AOTCodeLibrary):  # type: ignore[misc]  # numba has no types
    """Functions of which only the outermost is optimised as a whole."""

    outermost = False

    def _optimize_final_module(self) -> None:
        if self.outermost:
            for function in self._final_module.functions:
                if not function.is_declaration and function.name != self.name:
                    function.linkage = "internal"
            super()._optimize_final_module()


class _Codegen(_codegen.AOTCPUCodegen):  # type: ignore[misc]
    _library_class = _Library

    def __init__(self, target: Target) -> None:
        self._target = target
        super().__init__("fieldslab", target.processor)

    def _init(self, llvm_module: Any) -> None:
        """Prepare as numba does, but for any target, and without what would run the code."""
        options = {"opt": numba.config.OPT}
        self._tm_features = self._customize_tm_features()
        self._customize_tm_options(options)
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        self._tm = llvm.Target.from_triple(self._target.triple).create_target_machine(**options)
        self._target_data = self._tm.target_data
        self._data_layout = str(self._target_data)
        self._loopvect = numba.config.OPT.is_opt_max
        self._opt_level = 3 if self._loopvect else 0

    def _create_empty_module(self, name: str) -> Any:
        module = super()._create_empty_module(name)
        module.triple = self._target.triple
        return module

    def _customize_tm_options(self, options: dict[str, Any]) -> None:
        super()._customize_tm_options(options)
        # Addresses of 64 bits: where code is loaded, its constants may lie many GB away.
        options |= {"reloc": "static", "codemodel": "jitdefault", "jit": True}

    def _customize_tm_features(self) -> str:
        return self._target.features


def _make_placeholder(*_: Any) -> Any:
    """Return what numba knows a compiled function by: nothing is run while others are compiled."""
    return [].append  # another one each time, and of the only type that numba takes


class Compiler:
    """Compiles kernels for one kind of processor and system."""

    def __init__(self, target: Target) -> None:
        # Kernels are compiled anew when what is imported above changes: errors are not that.
        if numba.config.DISABLE_JIT:
            problem = "NUMBA_DISABLE_JIT is set, and kernels run only as machine code"
            raise UsageError(problem, hint="Unset it.")
        with _lock:
            host = _registry.cpu_target
            host.target_context.refresh()
            arrays: Any
            changes = {
                "_internal_codegen": _Codegen(target),
                "aot_mode": True,
                "get_executable": _make_placeholder,
                "post_lowering": lambda _, library: library.add_linking_library(arrays),
            }
            context = host.target_context.subtarget(**changes)
            if target.triple != llvm.get_process_triple():
                # Numba would prepare its own parts of kernels for this machine. It cannot run
                # anything from here on: only builds of wheels come here.
                vars(host.target_context).update(changes)
            arrays = _compile_array_functions(context)

        class NumbaTarget(_registry.CPUTarget):  # type: ignore[misc]
            target_context, typing_context = context, host.typing_context

        class Dispatcher(_registry.CPUDispatcher):  # type: ignore[misc]
            targetdescr = NumbaTarget("cpu")

            def add_overload(self, result: Any) -> None:
                self.overloads[tuple(result.signature.args)] = result

        self._context, self._dispatcher = context, Dispatcher

    def make_dispatcher(self, function: Any, **options: Any) -> Any:
        """Make the object by which numba calls a function from other kernels."""
        return self._dispatcher(function, targetoptions=_OPTIONS | options)

    def compile(self, dispatcher: Any, symbol: str) -> bytes:
        """Compile a kernel: an object file whose function `symbol` Python can call."""
        with _lock:
            (result,) = dispatcher.overloads.values()
            codegen = self._context.codegen()
            library = codegen.create_library(symbol)
            library.outermost = True
            module = library.create_ir_module(symbol)
            _EntryEmitter(self._context, module, symbol).emit(result.fndesc)
            _emit_memory_functions(module)
            library.add_ir_module(module)
            library.add_linking_library(result.library)
            library.finalize()
            _refuse_unknown_calls(library._final_module)
            code: bytes = library.emit_native_object()
            return code


def _refuse_unknown_calls(module: Any) -> None:
    """Refuse what is not there when the code is loaded: LLVM would end the process."""
    for function in module.functions:
        name = function.name
        known = name in CALLS or name in _MEMORY or name.rstrip("f") in _MATHEMATICS
        if function.is_declaration and not known and not name.startswith("llvm."):
            raise NotImplementedError(f"kernels may not call {name}")


def _emit_memory_functions(module: Any) -> None:
    """Emit the functions that allocate arrays of kernels, on Python's heap."""
    shape = ir.FunctionType(_POINTER, [_I64, _I32])
    make = ir.Function(module, shape, "NRT_MemInfo_alloc_aligned")
    builder = ir.IRBuilder(make.append_basic_block())
    align = builder.zext(make.args[1], _I64)
    head = builder.add(align, _I64(64))
    allocate = ir.Function(module, ir.FunctionType(_POINTER, [_I64]), "PyMem_RawMalloc")
    memory = builder.call(allocate, [builder.add(head, make.args[0])])
    with builder.if_then(builder.icmp_unsigned("!=", memory, _POINTER(None))):
        behind = builder.add(builder.ptrtoint(memory, _I64), head)
        members = builder.bitcast(memory, _I64.as_pointer())
        builder.store(_I64(1), members)  # references
        builder.store(
            builder.sub(behind, builder.urem(behind, align)), builder.gep(members, [_I64(3)])
        )
    builder.ret(memory)
    shape = ir.FunctionType(ir.VoidType(), [_POINTER])
    end = ir.Function(module, shape, "NRT_MemInfo_call_dtor")
    builder = ir.IRBuilder(end.append_basic_block())
    builder.call(ir.Function(module, shape, "PyMem_RawFree"), end.args)
    builder.ret_void()


class _EntryEmitter:
    """Writes the function that Python calls."""

    def __init__(self, context: Any, module: Any, symbol: str) -> None:
        self._context, self._module = context, module
        shape = ir.FunctionType(_POINTER, [_POINTER, _POINTER.as_pointer(), _I64])
        function = ir.Function(module, shape, symbol)
        self._arguments = function.args[1]
        self._builder = ir.IRBuilder(function.append_basic_block())
        self._wrong, self._failed = function.append_basic_block(), function.append_basic_block()
        self._buffers: list[Any] = []
        self._count = function.args[2]

    def emit(self, kernel: Any) -> None:
        """Write it all: for the kernel that numba describes so."""
        builder = self._builder
        start = builder.block
        first = builder.append_basic_block()
        builder.position_at_end(first)
        self._emit_demand(builder.icmp_unsigned("==", self._count, _I64(len(kernel.argtypes))))
        values = []
        for number, kind in enumerate(kernel.argtypes):
            address = builder.gep(self._arguments, [_I64(number)])
            values.append(self._emit_read(builder.load(address), kind))
        target = self._context.declare_function(self._module, kernel)
        state = self._emit_call("PyEval_SaveThread", _POINTER)
        status, result = self._context.call_conv.call_function(
            builder, target, kernel.restype, kernel.argtypes, values
        )
        self._emit_call("PyEval_RestoreThread", ir.VoidType(), state)
        with builder.if_then(status.is_error, likely=False):
            self._emit_call("PyErr_NoMemory", _POINTER)  # kernels raise nothing else
            builder.branch(self._failed)
        answer = self._emit_result(result, kernel.restype)
        self._emit_release()
        builder.ret(answer)
        builder.position_at_end(self._wrong)
        with builder.if_then(self._emit_null_check(self._emit_call("PyErr_Occurred", _POINTER))):
            self._emit_call("PyErr_BadArgument", _I32)
        builder.branch(self._failed)
        builder.position_at_end(self._failed)
        self._emit_release()
        builder.ret(_POINTER(None))
        # Only now is it known how many arguments have buffers.
        builder.position_at_end(start)
        for buffer in self._buffers:
            builder.store(ir.Constant(_BUFFER, None), buffer)
        builder.branch(first)

    def _emit_call(self, name: str, result: Any, *values: Any) -> Any:
        shape = ir.FunctionType(result, [value.type for value in values])
        function = self._module.globals.get(name) or ir.Function(self._module, shape, name)
        return self._builder.call(function, values)

    def _emit_demand(self, condition: Any) -> None:
        following = self._builder.append_basic_block()
        self._builder.cbranch(condition, following, self._wrong)
        self._builder.position_at_end(following)

    def _emit_null_check(self, pointer: Any) -> Any:
        return self._builder.icmp_unsigned("==", pointer, pointer.type(None))

    def _emit_release(self) -> None:
        for buffer in self._buffers:
            self._emit_call("PyBuffer_Release", ir.VoidType(), buffer)

    def _emit_read(self, argument: Any, kind: Any) -> Any:
        """Emit code that reads an argument as a value of numba's type, or raises TypeError."""
        builder = self._builder
        if isinstance(kind, _types.Array):
            return self._emit_read_array(argument, kind)
        if isinstance(kind, _types.Record):
            buffer = self._emit_get_buffer(argument, 0)
            self._emit_demand(
                builder.icmp_signed("==", self._emit_load_member(buffer, _BYTES), _I64(kind.size))
            )
            return builder.bitcast(
                self._emit_load_member(buffer, _DATA), self._context.get_value_type(kind)
            )
        if isinstance(kind, _types.BaseTuple):
            self._emit_demand(
                builder.icmp_signed(
                    "==", self._emit_call("PyTuple_Size", _I64, argument), _I64(len(kind))
                )
            )
            members = [
                self._emit_read(
                    self._emit_call("PyTuple_GetItem", _POINTER, argument, _I64(number)), member
                )
                for number, member in enumerate(kind.types)
            ]
            return self._context.make_tuple(builder, kind, members)
        if isinstance(kind, _types.Boolean):
            truth = self._emit_call("PyObject_IsTrue", _I32, argument)
            self._emit_demand(builder.icmp_signed(">=", truth, _I32(0)))
            return builder.icmp_signed(">", truth, _I32(0))
        if isinstance(kind, _types.Float):
            number = self._emit_call("PyFloat_AsDouble", ir.DoubleType(), argument)
            wide: Any = _types.float64
            suspicious = builder.fcmp_ordered("==", number, number.type(-1.0))
        else:
            wide = _types.int64 if kind.signed else _types.uint64
            name = "PyLong_AsLongLong" if kind.signed else "PyLong_AsUnsignedLongLongMask"
            number = self._emit_call(name, _I64, argument)
            suspicious = builder.icmp_signed("==", number, _I64(-1))
        with builder.if_then(suspicious, likely=False):
            self._emit_demand(self._emit_null_check(self._emit_call("PyErr_Occurred", _POINTER)))
        return self._context.cast(builder, number, wide, kind)

    def _emit_get_buffer(self, argument: Any, flags: int) -> Any:
        builder = self._builder
        with builder.goto_entry_block():
            buffer = builder.alloca(_BUFFER)
        self._buffers.append(buffer)
        status = self._emit_call("PyObject_GetBuffer", _I32, argument, buffer, _I32(flags))
        self._emit_demand(builder.icmp_signed("==", status, _I32(0)))
        return buffer

    def _emit_load_member(self, buffer: Any, number: int) -> Any:
        return self._builder.load(self._builder.gep(buffer, [_I32(0), _I32(number)]))

    def _emit_load_format(self, text: Any) -> Any:
        """Emit code that loads a format's letter: "q" of "q" and of "<q", which numpy also uses."""
        builder = self._builder
        first = builder.load(text)
        marked = _emit_any(
            builder,
            [builder.icmp_signed("==", first, ir.IntType(8)(ord(mark))) for mark in _NATIVE],
        )
        second = builder.load(builder.gep(text, [_I64(1)]))
        return builder.select(marked, second, first)

    def _emit_read_array(self, argument: Any, kind: Any) -> Any:
        builder, dtype = self._builder, _as_dtype(kind.dtype)
        buffer = self._emit_get_buffer(argument, _ARRAY)
        item = _I64(dtype.itemsize)
        self._emit_demand(
            builder.icmp_signed("==", self._emit_load_member(buffer, _ITEMSIZE), item)
        )
        self._emit_demand(
            builder.icmp_signed("==", self._emit_load_member(buffer, _NDIM), _I32(kind.ndim))
        )
        letter = self._emit_load_format(self._emit_load_member(buffer, _FORMAT))
        known = [
            builder.icmp_signed("==", letter, ir.IntType(8)(ord(character)))
            for character in _FORMATS[dtype.kind]
        ]
        self._emit_demand(_emit_any(builder, known))
        sizes = self._emit_load_member(buffer, _SHAPE)
        shape = [builder.load(builder.gep(sizes, [_I64(axis)])) for axis in range(kind.ndim)]
        strides = [item]
        for size in shape[:0:-1]:
            strides.insert(0, builder.mul(strides[0], size))
        array = _arrayobj.make_array(kind)(self._context, builder)
        _arrayobj.populate_array(
            array,
            data=builder.bitcast(self._emit_load_member(buffer, _DATA), array.data.type),
            shape=shape,
            strides=strides,
            itemsize=item,
            meminfo=None,
        )
        return array._getvalue()

    def _emit_result(self, value: Any, kind: Any) -> Any:
        builder, context = self._builder, self._context
        if isinstance(kind, _types.NoneType):
            text = context.insert_const_string(self._module, "")
            shape = ir.FunctionType(_POINTER, [_POINTER], var_arg=True)
            return builder.call(ir.Function(self._module, shape, "Py_BuildValue"), [text])
        if isinstance(kind, _types.BaseTuple):
            answer = self._emit_call("PyTuple_New", _POINTER, _I64(len(kind)))
            for number, member in enumerate(kind.types):
                item = self._emit_result(builder.extract_value(value, number), member)
                self._emit_call("PyTuple_SetItem", _I32, answer, _I64(number), item)
            return answer
        if isinstance(kind, _types.Boolean):
            return self._emit_call("PyBool_FromLong", _POINTER, builder.zext(value, _I64))
        if isinstance(kind, _types.Float):
            wide = context.cast(builder, value, kind, _types.float64)
            return self._emit_call("PyFloat_FromDouble", _POINTER, wide)
        if isinstance(kind, _types.Integer):
            if kind.signed:
                wide = context.cast(builder, value, kind, _types.int64)
                return self._emit_call("PyLong_FromLongLong", _POINTER, wide)
            wide = context.cast(builder, value, kind, _types.uint64)
            return self._emit_call("PyLong_FromUnsignedLongLong", _POINTER, wide)
        raise NotImplementedError(f"a kernel that Python calls may not return {kind}")


def _emit_any(builder: Any, conditions: list[Any]) -> Any:
    result = conditions[0]
    for condition in conditions[1:]:
        result = builder.or_(result, condition)
    return result
