# SPDX-License-Identifier: GPL-2.0-or-later
"""Recipes: written, read back, and refused with the place of the mistake."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hmmbench.base.errors import UsageError
from hmmbench.campaign.generate import program, size_of
from hmmbench.example.recipe import (
    Anchor,
    Environment,
    Link,
    Recipe,
    access_from_text,
    access_to_text,
    op_from_json,
    op_to_json,
)
from hmmbench.guest.program import Acc, Op, Program
from hmmbench.model.drawing import FILE_PAGES
from hmmbench.model.ops.processes import Nop
from hmmbench.report.words import sentence
from hmmbench.vm.spec import DEVICES


def recipe(seed: int = 1) -> Recipe:
    p = program(random.Random(seed).randbytes(size_of(70)))
    return Recipe(
        p, Environment(("svm_after_zap 500 1000 7",), ("fault.entry duplicate",)), "values",
        "wrong", "6.12", 4, 17, 33,
    )  # fmt: skip


def exact_recipe(links: int = 2) -> Recipe:
    """Of an exact machine in which other examples ran before."""
    surroundings = Environment(
        (), ("irq.message duplicate",), "access", True, 3,
        "seed=9 slice=5:14 point=4:16:20 odds=2 at=10,2f",
    )  # fmt: skip
    chain = []
    for n in range(links):
        p = program(random.Random(100 + n).randbytes(size_of(12)))
        chain.append(Link(Program(p.ops, p.file_pages), replace(surroundings, vram=n)))
    return replace(
        recipe(), environment=surroundings, cpus=4, chain=tuple(chain), hash=0xFEDCBA9876543210,
        repeat=1, decisions=(
            Anchor(3, "hmm_range_fault+0x1c4", 7, 500_000), Anchor(0, "map [hmm_gpu]", 1, 1),
            Anchor(63, "0x4062e4", 1 << 31, 1 << 40),
        ),
        built={"kernel": "6.12.118 0123", "driver": "4567"},
    )  # fmt: skip


DECISION = {"phase": 1, "at": "f+0x1", "passage": 2, "hold_ns": 3}


def test_written_and_read_back(tmp_path: Path) -> None:
    for seed in range(30):
        r = recipe(seed)
        r.write(tmp_path / "r.json")
        back = Recipe.read(tmp_path / "r.json")
        # (A racing copy that nobody could judge is a nop with a copy's fields.)
        listed = [
            o if o.op != Nop.number else Op(o.op, o.proc, o.actor, o.phase) for o in r.program.ops
        ]
        assert back.program.encode() == Program(listed, FILE_PAGES).encode()
        assert back.environment == r.environment
        assert (back.oracle, back.message, back.seed, back.example, back.repeat) == (
            "values", "wrong", 4, 17, 33,
        )  # fmt: skip


def test_how_often_it_runs_again_is_kept(tmp_path: Path) -> None:
    r = replace(recipe(3), environment=Environment(again=4))
    r.write(tmp_path / "r.json")
    assert Recipe.read(tmp_path / "r.json").environment.again == 4
    assert "again" not in recipe(3).to_json()


def test_injections_of_before_are_those_of_now(tmp_path: Path) -> None:
    """In an example and in those before it."""
    r = exact_recipe()
    data = r.to_json()
    for place in (data, *data["chain"]):
        place["inject"] = ["irq duplicate"]
    (tmp_path / "r.json").write_text(json.dumps(data))
    assert Recipe.read(tmp_path / "r.json").environment == r.environment
    assert Recipe.read(tmp_path / "r.json").chain == Recipe.from_json(r.to_json()).chain


def test_an_operation_is_a_line(tmp_path: Path) -> None:
    r = recipe()
    r.write(tmp_path / "r.json")
    lines = (tmp_path / "r.json").read_text().splitlines()
    assert sum(1 for line in lines if '"op": ' in line) == len(r.program.ops)


def test_what_a_wait_leaves_alone() -> None:
    assert op_from_json(0, {"op": "wait_gpu"}).a == 0
    o = op_from_json(0, {"op": "wait_gpu", "leave": 1})
    assert o.a == 1
    assert op_to_json(o) == {"op": "wait_gpu", "phase": 0, "proc": 0, "leave": 1}
    assert sentence(o) == "waits for its GPU jobs but the last"
    assert sentence(op_from_json(0, {"op": "wait_gpu"})) == "waits for its GPU jobs"


def test_accesses_as_text() -> None:
    for a in [(0, 1, 3, 0x1008, 0, 0), (4, 15, 0, 8, 7, 9), (7, 0, 2, 0, 500, 0)]:
        assert access_from_text(access_to_text(a)) == a
    assert access_to_text((int(Acc.WRITE), 1, 3, 0x1008, 5, 0)) == "L3 write r1+0x1008 = 0x5"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 9}, "version 9"),
        ({"hmmbench": "x"}, "recipe"),
        ({"ops": 3}, "ops"),
        ({"ops": [{"op": "fly"}]}, "operation 0.*fly"),
        ({"ops": [{"op": "mmap", "kind": "odd"}]}, "operation 0.*odd"),
        ({"ops": [{"op": "nop"}, {"op": "cpu_access", "accesses": ["x"]}]}, "operation 1.*x"),
        ({"ops": [{"op": "nop", "bogus": 1}]}, "bogus"),
        ({"ops": [{"op": "nop", "proc": 77}]}, "proc"),
        ({"file_pages": [1]}, "file_pages"),
        ({"delays": [1]}, "delays"),
        ({"rebind": 1}, "rebind must be"),
        ({"coherent": "on"}, "coherent must be"),
        ({"machine": 3}, "machine must be"),
        ({"machine": "iommu+large"}, "no machine 'iommu.large': large"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    data = recipe().to_json() | change
    (tmp_path / "r.json").write_text(json.dumps(data))
    with pytest.raises(UsageError, match=says):
        Recipe.read(tmp_path / "r.json")


def test_no_file_and_no_json(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        Recipe.read(tmp_path / "none.json")
    (tmp_path / "r.json").write_text("{")
    with pytest.raises(UsageError, match="not JSON"):
        Recipe.read(tmp_path / "r.json")


def test_the_audit_is_part_of_it(tmp_path: Path) -> None:
    r = recipe()
    r.environment = Environment(audit="access")
    r.write(tmp_path / "r.json")
    assert Recipe.read(tmp_path / "r.json").environment.audit == "access"
    text = (tmp_path / "r.json").read_text()
    (tmp_path / "r.json").write_text(text.replace('"access"', '"often"'))
    with pytest.raises(UsageError, match="audit must be one of"):
        Recipe.read(tmp_path / "r.json")
    (tmp_path / "r.json").write_text(text.replace(' "audit": "access",\n', ""))
    assert Recipe.read(tmp_path / "r.json").environment.audit == "off"


def test_short_vram_is_part_of_it(tmp_path: Path) -> None:
    for vram in (None, 0, 3):
        r = recipe()
        r.environment = Environment(vram=vram)
        r.write(tmp_path / "r.json")
        assert Recipe.read(tmp_path / "r.json").environment.vram == vram


def test_the_device_is_part_of_it(tmp_path: Path) -> None:
    for device in DEVICES:
        r = recipe()
        r.device = device
        r.write(tmp_path / "r.json")
        assert Recipe.read(tmp_path / "r.json").device == device


@pytest.mark.parametrize("machine", ["", "iommu", "cpus-1+small"])
def test_the_machine_is_in_the_recipe(machine: str, tmp_path: Path) -> None:
    """And what has none was of the usual one, as before there were others."""
    r = replace(exact_recipe(), machine=machine)
    r.write(tmp_path / "r.json")
    assert ("machine" in json.loads((tmp_path / "r.json").read_text())) == bool(machine)
    assert Recipe.read(tmp_path / "r.json").machine == machine


@pytest.mark.parametrize("links", [0, 1, 3])
def test_an_exact_machine_and_its_chain_are_part_of_it(tmp_path: Path, links: int) -> None:
    r = exact_recipe(links)
    r.write(tmp_path / "r.json")
    back = Recipe.read(tmp_path / "r.json")
    assert back.exact
    assert (back.cpus, back.hash, back.repeat) == (4, 0xFEDCBA9876543210, 1)
    assert (back.decisions, back.built) == (r.decisions, r.built)
    assert len(back.decisions) == 3
    assert back.environment == r.environment
    assert [one.environment for one in back.chain] == [one.environment for one in r.chain]
    assert [one.program.encode() for one in back.chain] == [one.program.encode() for one in r.chain]
    # Once more is the same file: nothing is lost on the way.
    back.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "r.json").read_bytes()


def test_a_decision_is_a_line_and_an_older_file_has_none(tmp_path: Path) -> None:
    exact_recipe().write(tmp_path / "r.json")
    text = (tmp_path / "r.json").read_text()
    assert (
        '  {"phase": 3, "at": "hmm_range_fault+0x1c4", "passage": 7, "hold_ns": 500000},\n' in text
    )
    data = json.loads(text)
    del data["decisions"], data["built"]
    (tmp_path / "r.json").write_text(json.dumps(data))
    back = Recipe.read(tmp_path / "r.json")
    assert (back.decisions, back.built, back.cpus) == ((), {}, 4)


def test_an_example_of_a_chain_is_a_line(tmp_path: Path) -> None:
    exact_recipe(3).write(tmp_path / "r.json")
    lines = (tmp_path / "r.json").read_text().splitlines()
    at = lines.index(' "chain": [')
    assert [json.loads(line.strip().rstrip(","))["vram"] for line in lines[at + 1 : at + 4]] == [
        0, 1, 2,
    ]  # fmt: skip


def test_a_recipe_with_threads_says_nothing_of_exact_machines(tmp_path: Path) -> None:
    recipe().write(tmp_path / "r.json")
    assert (
        not {"cpus", "schedule", "chain", "hash", "decisions", "built"}
        & json.loads((tmp_path / "r.json").read_text()).keys()
    )
    assert not Recipe.read(tmp_path / "r.json").exact


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cpus": None}, "cpus must be a number"),
        ({"cpus": 0}, "cpus is missing"),
        ({"cpus": -1}, "cpus -1"),
        ({"cpus": 65}, "cpus 65: at most 64"),
        ({"cpus": True}, "cpus must be a number"),
        ({"schedule": 7}, "schedule must be a string"),
        ({"hash": "0xno"}, "0xno"),
        ({"hash": [1]}, "hash must be a number"),
        ({"built": ["6.12"]}, "built must be an object of strings"),
        ({"built": {"kernel": 6}}, "built must be an object of strings"),
        ({"decisions": {}}, "decisions must be a list"),
        ({"decisions": [DECISION, 3]}, "decision 1: must be an object with phase, at, passage"),
        ({"decisions": [DECISION | {"more": 1}]}, "decision 0: must be an object with"),
        ({"decisions": [DECISION | {"at": 7}]}, "decision 0: at must name a place"),
        ({"decisions": [DECISION | {"at": "0xzz"}]}, "decision 0: at '0xzz' is no address"),
        ({"decisions": [DECISION | {"phase": 65536}]}, "decision 0: phase must be 0 to 65535"),
        ({"decisions": [DECISION | {"passage": 0}]}, "decision 0: passage must be 1 to"),
        ({"decisions": [DECISION | {"hold_ns": 1 << 41}]}, "decision 0: hold_ns must be 1 to"),
        ({"decisions": [DECISION | {"hold_ns": "x"}]}, "invalid literal"),
        ({"chain": 3}, "chain must be a list"),
        ({"chain": {}}, "chain must be a list"),
        ({"chain": [3]}, "chain: example 0 must be an object"),
        ({"chain": [{"ops": []}]}, "chain: example 0: file_pages is missing"),
        ({"chain": [{"file_pages": [0, 0, 0, 0]}]}, "chain: example 0: ops is missing"),
        (
            {"chain": [{"ops": [{"op": "nop"}, {"op": "fly"}], "file_pages": [0, 0, 0, 0]}]},
            "chain: example 0: operation 1.*fly",
        ),
        (
            {"chain": [{"ops": [], "file_pages": [0, 0, 0, 0], "schedule": []}]},
            "chain: example 0: schedule must be a string",
        ),
    ],
)
def test_mistakes_in_recipes_of_exact_machines_are_named(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    data = exact_recipe().to_json() | change
    (tmp_path / "r.json").write_text(json.dumps(data))
    with pytest.raises(UsageError, match=says) as error:
        Recipe.read(tmp_path / "r.json")
    assert str(tmp_path / "r.json") in str(error.value)


def test_a_chain_or_a_schedule_needs_its_cpus(tmp_path: Path) -> None:
    for leave in ("schedule", "chain", "decisions"):
        data = exact_recipe().to_json()
        del data["cpus"]
        for other in {"schedule", "chain", "decisions"} - {leave}:
            del data[other]
        (tmp_path / "r.json").write_text(json.dumps(data))
        with pytest.raises(UsageError, match=f"{leave} (is|are) of an exact machine: cpus is"):
            Recipe.read(tmp_path / "r.json")
