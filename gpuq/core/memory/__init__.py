"""What a job holds in memory, and what to ask for."""
