"""`gpuq run` and `gpuq lint-log`: what happens within the job."""
