"""Measures decoding: how fast, how true, and a sheet to see it."""
