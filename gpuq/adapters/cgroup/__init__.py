"""A job's memory cgroup: where it is (`locate`), what it shows (`read`). Light, because it also runs inside jobs."""
