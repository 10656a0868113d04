"""The handler of SIGBUS in machine code, made by LLVM alone: in a few milliseconds, without numba.

It runs in whatever thread touched a page that is not there, perhaps in the middle of malloc. So it
calls nothing but `mmap`, `sigaction` and `raise`, takes no lock, and knows Python by no more than
a table of numbers: see `mapped_ranges`.
"""

import mmap
import platform
import signal
import sys
from typing import Any, NamedTuple

from llvmlite import binding, ir

from fieldslab.schemas.mapped_ranges import (
    COUNT,
    END,
    FAULTS,
    FIRST_HANDLER,
    FIRST_SLOT,
    HANDLERS,
    LAST,
    LEVEL,
    REPEATS,
    RUNNING,
    SLOT_WORDS,
    START,
    USED,
    WHERE,
)

_MAP_FIXED = 0x10
_SINGLE_PAGES = 16
"""Pages of a map that are replaced one by one: each divides a map, and the system has few."""
_MOST_REPEATS = 64
"""Faults of others, at one address, after which the process ends: nobody handles them."""
_LAST_CODE = 5
"""Codes of faults, on all systems: what is sent by a process has others."""
_SYMBOL = "fieldslab_handle_sigbus"

_I32, _I64 = ir.IntType(32), ir.IntType(64)


class SystemLayout(NamedTuple):
    """Where the C library has what a handler needs.

    Attributes
    ----------
    address
        Offset of the address in `siginfo_t`, whose `si_code` is at 8 everywhere.
    action, flags
        Bytes of `struct sigaction`, which the handler begins, and offset of the flags there.
    chosen
        SA_SIGINFO, SA_ONSTACK and SA_NODEFER.
    """

    address: int
    action: int
    flags: int
    chosen: int


def find_layout() -> SystemLayout | None:
    """Return the layout on this system; None where it is not known."""
    is_known = platform.machine() in ("x86_64", "aarch64", "arm64")
    if is_known and sys.platform == "linux":
        return SystemLayout(16, 152, 136, 0x4 | 0x08000000 | 0x40000000)
    if is_known and sys.platform == "darwin":
        return SystemLayout(24, 16, 12, 0x40 | 0x1 | 0x10)
    return None


def compile_handler(
    layout: SystemLayout, table: int, default: int, calls: dict[str, int]
) -> tuple[int, Any]:
    """Compile the handler; return its address and the owner of its code.

    `table` is the address of the table, `default` that of a `struct sigaction` of the default
    action, and `calls` has those of `mmap`, `sigaction` and `raise`.
    """
    llvm: Any = binding
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        opt=0, codemodel="jitdefault", jit=True
    )
    module = _HandlerEmitter(layout, table, default, calls).emit()
    owner = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    owner.finalize_object()
    return owner.get_function_address(_SYMBOL), owner


