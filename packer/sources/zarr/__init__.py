"""Zarr as a source."""
