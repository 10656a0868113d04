"""A file a peer; each is the only one that imports its library."""
