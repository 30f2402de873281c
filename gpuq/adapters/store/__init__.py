"""What the watcher remembers, in one SQLite database: events and the outbox, cursors, samples.

Losing it loses no outcome: those are in the records below the runs directories.
"""
