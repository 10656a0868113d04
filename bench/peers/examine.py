"""What a peer's process makes of damaged files: right rows, an error, or wrong rows."""

import json
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fieldslab.bench.peers.measure import DIGESTS, digest
from fieldslab.bench.peers.peer import Peer
from fieldslab.bench.peers.source import Workload

MEMORY = 8 * 2**30
"""Bytes that a process may allocate: who believes a giant number shall not take all memory."""


def limit_memory() -> None:
    """Limit what this process allocates from now on, where the system can."""
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def examine(kind: type[Peer], source: Workload, folder: Path) -> dict[str, Any]:
    """Open the peer's files and read all rows in random batches; compare them with the source.

    Returns `outcome` ("right", "error" or "wrong") and `reason`.
    """
    truth: list[str] = json.loads((source.folder / DIGESTS).read_text())
    order = np.random.default_rng(0).permutation(len(source))
    try:
        peer = kind(folder, source)
        peer.open()
        for start in range(0, len(source), source.batch):
            rows = order[start : start + source.batch]
            batch = peer.rows_of(peer.random_batch(rows))
            reason = _compare(source, truth, rows.tolist(), batch)
            if reason:
                return {"outcome": "wrong", "reason": reason}
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic of Rust is no Exception
        return {"outcome": "error", "reason": f"{type(error).__name__}: {error}"[:300]}
    return {"outcome": "right", "reason": ""}


def _compare(source: Workload, truth: list[str], rows: list[int], batch: list[Any]) -> str:
    """How a batch differs from the source; empty if it does not."""
    if len(batch) != len(rows):
        return f"{len(batch)} rows for {len(rows)}"
    for row, values in zip(rows, batch, strict=True):
        if values.keys() != source.columns.keys():
            return f"row {row} has other fields: {sorted(values)}"
        try:
            same = digest(source, values) == truth[row]
        except (TypeError, ValueError):  # a value of a kind that the column never had
            same = False
        if not same:
            return f"row {row} has other values"
    return ""
