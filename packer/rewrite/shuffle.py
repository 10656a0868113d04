"""A shuffle for data of any size: rows get keys, and are sorted by them.

The key of a row is a hash of the seed and the row's number in the slab that is read. Shard `k` of
`n` holds the rows whose keys lie in the k-th of n equal parts of all keys, so which rows belong to
a shard is known without the other rows. The hash is the finaliser of SplitMix64: G. Steele, D. Lea
and C. Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014. What these functions
return is frozen, as the ids of slabs depend on it.
"""

from hashlib import blake2b

import numpy as np


def compute_shuffle_keys(seed: int, rows: np.ndarray) -> np.ndarray:
    """Compute the keys of rows (int64[n]): uint64[n]."""
    digest = blake2b(f"shuffle rows:{seed}".encode(), digest_size=16).digest()
    first, second = np.frombuffer(digest, "<u8").astype(np.uint64)
    return _mix_bits(_mix_bits(rows.astype(np.uint64) + first) ^ second)


def find_parts(keys: np.ndarray, count: int) -> np.ndarray:
    """Find which of `count` equal parts of all keys each key (uint64[n]) lies in: int64[n]."""
    parts = ((keys >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32)
    return parts.astype(np.int64)


def _mix_bits(numbers: np.ndarray) -> np.ndarray:
    """Apply the finaliser of SplitMix64: uint64[n] -> uint64[n], a bijection."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = numbers ^ (numbers >> np.uint64(31))
    return mixed
