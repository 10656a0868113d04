"""Where shards are written: each engine a file, chosen by name."""
