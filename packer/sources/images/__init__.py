"""Image files in folders as a source."""
