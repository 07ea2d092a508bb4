# SPDX-License-Identifier: GPL-2.0-or-later
"""Several mutants at the same time: a process each, because judging is work for Python too.

Every child is this command with one name.  An interrupt is passed on, and each child is waited
for: it ends its own machine.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from hmmbench.base.ui import Ui
from hmmbench.campaign.runner import EXACT, THREADS
from hmmbench.mutation.mutants import Mutant
from hmmbench.mutation.trial import How, Row

#: A child that was interrupted ends its machine within this time (seconds).
END_S = 30.0


class _Children:
    """The running children.  After `end` none is started any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._over = False

    def start(self, argv: list[str]) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._over:
                return None
            # A session of its own: Ctrl-C at the terminal reaches it once, through us.
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, text=True, start_new_session=True,
            )  # fmt: skip
            self._running.add(child)
            return child

    def done(self, child: subprocess.Popen[str]) -> None:
        with self._lock:
            self._running.discard(child)

    def end(self) -> None:
        with self._lock:
            self._over = True
            running = list(self._running)
        for child in running:
            if child.poll() is None:
                # Not SIGINT, which a background job of a shell ignores and children inherit.
                child.send_signal(signal.SIGTERM)
        for child in running:
            try:
                child.wait(timeout=END_S)
            except subprocess.TimeoutExpired:
                child.kill()


def run_many(
    chosen: list[Mutant], ui: Ui, out: Path, jobs: int, took: Callable[[Row], None], how: How,
    more: Sequence[str] = (),
) -> None:  # fmt: skip
    """`took` is called in this thread with each row as it comes; `more`: further options."""
    children = _Children()
    with (
        tempfile.TemporaryDirectory(prefix="hmmbench-mutants-") as folder,
        ui.stage(f"{len(chosen)} mutants") as stage,
        ThreadPoolExecutor(jobs, "mutant") as pool,
    ):
        common = [
            "--no-control", "--seed", str(how.seed), "--limit", str(how.limit_s),
            "--shrink", str(how.shrink_s), "--out", str(out),
            "--accel", EXACT if how.exact else THREADS, *([] if how.delays else ["--no-delays"]),
            *more,
        ]  # fmt: skip
        try:
            futures = [pool.submit(_one, children, m, Path(folder), common) for m in chosen]
            for n, future in enumerate(as_completed(futures), 1):
                row = future.result()
                if row is not None:
                    took(row)
                stage.progress(n, len(chosen))
        except BaseException:
            children.end()
            pool.shutdown(cancel_futures=True)
            raise


def _one(children: _Children, mutant: Mutant, folder: Path, common: list[str]) -> Row | None:
    answer = folder / f"{mutant.name}.json"
    argv = [sys.executable, "-m", "hmmbench", "mutants", *mutant.argv(), *common]
    child = children.start([*argv, "--json", str(answer)])
    if child is None:
        return None
    try:
        _, errors = child.communicate()
    finally:
        children.done(child)
    try:
        (row,) = json.loads(answer.read_text())["mutants"]
    except (OSError, ValueError, KeyError):
        last = errors.strip().rsplit("\n", 1)[-1]
        said = f"its process ended with status {child.returncode}: {last}"
        return Row(mutant.name, mutant.bug_class, declared=bool(mutant.proof), message=said)
    return Row.from_json(row)
