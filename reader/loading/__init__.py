"""Batches made ahead of time."""
