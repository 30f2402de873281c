"""`gpuq mem`: samples, advice, and what is done after an OOM kill."""
