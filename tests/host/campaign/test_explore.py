# SPDX-License-Identifier: GPL-2.0-or-later
"""Examples by feedback: what they are drawn from, that they repeat, what is kept, and that what is
rare is found sooner."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, cast

import fake
import numpy as np
import pytest
from exact_fake import Exact, ExactFake, long_program

from hmmbench import cli
from hmmbench.base.errors import EXIT_USAGE, UsageError
from hmmbench.campaign import corpus, features
from hmmbench.campaign.corpus import Input, Kept, cover
from hmmbench.campaign.explore import CHANGED, KEPT, NEW, Explorer, Feedback
from hmmbench.campaign.features import Functions
from hmmbench.campaign.fresh import Fresh
from hmmbench.campaign.generate import MAX_STEPS, blocks, grown, meaning, program, steps_of
from hmmbench.campaign.mutate import mutated
from hmmbench.campaign.replay import replay
from hmmbench.campaign.runner import CHAIN, Campaign
from hmmbench.commands import run
from hmmbench.example.judge import Verdict, judge
from hmmbench.example.recipe import Environment, Recipe
from hmmbench.example.schedules import Points
from hmmbench.example.seen import Counted, Looker, Seen
from hmmbench.example.target import Execution
from hmmbench.guest.program import Program
from hmmbench.model import ops
from hmmbench.model.cells import Coverage
from hmmbench.model.ops.moving import Evict
from hmmbench.model.trail import Trail
from hmmbench.oracle.violation import Violation
from hmmbench.report.tally import Tally
from hmmbench.symbols import Symbol, SymbolTable
from hmmbench.vm.decisions import ENTRY, What
from hmmbench.vm.errors import QmpFailure, VmError
from hmmbench.vm.machine import Machine

GRAMMAR = 3
POINTS = Points((0x1000, 0x1010), (0x2000, 0x2010, 0x2020))


@pytest.fixture(autouse=True)
def own_time() -> Iterator[None]:
    with fake.own_time():
        yield


def campaign(
    targets: Sequence[Exact], out: Path, explorer: Explorer | None, examples: int = 120,
    seed: int = 7, first: int = 0,
) -> Tally:  # fmt: skip
    return Campaign(
        targets, out, seed=seed, grammar=GRAMMAR, examples=examples, exact=POINTS, cpus=4,
        shrink_s=0, explorer=explorer, first=first,
    ).run()  # fmt: skip


def explorer(
    kept: Sequence[Kept] = (), seed: int = 7, machines: int = 1, first: int = 0
) -> Explorer:
    return Explorer(seed, GRAMMAR, kept, machines=machines, size=CHAIN, first=first)


class Evicts(Exact):
    """Its device counts evictions; that is all that is seen of it."""

    def look(self, done: Execution, state: bytes) -> None:
        count = sum(o.op == Evict.number for o in done.program.ops)
        done.seen = Seen({"evictions": count})


class Rare(Evicts):
    """More evictions in one example than programs usually have go wrong."""

    most = 8

    def look(self, done: Execution, state: bytes) -> None:
        super().look(done, state)
        assert done.seen is not None
        if done.seen.device["evictions"] > self.most:
            done.violations.append(Violation("values", "wrong"))


class Slow(Evicts):
    """Now and then it takes longer."""

    def execute(self, program: Program, environment: Environment) -> Execution:
        time.sleep(0.003 * (len(self.programs) % 3))
        return super().execute(program, environment)


def ran(targets: Sequence[Exact]) -> list[tuple[bytes, Environment]]:
    return [
        one for target in targets
        for one in zip(target.programs, target.environments, strict=True)
    ]  # fmt: skip


def some(number: int, *reached: int) -> Kept:
    """An input that reached these."""
    own = (1, number)
    steps = steps_of(blocks(1, number, 1, GRAMMAR)[0])[:20]
    return Kept(Input(steps, own, own), frozenset(features.number("pair", (n,)) for n in reached))


class Censused(Evicts):
    """It counts that an example runs again, and nothing else."""

    def look(self, done: Execution, state: bytes) -> None:
        done.seen = Seen({"again": self.environments[-1].again})


# -- what they follow from


def test_what_runs_again_for_a_census_teaches_nothing(tmp_path: Path) -> None:
    target, looked = Censused(), explorer()
    campaign([target], tmp_path, looked)
    assert any(environment.again for environment in target.environments)
    assert "device" not in looked.end()["by_kind"]


def test_steps_are_what_the_bytes_were() -> None:
    for data in blocks(3, 0, 5, GRAMMAR):
        steps = steps_of(data)
        assert grown(steps, 9, GRAMMAR).encode() == program(data, 9, GRAMMAR).encode()
        assert len(set(steps)) == len(steps)


def test_without_a_corpus_it_begins_as_any_campaign(tmp_path: Path) -> None:
    plain, fed = Evicts(), Evicts()
    campaign([plain], tmp_path, None)
    looked = explorer()
    campaign([fed], tmp_path, looked)
    assert ran([plain])[:CHAIN] == ran([fed])[:CHAIN]
    assert ran([plain]) != ran([fed])
    # What is drawn from nothing later is what the others have there.
    same = sum(a == b for a, b in zip(ran([plain]), ran([fed]), strict=True))
    assert same == looked.drawn[NEW] > CHAIN
    assert looked.drawn[CHANGED] == 120 - same
    assert looked.drawn[KEPT] == 0


@pytest.mark.parametrize(("machines", "first"), [(1, 0), (2, 45), (3, 0)])
def test_as_many_machines_repeat_whatever_their_speed(
    tmp_path: Path, machines: int, first: int
) -> None:
    found = []
    for kind in (Evicts, Slow, Evicts):
        targets = [kind() if n else Slow() for n in range(machines)]
        looked = explorer(machines=machines, first=first)
        assert campaign(targets, tmp_path, looked, first=first).examples == 120
        found.append((sorted(ran(targets), key=repr), looked.end()))
    assert found[0] == found[1] == found[2]
    assert found[0][1]["examples"][CHANGED] > 20


class Stops(Evicts):
    """One of the machines fails in one example."""

    def execute(self, program: Program, environment: Environment) -> Execution:
        done = super().execute(program, environment)
        if len(self.programs) == 30:
            raise VmError("it stands still")
        return done


def test_a_machine_that_fails_ends_it_as_any(tmp_path: Path) -> None:
    with pytest.raises(VmError, match="stands still"):
        campaign([Stops(), Evicts()], tmp_path, explorer(machines=2))


def test_what_was_lost_is_waited_for_by_nobody() -> None:
    looked = explorer()
    steps = steps_of(blocks(1, 0, 1, GRAMMAR)[0])
    for n in range(CHAIN):
        looked.choose(n, steps)
    assert not looked.ready(CHAIN)
    for n in range(CHAIN):
        looked.reached(n, frozenset())
    assert looked.ready(CHAIN)
    looked.choose(CHAIN, steps)
    assert looked.end()["inputs"] == 0


def test_changes_keep_the_form_and_repeat() -> None:
    one, other, new = (some(n).input for n in (1, 2, 3))
    seen = set()
    for n in range(400):
        made = mutated(Random(n), one, other, new)
        assert made == mutated(Random(n), one, other, new)
        assert 0 < len(made.steps) <= MAX_STEPS
        seen.add((made.steps == one.steps, made.when == one.when, made.around == one.around,
                  bool(made.chance)))  # fmt: skip
        if n < 20:
            assert grown(made.steps, grammar=GRAMMAR).ops
    # Each part alone, and the program under the same schedule.
    wanted = [(False, True, True, False), (True, False, True, False), (True, True, False, False),
              (True, True, True, True)]  # fmt: skip
    assert seen >= set(wanted)


def test_a_schedule_has_other_chances_at_the_same_places(tmp_path: Path) -> None:
    target, looked = Evicts(), explorer()
    campaign([target], tmp_path, looked, examples=300)
    words: dict[str, set[str]] = {}
    for environment in target.environments:
        seed, _, rest = environment.schedule.partition(" ")
        words.setdefault(rest, set()).add(seed)
    assert any(len(seeds) > 1 for seeds in words.values())


# -- is it worth it?


def examples_to_kill(seed: int, out: Path, feedback: bool, most: int = 500) -> int:
    looked = explorer(seed=seed) if feedback else None
    tally = campaign([Rare()], out, looked, most, seed)
    return tally.found_examples or most


def test_what_is_rare_is_found_in_fewer_examples(tmp_path: Path) -> None:
    """All of it follows from the seeds: the same each time.  Not for each of them: chance is lucky,
    too."""
    seeds = (1, 2, 3, 4)
    without = [examples_to_kill(seed, tmp_path, False) for seed in seeds]
    with_it = [examples_to_kill(seed, tmp_path, True) for seed in seeds]
    assert sum(with_it) < 0.75 * sum(without), (with_it, without)
    assert sum(a < b for a, b in zip(with_it, without, strict=True)) >= 3, (with_it, without)


def test_what_is_found_has_a_recipe_as_any(tmp_path: Path) -> None:
    """It needs neither seed nor corpus."""
    tally = Campaign(
        [Rare(), Rare()], tmp_path, seed=1, grammar=GRAMMAR, examples=500, exact=POINTS, cpus=4,
        shrink_s=20, explorer=explorer(seed=1, machines=2),
    ).run()  # fmt: skip
    (finding, *_) = tally.findings
    recipe = Recipe.read(finding.recipe)
    assert finding.rate == 1
    assert len(recipe.program.ops) <= Rare.most + 2
    assert replay(Fresh(Rare(), recipe.chain), recipe, times=1).found
    assert tally.reached["features"] > 0
    assert tally.coverage.trail is None


# -- the corpus


def test_a_corpus_comes_back_as_it_was(tmp_path: Path) -> None:
    kept = [some(1, 1, 2), some(2, 3)]
    assert corpus.load(tmp_path / "new", GRAMMAR) == []
    assert corpus.save(tmp_path / "new", kept, GRAMMAR) == 2
    assert sorted(corpus.load(tmp_path / "new", GRAMMAR), key=repr) == sorted(kept, key=repr)
    (file,) = (tmp_path / "new").iterdir()
    # The same content has the same name.
    assert corpus.save(tmp_path / "new", kept, GRAMMAR) == 2
    assert [*(tmp_path / "new").iterdir()] == [file]


def test_it_is_made_small_and_loses_no_feature(tmp_path: Path) -> None:
    kept = [some(1, 1, 2), some(2, 2, 3), some(3, 1, 2, 3), some(4, 4), some(5)]
    small = cover(kept)
    assert [one.input for one in small] == [kept[2].input, kept[3].input]
    rng = Random(1)
    many = [some(n, *(rng.randrange(40) for _ in range(6))) for n in range(60)]
    small = cover(many)
    assert frozenset().union(*(one.features for one in small)) == frozenset().union(
        *(one.features for one in many)
    )
    assert len(small) < 20
    assert corpus.save(tmp_path, many, GRAMMAR) == len(small)


def test_several_are_merged_and_nothing_of_others_is_lost(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    corpus.save(one, [some(1, 1, 2)], GRAMMAR)
    corpus.save(other, [some(2, 3)], GRAMMAR)
    # By copying files, by saving where others have saved meanwhile, and by the option.
    for path in other.iterdir():
        (one / path.name).write_bytes(path.read_bytes())
    assert len(corpus.load(one, GRAMMAR)) == 2
    assert corpus.save(one, [some(3, 4)], GRAMMAR) == 3
    assert len([*one.iterdir()]) == 1
    asked = Feedback.asked(None, [one, other], GRAMMAR, True)
    assert asked is not None
    assert (len(asked.kept), asked.folder) == (3, one)


def test_what_an_input_reaches_now_counts(tmp_path: Path) -> None:
    corpus.save(tmp_path, [some(1, 1, 2), some(2, 5)], GRAMMAR)
    assert corpus.save(tmp_path, [some(1, 1)], GRAMMAR) == 2
    found = {one.input: one.features for one in corpus.load(tmp_path, GRAMMAR)}
    assert found[some(1).input] == some(1, 1).features


def test_what_was_loaded_and_not_run_says_nothing_against_others(tmp_path: Path) -> None:
    """Meanwhile another run has found that an input of the folder reaches something else."""
    corpus.save(tmp_path, [some(1, 1, 2, 7), some(2, 5)], GRAMMAR)
    other = [some(1, 1, 9)]
    corpus.save(tmp_path, other, GRAMMAR)
    corpus.save(tmp_path, [some(3, 4)], GRAMMAR, others=[some(1, 1, 2, 7), some(2, 5)])
    found = {one.input: one.features for one in corpus.load(tmp_path, GRAMMAR)}
    assert found[other[0].input] >= other[0].features
    assert found.keys() == {some(n).input for n in (1, 2, 3)}


def test_a_campaign_tells_what_it_ran_from_what_it_loaded(tmp_path: Path) -> None:
    corpus.save(tmp_path, [some(1, 1, 2, 7)], GRAMMAR)
    looked = explorer(corpus.load(tmp_path, GRAMMAR))
    corpus.save(tmp_path, [some(1, 1, 9)], GRAMMAR)
    own = some(3, 4)
    for n in range(20):
        fresh = looked.choose(n, own.input.steps).steps == own.input.steps
        looked.reached(n, own.features if fresh else frozenset())
    looked.end(tmp_path)
    found = {one.input: one.features for one in corpus.load(tmp_path, GRAMMAR)}
    assert found[some(1).input] >= some(1, 1, 9).features
    assert own.features in found.values()


def test_who_loads_while_another_saves_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus.save(tmp_path, [some(1, 1)], GRAMMAR)
    files = corpus._files

    def saved_meanwhile(folder: Path) -> list[Path]:
        found = files(folder)
        saver = threading.Thread(target=corpus.save, args=(tmp_path, [some(2, 2)], GRAMMAR))
        monkeypatch.setattr(corpus, "_files", files)
        saver.start()
        savers.append(saver)
        saver.join(0.2)
        return found

    savers: list[threading.Thread] = []
    monkeypatch.setattr(corpus, "_files", saved_meanwhile)
    assert corpus.load(tmp_path, GRAMMAR) == [some(1, 1)]
    savers[0].join()
    assert len(corpus.load(tmp_path, GRAMMAR)) == 2


def change(path: Path, **fields: Any) -> None:
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, **fields}))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"grammar": 2}, "is of grammar 2, this run is of grammar"),
        ({"steps": "0"}, "of other operations than this run has"),
        ({"version": 99}, "version 99, this bench reads 1"),
        ({"hmmbench": "recipe"}, "is no corpus: no object"),
        ({"inputs": [{}]}, "is no corpus: steps is missing"),
        ({"inputs": [{"steps": "AAAA", "features": ""}]}, "cut short"),
        ({"inputs": [{"steps": "", "features": ""}]}, "an input of 0 steps"),
        ({"inputs": 3}, "is no corpus"),
    ],
)
def test_another_corpus_is_refused(
    tmp_path: Path, fields: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus.save(tmp_path, [some(1, 1)], GRAMMAR)
    (path,) = tmp_path.iterdir()
    change(path, **fields)
    with pytest.raises(UsageError) as caught:
        corpus.load(tmp_path, GRAMMAR)
    assert said.replace("this run is of grammar", "this run is of 3") in str(caught.value)
    assert path.name in str(caught.value)
    assert caught.value.exit_code == EXIT_USAGE
    # Nor is it written over.
    with pytest.raises(UsageError):
        corpus.save(tmp_path, [some(2, 2)], GRAMMAR)
    assert [*tmp_path.iterdir()] == [path]


def test_no_json_and_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(UsageError, match=r"a\.json is no corpus"):
        corpus.load(tmp_path, GRAMMAR)
    with pytest.raises(UsageError, match="is not a folder"):
        corpus.load(tmp_path / "a.json", GRAMMAR)


def test_a_run_begins_with_what_was_kept(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    first = explorer()
    campaign([Evicts()], tmp_path, first)
    said = first.end(folder)
    assert said["kept"] == said["new_inputs"] > 2
    assert said["by_kind"] == {"device": said["features"]}
    asked = Feedback.asked(None, [folder], GRAMMAR, True)
    assert asked is not None
    second = explorer(asked.kept, seed=8)
    target = Evicts()
    campaign([target], tmp_path, second, seed=8)
    again = second.end(folder)
    assert again["examples"][KEPT] == said["kept"]
    kept = [grown(one.input.steps, grammar=GRAMMAR).encode() for one in asked.kept]
    assert set(kept) <= set(target.programs)
    assert again["features"] >= said["features"]
    assert again["new_features"] == again["features"] - said["features"]


def test_a_corpus_that_cannot_be_kept_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    looked, said = explorer(), []
    campaign([Evicts()], tmp_path, looked, 20)
    assert "kept" not in looked.end(tmp_path / "file", said.append)
    assert "the corpus is not kept" in said[0]


def test_the_options() -> None:
    assert Feedback.asked(None, [], GRAMMAR, True) is None
    assert Feedback.asked(False, [], GRAMMAR, False) is None
    assert Feedback.asked(True, [], GRAMMAR, True) == Feedback()
    with pytest.raises(UsageError, match="contradict"):
        Feedback.asked(False, [Path("x")], GRAMMAR, True)
    with pytest.raises(UsageError, match="of exact machines"):
        Feedback.asked(True, [], GRAMMAR, False)


@pytest.mark.parametrize("words", [["--feedback", "--accel", "threads"],
                                   ["--no-feedback", "--corpus", "x"]])  # fmt: skip
def test_wrong_use_ends_before_anything_is_built(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(run, "ensure", lambda *_: pytest.fail("built"))
    assert cli.main(["run", *words, "--out", str(tmp_path / "out")]) == EXIT_USAGE
    assert "feedback" in capsys.readouterr().err


# -- what is reached


def test_numbers_are_the_same_in_every_process() -> None:
    """Else a corpus would be worth nothing in the next one."""
    assert features.number("cell", ("evict", 0, 2)) == features.number("cell", ("evict", False, 2))
    assert features.number("pair", ("a", 1)) == 0x17D72ED343B
    numbers = [features.number(kind, ("a", 1)) for kind in features.KINDS]
    assert [number >> features.BITS for number in numbers] == [*range(len(numbers))]
    assert len(meaning(GRAMMAR)) == 16
    assert meaning(GRAMMAR) != meaning(2)


def test_what_an_example_did_is_told_apart() -> None:
    coverage = Coverage()
    found = []
    for data in blocks(2, 0, 2, GRAMMAR):
        p = program(data, grammar=GRAMMAR)
        coverage.trail = Trail()
        done = ExactFake().execute(p, Environment())
        outcome = judge(done, coverage)
        trail, coverage.trail = coverage.trail, None
        assert not outcome.violations
        assert trail.cells
        assert all(cell in coverage.cells for cell in trail.cells)
        # Something was accessed behind something else.
        assert any(before.startswith("cpu_access") for before, _, _, _ in trail.pairs)
        assert {name for name, *_ in trail.ends} <= {
            ops.of(o).row(o) or ops.of(o).name for o in p.ops
        } | {ops.of(o).name for o in p.ops}
        found.append(features.of(trail, outcome, done))
    assert found[0] - found[1]
    assert found[1] - found[0]
    assert len(found[0]) > 50


def test_a_process_takes_its_past_along() -> None:
    p = long_program(2)
    trail, coverage = Trail(), Coverage()
    coverage.trail = trail
    judge(ExactFake().execute(p, Environment()), coverage)
    assert ("", "mmap", 0, False) in trail.pairs
    assert ("mmap", "cpu_access a", 0, False) in trail.pairs
    assert ("cpu_access a", "cpu_access a", 1, False) in trail.pairs


def entry(what: What, who: int, pc: int = 0) -> tuple[int, ...]:
    return (0, 0, pc, 0, int(what), who, 0, 0)


TABLE = SymbolTable([
    Symbol("hmm_range_fault", 0x1000, 0x100), Symbol("other", 0x1100, 0x100),
    Symbol("serve", 0x2000, 0x80, "gpu"), Symbol("map", 0x2080, 0x80, "gpu"),
    Symbol("data", 0x3000, 0x80, "gpu", False),
])  # fmt: skip


def test_who_stood_where_while_others_ran() -> None:
    log = np.array([
        entry(What.OVER, 0, 0x2010),        # CPU 0 stands in serve
        entry(What.OVER, 1, 0x1100),        # what the other does is no function of interest
        entry(What.ENGINE, 3),
        entry(What.HELD, 0, 0x2010),
        entry(What.PAUSED, 1, 0x1080),      # hmm_range_fault
        entry(What.OVER, 0, 0x2080),        # serve goes on to map
        entry(What.IRQ, 2),
        entry(What.HALTED, 0, 0x1100),
        entry(What.ENGINE, 4),
        entry(What.OVER, 0, 0x2fff),
    ], ENTRY)  # fmt: skip
    assert Functions(TABLE).beside(log) == {
        ("serve [gpu]", "engine 3"), ("serve [gpu]", "hmm_range_fault"),
        ("hmm_range_fault", "map [gpu]"), ("map [gpu]", "interrupts 2"),
        ("hmm_range_fault", "interrupts 2"), ("hmm_range_fault", "engine 4"),
    }  # fmt: skip
    assert Functions(TABLE).beside(log[:0]) == set()
    assert Functions(SymbolTable([])).beside(log) == set()
    done = Execution(long_program(), seen=Seen({}, {}, frozenset(), log))
    done.met = frozenset({(0x1004, 0x2008)})
    found = features.of(Trail(), Verdict(), done, Functions(TABLE))
    assert features.by_kind(found) == {"beside": 6, "met": 1}
    assert features.number("met", ("hmm_range_fault+0x4", "serve+0x8 [gpu]")) in found
    assert features.of(Trail(), Verdict(), done) == frozenset()


def test_counters_are_told_roughly_and_of_one_example() -> None:
    def device(**counts: int) -> frozenset[int]:
        done = Execution(long_program(), seen=Seen(counts, {"faults": 1}))
        return features.of(Trail(), Verdict(), done)

    assert device(faults=5) == device(faults=4)
    assert device(faults=6) != device(faults=5)
    assert len({device(faults=n) for n in (0, 1, 2, 3, 4, 6, 8, 12)}) == 8


class Counts:
    """A machine that has counters, and memory with those of its code."""

    def __init__(self) -> None:
        self.faults = 10
        self.memory = {0x4000: [0] * 6}
        self.gpu = self
        self.fails = False

    def counters(self) -> dict[str, int]:
        return {"faults": self.faults, "same": 3}

    def qmp(self, command: str, **how: Any) -> None:
        assert command == "memsave"
        if self.fails:
            raise QmpFailure("memsave", "GenericError", "Invalid addr")
        words = self.memory[how["val"]][: how["size"] // 8]
        Path(how["filename"]).write_bytes(np.array(words, "<u8").tobytes())


def test_what_one_execution_counted() -> None:
    table = SymbolTable([
        Symbol("__gcov0.serve", 0x4000, 16, "gpu", False),
        Symbol("__gcov0.map", 0x4020, 16, "gpu", False), Symbol("serve", 0x2000, 0x80, "gpu"),
    ])  # fmt: skip
    counted = Counted(table)
    assert (len(counted.names), len(counted.spans)) == (4, 1)
    machine = Counts()
    vm = cast(Machine, machine)
    looker = Looker(counted)
    looker.begin(vm, "")
    machine.faults += 2
    machine.memory[0x4000] = [0, 7, 99, 99, 1, 0]
    seen = looker.end(vm, "retries 4\nlive 0\nno number", None)
    assert (seen.device, seen.driver) == ({"faults": 2}, {"retries": 4})
    assert seen.code == {"serve 1", "map 0"}
    looker.begin(vm, "retries 4\nlive 2")
    assert looker.end(vm, "retries 4\nlive 0", None) == Seen()
    # What cannot be read costs nothing else.
    machine.fails = True
    looker.begin(vm, "")
    machine.faults += 1
    assert looker.end(vm, "", None) == Seen({"faults": 1})
    assert Looker(Counted(TABLE))._counted is None
