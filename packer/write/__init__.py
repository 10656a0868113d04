"""Shards on disk, and how a slab comes to its place whole or not at all."""
