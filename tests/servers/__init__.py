"""Servers for tests, on the loopback: S3 by moto, and one that fails on command."""
