"""HDF5 files as a source. `source` is what the packer meets."""
