"""Arrays of an open slab as they lie on the disk: mapped, and verified when touched."""
