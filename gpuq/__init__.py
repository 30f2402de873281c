"""gpuq puts real Slurm in front of one GPU and adds what Slurm lacks on a bare host."""

__version__ = "0.1.0"
