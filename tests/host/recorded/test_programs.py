# SPDX-License-Identifier: GPL-2.0-or-later
"""A seed gives the program that it gave when the programs were recorded, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
import recording

from hmmbench.base import paths
from hmmbench.campaign import generate, runner
from hmmbench.campaign.runner import Campaign
from hmmbench.example.recipe import Environment
from hmmbench.example.target import Execution
from hmmbench.guest.program import Op, Program
from hmmbench.model.ops import jobs, moving
from hmmbench.model.ops.processes import Nop


def sources() -> list[Path]:
    package = paths.project_root() / "harness/hmmbench"
    return [*(package / "model").rglob("*.py"), package / "campaign/generate.py"]


@pytest.mark.full("all 10,000 recorded programs of each grammar")
@pytest.mark.parametrize("grammar", recording.GRAMMARS)
def test_the_generator_makes_the_recorded_programs(grammar: int) -> None:
    data = recording.programs(grammar).read_bytes()
    assert len(data) == recording.COUNT * recording.KEPT
    numbers = list(recording.shard(recording.COUNT, sources()))
    differing = recording.differing(data, numbers, grammar)
    assert not differing, (
        f"{len(differing)} of {len(numbers)} programs are others than recorded, first numbers "
        f"{differing[:8]}: tests/host/recorded/README.md"
    )


def test_each_version_of_the_grammar_is_recorded() -> None:
    """A new one is, by the commit that makes it: from then on seeds mean that."""
    assert set(recording.GRAMMARS) == set(range(1, generate.newest() + 1))


def test_a_changed_generator_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that is drawn nearly always, and pages of a query that few programs have."""
    data = recording.programs(recording.GRAMMAR).read_bytes()
    assert recording.differing(data, range(60)) == []
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "WORDS", (0, 1, 2, 63, 64, 255, 510, 510))
        assert len(recording.differing(data, range(60))) > 50
    monkeypatch.setattr(moving, "SEEN", moving.SEEN - 1)
    monkeypatch.setattr(generate, "SEEN", generate.SEEN - 1)
    assert 0 < len(recording.differing(data, range(60))) < 40


def test_every_tenth_or_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Which tenth is compared changes with the code, and all can be asked for."""
    monkeypatch.delenv(recording.ALL, raising=False)
    firsts = set()
    for n in range(40):
        (tmp_path / "code.py").write_text(str(n))
        chosen = list(recording.shard(100, [tmp_path / "code.py"]))
        assert chosen == list(range(chosen[0], 100, recording.SHARDS))
        assert chosen == list(recording.shard(100, [tmp_path / "code.py"]))
        firsts.add(chosen[0])
    assert len(firsts) > 5
    monkeypatch.setenv(recording.ALL, "1")
    assert list(recording.shard(100, [])) == list(range(100))


class Seen:
    """A target that answers nothing and keeps what it was given."""

    def __init__(self) -> None:
        self.programs: list[bytes] = []

    def execute(self, program: Program, environment: Environment) -> Execution:
        self.programs.append(program.encode())
        return Execution(program)

    def renew(self) -> None: ...

    def end(self) -> None: ...

    def keep(self, folder: Path) -> None: ...

    def watch(self) -> None: ...

    def watched(self) -> list[object]:
        return []


def test_a_campaign_runs_what_the_generator_makes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only the bytes are Hypothesis's: from them on it is the way that is recorded."""
    blocks: list[tuple[bytes, int]] = []

    def noted(data: bytes, seed: int = 0, grammar: int | None = None) -> Program:
        assert grammar == 1
        blocks.append((bytes(data), seed))
        return Program([Op(Nop.number)], seed=len(blocks))

    monkeypatch.setattr(runner, "program", noted)
    target = Seen()
    Campaign(target, tmp_path, seed=9, examples=12, grammar=1).run()  # type: ignore[arg-type]
    assert target.programs == [
        Program([Op(Nop.number)], seed=n).encode() for n in range(1, 13)
    ]
    # A recipe holds no seed, and what it gives back is what ran.
    assert {seed for _, seed in blocks} == {0}
    assert all(len(data) % generate.BYTES_A_STEP == 0 for data, _ in blocks)
    assert len({data for data, _ in blocks}) == 12
