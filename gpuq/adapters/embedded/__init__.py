"""The embedded one-host Slurm: everything it keeps on disk, its daemons, its cgroups, its device node."""
