"""What the commands say and print."""
