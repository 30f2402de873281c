"""What the driver says of the GPU, and whose a process on it is."""
