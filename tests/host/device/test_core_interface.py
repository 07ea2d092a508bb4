# SPDX-License-Identifier: GPL-2.0-or-later
"""What Python says of the device core's interface against what its headers say."""

from __future__ import annotations

import re
import struct

import pytest
from c_layout import DEVICE, fields, without_comments

from hmmbench.device import library
from hmmbench.device.core import HW, Fault

HEADERS = "".join(
    (DEVICE / name).read_text()
    for name in (
        "core/hmm_gpu_core.h", "core/observe/hmm_gpu_observe.h", "tests/host.h", "tests/vecdiff.c",
        "core/simt/vec.h",
    )
)  # fmt: skip
CDEF = library._CDEF


def struct_of(name: str, text: str) -> list[tuple[str, str, str]]:
    found = re.search(rf"^typedef struct {name} {{(.*?)}} {name};", text, re.M | re.S)
    assert found, name
    return fields(found[1])


@pytest.mark.parametrize("name", re.findall(r"^typedef struct (\w+) {", CDEF, re.M))
def test_structs_are_those_of_the_headers(name: str) -> None:
    theirs = [
        (kind, field, str(HW.get(many, many))) for kind, field, many in struct_of(name, HEADERS)
    ]
    assert struct_of(name, CDEF) == theirs


def functions(text: str) -> dict[str, str]:
    """Name -> the whole, on one line, with one space between words."""
    plain = re.sub(r"\s+", " ", re.sub(r"^\s*#.*$", "", without_comments(text), flags=re.M))
    return {
        m[2]: re.sub(r" ?([*(),]) ?", r"\1", m[0].rstrip(";{ "))
        for m in re.finditer(r"((?:const )?\w+ [ *]*)(\w+)\([^(){}]*\) ?[;{]", plain)
    }


def test_functions_are_those_of_the_headers() -> None:
    # cffi is not told of the enumeration
    ours, theirs = functions(CDEF), functions(HEADERS.replace("\nHgAt ", "\nunsigned "))
    assert len(ours) == CDEF.count(");")
    assert {name: theirs.get(name) for name in ours} == ours


def test_parts_of_a_fault_entry_are_where_the_header_says() -> None:
    """Its comments have them as name[high:low]."""
    text = (DEVICE / "include/hmm_gpu_hw.h").read_text()
    told = {
        "asid": "asid", "context": "ctx", "engine": "engine", "engine number": "unit",
        "client (warp)": "client", "access": "access", "reason": "reason", "level": "level",
    }  # fmt: skip
    seen = set()
    for word, comment in re.findall(r"#define (HG_FE_\w+)\s+\d+\s+/\* (.*\]) ?.* \*/|$^", text):
        for name, high, low in re.findall(r"([a-z ()]+)\[(\d+):(\d+)\]", comment):
            part = next(p for n, p in told.items() if name.strip().endswith(n))
            bits = int(high) - int(low) + 1
            words = [0] * (HW.HG_FAULT_ENTRY_SIZE // 4)
            words[HW[word]] = ((1 << bits) - 1) << int(low)
            fault = Fault(struct.pack(f"<{len(words)}I", *words))
            assert getattr(fault, part) == (1 << bits) - 1, part
            others = [getattr(fault, p) for p in told.values() if p != part]
            assert not any(others), part
            seen.add(part)
    assert seen == set(told.values())
