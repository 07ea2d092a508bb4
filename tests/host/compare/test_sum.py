# SPDX-License-Identifier: GPL-2.0-or-later
"""`hmmbench sum`: what is added, what is refused, and what is still valid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hmmbench import cli
from hmmbench.build import cache, depends
from hmmbench.compare import sums
from hmmbench.mutation import mutants
from hmmbench.mutation.trial import ALIVE, EQUIVALENT, ERROR, KILLED, SOUND, Result, Row
from hmmbench.report.result import Report, write_result
from hmmbench.suites import selftests
from hmmbench.suites.selftests import OURS, Run, SelftestOutcome

NOW = {
    "commit": "c" * 40, "dirty": False, "device": "d1", "driver": "m1", "agent": "a1",
    "oracles": "o1", "campaign": "r1",
}  # fmt: skip
KERNELS = {"lts": "6.12.118-x 1111", "latest": "7.3.4-x 2222"}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout of which everything is known."""
    monkeypatch.setattr(sums, "this_checkout", lambda: NOW)
    monkeypatch.setattr(sums, "kernel_here", lambda name: KERNELS.get(name))


def on(*kernels: str, **changed: Any) -> dict[str, Any]:
    return NOW | {"kernel": {name: KERNELS.get(name, "5.0 9") for name in kernels}} | changed


def run(path: Path, kernel: str = "lts", seed: int = 1, examples: int = 1000, **more: Any) -> Path:
    """What `run` writes."""
    changed = more.pop("depends", {})
    report = Report(
        verdict="pass", seed=seed, profile="default", kernel=KERNELS.get(kernel, "5.0"),
        accel="tcg", examples=examples, operations=70 * examples, undecided=3,
        depends=on(kernel, **changed), **more,
    )  # fmt: skip
    report.write_json(path)
    return path


def exact(path: Path, kernel: str = "lts", parted: int = 0, **changed: Any) -> Path:
    write_result(
        path, "exact", {"executions": 500, "equal": 500 - parted, "parted": parted, "seed": 1},
        on(kernel, **changed),
    )  # fmt: skip
    return path


def add(*words: Path | str) -> int:
    return cli.main(["sum", *map(str, words)])


def added(*words: Path | str) -> tuple[int, dict[str, Any]]:
    """Exit code and the JSON."""
    out = Path(words[0]).parent / "sum.json"
    code = add(*words, "--json", str(out))
    data: dict[str, Any] = json.loads(out.read_text())
    return code, data


