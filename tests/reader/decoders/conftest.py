"""What cannot be tested everywhere."""

import sys

collect_ignore = ["test_nvimagecodec.py"] if sys.platform == "darwin" else []
"""NVIDIA has nothing for macOS."""
