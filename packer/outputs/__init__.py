"""Where slabs are packed to: directories, and stores by way of scratch space."""
