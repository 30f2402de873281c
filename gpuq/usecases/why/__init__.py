"""`gpuq why`: of a job that waits, runs, or has ended."""
