"""Union files, as they change, and many slabs copied into one."""
