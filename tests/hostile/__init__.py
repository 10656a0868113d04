"""Slabs that a stranger forged, with right digests: `make campaign-hostile` and `campaign-cpp`."""
