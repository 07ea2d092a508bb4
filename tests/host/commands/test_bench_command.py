# SPDX-License-Identifier: GPL-2.0-or-later
"""What `hmmbench bench` does with what it has measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hmmbench import cli
from hmmbench.commands import bench as command
from hmmbench.suites import bench


@pytest.mark.parametrize("begun", [False, True])
def test_what_was_measured_before_an_interrupt_is_kept_and_shown(
    begun: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def interrupted(subject: object, parts: object, qemu: object, ui: object,
                    report: dict[str, Any]) -> None:  # fmt: skip
        if begun:
            report |= {"missing": ["simt"], "simt_vectors": "AVX", "simt_saxpy_per_s": 12e6}
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "everything", interrupted)
    monkeypatch.setattr(command.depends, "of", lambda request: {})
    result = tmp_path / "result.json"
    assert cli.main(["bench", "--only", "simt", "--json", str(result)]) == 130
    shown = capsys.readouterr().out
    assert ("12" in shown) == begun
    assert ("not measured to its end: simt" in shown) == begun
    assert json.loads(result.read_text()).get("simt_saxpy_per_s") == (12e6 if begun else None)
