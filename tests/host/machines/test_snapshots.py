# SPDX-License-Identifier: GPL-2.0-or-later
"""What becomes of a snapshot whose machine does not come up."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self, cast

import pytest

from hmmbench.vm import snapshot
from hmmbench.vm.errors import VmDied
from hmmbench.vm.snapshot import Snapshots
from hmmbench.vm.spec import MachineSpec


@pytest.mark.parametrize(("status", "made_anew"), [(1, True), (-11, False), (-9, False)])
def test_a_signal_is_not_the_snapshots_doing(
    status: int, made_anew: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash of the device is not to be lost with the machine that is booted instead."""
    monkeypatch.setenv("HMMBENCH_CACHE", str(tmp_path / "cache"))
    entered: list[int] = []

    class Restored:
        def __init__(self, spec: object, **how: object) -> None:
            pass

        def __enter__(self) -> Self:
            entered.append(1)
            if len(entered) == 1:
                raise VmDied("QEMU ended", exit_status=status)
            return self

        def close(self) -> None:
            pass

    def make(self: Snapshots, spec: MachineSpec, key: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "console.log").touch()

    monkeypatch.setattr(snapshot, "Machine", Restored)
    monkeypatch.setattr(Snapshots, "_make", make)
    monkeypatch.setattr(Snapshots, "_key", lambda self, spec: "key")
    own = Snapshots(tmp_path / "snapshots")
    folder = own.ensure(cast(Any, None))
    said: list[str] = []
    if made_anew:
        with own.open(cast(Any, None), said.append):
            assert folder.is_dir()
        assert len(said) == 1
        return
    with pytest.raises(VmDied), own.open(cast(Any, None), said.append):
        pass
    assert said == []
    # The next one is new.
    assert not folder.exists()
