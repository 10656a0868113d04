"""One adapter a file or folder: each imports the library that it needs, and nothing else does."""
