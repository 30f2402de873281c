"""What `gpuq doctor` looks at, and what it says: one check a row."""