def test_examples_add_up_by_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of results from before there were other machines than the usual one nothing is known."""
    def on_machine(machine: str, kind: str, examples: int) -> dict[str, Any]:
        return {"machine": machine, "kind": kind, "examples": examples}

    _, data = added(
        run(tmp_path / "a.json", portions=[
            on_machine("usual", "exact", 900), on_machine("usual", "threads", 60),
            on_machine("iommu", "exact", 40),
        ]),
        run(tmp_path / "b.json", seed=2, portions=[on_machine("iommu", "exact", 1000)]),
        run(tmp_path / "c.json", seed=3),
    )  # fmt: skip
    (group,) = data["groups"]
    assert group["machines"] == {
        "usual (exact)": 900, "usual (threads)": 60, "iommu (exact)": 1040,
    }  # fmt: skip
    assert "1,040 examples on iommu (exact)" in capsys.readouterr().out


def test_parts_add_up_over_commits_and_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, data = added(
        run(tmp_path / "a.json"),
        run(tmp_path / "b.json", seed=2, examples=500, depends={"commit": "e" * 40}),
        run(tmp_path / "c.json", "latest", seed=3),
    )
    assert code == 0
    (group,) = data["groups"]
    assert group["total"]["examples"] == 2500
    assert group["total"]["operations"] == 2500 * 70
    assert group["total"]["undecided"] == 9
    assert {line: c["examples"] for line, c in group["lines"].items()} == {
        "lts (6.12.118-x), tcg": 1500, "latest (7.3.4-x), tcg": 1000,
    }  # fmt: skip
    assert group["depends"]["kernel"] == KERNELS
    assert group["commits"] == ["c" * 40, "e" * 40]
    assert data["verdict"] == "pass"
    assert [part["state"] for part in data["parts"]] == ["current"] * 3
    out = capsys.readouterr().out
    assert "2,500" in out
    assert "more than once" not in out


def test_what_a_pass_rests_on_adds_up_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, data = added(
        run(tmp_path / "a.json", promises_tried=5, pages_read=70),
        run(tmp_path / "b.json", seed=2, promises_tried=2, censuses_taken=3, shortfalls=["x: y"]),
    )
    total = data["groups"][0]["total"]
    assert (total["promises_tried"], total["pages_read"], total["shortfalls"]) == (7, 70, 1)
    out = capsys.readouterr().out
    assert "7 promises tried" in out
    assert "3 censuses taken" in out


def test_a_violation_in_one_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = {"oracle": "values", "message": "read 1, not 2", "recipe": "r"}
    code, data = added(
        run(tmp_path / "a.json"), run(tmp_path / "b.json", seed=2, violations=[wrong])
    )
    assert code == 1
    assert data["verdict"] == "fail"
    assert data["groups"][0]["total"]["violations"] == 1
    assert "b.json: values: read 1, not 2" in capsys.readouterr().out


@pytest.mark.parametrize("part", ["device", "driver", "agent", "oracles"])
def test_what_differs_is_refused_unless_told(
    tmp_path: Path, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [
        run(tmp_path / "a.json"), run(tmp_path / "b.json", seed=2, depends={part: "other"}),
    ]  # fmt: skip
    assert add(*files) == 2
    assert f"another {part}" in capsys.readouterr().err
    code, data = added(*files, "--all")
    assert code == 0
    assert [group["total"]["examples"] for group in data["groups"]] == [1000, 1000]
    assert [p["state"] for p in data["parts"]] == ["current", f"stale: {part}"]


def test_what_a_kind_does_not_need_may_differ(tmp_path: Path) -> None:
    """Equal executions are equal whatever the oracles would say of them."""
    code, data = added(exact(tmp_path / "a.json"), exact(tmp_path / "b.json", oracles="o2"))
    assert code == 0
    assert data["groups"][0]["total"] == {
        "parts": 2, "executions": 1000, "equal": 1000, "parted": 0,
    }  # fmt: skip
    code, _ = added(exact(tmp_path / "a.json"), exact(tmp_path / "b.json", parted=1))
    assert code == 1
    # The campaign decides when mutants are found, not what a run's verdict is.
    assert add(run(tmp_path / "c.json"), run(tmp_path / "d.json", depends={"campaign": "r2"})) == 0


def test_kinds_are_added_apart(tmp_path: Path) -> None:
    _, data = added(exact(tmp_path / "a.json", driver="m2"), run(tmp_path / "b.json"))
    assert [group["kind"] for group in data["groups"]] == ["run", "exact"]


def test_one_name_for_two_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newer = {"lts": "6.12.119-x 1111"}
    files = [
        run(tmp_path / "a.json"), run(tmp_path / "b.json", seed=2, depends={"kernel": newer}),
        run(tmp_path / "c.json", "latest"),
    ]  # fmt: skip
    assert add(*files) == 2
    assert "another kernel lts" in capsys.readouterr().err
    _, data = added(*files, "--all")
    assert [group["total"]["parts"] for group in data["groups"]] == [1, 1, 1]
    assert data["parts"][1]["stale"] == ["kernel lts"]


def test_a_kernel_that_is_not_here(tmp_path: Path) -> None:
    _, data = added(run(tmp_path / "a.json", "somewhere/linux"))
    (part,) = data["parts"]
    assert part["stale"] == []
    assert part["state"] == "current, but for kernel somewhere/linux, which is not built here"


def test_a_part_is_added_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run(tmp_path / "a.json")
    copy = tmp_path / "b.json"
    copy.write_bytes(first.read_bytes())
    assert add(first, copy) == 2
    assert "the same result twice" in capsys.readouterr().err
    # The same seed in another run is no copy, but it is said.
    assert add(first, run(copy, wall_s=2.0)) == 0
    assert "same examples: seed 1 of lts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot read"),
        ("{", "no JSON"),
        ("[]", "no result"),
        ('{"verdict": "pass", "examples": 3}', "no command"),
        ('{"command": "bench", "depends": {}}', "it is of bench"),
        ('{"command": "run", "examples": 3}', "no whole result"),
        (json.dumps({"command": "run", "examples": 3, "depends": on("lts")}), "no whole result"),
        (json.dumps({"command": "mutants", "mutants": [{"name": "a"}], "depends": on("lts")}),
         "no whole result"),
        (json.dumps({"command": "exact", "executions": 1, "equal": 1, "parted": 0,
                     "depends": on("lts", device="")}), "no whole result"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_used(
    tmp_path: Path, text: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)
    assert add(run(tmp_path / "a.json"), path) == 2
    err = capsys.readouterr().err
    assert said in err
    assert str(path) in err


def test_a_part_that_broke_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After an interrupt what was done counts; what failed by itself is no pass."""
    assert add(run(tmp_path / "a.json", error="interrupted")) == 0
    assert "broken off: interrupted" in capsys.readouterr().out
    code, data = added(run(tmp_path / "a.json", error="no disk"), run(tmp_path / "b.json"))
    assert code == 3
    assert data["verdict"] == "error"


