"""Stop the system calls of a forked child in front of the kernel: list them, fail one, or kill.

The child installs a seccomp filter that hands the calls of some names to its parent, which sees
the files that a call is about and lets the system carry it out, or answers with an errno. Threads
and processes that the child starts have the same filter. All other calls run at full speed: a case
takes a tenth of the time that it takes under strace. Linux 5.19 or newer, on x86-64.
"""

import ctypes
import faulthandler
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, NamedTuple

from tests.faults.operations import end_child

SECONDS = 180.0
"""What takes longer hangs."""
KILL = -1
"""Instead of an errno: the process dies in front of the call."""
SYSCALLS = {
    "read": (0, "fd0"),
    "write": (1, "fd0"),
    "open": (2, "path0"),
    "close": (3, "fd0"),
    "stat": (4, "path0"),
    "fstat": (5, "fd0"),
    "lstat": (6, "path0"),
    "lseek": (8, "fd0"),
    "mmap": (9, "fd4"),
    "ioctl": (16, "fd0"),
    "pread64": (17, "fd0"),
    "pwrite64": (18, "fd0"),
    "readv": (19, "fd0"),
    "writev": (20, "fd0"),
    "access": (21, "path0"),
    "pipe": (22, ""),
    "msync": (26, ""),
    "dup": (32, "fd0"),
    "dup2": (33, "fd0"),
    "sendfile": (40, "fd0 fd1"),
    "clone": (56, ""),
    "fork": (57, ""),
    "vfork": (58, ""),
    "execve": (59, "path0"),
    "wait4": (61, ""),
    "kill": (62, ""),
    "fcntl": (72, "fd0"),
    "flock": (73, "fd0"),
    "fsync": (74, "fd0"),
    "fdatasync": (75, "fd0"),
    "truncate": (76, "path0"),
    "ftruncate": (77, "fd0"),
    "rename": (82, "path0 path1"),
    "mkdir": (83, "path0"),
    "rmdir": (84, "path0"),
    "link": (86, "path0 path1"),
    "unlink": (87, "path0"),
    "symlink": (88, "path1"),
    "readlink": (89, "path0"),
    "chmod": (90, "path0"),
    "fchmod": (91, "fd0"),
    "statfs": (137, "path0"),
    "fstatfs": (138, "fd0"),
    "sync": (162, ""),
    "getdents64": (217, "fd0"),
    "waitid": (247, ""),
    "openat": (257, "at0"),
    "mkdirat": (258, "at0"),
    "newfstatat": (262, "at0"),
    "unlinkat": (263, "at0"),
    "renameat": (264, "at0 at2"),
    "linkat": (265, "at0 at2"),
    "symlinkat": (266, "at1"),
    "readlinkat": (267, "at0"),
    "fchmodat": (268, "at0"),
    "faccessat": (269, "at0"),
    "utimensat": (280, "at0"),
    "fallocate": (285, "fd0"),
    "dup3": (292, "fd0"),
    "pipe2": (293, ""),
    "preadv": (295, "fd0"),
    "pwritev": (296, "fd0"),
    "syncfs": (306, "fd0"),
    "renameat2": (316, "at0 at2"),
    "copy_file_range": (326, "fd0 fd2"),
    "preadv2": (327, "fd0"),
    "pwritev2": (328, "fd0"),
    "statx": (332, "at0"),
    "clone3": (435, ""),
    "openat2": (437, "at0"),
    "faccessat2": (439, "at0"),
}
"""Calls that others can notice: their numbers, and which of their arguments name files.

`sendmsg` is not among them, since the child sends its parent the listener with it.
"""
_NAMES = {number: name for name, (number, _) in SYSCALLS.items()}
_HERE = -100  # AT_FDCWD
_NEW_LISTENER, _WAIT_KILLABLE = 8, 32
_RECEIVE, _ANSWER = 0xC0502100, 0xC0182101


class Call(NamedTuple):
    """A system call that is about to be carried out, and the paths of the files it is about."""

    name: str
    paths: tuple[str, ...]


class Ending(NamedTuple):
    """How a child ended, and what it wrote to stderr."""

    code: int | None
    """Its exit code, or a negative signal; None if it hung, and was killed."""
    error: str
    all_ended: bool
    """Whether all processes that it started ended by themselves."""


Decide = Callable[[Call], int | None]
"""What becomes of a call: None if the system carries it out, an errno, or `KILL`."""


