"""Damages slabs in every way that one can think of, and looks what reading them does."""
