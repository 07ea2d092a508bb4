# SPDX-License-Identifier: GPL-2.0-or-later
"""Logs of decisions and hashes of pages: read, refused if cut short, told apart where they part."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hmmbench.base import paths
from hmmbench.vm import decisions
from hmmbench.vm.decisions import ENTRY, What

QEMU = paths.project_root() / "qemu-device/qemu"


def log(entries: int = 6) -> np.ndarray:
    out = np.zeros(entries, ENTRY)
    for n in range(entries):
        out[n] = (1000 * n, 70 * n, 0xFFFFFFFF81000000 + n, 10 + n, n % len(What), n % 3, 0, n)
    return out


def test_an_entry_is_what_the_scheduler_writes() -> None:
    """By the text of hmm-exact.h: fields, their sizes, and the kinds with their numbers."""
    text = (QEMU / "hmm-exact.h").read_text()
    body = re.search(r"typedef struct HmmExactEntry \{(.*?)\} HmmExactEntry;", text, re.S)
    assert body is not None
    fields = []
    for bits, names in re.findall(r"uint(\d+)_t ([^;]+);", body[1]):
        for name in names.split(","):
            word, _, count = name.strip().rstrip("]").partition("[")
            fields.append((word, int(bits) // 8 * int(count or 1)))
    assert fields == [(name, ENTRY[name].itemsize) for name in ENTRY.names or ()]
    assert ENTRY.itemsize == 40
    kinds = re.search(r"typedef enum \{(.*?)\} HmmExactWhat;", text, re.S)
    assert kinds is not None
    code = re.sub(r"/\*.*?\*/", "", kinds[1])
    found = [word.removeprefix("HMM_EXACT_") for word in re.findall(r"\w+", code)]
    ours = {"SLICE_OVER": "OVER", "ENGINE_RAN": "ENGINE", "IRQ_CAME": "IRQ"}
    assert [ours.get(word, word) for word in found] == [what.name for what in What]


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(log().tobytes())
    back = decisions.read(path)
    assert decisions.part(back, log()) is None
    assert decisions.decision(back[2]) == decisions.Decision(
        2000, 140, 0xFFFFFFFF81000002, 12, What.PAUSED, 2, passage=2
    )
    assert "CPU 2 runs 12 instructions, to 0xffffffff81000002: it pauses" in str(
        decisions.decision(back[2])
    )
    path.write_bytes(b"")
    assert len(decisions.read(path)) == 0


@pytest.mark.parametrize("cut", [1, 39])
def test_a_log_that_is_cut_short_is_none(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(log().tobytes()[:-cut])
    with pytest.raises(ValueError, match="no log of decisions"):
        decisions.read(path)


def test_each_changed_byte_is_seen_at_its_entry() -> None:
    """Whatever byte it is, also one that makes an entry of no kind; but not what was counted."""
    data = log().tobytes()
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x80
        other = np.frombuffer(bytes(changed), ENTRY)
        parting = decisions.part(log(), other)
        if at % ENTRY.itemsize >= 34:
            # Padding, and passages.
            assert parting is None
            continue
        assert parting is not None
        assert parting.number == at // ENTRY.itemsize
        assert f"decision {parting.number}: " in str(parting)


def test_what_ends_early_parts_where_it_ends() -> None:
    parting = decisions.part(log(6), log(4))
    assert parting is not None
    assert (parting.number, parting.second) == (4, None)
    assert str(parting).endswith("/ nothing more")
    parting = decisions.part(log(0), log(1))
    assert parting is not None
    assert (parting.number, parting.first) == (0, None)
    assert decisions.part(log(0), log(0)) is None


def test_each_kind_has_words() -> None:
    entries = log(len(What))
    texts = [str(decisions.decision(entry)) for entry in entries]
    assert not [text for text in texts if "unknown" in text or "{" in text]
    entries[0]["what"] = 200
    assert "unknown entry 200 of 0" in str(decisions.decision(entries[0]))


def block(name: bytes, hashes: list[int]) -> bytes:
    words = [len(hashes), *hashes]
    return name.ljust(64, b"\0") + b"".join(word.to_bytes(8, "little") for word in words)


def test_pages_are_read_and_compared(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    path.write_bytes(block(b"pc.ram", [1, 0, 3]) + block(b"vram", [5] * 40))
    first = decisions.pages(path)
    assert {name: len(hashes) for name, hashes in first.items()} == {"pc.ram": 3, "vram": 40}
    assert decisions.differing(first, first) == []
    path.write_bytes(block(b"pc.ram", [1, 2, 3]) + block(b"vram", [5] * 39 + [6]))
    assert decisions.differing(first, decisions.pages(path)) == [
        "pc.ram page 0x1", "vram page 0x27",
    ]  # fmt: skip
    # A block that one has not, or of another size, or of another name, is a difference.
    path.write_bytes(block(b"pc.ram", [1, 0, 3]))
    assert decisions.differing(first, decisions.pages(path)) == ["vram: not in both"]
    assert decisions.differing(decisions.pages(path), first) == ["vram: not in both"]
    path.write_bytes(block(b"pc.ram", [1, 0]) + block(b"other", [5] * 40))
    assert decisions.differing(first, decisions.pages(path)) == [
        "pc.ram: not in both", "vram: not in both",
    ]  # fmt: skip


def test_pages_that_are_cut_short_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    one = block(b"pc.ram", [1, 2, 3])
    whole = one + block(b"vram", [])
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        if length == len(one):
            continue
        with pytest.raises(ValueError, match="cut short"):
            decisions.pages(path)


def test_addresses_are_named_in_hexadecimal() -> None:
    assert decisions.names((0xFFFFFFFF81000000, 0x10)) == "ffffffff81000000,10"
    assert decisions.names(()) == ""


def test_kept_beside_a_recipe(tmp_path: Path) -> None:
    """Compressed, the same bytes each time; a spoiled one is said to be none."""
    path = tmp_path / decisions.KEPT
    decisions.write(path, log())
    kept = path.read_bytes()
    decisions.write(path, log())
    assert path.read_bytes() == kept
    assert decisions.part(decisions.read(path), log()) is None
    for spoiled in (kept[:-9], b"no log at all", kept[:20] + b"\xff" * 20 + kept[40:]):
        path.write_bytes(spoiled)
        with pytest.raises(ValueError, match="no log of decisions"):
            decisions.read(path)