def need_interception() -> None:
    """End the program where calls cannot be stopped, and say why."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        sys.exit("This campaign stops system calls: it needs Linux on x86-64")
    ending = run_intercepted(lambda: None, ["fsync"], lambda _call: None)
    if ending.code != 0:
        sys.exit(f"This system does not let a process stop system calls: {ending.error}")


def run_intercepted(work: Callable[[], Any], names: Collection[str], decide: Decide) -> Ending:
    """Do the work in a child, and decide about each of its calls of these names."""
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryFile() as errors, ours:
        child = os.fork()
        if child == 0:
            _be_the_child(work, names, errors.fileno(), theirs)
        theirs.close()
        all_ended, code = False, None
        _, listeners, _, _ = socket.recv_fds(ours, 1, 1)
        for listener in listeners:
            all_ended = _answer_all(listener, decide)
            os.close(listener)
        done, status = os.waitpid(child, 0 if all_ended or not listeners else os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if not done:
            os.waitpid(child, 0)
        errors.seek(0)
        return Ending(code, errors.read().decode(errors="replace"), all_ended)


def _be_the_child(
    work: Callable[[], Any], names: Collection[str], errors: int, parent: socket.socket
) -> None:
    def start() -> None:
        os.setsid()
        os.dup2(errors, 2)
        faulthandler.dump_traceback_later(SECONDS - 5, file=2)  # says where it hangs
        listener = _install_filter(names)
        socket.send_fds(parent, [b"x"], [listener])
        os.close(listener)
        work()

    end_child(start)


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("if_so", ctypes.c_ubyte),
        ("if_not", ctypes.c_ubyte),
        ("value", ctypes.c_uint),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


def _install_filter(names: Collection[str]) -> int:
    """Hand calls of these names to whoever reads the descriptor that is returned."""
    load, equal, end = 0x20, 0x15, 0x06
    instructions = [(load, 0, 0, 0)]
    for name in names:
        instructions += [(equal, 0, 1, SYSCALLS[name][0]), (end, 0, 0, 0x7FC00000)]
    instructions.append((end, 0, 0, 0x7FFF0000))
    array = (_Instruction * len(instructions))(*(_Instruction(*each) for each in instructions))
    program = _Program(len(instructions), array)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0):  # PR_SET_NO_NEW_PRIVS
        raise OSError(ctypes.get_errno(), "prctl")
    flags = _NEW_LISTENER | _WAIT_KILLABLE
    listener = libc.syscall(317, 1, flags, ctypes.byref(program))  # SECCOMP_SET_MODE_FILTER
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return int(listener)


def _answer_all(listener: int, decide: Decide) -> bool:
    """Answer calls until all processes have ended: whether they did, before time was out."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    until = time.monotonic() + SECONDS
    while (seconds := until - time.monotonic()) > 0:
        for _, event in poll.poll(1000 * seconds):
            if event & select.POLLIN:
                _answer(listener, decide)
            elif event & select.POLLHUP:
                return True
    return False


def _answer(listener: int, decide: Decide) -> None:
    """Decide about the next call; a process that was killed in the meantime needs no answer."""
    message = bytearray(80)
    with suppress(FileNotFoundError, ProcessLookupError):
        fcntl.ioctl(listener, _RECEIVE, message)
        key, thread, _, number, _, _, *arguments = struct.unpack("QIIiIQ6Q", message)
        action = decide(Call(_NAMES[number], _list_paths(thread, number, arguments)))
        if action == KILL:
            os.kill(thread, signal.SIGKILL)
            return
        go_on = action is None
        answer = struct.pack("QqiI", key, 0, 0 if action is None else -action, go_on)
        fcntl.ioctl(listener, _ANSWER, bytearray(answer))


def _list_paths(thread: int, number: int, arguments: list[int]) -> tuple[str, ...]:
    """The paths of the files that a call is about."""
    paths = []
    for word in SYSCALLS[_NAMES[number]][1].split():
        kind, index = word[:-1], int(word[-1])
        if kind == "fd":
            paths.append(_read_link(thread, arguments[index]))
        else:
            of_folder = kind == "at"
            folder = arguments[index] if of_folder else _HERE
            text = _read_text(thread, arguments[index + of_folder])
            paths.append(os.path.join(_read_link(thread, folder), text).rstrip("/"))
    return tuple(paths)


def _read_link(thread: int, descriptor: int) -> str:
    """What a descriptor of another process is open on."""
    number = ctypes.c_int(descriptor).value
    name = "cwd" if number == _HERE else f"fd/{number}"
    try:
        return os.readlink(f"/proc/{thread}/{name}")
    except FileNotFoundError:
        return "no file"


def _read_text(thread: int, address: int) -> str:
    """A path in the memory of another process."""
    if address == 0:
        return ""
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return os.fsdecode(memory.read(4096).partition(b"\0")[0])
