# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench test`: the project's own tests, in the order in which failures say most."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from hmmbench.base import host, paths, processes
from hmmbench.base.errors import EXIT_ENVIRONMENT, EXIT_OK, EXIT_VIOLATION, UsageError
from hmmbench.base.processes import Children
from hmmbench.base.ui import Ui
from hmmbench.build import BuildRequest, ensure

#: What tells tests to run their long form.
FULL = "HMMBENCH_FULL"

#: Seconds that pytest has to tidy up when we are told to end.
END_S = 30.0


def main(
    pytest_args: Annotated[
        list[str] | None, typer.Argument(metavar="[-- PYTEST...]", help="Passed on to pytest.")
    ] = None,
    quick: Annotated[
        bool, typer.Option(help="Only what needs no virtual machine and no builds.")
    ] = False,
    full: Annotated[
        bool,
        typer.Option(help="The long tests instead, which CI does not run; says which they are."),
    ] = False,
) -> int:
    """Run the tests: device core in C, then all others, a file for each core at a time.

    Builds what is missing. Tests that are about speed or load come at the end, with nothing beside
    them. The last line is pytest's own. Files or folders after `--` run alone, in order. Tests of
    which there is a short form and a long one are run short, but with --full.

    Example:  ./hmmbench test -- tests/vm/test_leaks.py -x
    """
    if quick and full:
        raise UsageError("--quick and --full are two ends of one thing: give one")
    ui = Ui()
    root = paths.project_root()
    chosen = any((root / word.split("::")[0]).exists() for word in pytest_args or [])
    status = EXIT_OK if chosen or full else _core(ui)
    if status != EXIT_OK:
        return status
    environment = dict(os.environ) | ({FULL: "1"} if full else {})
    with tempfile.TemporaryDirectory(prefix="hmmbench-test-") as folder:
        order = [] if chosen else _order(root, quick)
        if not quick:
            # Built once, here: tests find it by these names and never build by themselves.
            # (Debug information of a kernel that is there goes with that of this driver.)
            artifacts = ensure(BuildRequest(driver_debuginfo=True), ui)
            listed = Path(folder) / "artifacts.json"
            listed.write_text(json.dumps(artifacts.as_json()))
            environment["HMMBENCH_ARTIFACTS"] = str(listed)
            environment["HMMBENCH_QEMU"] = str(artifacts.qemu)
        command = [sys.executable, "-m", "pytest", *map(str, order), *(pytest_args or [])]

        def pytest(*more: str) -> int:
            # It ends with us, whatever we end by, and is given time to put its machines away
            # (tests/conftest.py).
            with Children(END_S).start(
                [*command, *more], cwd=root, env=environment, stdin=None
            ) as child:
                return _exit(child.wait())

        if chosen:
            return pytest()
        if full:
            return pytest("-m", "full")
        beside = pytest(
            "-n", str(host.cpus()), "--dist", "loadfile", "--no-loadscope-reorder",
            "-m", "not alone",
        )  # fmt: skip
        alone = EXIT_OK if quick else pytest("-m", "alone")
    return beside or alone


def _exit(status: int) -> int:
    """1: tests failed; anything else: pytest could not do its work."""
    if status == 0:
        return EXIT_OK
    return EXIT_VIOLATION if status == 1 else EXIT_ENVIRONMENT


def _order(root: Path, quick: bool) -> list[Path]:
    """All test files, those first that take longest: short ones fill up the end.

    Those that boot machines come first; how long a file is says how long it may take.
    """
    found = [file for file in root.glob("tests/**/test_*.py") if not (quick and _machines(file))]
    return sorted(found, key=lambda file: (not _machines(file), -file.stat().st_size))


def _machines(file: Path) -> bool:
    return not {"vm", "qtest"}.isdisjoint(file.parts)


def _core(ui: Ui) -> int:
    """The device core's unit tests in C, under the sanitizers."""
    folder = paths.device_sources() / "tests"
    if not (folder / "Makefile").is_file():
        return EXIT_OK
    if shutil.which("make") is None:
        ui.say("make is missing: apt install build-essential")
        return EXIT_ENVIRONMENT
    with tempfile.TemporaryDirectory(prefix="hmmbench-core-") as out, ui.stage("core tests"):
        done = processes.run(
            ["make", f"-j{host.cpus()}", "-C", folder, f"OUT={out}", "check"]
        )
    if done.returncode != 0:
        sys.stderr.write(done.stdout[-4000:] + done.stderr[-4000:])
        return EXIT_VIOLATION
    return EXIT_OK
