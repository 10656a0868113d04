"""The model of a cluster: what it must never claim."""

from dataclasses import replace

import pytest

from fieldslab.bench.clustermodel import Cluster, list_scenarios, simulate

SMALL = Cluster(100e9, 1e9, 4, 2, 1e9, None, 1e8, 0.001, spread=0.0)


def test_the_slowest_resource_bounds_the_time() -> None:
    """No simulation ends before each resource alone would, and a balanced one ends near that."""
    for name, cluster in list_scenarios(1e8, 0.002).items():
        assert simulate(cluster).seconds >= 0.97 * max(cluster.compute_limits().values()), name
    assert simulate(replace(SMALL, data_bytes=800e9)).seconds == pytest.approx(1000, rel=0.01)


def test_a_lost_node_costs_its_running_shards() -> None:
    """The shards that its cores had begun are packed again, no others."""
    outcome = simulate(SMALL, lost_nodes=1)
    assert 0 < outcome.repeated <= SMALL.cores
    assert outcome.seconds > simulate(SMALL).seconds
