"""Files of numpy as a source."""
