"""Mirrors: local copies of slabs that lie elsewhere, filled block by block as they are read."""