def test_selftests(tmp_path: Path) -> None:
    files = []
    for name, statuses in (("a", ("pass", "skip")), ("b", ("pass", "pass"))):
        tests = [SelftestOutcome(str(n), s, 0.1) for n, s in enumerate(statuses)]
        ours = Run(OURS, tests, seconds=1)
        files.append(tmp_path / f"{name}.json")
        about = {"kernel": name, "accel": "tcg"}
        write_result(files[-1], "selftests", selftests.to_json(ours, None, about), on("lts"))
    code, data = added(*files)
    assert code == 0
    total = data["groups"][0]["total"]
    assert (total["passed"], total["failed"], total["skipped"]) == (3, 0, 1)
    ours = Run(OURS, [SelftestOutcome("1", "pass", 0.1)], trouble="the kernel printed: BUG")
    write_result(files[0], "selftests", selftests.to_json(ours, None, {}), on("lts"))
    assert add(*files) == 1


NAMES = [m.name for m in mutants.load()[:4]]


def row(name: str, status: str, seconds: float = 1.0, **more: Any) -> Row:
    patch = cache.file_digest(mutants.folder() / f"{name}.patch") if name in NAMES else ""
    values = {"patch": patch, "kernel": {"lts": KERNELS["lts"]}} | more
    return Row(name, "class", status=status, seconds=seconds, **values)


def table(path: Path, seed: int, *rows: Row, sound: str = SOUND, **changed: Any) -> Path:
    control = row("sound", sound, examples=200, message="false")
    result = Result(seed, 600.0, on(**changed), list(rows), [control])
    write_result(path, "mutants", result.to_json(), result.depending())
    return path


def test_mutants_by_name_over_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c, d = NAMES
    code, data = added(
        table(tmp_path / "1.json", 1, row(a, KILLED, 1.0), row(b, ALIVE, 600.0),
              row(c, ERROR, message="no disk", kernel={})),
        table(tmp_path / "2.json", 2, row(a, KILLED, 9.0), row(b, KILLED, 30.0),
              row(c, KILLED, 4.0)),
        table(tmp_path / "3.json", 3, row(a, KILLED, 2.0), row(d, EQUIVALENT, 30.0)),
    )  # fmt: skip
    # What one seed does not find and another does is found; what was an error was run again.
    assert code == 0
    (group,) = data["groups"]
    found = {m["name"]: (m["status"], m["found"], m["tried"], m["seconds"])
             for m in group["mutants"]}  # fmt: skip
    assert found == {
        a: (KILLED, 3, 3, 2.0), b: (KILLED, 1, 2, 30.0), c: (KILLED, 1, 2, 4.0),
        d: (EQUIVALENT, 0, 1, 30.0),
    }  # fmt: skip
    assert group["sound_examples"] == 600
    assert group["depends"]["kernel"] == {"lts": KERNELS["lts"]}
    out = capsys.readouterr().out
    assert "1.0 9.0 2.0" in out
    assert "1 equivalent, 3 killed" in out


@pytest.mark.parametrize(
    ("rows", "sound", "code"),
    [
        ([row(NAMES[0], ALIVE)], SOUND, 1),
        ([row(NAMES[0], KILLED, declared=True)], SOUND, 1),
        ([row(NAMES[0], KILLED)], KILLED, 1),
        ([row(NAMES[0], ERROR)], SOUND, 3),
        ([row(NAMES[0], KILLED)], ERROR, 3),
        ([row(NAMES[0], KILLED)], SOUND, 0),
    ],
)
def test_what_mutants_end_with(tmp_path: Path, rows: list[Row], sound: str, code: int) -> None:
    assert add(table(tmp_path / "a.json", 1, *rows, sound=sound)) == code


def test_a_mutant_is_as_old_as_its_patch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = NAMES[0]
    older = table(tmp_path / "a.json", 1, row(name, KILLED, patch="older"))
    _, data = added(older)
    assert data["parts"][0]["stale"] == [name]
    assert add(older, table(tmp_path / "b.json", 2, row(name, KILLED))) == 2
    assert "another patch" in capsys.readouterr().err
    assert add(older, table(tmp_path / "b.json", 2, row(name, KILLED)), "--all") == 2
    # The campaign is part of when they are found.
    other = table(tmp_path / "c.json", 3, row(name, KILLED), campaign="r2")
    assert add(table(tmp_path / "b.json", 2, row(name, KILLED)), other) == 2


def test_this_checkout_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command writes now is current now."""
    monkeypatch.setattr(sums, "this_checkout", depends.of)
    found = depends.of() | {"kernel": {"lts": KERNELS["lts"]}}
    report = Report(verdict="pass", accel="tcg", examples=3, depends=found)
    report.write_json(tmp_path / "a.json")
    _, data = added(tmp_path / "a.json")
    assert data["parts"][0]["state"] == "current"
    monkeypatch.setattr(depends, "ORACLES", (*depends.ORACLES, "base/ui.py"))
    _, data = added(tmp_path / "a.json")
    assert data["parts"][0]["state"] == "stale: oracles"
