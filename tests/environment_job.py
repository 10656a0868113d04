"""Pack, verify, gather and load, as a program: run by `campaign_environments.py` in odd places.

    python -m tests.environment_job SOURCE OUT RESULT [--no-fork] [--read-only] [--isolate]

RESULT becomes a JSON file with a digest of each batch, or with the name of the exception. With
`--read-only`, the slab is there already; with `--isolate`, the loader has a process of its own.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

ROWS, BATCH = 300, 16


def digest_batch(batch: Any) -> str:
    """Digest all values of a batch."""
    import hashlib

    import numpy as np

    state = hashlib.sha256()
    for name in sorted(batch):
        values = batch[name]
        state.update(name.encode())
        for row in range(len(values)):
            value = values[row]
            if isinstance(value, str):
                value = value.encode()
            state.update(value if isinstance(value, bytes) else np.asarray(value).tobytes())
    return state.hexdigest()


def run_job(
    source: Path, out: Path, *, read_only: bool = False, isolate: bool = False
) -> list[str]:
    """Do all of it; return the digests."""
    import numpy as np

    from fieldslab.packer import pack, verify
    from fieldslab.reader import Loader, Shuffled, open_slab

    if not read_only:
        pack(source, out, shard_size="64K", nulls=["weight=mask"], compress=["story=3"])
    report = verify(out)
    if not report.ok:
        raise AssertionError(f"verify: {report}")
    slab = open_slab(out)
    loader = Loader(slab, BATCH, Shuffled(3), threads=2, isolate=isolate)
    gathered = slab.gather(np.arange(ROWS)[::-3])
    return [digest_batch(batch) for batch in (gathered, *loader)]


def forbid_processes() -> None:
    """Have every fork and spawn fail, as in a sandbox."""
    import _posixsubprocess
    import errno

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    for module, name in ((os, "fork"), (os, "posix_spawn"), (_posixsubprocess, "fork_exec")):
        setattr(module, name, refuse)


def main(arguments: list[str]) -> int:
    """Do the job, and write what came of it."""
    source, out, result = (Path(text) for text in arguments[:3])
    if "--no-fork" in arguments:
        forbid_processes()
    try:
        read_only, isolate = "--read-only" in arguments, "--isolate" in arguments
        digests = run_job(source, out, read_only=read_only, isolate=isolate)
        content: dict[str, Any] = {"digests": digests}
    except BaseException as error:  # noqa: BLE001 - it is told
        import traceback

        names = [kind.__name__ for kind in type(error).__mro__]
        content = {"error": f"{type(error).__name__}: {error}", "kinds": names}
        content["traceback"] = traceback.format_exc()
    result.write_text(json.dumps(content), encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
