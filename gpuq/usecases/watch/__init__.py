"""`gpuq watch`: look, conclude, record, tell."""
