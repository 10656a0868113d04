"""Copies slabs between directories, buckets and web servers."""
