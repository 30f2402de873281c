"""`gpuq notify`, and the delivery of what is to be told."""
