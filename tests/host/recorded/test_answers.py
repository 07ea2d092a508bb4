# SPDX-License-Identifier: GPL-2.0-or-later
"""The oracles say of recorded answers what they said when these were recorded."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import answers
import pytest
import recording
from answers import SOUND, Answer

from hmmbench.build import depends
from hmmbench.oracle import mapping, telling, values

#: The whole folder, bytes.
MOST = 5_000_000


@cache
def recorded(kernel: str) -> list[Answer]:
    return list(answers.read(answers.FILES[kernel]))


def deciding() -> list[Path]:
    """The sources that make verdicts, as results say they depend on them."""
    return depends.module_files(depends.ORACLES)


def differing(chosen: list[Answer]) -> list[str]:
    return [
        f"program {one.number} on {one.driver}: {now} instead of {one.verdict}"
        for one in chosen
        if (now := one.judged()) != one.verdict
    ]


@pytest.mark.parametrize("kernel", list(answers.FILES))
def test_the_verdicts_are_those_that_were_recorded(kernel: str) -> None:
    found = recorded(kernel)
    # Every accusation, because each kind of them is rare, and a part of the others.
    some = set(recording.shard(len(found), deciding()))
    chosen = [one for n, one in enumerate(found) if n in some or one.verdict.violations]
    wrong = differing(chosen)
    assert not wrong, (
        f"{len(wrong)} of {len(chosen)} verdicts are others, as the README here has it: "
        + "; ".join(wrong[:3])
    )


def test_there_are_enough_and_of_many_kinds() -> None:
    both = {kernel: recorded(kernel) for kernel in answers.FILES}
    every = [one for found in both.values() for one in found]
    broken = [one for one in every if one.driver != SOUND]
    assert len(every) >= 2000
    assert all(len(found) >= 900 for found in both.values())
    assert len(broken) >= len(every) / 4
    assert len({one.driver for one in broken}) >= 40
    assert {v[0] for one in broken for v in one.verdict.violations} >= {
        "values", "progress", "protocol",
    }  # fmt: skip
    # A sound driver's answers accuse nobody.
    assert not [one for one in every if one.driver == SOUND and one.verdict.violations]


def test_they_take_little_room() -> None:
    files = [path for path in recording.HERE.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST


def test_what_is_written_is_read(tmp_path: Path) -> None:
    some = recorded("lts")[::100]
    answers.write(tmp_path / "some.xz", some)
    assert list(answers.read(tmp_path / "some.xz")) == some


def test_weaker_and_other_oracles_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that looks away, one with other words, and one that accuses the sound driver."""
    every = recorded("lts") + recorded("latest")
    accused = [
        one for one in every
        if not one.said and one.verdict.violations and one.verdict.violations[0][0] == "values"
    ][:20]  # fmt: skip
    sound = [one for one in every if one.driver == SOUND][:20]
    assert len(accused) == 20
    assert differing(accused) == []
    assert differing(sound) == []
    with monkeypatch.context() as patch:
        patch.setattr(values.Checker, "run", lambda self: None)
        assert len(differing(accused)) == 20
    with monkeypatch.context() as patch:
        patch.setattr(telling, "acc_name", lambda kind: "an access")
        assert differing(accused)
    monkeypatch.setattr(mapping, "check", lambda *_, **__: "wrong")
    assert differing(sound)
