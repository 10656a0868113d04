"""What is done to batches on the way to the training step."""
