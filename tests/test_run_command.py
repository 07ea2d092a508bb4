# SPDX-License-Identifier: GPL-2.0-or-later
"""What `hmmbench run` makes of its options, before and without any machine."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from hmmbench import paths
from hmmbench.build import Artifacts
from hmmbench.commands import run
from hmmbench.commands.options import Accel
from hmmbench.errors import UsageError
from hmmbench.ui import Ui

#: What hmm-exact says where its hooks are, and where they are not.
NEEDS = "hmm-exact: needs -accel tcg,thread=single"
WITHOUT = "hmm-exact: this QEMU was built without exact.patch, which"


def qemu(folder: Path, said: str) -> Artifacts:
    """Builds of which nothing but QEMU is there, and it says this."""
    path = folder / "qemu"
    path.write_text(f"#!/bin/sh\necho 'qemu: -device hmm-exact: {said} so' >&2\nexit 1\n")
    path.chmod(0o755)
    return cast(Artifacts, SimpleNamespace(qemu=path))


def ui() -> tuple[Ui, io.StringIO]:
    said = io.StringIO()
    return Ui(Console(file=said, width=200)), said


def test_the_words_are_those_of_the_device() -> None:
    source = (paths.device_sources() / "qemu/hmm-exact.c").read_text()
    assert NEEDS in source
    assert WITHOUT in source


def test_exact_machines_are_the_default(tmp_path: Path) -> None:
    shown, said = ui()
    assert run._accel(None, qemu(tmp_path, NEEDS), shown) == Accel.exact
    assert said.getvalue() == ""


def test_a_qemu_without_the_patch_runs_threads_and_says_so(tmp_path: Path) -> None:
    shown, said = ui()
    assert run._accel(None, qemu(tmp_path, WITHOUT), shown) == Accel.threads
    assert "NO EXACT MACHINES: this QEMU was built without exact.patch" in said.getvalue()
    # Who asked for them is told, and gets nothing else.
    with pytest.raises(UsageError, match=r"--accel exact: this QEMU was built without exact\.patch"):
        run._accel(Accel.exact, qemu(tmp_path, WITHOUT), shown)


@pytest.mark.parametrize("wanted", [Accel.threads, Accel.kvm])
def test_a_qemu_is_not_asked_where_no_exact_machine_is(wanted: Accel) -> None:
    missing: Any = SimpleNamespace(qemu=Path("/nowhere/qemu"))
    assert run._accel(wanted, missing, ui()[0]) == wanted
    with pytest.raises(UsageError, match="cannot be asked"):
        run._accel(Accel.exact, missing, ui()[0])
