"""One slab from many machines: a plan file, parts of the work, and the end."""
