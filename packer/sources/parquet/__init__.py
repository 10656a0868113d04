"""Parquet files as a source. `source` is what the packer meets."""
