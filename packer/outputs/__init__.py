"""How a slab gets to its place whole or not at all: to directories, and to stores."""
