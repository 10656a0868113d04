"""From encoded images to a batch: steps, boxes, decoding, and what to do about failures."""
