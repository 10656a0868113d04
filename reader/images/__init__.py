"""What becomes of decoded pixels: boxes, resizing, colours, and the numbers of a batch."""
