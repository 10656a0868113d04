"""Places that hold slabs: directories, buckets and web servers."""
