# SPDX-License-Identifier: GPL-2.0-or-later
"""What a long command shows: the stages under way, how far each is, and where its log is.

On a terminal each stage is one live line; elsewhere (CI) a line when it starts, one now and
then while it runs, and one when it ends. Everything goes to stderr: stdout belongs to results.
Stages may run in several threads at once.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

#: A stage that prints lines says something at most this often (seconds).
PLAIN_INTERVAL = 15.0


class Stage:
    """One line of progress. Made by Ui.stage()."""

    def __init__(self, ui: Ui, name: str, log: Path | None, task: TaskID | None) -> None:
        self._ui = ui
        self._task = task
        self._said = time.monotonic()
        self.name = name
        self.log = log

    def progress(self, done: int, total: int, text: str = "") -> None:
        """Say that `done` steps of `total` are behind us."""
        self._ui._progress(self, done, total, text)

    def note(self, text: str) -> None:
        """Replace the text beside the stage, for work with no known number of steps."""
        self._ui._progress(self, 0, 0, text)


class Ui:
    """Progress of one command; also keeps how long every stage took."""

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self.quiet = quiet
        #: stage name -> seconds, in the order of ending
        self.seconds: dict[str, float] = {}
        self._start = time.monotonic()
        self._lock = threading.RLock()
        self._active = 0
        self._live: Progress | None = None

    def say(self, text: str) -> None:
        """A line that stays: a decision the user should know of."""
        if not self.quiet:
            with self._lock:
                self.console.print(escape(text), soft_wrap=True)

    @contextmanager
    def stage(self, name: str, log: Path | None = None) -> Iterator[Stage]:
        begun = time.monotonic()
        stage = Stage(self, name, log, self._open(name, log))
        failed = True
        try:
            yield stage
            failed = False
        finally:
            seconds = time.monotonic() - begun
            with self._lock:
                self.seconds[name] = round(self.seconds.get(name, 0.0) + seconds, 3)
            self._close(stage, seconds, failed)

    # Everything below is the drawing.

    def _open(self, name: str, log: Path | None) -> TaskID | None:
        if self.quiet:
            return None
        with self._lock:
            if not self.console.is_terminal:
                where = f" (log: {log})" if log else ""
                self._line(f"{name}: started{where}")
                return None
            if self._live is None:
                self._live = Progress(
                    SpinnerColumn(),
                    TextColumn("{task.description}"),
                    BarColumn(bar_width=24),
                    TextColumn("{task.fields[note]}", style="dim"),
                    TimeElapsedColumn(),
                    console=self.console,
                    transient=True,
                )
                self._live.start()
            self._active += 1
            return self._live.add_task(escape(name), total=None, note=str(log) if log else "")

    def _progress(self, stage: Stage, done: int, total: int, text: str) -> None:
        if self.quiet:
            return
        with self._lock:
            if self._live is not None and stage._task is not None:
                note = f"{done}/{total} {text}" if total else text
                self._live.update(
                    stage._task, completed=done, total=total or None, note=escape(note.strip())
                )
                return
            now = time.monotonic()
            if now - stage._said < PLAIN_INTERVAL:
                return
            stage._said = now
            amount = f"{100 * done // total}% ({done}/{total}) " if total else ""
            self._line(f"{stage.name}: {amount}{text}".rstrip())

    def _close(self, stage: Stage, seconds: float, failed: bool) -> None:
        if self.quiet:
            return
        with self._lock:
            if self._live is not None and stage._task is not None:
                self._live.remove_task(stage._task)
                self._active -= 1
                if self._active == 0:
                    self._live.stop()
                    self._live = None
            where = f"; log: {stage.log}" if failed and stage.log else ""
            self._line(f"{stage.name}: {'FAILED' if failed else 'done'} in {seconds:.1f} s{where}")

    def _line(self, text: str) -> None:
        elapsed = time.monotonic() - self._start
        self.console.print(escape(f"[{elapsed:6.1f}s] {text}"), soft_wrap=True)


def stdout_is_terminal() -> bool:
    return sys.stdout.isatty()
