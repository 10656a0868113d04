"""Numbers as the reports write them."""

import pytest

from fieldslab.bench.report import words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.0, "3.0 s"),
        (0.9996, "1.0 s"),
        (0.0123, "12 ms"),
        (0.9994e-3, "999 µs"),
        (9.96e-6, "10 µs"),
        (2.5e-7, "250 ns"),
        (0.0, "0.0 ns"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    """A time has the unit in which it is at least one, and two digits or whole numbers."""
    assert words.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.02, "0.02"),
        (7.25, "7.2"),
        (870.4, "870"),
        (9_990, "9,990"),
        (12_500, "12 k"),
        (999_600, "1.0 M"),
        (3.14e6, "3.1 M"),
        (2e9, "2.0 G"),
    ],
)
def test_counts(value: float, text: str) -> None:
    """A count is whole up to ten thousand, and then in thousands, millions and so on."""
    assert words.count(value) == text


def test_rates_shares_and_ratios() -> None:
    """Rates are in MB/s below one GB/s; shares are in percent; ratios end in x."""
    assert words.gigabytes(7.42e9) == "7.4 GB/s"
    assert words.gigabytes(85e6) == "85 MB/s"
    assert words.gigabytes(0) == "0"
    assert words.percent(0.874) == "87 %"
    assert words.percent(0.004) == "0.4 %"
    assert words.times(1.84) == "1.8x"
    assert words.times(23.2) == "23x"


def test_speeds_beside_memcpy() -> None:
    """A share of memcpy is a percentage until it is all of it: more is no merit of ours."""
    assert words.of_memcpy(0.874) == "at 87 % of the speed of memcpy"
    assert words.of_memcpy(1.15) == words.of_memcpy(0.98) == "as fast as memcpy"
