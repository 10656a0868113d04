"""Which rows an epoch visits, and in which sequence."""
