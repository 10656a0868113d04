"""What becomes of decoded pixels: crops, sizes, colours and numbers of one view."""
