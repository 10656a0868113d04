"""Measure a slab of one's own, by the public reader alone."""
