"""Slurm, reached through its own commands."""
