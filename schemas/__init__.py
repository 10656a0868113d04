"""What a slab is: the format, its manifest and its checks. `FORMAT.md` is the normative text."""
