# SPDX-License-Identifier: GPL-2.0-or-later
"""Several mutants at the same time: a process each, because judging is work for Python too.

Every child is this command with one name.  An interrupt is passed on, and each child is waited
for: it ends its own machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from hmmbench.base.errors import Cancelled
from hmmbench.base.processes import Children
from hmmbench.base.ui import Ui
from hmmbench.mutation.mutants import Mutant
from hmmbench.mutation.trial import How, Row
from hmmbench.report.tally import EXACT, THREADS

#: A child that was interrupted ends its machine within this time (seconds).
END_S = 30.0


def run_many(
    chosen: list[Mutant], ui: Ui, out: Path, jobs: int, took: Callable[[Row], None], how: How,
    more: Sequence[str] = (),
) -> None:  # fmt: skip
    """`took` is called in this thread with each row as it comes; `more`: further options."""
    children = Children(END_S)
    with (
        tempfile.TemporaryDirectory(prefix="hmmbench-mutants-") as folder,
        ui.stage(f"{len(chosen)} mutants") as stage,
        ThreadPoolExecutor(jobs, "mutant") as pool,
    ):
        common = [
            "--no-control", "--seed", str(how.seed), "--limit", str(how.limit_s),
            "--shrink", str(how.shrink_s), "--out", str(out),
            "--machines", str(how.machines), "--accel", EXACT if how.exact else THREADS,
            *([] if how.delays else ["--no-delays"]),
            *(["--machine", how.machine] if how.machine else []),
            "--draw", str(how.draw), *(["--full"] if how.full else []),
            *(["--feedback"] if how.feedback else []),
            *([] if how.examples is None else ["--examples", str(how.examples)]), *more,
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


def _one(children: Children, mutant: Mutant, folder: Path, common: list[str]) -> Row | None:
    answer = folder / f"{mutant.name}.json"
    argv = [sys.executable, "-m", "hmmbench", "mutants", *mutant.argv(), *common]
    try:
        with children.start(
            [*argv, "--json", str(answer)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as child:
            errors = child.communicate()[1].decode(errors="replace")
    except Cancelled:
        return None
    try:
        (row,) = json.loads(answer.read_text())["mutants"]
    except (OSError, ValueError, KeyError):
        last = errors.strip().rsplit("\n", 1)[-1]
        said = f"its process ended with status {child.returncode}: {last}"
        return Row(mutant.name, mutant.bug_class, declared=bool(mutant.proof), message=said)
    return Row.from_json(row)
