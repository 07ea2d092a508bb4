# SPDX-License-Identifier: GPL-2.0-or-later
"""Line coverage: what gcov says is read, counted and added up right."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import cast

import pytest

from hmmbench.base.errors import EnvironmentFailure
from hmmbench.campaign import line_coverage
from hmmbench.vm.errors import VmError
from hmmbench.vm.machine import Machine

SOURCE = """\
static inline int twice(int x)
{
	return 2 * x;
}

int f(int x)
{
	if (x == 1)
		return twice(3);
	if (x == 2)
		return twice(4);
	return 0;
}
"""
MAIN = "int f(int);\nint main(int argc, char **argv)\n{\n\t(void)argv;\n\treturn f(argc) < 0;\n}\n"


def _document(*entries: tuple[str, list[tuple[int, int]]]) -> str:
    return json.dumps(
        {
            "files": [
                {"file": f, "lines": [{"line_number": n, "count": c} for n, c in counts]}
                for f, counts in entries
            ]
        }
    )


def test_lines_are_added_up_and_headers_left_out() -> None:
    hits: line_coverage.Hits = {}
    text = _document(
        ("/build/mm/hmm.c", [(10, 0), (11, 3), (11, 0), (12, 0)]),
        ("./include/linux/mm.h", [(10, 7)]),
    )
    line_coverage.parse(text, "mm/hmm.c", hits)
    assert hits == {"mm/hmm.c": {10: 0, 11: 3, 12: 0}}
    line_coverage.parse(_document(("hmm.c", [(12, 1)])), "mm/hmm.c", hits)
    assert hits["mm/hmm.c"] == {10: 0, 11: 3, 12: 1}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 1}', "File 'x.c'"])
def test_what_is_no_gcov_output_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own error is one
        line_coverage.parse(text, "mm/hmm.c", {})


def test_missed_lines_are_stretches() -> None:
    found = line_coverage.summary({1: 0, 3: 0, 4: 2, 7: 0, 9: 1, 10: 0, 11: 0})
    assert (found.lines, found.hit) == (7, 2)
    assert found.missed == [(1, 3), (7, 7), (10, 11)]
    assert line_coverage.summary({}).percent == 0.0
    assert line_coverage.total([found, found]).lines == 14


def test_groups_keep_driver_and_kernel_apart() -> None:
    counted = line_coverage.Collector({})
    counted.hits = {
        "guest-driver/module/hw/a.c": {1: 1}, "guest-driver/module/mem/b.c": {1: 0},
        "mm/hmm.c": {1: 1},
    }  # fmt: skip
    assert {name: f.percent for name, f in counted.groups().items()} == {
        "driver": 50.0, "mm/hmm.c": 100.0,
    }  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of gcc's, with notes, in place of a kernel's object."""
    root = tmp_path_factory.mktemp("gcov")
    (root / "guest-driver/module/mem").mkdir(parents=True)
    (root / "guest-driver/module/mem/f.c").write_text(SOURCE)
    (root / "main.c").write_text(MAIN)
    subprocess.run(
        ["gcc", "-O0", "--coverage", "-c", "f.c", "-o", "f.o"],
        cwd=root / "guest-driver/module/mem", check=True,
    )  # fmt: skip
    subprocess.run(
        ["gcc", "--coverage", "main.c", "guest-driver/module/mem/f.o", "-o", "prog"],
        cwd=root, check=True,
    )  # fmt: skip
    return root


def _run(root: Path, *args: str) -> bytes:
    """What an execution counts, alone."""
    data = root / "guest-driver/module/mem/f.gcda"
    data.unlink(missing_ok=True)
    subprocess.run([root / "prog", *args], check=True)
    return data.read_bytes()


def test_counts_of_two_machines_are_merged(built: Path) -> None:
    name = "guest-driver/module/mem/f.c"
    counted = line_coverage.Collector({name: built / "guest-driver/module/mem/f.gcno"})
    counted.add({name: _run(built)})
    assert counted.results()[name].missed == [(10, 12)]
    counted.add({name: _run(built, "x")})
    assert counted.machines == 2
    # The third way through is left, and nothing else.
    assert counted.results()[name].missed == [(12, 12)]
    assert counted.to_json()[name]["missed"] == [[12, 12]]


def test_counts_of_another_build_are_an_error(built: Path) -> None:
    name = "guest-driver/module/mem/f.c"
    counted = line_coverage.Collector({name: built / "guest-driver/module/mem/f.gcno"})
    with pytest.raises((EnvironmentFailure, ValueError)):
        counted.add({name: b"no counts at all"})


def test_a_machine_that_cannot_be_asked_is_told_of() -> None:
    class Gone:
        agent = property(lambda self: self)

        def check(self, command: str) -> str:
            raise VmError("it is gone")

    counted = line_coverage.Collector({})
    counted.take(cast(Machine, Gone()))
    assert counted.machines == 0
    assert ["it is gone" in why for why in counted.failed] == [True]


def test_the_guests_paths_find_their_source() -> None:
    migrate = "guest-driver/module/mem/migrate.c"
    notes = {name: Path("x.gcno") for name in ("mm/hmm.c", migrate)}
    source = line_coverage.Collector(notes)._source
    root = "/sys/kernel/debug/gcov/home/me"
    assert source(f"{root}/linux-lts-gcov/mm/hmm.gcda") == "mm/hmm.c"
    assert source(f"{root}/driver-12/guest-driver/module/mem/migrate.gcda") == migrate
    assert source(f"{root}/linux-lts-gcov/mm/migrate.gcda") is None
    assert source(f"{root}/linux-lts-gcov/drivers/mem/migrate.gcda") is None
