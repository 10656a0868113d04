"""Numbers for people: times, counts and rates in three digits at most."""


def seconds(value: float) -> str:
    """Format a time in the unit that suits it: `12 µs`, `3.4 ms`, `1.2 s`."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 0.9995:
            return f"{digits(value * factor)} {unit}"
    return f"{digits(value * 1e9)} ns"


def count(value: float) -> str:
    """Format a count: `870`, `12.5 k`, `3.1 M`."""
    for unit, factor in (("G", 1e-9), ("M", 1e-6), ("k", 1e-3)):
        if value * factor >= (0.9995 if unit != "k" else 9.995):
            return f"{digits(value * factor)} {unit}"
    return f"{value:,.0f}" if value >= 99.5 or value == 0 else digits(value)


def gigabytes(per_second: float) -> str:
    """Format bytes a second: `7.4 GB/s`, `85 MB/s`, `0`."""
    if per_second == 0:
        return "0"
    if per_second >= 0.9995e9:
        return f"{digits(per_second / 1e9)} GB/s"
    return f"{digits(per_second / 1e6)} MB/s"


def percent(share: float) -> str:
    """Format a share of 1: `87 %`, `0.4 %`."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.5 or value == 0 else f"{digits(value)} %"


def of_memcpy(share: float) -> str:
    """Compare a speed with memcpy's in words: `at 87 % of the speed of memcpy`."""
    return "as fast as memcpy" if share >= 0.98 else f"at {percent(share)} of the speed of memcpy"


def times(ratio: float) -> str:
    """Format a factor: `1.8x`, `23x`."""
    return f"{digits(ratio)}x"


def digits(value: float) -> str:
    """Format a number in two digits below ten, else whole, without an exponent."""
    if value >= 9.95:
        return f"{value:,.0f}"
    if value >= 0.0995 or value == 0:
        return f"{value:.1f}"
    return f"{value:.2g}"
