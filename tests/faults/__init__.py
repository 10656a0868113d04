"""A disk that fails at a chosen call, for real processes."""
