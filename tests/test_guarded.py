"""The guard that other tests rely on."""

import signal
import subprocess
import sys

import pytest


@pytest.mark.parametrize("offset", [-1, 3])
def test_a_read_beside_guarded_bytes_ends_the_process(offset: int) -> None:
    """In front of bytes that are placed in front, and behind those placed behind."""
    program = (
        "import ctypes; from tests.guarded import Guarded; guarded = Guarded(3);"
        f"address = guarded.put(b'abc', {offset > 0});"
        "print(ctypes.string_at(address, 3), flush=True);"
        f"ctypes.string_at(address + {offset}, 1)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.stdout.strip() == b"b'abc'"
    assert -done.returncode in (signal.SIGSEGV, signal.SIGBUS)
