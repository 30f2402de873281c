"""Told by the kernel that files have changed (watchdog over inotify). The one module that imports watchdog.

Without it, or where inotify has no room left, the caller looks by itself more often; `note` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


class FileWatch:
    """Calls `changed` (from another thread) when one of the files given to `watch` was written to, moved or removed."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.note = ""
        """Why files are not watched; empty: they are."""
        self._watches: dict[Path, tuple[int, Any]] = {}
        self._observer: Any = None
        self._handler: Any = None
        self._wanted: list[Any] = []
        try:
            from watchdog.events import FileDeletedEvent, FileModifiedEvent, FileMovedEvent, FileSystemEventHandler
            from watchdog.observers import Observer
        except ImportError:
            self.note = "watchdog is not installed (pip install gpuq-slurm[watch]): files are looked at twice a second"
            return

        class Handler(FileSystemEventHandler):
            def dispatch(self, event: object) -> None:  # noqa: ARG002 - any of those asked for below
                changed()

        self._handler = Handler()
        # Our own opening and reading of the file are events, too, and not asked for.
        self._wanted = [FileModifiedEvent, FileMovedEvent, FileDeletedEvent]
        self._observer = Observer()
        try:
            self._observer.start()
        except OSError as error:
            self._observer = None
            self.note = f"inotify cannot be used ({error.strerror or error}): files are looked at twice a second"

    @property
    def works(self) -> bool:
        """False: the caller has to look by itself."""
        return self._observer is not None and not self.note

    def watch(self, path: Path) -> bool:
        """Watch this file, anew where it has been replaced by another. False: it cannot be watched (now).

        The file and not its directory: slurmctld writes its log beside it, and each line would wake us.
        """
        if self._observer is None:
            return False
        try:
            inode = path.stat().st_ino
        except OSError:
            self.forget(path)
            return False
        known = self._watches.get(path)
        if known is not None and known[0] == inode:
            return True
        self.forget(path)
        try:
            self._watches[path] = (inode, self._observer.schedule(self._handler, str(path), event_filter=self._wanted))
        except OSError as error:
            # inotify(7): ENOSPC, the user's max_user_watches is reached
            self.note = f"inotify cannot watch {path} ({error.strerror or error}): it is looked at twice a second"
            return False
        self.note = ""
        return True

    def forget(self, path: Path) -> None:
        """Watch it no longer."""
        known = self._watches.pop(path, None)
        if known is not None:
            try:
                self._observer.unschedule(known[1])
            except (KeyError, OSError):
                return  # the kernel has dropped it with the file

    def close(self) -> None:
        """Stop."""
        if self._observer is not None:
            self._observer.stop()
            self._observer.join(2)
            self._observer = None
