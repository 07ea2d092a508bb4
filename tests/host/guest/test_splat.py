# SPDX-License-Identifier: GPL-2.0-or-later
"""The splat parser: every kind of report it must find, and ordinary output it must not take."""

from __future__ import annotations

from pathlib import Path

import pytest

from hmmbench.guest import splat

SAMPLES = Path(__file__).parent.parent / "splats"


def samples(kind: str) -> list[Path]:
    found = sorted((SAMPLES / kind).glob("*.txt"))
    assert found
    return found


@pytest.mark.parametrize("path", samples("bad"), ids=lambda p: p.stem)
def test_found(path: Path) -> None:
    """The first lines of a sample ("# kind | title | functions") say what must be found in it."""
    text = path.read_text()
    expected = [
        tuple(part.strip() for part in line[1:].split("|"))
        for line in text.splitlines()
        if line.startswith("#")
    ]
    body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    seen = [(s.kind, s.title, " ".join(s.functions)) for s in splat.scan(body)]
    assert seen == expected
    assert expected


@pytest.mark.parametrize("path", samples("good"), ids=lambda p: p.stem)
def test_no_false_alarm(path: Path) -> None:
    assert splat.scan(path.read_text()) == []


@pytest.mark.parametrize("path", samples("bad"), ids=lambda p: p.stem)
@pytest.mark.parametrize("prefix", ["", "[    5.123456][  T345] ", "<4>[12345.678901] ", "[ C1] "])
def test_prefixes(path: Path, prefix: str) -> None:
    """What printk puts before a message changes nothing in what is found."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    plain = splat.scan("\n".join(lines))
    other = splat.scan("\n".join(prefix + splat.message(line) for line in lines))
    assert [(s.kind, s.title, s.functions) for s in other] == [
        (s.kind, s.title, s.functions) for s in plain
    ]


@pytest.mark.parametrize("path", samples("bad"), ids=lambda p: p.stem)
def test_found_amid_a_boot(path: Path) -> None:
    """Nothing around a report hides it, and it is found once."""
    boot = (SAMPLES / "good" / "boot-6.12.txt").read_text()
    body = "\n".join(line for line in path.read_text().splitlines() if not line.startswith("#"))
    alone, amid = splat.scan(body), splat.scan(boot + body + "\n" + boot)
    assert [s.title for s in amid] == [s.title for s in alone]
    assert amid[0].line == boot.count("\n") + alone[0].line


def test_one_bug_twice_has_one_title() -> None:
    first = "WARNING: CPU: 0 PID: 12 at mm/memory.c:100 do_wp_page+0x12/0x340"
    second = "WARNING: CPU: 1 PID: 99 at mm/memory.c:100 do_wp_page+0x12/0x340"
    titles = {s.title for s in splat.scan(f"{first}\n---[ end trace 0 ]---\n{second}\n")}
    assert len(titles) == 1


def test_a_long_report_is_cut_not_lost() -> None:
    text = "BUG: Bad page state in process agent  pfn:12345\n" + " filler\n" * 2000
    assert len(splat.scan(text)) == 1


def test_crlf() -> None:
    assert len(splat.scan("[    1.000000] kernel BUG at mm/hmm.c:12!\r\n")) == 1
