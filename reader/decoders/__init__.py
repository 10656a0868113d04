"""Decoders: encoded images in the memory map in, pixels of a batch out."""
