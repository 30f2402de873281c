"""The lines that a job's log is made of."""
