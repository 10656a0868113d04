"""Slabs written again: other rows, another order, fewer fields; nothing stored is converted."""
