"""Repairs slabs in place: only what is damaged is taken from a copy, or converted again."""
