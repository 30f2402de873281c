"""`gpuq guard`, and its installation."""
