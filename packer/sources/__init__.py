"""One adapter a file: each imports the library that it needs, and nothing else does."""
