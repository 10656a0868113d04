"""Offline: sources in, slab out, and the checks on it."""
