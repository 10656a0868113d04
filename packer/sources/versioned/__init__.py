"""Tables with a log of versions: Delta, Iceberg and Lance."""
