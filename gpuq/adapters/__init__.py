"""Everything that touches the world: Slurm, files, processes, the host."""
