"""From facts to events: what the watcher concludes."""
