"""A few odd environments, all at once; `make campaign-environments` has many, each alone."""

from pathlib import Path

from tests.campaign_environments import ENVIRONMENTS, Places, combine


def test_odd_environments_give_the_same_batches(tmp_path: Path) -> None:
    """Few files, no processes, short reads, a read-only home and `-OO` change no batch."""
    names = ["-OO", "LC_ALL=C", "umask 077", "16 files", "stdin closed", "far time zone"]
    names += ["no processes", "read-only HOME", "short reads", "warnings are errors"]
    environment = ENVIRONMENTS[names[0]]
    for name in names[1:]:
        environment = combine(environment, ENVIRONMENTS[name])
    assert Places(tmp_path).try_environment(environment) == "right"
