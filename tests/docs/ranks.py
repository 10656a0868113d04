"""Starts a script on several ranks, as `torchrun --nproc-per-node N SCRIPT ...` does.

Ranks are forked from a process that has imported what all of them need; torchrun would import it
in each. So it is for processes that have no threads yet.
"""

import argparse
import os
import runpy
import socket
import sys
import tempfile
import traceback
from collections.abc import Sequence


def launch(arguments: Sequence[str]) -> tuple[int, str]:
    """Run a script on all ranks; the highest exit code of them, and what they print."""

    import fieldslab.reader.torch  # noqa: F401

    parser = argparse.ArgumentParser()
    parser.add_argument("--nproc-per-node", type=int, required=True)
    parser.add_argument("script")
    options, others = parser.parse_known_args(arguments)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    world["WORLD_SIZE"] = str(options.nproc_per_node)
    with tempfile.TemporaryFile("w+") as printed:
        children = []
        for rank in range(options.nproc_per_node):
            child = os.fork()
            if child == 0:
                os.environ |= world | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                os.dup2(printed.fileno(), 1)
                sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115  # until the process ends
                os._exit(_run(options.script, others))
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        printed.seek(0)
        return max(abs(code) for code in codes), printed.read()


def _run(script: str, arguments: Sequence[str]) -> int:
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    except BaseException:  # noqa: BLE001  # this process ends here, whatever it was
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
    return 0
