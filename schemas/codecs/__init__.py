"""What the bytes of an encoded image mean: ground that packer and reader share."""
