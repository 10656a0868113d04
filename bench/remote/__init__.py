"""Slabs at a distance: through a slow network, beside obstore and other streaming formats."""
