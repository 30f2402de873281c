"""slurm.conf and all else that a one-GPU host needs, rendered from what the host is."""
