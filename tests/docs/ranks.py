"""Starts a script on several ranks, as `torchrun --nproc-per-node N SCRIPT ...` does.

torch is imported once, before the ranks are forked: torchrun itself would import it in each.
"""

import argparse
import os
import runpy
import socket
import sys

import torch.distributed  # noqa: F401  # what all ranks need, imported once

import fieldslab.reader.torch  # noqa: F401


def main() -> int:
    """Run the script on all ranks; the highest exit code of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nproc-per-node", type=int, required=True)
    parser.add_argument("script")
    options, arguments = parser.parse_known_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "WORLD_SIZE": str(options.nproc_per_node),
    }  # fmt: skip
    children = []
    for rank in range(options.nproc_per_node):
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            sys.argv = [options.script, *arguments]
            runpy.run_path(options.script, run_name="__main__")
            return 0
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF for child in children)


if __name__ == "__main__":
    sys.exit(main())
