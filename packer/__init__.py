"""Offline: sources in, slab out, and the checks on it."""

from fieldslab.packer.pack import Packed, pack

__all__ = ["Packed", "pack"]
