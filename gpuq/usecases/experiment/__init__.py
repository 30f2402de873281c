"""`gpuq init`, `new`, `diff`, `results`, and what a submission keeps of the code."""
