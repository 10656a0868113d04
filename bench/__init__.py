"""Measure: your slab, and fieldslab beside what it competes with."""
