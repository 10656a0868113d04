"""Whether a slab is what pack wrote, and what its source says."""
