"""CSV and JSON lines as sources. `csv` and `jsonl` are what the packer meets."""
