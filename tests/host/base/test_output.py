# SPDX-License-Identifier: GPL-2.0-or-later
"""Output that nobody reads any more is dropped; another failure to write is one."""

from __future__ import annotations

import errno
import os
import sys
from io import StringIO
from pathlib import Path

import pytest

from hmmbench.base.output import outlasting


class Lost(StringIO):
    """A stream whose writes fail."""

    def __init__(self, number: int, file: int) -> None:
        super().__init__()
        self.number, self.file = number, file

    def write(self, text: str) -> int:
        raise OSError(self.number, os.strerror(self.number))

    def fileno(self) -> int:
        return self.file


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO, errno.ENXIO])
def test_a_reader_that_is_gone(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(sys, "stdout", Lost(number, file.fileno()))
        with outlasting():
            print("words")
        assert Path(f"/proc/self/fd/{file.fileno()}").readlink() == Path(os.devnull)


def test_a_full_disk_is_no_reader_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Lost(errno.ENOSPC, 1))
    with pytest.raises(OSError, match="No space"), outlasting():
        print("words")
