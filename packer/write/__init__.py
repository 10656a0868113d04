"""Shards on disk, and the engines that have them written."""
