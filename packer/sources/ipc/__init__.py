"""Files of Arrow IPC as a source: Feather, and streams. `source` is what the packer meets."""
