# SPDX-License-Identifier: GPL-2.0-or-later
"""What of libhmmgpu needs no GPU: its words, its header, and the page that compares its calls."""

from __future__ import annotations

import re
from pathlib import Path

from gpu_program import INCLUDES, USER, run
from host_agent import ROOT

HEADER = (USER / "lib" / "hmmgpu.h").read_text()
PAGE = (ROOT / "docs" / "libhmmgpu.md").read_text()
CODE = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)
FUNCTIONS = set(re.findall(r"\b(hmmgpu_\w+)\(", CODE))

WORDS = r"""
#include <errno.h>
#include <stdio.h>
#include "hmmgpu.h"
int main()
{
	static const int errors[] = { %s };
	for (unsigned i = 0; i < sizeof(errors) / sizeof(*errors); i++)
		printf("error %%s\n%%s\n", hmmgpu_error_text(errors[i]), hmmgpu_error_text(-errors[i]));
	printf("%%s\n%%s\n", hmmgpu_error_text(4000), hmmgpu_error_text(-2147483647 - 1));
	for (int a = HMMGPU_ATTR_PAGEABLE_ACCESS; a <= HMMGPU_ATTR_MAX_COPY_BYTES; a++)
		printf("attr %%s\n", hmmgpu_attr_name((enum hmmgpu_attr)a));
	printf("%%s\n", hmmgpu_attr_name((enum hmmgpu_attr)0));
	return 0;
}
"""


def test_words(built: Path, tmp_path: Path) -> None:
    """Every error that the header promises has words of its own, both signs alike; every
    attribute has a name; anything else has some words, too.  The program is C++ and links the
    library, so the header's functions are C's."""
    errors = sorted(set(re.findall(r"-(E[A-Z]+)\b", HEADER)))
    assert len(errors) > 10
    (tmp_path / "t.cc").write_text(WORDS % ", ".join(errors))
    run("g++", "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", *INCLUDES,
        tmp_path / "t.cc", built / "libhmmgpu.a", "-lpthread", "-o", tmp_path / "t")  # fmt: skip
    lines = run(tmp_path / "t").splitlines()
    told = lines[: 2 * len(errors)]
    assert [one.removeprefix("error ") for one in told[::2]] == told[1::2]
    assert len(set(told[1::2])) == len(errors)
    assert "unknown error" not in told
    assert lines[2 * len(errors) : 2 * len(errors) + 2] == ["unknown error"] * 2
    names = [one.removeprefix("attr ") for one in lines[2 * len(errors) + 2 : -1]]
    assert len(set(names)) == len(names) == len(re.findall(r"\bHMMGPU_ATTR_\w+", CODE))
    assert "unknown attribute" not in names
    assert lines[-1] == "unknown attribute"


def test_every_function_is_there(built: Path, tmp_path: Path) -> None:
    """The library defines what the header declares."""
    symbols = run("nm", "-g", "--defined-only", built / "libhmmgpu.a")
    defined = set(re.findall(r" T (\w+)$", symbols, re.MULTILINE))
    assert defined >= FUNCTIONS
    uses = ", ".join(f"(any *){name}" for name in sorted(FUNCTIONS))
    (tmp_path / "all.c").write_text(
        f'#include "hmmgpu.h"\ntypedef void any(void);\nany *const all[] = {{ {uses} }};\n'
        "int main(void) { return !all[0]; }\n"
    )
    run("gcc", "-std=c11", *INCLUDES, tmp_path / "all.c", built / "libhmmgpu.a", "-lpthread", "-o",
        tmp_path / "all")  # fmt: skip


def test_the_page_names_every_call_and_no_other() -> None:
    named = set(re.findall(r"`(hmmgpu_\w+)", PAGE))
    assert named == FUNCTIONS
