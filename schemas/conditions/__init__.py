"""Conditions on rows, and the rows that fulfil them."""
