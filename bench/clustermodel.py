"""How long a cluster packs: a simulation of shards, cores and networks, from measured rates."""

import heapq
import random
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Cluster:
    """What is packed, and on what.

    Attributes
    ----------
    data_bytes, shard_bytes
        Of the source, as large as the slab; and of a shard.
    nodes, cores
        Machines, and cores of each.
    network
        Bytes per second of a machine, in each direction.
    storage
        Bytes per second of the storage, reads and writes together; None if it has no limit.
    core
        Bytes per second that one core packs, with data in memory.
    task_seconds
        What the driver spends on a task.
    spread
        Standard deviation of the time of a shard, relative to it.
    """

    data_bytes: float
    shard_bytes: float
    nodes: int
    cores: int
    network: float
    storage: float | None
    core: float
    task_seconds: float
    spread: float = 0.2

    def compute_limits(self) -> dict[str, float]:
        """Compute the seconds that each resource alone needs at least."""
        shards = self.data_bytes / self.shard_bytes
        return {
            "cores": self.data_bytes / (self.nodes * self.cores * self.core),
            "network": self.data_bytes / (self.nodes * self.network),
            "storage": 0.0 if self.storage is None else 2 * self.data_bytes / self.storage,
            "driver": shards * self.task_seconds,
        }


@dataclass(frozen=True)
class Outcome:
    """What a simulation found: seconds to the end, share of busy cores, shards packed twice."""

    seconds: float
    busy: float
    repeated: int


def simulate(cluster: Cluster, *, lost_nodes: int = 0, seed: int = 0) -> Outcome:
    """Hand out shards to cores one after the other, as they become free.

    A shard is read, converted and written at the same time, so the slowest of these counts; cores
    of a machine share its network, and all machines the storage. `lost_nodes` vanish half-way:
    their running shards begin again elsewhere.
    """
    rng = random.Random(seed)
    workers = cluster.nodes * cluster.cores
    rates = [cluster.core, cluster.network / cluster.cores]
    if cluster.storage is not None:
        rates.append(cluster.storage / 2 / workers)
    seconds = cluster.shard_bytes / min(rates)
    waiting = round(cluster.data_bytes / cluster.shard_bytes)
    half, lost = waiting // 2, lost_nodes * cluster.cores
    running = [(0.0, worker, 0.0) for worker in range(workers)]
    heapq.heapify(running)
    handed_out = end = busy = 0.0
    repeated = finished = 0
    while running:
        now, worker, took = heapq.heappop(running)
        if lost and finished >= half and worker < lost:
            if took:
                waiting, repeated = waiting + 1, repeated + 1
            continue
        finished, busy, end = finished + (took > 0), busy + took, max(end, now)
        if waiting:
            waiting -= 1
            handed_out = max(now, handed_out) + cluster.task_seconds
            took = seconds * max(0.1, rng.gauss(1, cluster.spread))
            heapq.heappush(running, (handed_out + took, worker, took))
    return Outcome(end, busy / (end * workers), repeated)


def list_scenarios(core: float, task_seconds: float) -> dict[str, Cluster]:
    """List what 50 TB take on 64 machines of 16 cores with 25 Gbit, and what changes that."""
    usual = Cluster(50e12, 1e9, 64, 16, 25e9 / 8, None, core, task_seconds)
    return {
        "50 TB, 64 nodes of 16 cores, 25 Gbit": usual,
        "the same, storage of 100 GB/s": replace(usual, storage=100e9),
        "the same, storage of 20 GB/s": replace(usual, storage=20e9),
        "the same, 10 Gbit": replace(usual, network=10e9 / 8),
        "the same, shards of 64 MB": replace(usual, shard_bytes=64e6),
        "the same, 8 nodes": replace(usual, nodes=8),
    }