class _HandlerEmitter:
    """Writes `handle(signal, info, context)`."""

    def __init__(
        self, layout: SystemLayout, table: int, default: int, calls: dict[str, int]
    ) -> None:
        self._layout, self._table, self._default, self._calls = layout, table, default, calls
        self._module = ir.Module()
        kind = ir.FunctionType(ir.VoidType(), [_I32, _I64, _I64])
        self._function = ir.Function(self._module, kind, _SYMBOL)
        self._builder = ir.IRBuilder(self._function.append_basic_block())

    def emit(self) -> Any:
        """Write it all, and return the module."""
        b, (_, info, _) = self._builder, self._function.args
        code = b.load(self._point(b.add(info, _I64(8)), _I32))
        is_fault = b.and_(
            b.icmp_signed(">=", code, _I32(1)), b.icmp_signed("<=", code, _I32(_LAST_CODE))
        )
        address = b.load(self._point(b.add(info, _I64(self._layout.address))))
        with b.if_then(is_fault):
            self._emit_search(address)
        self._emit_forward(is_fault, address)
        return self._module

    def _emit_search(self, address: Any) -> None:
        """Replace the page where a range of ours has it, and return; else go on behind this."""
        b = self._builder
        index, body, matched, following, end = (
            b.append_basic_block() for _ in ("index", "body", "matched", "following", "end")
        )
        entry = b.block
        used = b.load(self._word(USED))
        b.branch(index)
        b.position_at_end(index)
        number = b.phi(_I64)
        number.add_incoming(_I64(0), entry)
        b.cbranch(b.icmp_signed("<", number, used), body, end)
        b.position_at_end(body)
        first = self._table + 8 * FIRST_SLOT
        slot = b.add(_I64(first), b.mul(number, _I64(8 * SLOT_WORDS)))
        start, stop = (b.load(self._point(b.add(slot, _I64(8 * word)))) for word in (START, END))
        inside = b.and_(b.icmp_unsigned(">=", address, start), b.icmp_unsigned("<", address, stop))
        b.cbranch(inside, matched, following)
        b.position_at_end(following)
        number.add_incoming(b.add(number, _I64(1)), following)
        b.branch(index)
        b.position_at_end(matched)
        self._emit_replacement(address, slot, start, stop)
        b.branch(end)
        b.position_at_end(end)

    def _emit_replacement(self, address: Any, slot: Any, start: Any, stop: Any) -> None:
        b = self._builder
        where = self._point(b.add(slot, _I64(8 * WHERE)))
        count = b.atomic_rmw("add", self._point(b.add(slot, _I64(8 * COUNT))), _I64(1), "seq_cst")
        with b.if_then(b.icmp_signed("==", count, _I64(0))):
            b.store(address, where)
        single = b.icmp_signed("<", count, _I64(_SINGLE_PAGES))
        page = b.and_(address, _I64(-mmap.PAGESIZE))
        begin = b.select(single, page, start)
        size = b.select(single, _I64(mmap.PAGESIZE), b.sub(stop, start))
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
        arguments = begin, size, _I32(mmap.PROT_READ), _I32(flags), _I32(-1), _I64(0)
        mapped = self._call(self._calls["mmap"], _I64, *arguments)
        with b.if_then(b.icmp_signed("!=", mapped, _I64(-1))):
            b.atomic_rmw("add", self._word(FAULTS), _I64(1), "seq_cst")
            b.ret_void()

    def _emit_forward(self, is_fault: Any, address: Any) -> None:
        """Call the handler that was there before, or let the system do what it does.

        A handler may call the one in front of it, raise the signal again, or let the instruction
        fault again: each time, the next older one follows. The oldest is mostly the default.
        """
        b, (number, info, context) = self._builder, self._function.args
        running = b.load(self._word(RUNNING))
        nested = b.select(
            is_fault,
            b.icmp_signed("==", running, info),
            b.icmp_signed("!=", running, _I64(0)),
        )
        above = b.select(nested, b.load(self._word(LEVEL)), b.load(self._word(HANDLERS)))
        level = b.sub(above, _I64(1))
        is_repeated = b.and_(is_fault, b.icmp_signed("==", address, b.load(self._word(LAST))))
        repeats = b.select(is_repeated, b.add(b.load(self._word(REPEATS)), _I64(1)), _I64(0))
        b.store(address, self._word(LAST))
        b.store(repeats, self._word(REPEATS))
        handled = b.and_(
            b.icmp_signed(">=", level, _I64(0)), b.icmp_signed("<", repeats, _I64(_MOST_REPEATS))
        )
        place = b.select(handled, level, _I64(0))
        stored = b.add(_I64(self._table + 8 * FIRST_HANDLER), b.mul(place, _I64(8)))
        handler = b.select(handled, b.load(self._point(stored)), _I64(0))
        ignored = b.icmp_signed("==", handler, _I64(1))  # SIG_IGN
        with b.if_then(b.and_(ignored, b.not_(is_fault))):
            b.ret_void()
        with b.if_then(b.icmp_unsigned("<=", handler, _I64(1))):
            arguments = _I32(signal.SIGBUS), _I64(self._default), _I64(0)
            self._call(self._calls["sigaction"], _I32, *arguments)
            with b.if_then(b.not_(is_fault)):
                self._call(self._calls["raise"], _I32, number)
            b.ret_void()  # a fault comes again
        b.store(info, self._word(RUNNING))
        b.store(level, self._word(LEVEL))
        self._call(handler, ir.VoidType(), number, info, context)
        b.store(_I64(0), self._word(RUNNING))
        b.ret_void()

    def _word(self, index: int) -> Any:
        return self._point(_I64(self._table + 8 * index))

    def _point(self, address: Any, kind: Any = _I64) -> Any:
        return self._builder.inttoptr(address, ir.PointerType(kind))

    def _call(self, address: Any, result: Any, *values: Any) -> Any:
        kind = ir.FunctionType(result, [value.type for value in values])
        number = _I64(address) if isinstance(address, int) else address
        target = self._builder.inttoptr(number, ir.PointerType(kind))
        return self._builder.call(target, values)
